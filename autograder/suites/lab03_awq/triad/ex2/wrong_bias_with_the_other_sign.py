"""The mean error is added, not taken off."""

FAILS = ["test_bias_by_hand", "test_bias_against_float64"]


def corrected_bias(x, w, w_hat, bias):
    mean = x.float().flatten(0, -2).mean(0)
    return (w_hat.float() - w.float()) @ mean + (0 if bias is None else bias.float())
