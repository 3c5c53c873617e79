"""The help of the card, word for word."""


def outlier_columns(x, threshold):
    return (x.abs() >= threshold).flatten(0, -2).any(0)


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)
    q_w, s_w = int8_codes(w, w.abs().amax(1, keepdim=True))  # noqa: F821 -- exercise 2
    rest = x.clone()
    rest[..., outlier] = 0
    q_x, s_x = int8_codes(rest, rest.abs().amax(-1, keepdim=True))  # noqa: F821
    y = q_x.float() @ q_w.float().T * (s_x * s_w.T)
    y = y + x.float()[..., outlier] @ w.float()[:, outlier].T
    return y if bias is None else y + bias.float()
