"""The bias goes into a float32 product as it is, which fails where it is in bfloat16."""

FAILS = ["test_split_against_both_sums"]


def llm_int8_linear(x, w, bias, threshold):
    outlier = outlier_columns(x, threshold)  # noqa: F821
    x, w = x.float(), w.float()
    rest = x.masked_fill(outlier, 0)
    x_max, w_max = rest.abs().amax(-1, keepdim=True), w.abs().amax(1, keepdim=True)
    q_x, s_x = int8_codes(rest, x_max)  # noqa: F821
    q_w, s_w = int8_codes(w, w_max)  # noqa: F821
    y = (q_x.float() @ q_w.float().T) * (s_x * s_w.T)
    return y + nn.functional.linear(x[..., outlier], w[:, outlier], bias)  # noqa: F821
