"""The mean of the magnitudes of the errors."""

FAILS = ["test_output_error_by_hand", "test_output_error_against_float64"]


def output_error(x, w, w_hat):
    return (x.float() @ (w_hat.float() - w.float()).T).abs().mean().item()
