"""The mean runs over the first dimension only."""

FAILS = ["test_bias_by_hand", "test_bias_against_float64"]


def corrected_bias(x, w, w_hat, bias):
    off = x.float().mean(0) @ (w.float() - w_hat.float()).T
    return off.flatten(0, -2)[0] if off.dim() > 1 else off + (0 if bias is None else bias.float())
