"""The other columns are multiplied in floating point as well: no int8 at all."""

FAILS = ["test_the_rest_does_not_pay", "test_split_against_both_sums"]


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)  # noqa: F821
    y = x.masked_fill(outlier, 0).float() @ w.float().T
    y = y + x[..., outlier].float() @ w[:, outlier].float().T
    return y if bias is None else y + bias.float()
