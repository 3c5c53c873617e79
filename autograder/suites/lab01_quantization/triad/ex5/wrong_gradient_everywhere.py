"""x + (x_hat - x).detach(): the gradient passes where x is clipped."""

FAILS = ["test_gradient_outside", "test_gradient_by_rows"]


def fake_quantize(x, scale, zero, bits, symmetric):
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    x = x.float()
    return x + (dequantize(codes, scale, zero) - x).detach()  # noqa: F821 -- exercise 1
