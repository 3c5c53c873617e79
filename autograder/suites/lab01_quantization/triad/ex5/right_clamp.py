"""Clamp to the ends of the grid, whose derivative is the mask; then round straight through."""


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    clipped = x.float().clamp(min=scale * (qmin - zero), max=scale * (qmax - zero))
    codes = quantize(x.detach(), scale, zero, bits, symmetric)  # noqa: F821 -- exercise 1
    return clipped + (dequantize(codes, scale, zero) - clipped).detach()  # noqa: F821
