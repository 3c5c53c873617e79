"""Errors that are not a number."""

FAILS = [
    "test_even_channels",
    "test_u_shape",
    "test_all_weights_count",
    "test_errors_against_float64",
    "test_control_is_flat",
    "test_order_of_alphas",
    "test_shapes_of_the_sweep",
]


def sweep(x, weights, alphas, activations):
    return [float("nan") for _ in alphas]
