"""dequantize(quantize(x)): integer codes have no gradient at all."""

FAILS = ["test_values_on_the_grid", "test_gradient_inside"]


def fake_quantize(x, scale, zero, bits, symmetric):
    codes = quantize(x, scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    return dequantize(codes, scale, zero)  # noqa: F821 -- exercise 1
