"""Granularity: groups of a weight, and quantizing a weight group by group."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.quantization.linear import (
    affine_parameters,
    dequantize,
    dequantize_weight,
    fake_quantize_weight,
    from_groups,
    group_count,
    quantize,
    quantize_weight,
    to_groups,
)

GRIDS = [(bits, symmetric) for symmetric in (False, True) for bits in range(1 + symmetric, 9)]
shapes = st.tuples(st.integers(1, 5), st.integers(1, 17))
granularities = st.one_of(st.sampled_from(["tensor", "channel"]), st.integers(1, 20))
prop = settings(deadline=None, max_examples=100)


def weight(shape, seed=0, dtype=torch.float32):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (w * 8).to(dtype)


def slices(shape, granularity):
    """Brute force: (index of group, rows, columns) of every group, in row-major order."""
    n, k = shape
    if granularity == "tensor":
        return [((0, 0), slice(None), slice(None))]
    size = k if granularity == "channel" else granularity
    return [
        ((row, j), slice(row, row + 1), slice(first, first + size))
        for row in range(n)
        for j, first in enumerate(range(0, k, size))
    ]


@prop
@given(shapes, granularities)
def test_groups_hold_the_slices_and_undo(shape, granularity):
    w = weight(shape)
    groups = to_groups(w, granularity)
    assert torch.equal(from_groups(groups, shape), w)
    assert groups.shape[0] * groups.shape[1] == group_count(shape, granularity)
    assert group_count(shape, granularity) == len(slices(shape, granularity))
    for index, rows, columns in slices(shape, granularity):
        part, group = w[rows, columns], groups[index]
        assert torch.equal(group[: part.numel()], part.flatten())
        # what fills a ragged group must not move its range
        assert group.min() == part.min() and group.max() == part.max()


def test_a_group_size_above_k_is_one_group_per_channel_without_filling():
    assert to_groups(weight((3, 7)), 10**6).shape == (3, 1, 7)


@prop
@given(shapes, granularities, st.sampled_from(GRIDS), st.integers(0, 1000))
def test_quantize_weight_is_the_loop_over_slices(shape, granularity, grid, seed):
    bits, symmetric = grid
    w = weight(shape, seed) + 3.0  # off centre: zero points that matter
    qw = quantize_weight(w, bits, granularity, symmetric)
    w_hat = dequantize_weight(qw)
    assert qw.codes.shape == w_hat.shape == qw.shape == shape
    assert (qw.bits, qw.granularity, qw.symmetric) == (bits, granularity, symmetric)
    assert qw.scale.numel() == qw.zero.numel() == group_count(shape, granularity)
    for index, rows, columns in slices(shape, granularity):
        part = w[rows, columns]
        scale, zero = affine_parameters(part.min(), part.max(), bits, symmetric)
        codes = quantize(part, scale, zero, bits, symmetric)
        assert qw.scale[index] == scale and qw.zero[index] == zero
        assert torch.equal(qw.codes[rows, columns], codes)
        assert torch.equal(w_hat[rows, columns], dequantize(codes, scale, zero))


@prop
@given(shapes, st.sampled_from(GRIDS), st.integers(1, 9), st.integers(0, 1000))
def test_a_finer_granularity_never_raises_the_error_bound(shape, grid, size, seed):
    """The bound of each weight is half its scale; groups of g lie in groups of 2 g, in rows, ..."""
    w = weight(shape, seed)
    bounds = []
    for granularity in (size, 2 * size, "channel", "tensor"):
        qw = quantize_weight(w, *grid[:1], granularity, grid[1])
        spread = qw.scale.unsqueeze(-1).expand(to_groups(w, granularity).shape)
        bounds.append(from_groups(spread, shape))
    for finer, coarser in zip(bounds, bounds[1:], strict=False):
        assert (finer <= coarser).all()


@prop
@given(shapes, granularities, st.sampled_from(GRIDS), st.integers(0, 1000))
def test_quantizing_the_result_again_keeps_the_codes(shape, granularity, grid, seed):
    """Also with parameters found anew: the ends of a group's range are levels of its grid."""
    first = quantize_weight(weight(shape, seed), grid[0], granularity, grid[1])
    again = quantize_weight(dequantize_weight(first), grid[0], granularity, grid[1])
    assert torch.equal(again.codes, first.codes) and torch.equal(again.zero, first.zero)
    # s' = (L s) / L: rounded in each of the two ends, their difference and the quotient
    torch.testing.assert_close(again.scale, first.scale, rtol=4 * 2.0**-24, atol=0)


@pytest.mark.parametrize("granularity", ["tensor", "channel", 3, 100])
@pytest.mark.parametrize("symmetric", [False, True])
def test_fake_quantize_weight_is_the_round_trip_with_gradient_one(granularity, symmetric):
    w = weight((4, 10)).requires_grad_()
    w_hat = fake_quantize_weight(w, 4, granularity, symmetric)
    assert torch.equal(w_hat, dequantize_weight(quantize_weight(w, 4, granularity, symmetric)))
    upstream = weight((4, 10), seed=1)
    w_hat.backward(upstream)
    assert torch.equal(w.grad, upstream)  # nothing here is clipped, and filling has no gradient


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
@pytest.mark.parametrize("granularity", ["tensor", "channel", 3])
def test_dtypes_and_strides(dtype, granularity):
    w = weight((10, 4), dtype=dtype).t()  # [4, 10], not contiguous
    before = w.clone()
    qw = quantize_weight(w, 4, granularity)
    expected = quantize_weight(w.contiguous().float(), 4, granularity)
    assert torch.equal(qw.codes, expected.codes) and torch.equal(qw.scale, expected.scale)
    assert dequantize_weight(qw).dtype == torch.float32
    assert torch.equal(w, before) and w.dtype == dtype


def test_an_outlier_costs_only_its_own_group():
    w = weight((4, 8))
    w[1, 2] = 1e6
    error = {g: (fake_quantize_weight(w, 4, g) - w).abs() for g in ("tensor", "channel", 4)}
    assert (fake_quantize_weight(w, 4, "tensor") != 0).sum() == 1
    assert error["channel"][[0, 2, 3]].max() < 2 and error["channel"][1].max() > 2
    assert error[4][1, 4:].max() < 2 and error[4][1, :4].max() > 2


def test_quantize_weight_of_a_parameter_carries_no_graph():
    qw = quantize_weight(torch.nn.Linear(8, 4).weight, 4, "channel")
    assert not qw.scale.requires_grad and not dequantize_weight(qw).requires_grad


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (8,), (2, 2, 2)])
def test_a_weight_is_two_dimensional_and_not_empty(shape):
    with pytest.raises(ValueError, match="got shape"):
        quantize_weight(torch.zeros(shape), 4, "channel")


@pytest.mark.parametrize("granularity", [0, -1, "row", None, 2.0])
def test_unknown_granularity_is_named(granularity):
    with pytest.raises(ValueError, match="granularity is"):
        quantize_weight(torch.ones(2, 2), 4, granularity)


def test_nan_in_a_weight_is_an_error():
    w = weight((3, 4))
    w[1, 1] = torch.nan
    with pytest.raises(ValueError, match="nan"):
        quantize_weight(w, 4, "channel")
