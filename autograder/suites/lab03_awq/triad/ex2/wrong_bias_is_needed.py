"""Without a bias there is an error."""

FAILS = ["test_bias_by_hand", "test_bias_against_float64"]


def corrected_bias(x, w, w_hat, bias):
    mean = x.float().flatten(0, -2).mean(0)
    return bias.float() + (w.float() - w_hat.float()) @ mean
