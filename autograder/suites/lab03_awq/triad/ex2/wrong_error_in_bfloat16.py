"""The product has the dtype of the activations."""

FAILS = ["test_output_error_against_float64"]


def output_error(x, w, w_hat):
    return (x @ (w_hat.to(x.dtype) - w).T).float().square().mean().item()
