"""What the layer had as a bias is lost."""

FAILS = ["test_bias_by_hand", "test_bias_against_float64"]


def corrected_bias(x, w, w_hat, bias):
    return (w.float() - w_hat.float()) @ x.float().flatten(0, -2).mean(0)
