"""The mean of |x|, which is what the scores are made of."""

FAILS = ["test_bias_by_hand", "test_bias_against_float64"]


def corrected_bias(x, w, w_hat, bias):
    mean = x.float().abs().flatten(0, -2).mean(0)
    return (w.float() - w_hat.float()) @ mean + (0 if bias is None else bias.float())
