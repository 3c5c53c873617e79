"""The mask is kept on the class: of two calls before backward only the last one is right."""

import torch

FAILS = ["test_two_calls_before_backward", "test_several_calls"]


class _Estimator(torch.autograd.Function):
    mask = None

    @staticmethod
    def forward(ctx, x, scale, zero, qmin, qmax):
        codes = torch.round(x.float() / scale) + zero
        _Estimator.mask = (codes >= qmin) & (codes <= qmax)
        return (codes.clamp(qmin, qmax) - zero) * scale

    @staticmethod
    def backward(ctx, grad):
        return grad * _Estimator.mask, None, None, None, None


def fake_quantize(x, scale, zero, bits, symmetric):
    qmin, qmax = code_range(bits, symmetric)  # noqa: F821 -- given in the notebook
    return _Estimator.apply(x.float(), scale, zero, qmin, qmax)
