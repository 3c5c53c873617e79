"""fake_quantize against torch.fake_quantize_*: equal in every bit, gradients included."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.quantization.linear import (
    affine_parameters,
    code_range,
    dequantize,
    fake_quantize,
    quantize,
)

GRIDS = [(bits, symmetric) for symmetric in (False, True) for bits in range(1 + symmetric, 9)]
prop = settings(deadline=None, max_examples=100)


def gradient(function, x, upstream):
    x = x.clone().requires_grad_()
    y = function(x)
    y.backward(upstream.to(y.dtype))
    return y.detach(), x.grad


@prop
@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=40).map(torch.tensor),
    st.sampled_from(GRIDS),
    st.floats(0.015625, 4.0, width=32),
    st.data(),
)
def test_per_tensor_equals_torch(x, grid, scale, data):
    qmin, qmax = code_range(*grid)
    zero = 0 if grid[1] else data.draw(st.integers(qmin, qmax))
    # the middle of two levels and the ends of the range, where the mask changes
    ends = torch.tensor([qmin - 0.5, qmin, qmax, qmax + 0.5, 0.5, 1.5]) - zero
    x = torch.cat([x, ends * scale])
    upstream = torch.arange(1.0, len(x) + 1)
    ours = gradient(
        lambda x: fake_quantize(x, torch.tensor(scale), torch.tensor(zero), *grid), x, upstream
    )
    theirs = gradient(
        lambda x: torch.fake_quantize_per_tensor_affine(x, scale, zero, qmin, qmax), x, upstream
    )
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])


@pytest.mark.parametrize("bits, symmetric", GRIDS)
def test_per_channel_equals_torch(bits, symmetric):
    generator = torch.Generator().manual_seed(bits)
    x = torch.randn(16, 64, generator=generator) * torch.logspace(-2, 2, 16).unsqueeze(1)
    # parameters of the middle half, so that part of every channel is clipped
    bounds = x.quantile(torch.tensor([0.25, 0.75]), dim=1, keepdim=True)
    scale, zero = affine_parameters(bounds[0], bounds[1], bits, symmetric)
    qmin, qmax = code_range(bits, symmetric)
    upstream = torch.randn(16, 64, generator=generator)
    ours = gradient(lambda x: fake_quantize(x, scale, zero, bits, symmetric), x, upstream)
    theirs = gradient(
        lambda x: torch.fake_quantize_per_channel_affine(
            x, scale.flatten(), zero.flatten(), 0, qmin, qmax
        ),
        x,
        upstream,
    )
    assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
    assert 0 < (ours[1] == 0).sum() < x.numel()  # the case of interest did occur


def test_forward_is_the_round_trip_to_the_last_bit():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-3
    scale, zero = affine_parameters(x.min(), x.max(), 8, False)
    expected = dequantize(quantize(x, scale, zero, 8, False), scale, zero)
    assert torch.equal(fake_quantize(x, scale, zero, 8, False), expected)


def test_infinity_is_clipped_without_a_gradient():
    x = torch.tensor([-torch.inf, 0.3, torch.inf], requires_grad=True)
    y = fake_quantize(x, torch.tensor(0.5), torch.tensor(0), 3, True)
    y.sum().backward()
    assert y.tolist() == [-1.5, 0.5, 1.5] and x.grad.tolist() == [0.0, 1.0, 0.0]


def test_the_gradient_comes_back_in_the_dtype_of_x():
    x = torch.randn(8, dtype=torch.bfloat16).requires_grad_()
    y = fake_quantize(x, torch.tensor(1.0), torch.tensor(0), 8, True)
    y.sum().backward()
    assert y.dtype == torch.float32 and x.grad.dtype == torch.bfloat16
    assert torch.equal(x.grad, torch.ones_like(x))


def test_scale_gets_no_gradient_and_nothing_is_mutated():
    x = torch.randn(3, 8, requires_grad=True)
    scale, zero = torch.full((3, 1), 0.1, requires_grad=True), torch.zeros(3, 1, dtype=torch.int32)
    before = x.detach().clone()
    fake_quantize(x, scale, zero, 4, True).sum().backward()
    assert scale.grad is None and x.grad is not None
    assert torch.equal(x.detach(), before)
