"""Leaves only the entries above the threshold out of a token's scale."""

FAILS = ["test_scale_of_a_token"]


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)  # noqa: F821
    w_codes, w_scale = int8_codes(w, w.abs().amax(dim=1, keepdim=True))  # noqa: F821
    rest = x.masked_fill(outlier, 0)
    ordinary = x.masked_fill(x.abs() >= threshold, 0)
    x_codes, x_scale = int8_codes(rest, ordinary.abs().amax(-1, keepdim=True))  # noqa: F821
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale.T)
    y = y + x[..., outlier].float() @ w[:, outlier].float().T
    return y if bias is None else y + bias.float()
