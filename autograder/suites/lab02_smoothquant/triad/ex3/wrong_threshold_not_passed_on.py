"""The mask knows its threshold, the layer always asks for 6."""

FAILS = ["test_the_rest_does_not_pay", "test_split_against_both_sums"]


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, 6.0)  # noqa: F821
    w_codes, w_scale = int8_codes(w, w.abs().amax(dim=1, keepdim=True))  # noqa: F821
    rest = x.masked_fill(outlier, 0)
    x_codes, x_scale = int8_codes(rest, rest.abs().amax(dim=-1, keepdim=True))  # noqa: F821
    y = (x_codes.float() @ w_codes.float().T) * (x_scale * w_scale.T)
    y = y + x[..., outlier].float() @ w[:, outlier].float().T
    return y if bias is None else y + bias.float()
