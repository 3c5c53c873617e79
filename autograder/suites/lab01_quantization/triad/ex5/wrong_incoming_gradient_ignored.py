"""A backward of its own that returns the mask: the gradient that arrives is lost."""

import torch

FAILS = ["test_gradient_inside", "test_gradient_by_rows"]


class _Mask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, zero, qmin, qmax):
        codes = torch.round(x.float() / scale) + zero
        ctx.save_for_backward((codes >= qmin) & (codes <= qmax))
        ctx.dtype = x.dtype
        return (codes.clamp(qmin, qmax) - zero) * scale

    @staticmethod
    def backward(ctx, grad):
        (inside,) = ctx.saved_tensors
        return inside.to(ctx.dtype), None, None, None, None


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    return _Mask.apply(x, scale, zero, qmin, qmax)
