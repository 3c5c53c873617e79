"""Outlier columns are multiplied in the dtype that they come in: products of bfloat16."""

FAILS = ["test_outliers_are_exact", "test_shapes_of_the_split"]


def llm_int8_linear(x, w, bias, threshold):
    mask = outlier_columns(x, threshold)  # noqa: F821
    rest = x.masked_fill(mask, 0)
    q_x, s_x = int8_codes(rest, rest.abs().amax(-1, keepdim=True))  # noqa: F821
    q_w, s_w = int8_codes(w, w.abs().amax(-1, keepdim=True))  # noqa: F821
    y = (q_x.float() @ q_w.float().T) * s_x * s_w.flatten()
    y = y + (x[..., mask].to(w.dtype) @ w[:, mask].T).float()
    return y if bias is None else y + bias.float()
