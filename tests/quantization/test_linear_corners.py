"""Inputs that break quantizers: constants, one sign, outliers, infinity, dtypes, strides."""

import pytest
import torch

from efflib.quantization.linear import EPS, affine_parameters, code_range, dequantize, quantize

ROUNDING = 8 * 256 * 2.0**-24  # in units of s, derived in test_linear.py
GRIDS = [(bits, symmetric) for symmetric in (False, True) for bits in range(1 + symmetric, 9)]


def parameters(x, bits, symmetric):
    return affine_parameters(x.min(), x.max(), bits, symmetric)


@pytest.mark.parametrize("value", [0.0, 3.7, -3.7, 1e30, -1e-30, 1e-45])
@pytest.mark.parametrize("bits, symmetric", GRIDS)
def test_constant_or_single_element_groups_are_exact(value, bits, symmetric):
    x = torch.full((5,), value)
    scale, zero = parameters(x, bits, symmetric)
    x_hat = dequantize(quantize(x, scale, zero, bits, symmetric), scale, zero)
    # below EPS there is no grid fine enough; above, x lies on the end of the grid
    tolerance = EPS if abs(value) < EPS else abs(value) * 2.0**-22
    assert (x_hat - x).abs().max() <= tolerance


@pytest.mark.parametrize("bits, symmetric", GRIDS)
def test_all_negative_and_all_positive_groups_use_the_range(bits, symmetric):
    """Without 0 in the range z is clamped and [5, 6] comes back as something else."""
    for sign in (1.0, -1.0):
        x = sign * torch.tensor([5.0, 5.5, 6.0])
        scale, zero = parameters(x, bits, symmetric)
        x_hat = dequantize(quantize(x, scale, zero, bits, symmetric), scale, zero)
        assert (x_hat - x).abs().max() <= scale * (0.5 + ROUNDING)
        assert scale <= 6.0 / code_range(bits, symmetric)[1] * (1 + 2.0**-22)


def test_a_huge_outlier_takes_the_whole_grid():
    x = torch.tensor([0.3, -0.2, 0.1, 1e6])
    for bits, symmetric in GRIDS:
        scale, zero = parameters(x, bits, symmetric)
        x_hat = dequantize(quantize(x, scale, zero, bits, symmetric), scale, zero)
        assert x_hat[:3].tolist() == [0.0, 0.0, 0.0]
        # it lies on the last level, (hi - lo) with lo = -0.2 if asymmetric, up to three roundings
        assert abs(x_hat[3].item() - 1e6) <= 0.2 * (not symmetric) + 1e6 * 3 * 2.0**-24


def test_values_outside_the_range_are_clipped_also_infinity():
    scale, zero = torch.tensor(0.5), torch.tensor(2)
    x = torch.tensor([-torch.inf, -100.0, -1.0, 2.5, 3.4e38, torch.inf])
    assert quantize(x, scale, zero, 3, False).tolist() == [0, 0, 0, 7, 7, 7]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int32])
@pytest.mark.parametrize("symmetric", [False, True])
def test_other_dtypes_are_computed_in_float32(dtype, symmetric):
    x = (torch.randn(64, generator=torch.Generator().manual_seed(0)) * 10).to(dtype)
    for bits in range(2, 9):
        scale, zero = parameters(x, bits, symmetric)
        wide = parameters(x.float(), bits, symmetric)
        assert torch.equal(scale, wide[0]) and torch.equal(zero, wide[1])
        codes = quantize(x, scale, zero, bits, symmetric)
        assert torch.equal(codes, quantize(x.float(), scale, zero, bits, symmetric))


def test_non_contiguous_input_and_broadcast_parameters_and_no_mutation():
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).t()  # [4, 6], strided
    before = x.clone()
    scale, zero = affine_parameters(x.amin(1, keepdim=True), x.amax(1, keepdim=True), 4, False)
    codes = quantize(x, scale, zero, 4, False)
    kept = (scale.clone(), zero.clone(), codes.clone())
    rows = [quantize(row, s, z, 4, False) for row, s, z in zip(x, scale, zero, strict=True)]
    assert torch.equal(codes, torch.stack(rows))
    dequantize(codes, scale, zero)
    assert torch.equal(x, before)
    assert all(torch.equal(a, b) for a, b in zip(kept, (scale, zero, codes), strict=True))


@pytest.mark.parametrize(
    "lo, hi, message",
    [
        ([1.0], [0.0], "lo=1.0 and hi=0.0"),
        ([0.0, float("nan")], [1.0, 1.0], "lo=nan"),
        ([0.0], [float("inf")], "hi=inf"),
        ([0.0, 1.0], [1.0], r"\(2,\) and \(1,\)"),
        ([], [], r"\(0,\)"),
        ([-3e38], [3e38], "overflows float32"),
    ],
)
def test_bad_bounds_are_named(lo, hi, message):
    with pytest.raises(ValueError, match=message):
        affine_parameters(torch.tensor(lo), torch.tensor(hi), 4, False)


@pytest.mark.parametrize(
    "x, scale, message",
    [
        (torch.empty(0, 3), torch.ones(1), r"\(0, 3\)"),
        (torch.tensor([1.0, torch.nan]), torch.ones(1), "NaN"),
        (torch.ones(2), torch.zeros(1), "scale must be"),
        (torch.ones(2), torch.tensor([-1.0]), "scale must be"),
        (torch.ones(2), torch.tensor([torch.inf]), "scale must be"),
        (torch.ones(3), torch.ones(2, 3), r"\(2, 3\)"),
    ],
)
def test_bad_input_is_named(x, scale, message):
    with pytest.raises(ValueError, match=message):
        quantize(x, scale, torch.zeros_like(scale, dtype=torch.int32), 4, False)
