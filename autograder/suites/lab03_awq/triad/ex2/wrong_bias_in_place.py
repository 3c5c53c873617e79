"""The caller's bias is changed."""

FAILS = ["test_bias_by_hand"]


def corrected_bias(x, w, w_hat, bias):
    off = (w.float() - w_hat.float()) @ x.float().flatten(0, -2).mean(0)
    return off if bias is None else bias.add_(off).float()
