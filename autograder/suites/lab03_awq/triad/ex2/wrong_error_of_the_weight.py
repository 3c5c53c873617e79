"""The error of the weight, in which the activations have no say."""

FAILS = ["test_output_error_by_hand", "test_output_error_against_float64"]


def output_error(x, w, w_hat):
    return (w_hat.float() - w.float()).square().mean().item()
