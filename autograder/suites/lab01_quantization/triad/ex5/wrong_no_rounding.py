"""Only clamps: the gradient is right, and nothing is quantized."""

FAILS = ["test_values_on_the_grid", "test_gradient_inside", "test_training_reaches_the_target"]


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    return x.float().clamp(min=scale * (qmin - zero), max=scale * (qmax - zero))
