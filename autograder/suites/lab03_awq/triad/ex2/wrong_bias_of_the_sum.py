"""Summed over the tokens, not averaged."""

FAILS = ["test_bias_by_hand", "test_bias_against_float64"]


def corrected_bias(x, w, w_hat, bias):
    total = x.float().flatten(0, -2).sum(0)
    return (w.float() - w_hat.float()) @ total + (0 if bias is None else bias.float())
