"""The maximum of a token counts as at least 1e-5."""

FAILS = ["test_split_against_both_sums"]


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)  # noqa: F821
    x, w = x.float(), w.float()
    rest = x.masked_fill(outlier, 0)
    x_max, w_max = rest.abs().amax(-1, keepdim=True), w.abs().amax(1, keepdim=True)
    q_x, s_x = int8_codes(rest, x_max.clamp(min=1e-5))  # noqa: F821
    q_w, s_w = int8_codes(w, w_max)  # noqa: F821
    y = (q_x.float() @ q_w.float().T) * (s_x * s_w.T) + x[..., outlier] @ w[:, outlier].T
    return y if bias is None else y + bias.float()
