"""The mean is taken in the dtype of the activations."""

FAILS = ["test_bias_by_hand", "test_bias_against_float64"]


def corrected_bias(x, w, w_hat, bias):
    mean = x.flatten(0, -2).mean(0).float()
    return (w.float() - w_hat.float()) @ mean + (0 if bias is None else bias.float())
