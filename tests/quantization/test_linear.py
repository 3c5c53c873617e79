"""The affine grid: parameters, codes and their bounds.

Error bound.  With u = 2^-24 (half a unit of the last place of float32), a value passes at most
eight roundings between its group's bounds and x_hat (hi - lo, / levels, lo / s, 1 / s, x * (1 / s),
s * (q - z)), each moving a number of at most 256 s by a factor 1 +- u.  So instead of s / 2:
"""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.quantization.linear import EPS, affine_parameters, code_range, dequantize, quantize

ROUNDING = 8 * 256 * 2.0**-24  # in units of s, see above

GRIDS = [(bits, symmetric) for symmetric in (False, True) for bits in range(1 + symmetric, 9)]
grids = st.sampled_from(GRIDS)
floats = st.floats(-1e4, 1e4, width=32)
groups = st.lists(floats, min_size=1, max_size=40).map(torch.tensor)
scales = st.floats(2.0**-100, 2.0**100, width=32)
prop = settings(deadline=None, max_examples=100)


def parameters(x, bits, symmetric):
    return affine_parameters(x.min(), x.max(), bits, symmetric)


@pytest.mark.parametrize("bits", range(1, 9))
def test_code_range_counts_its_levels(bits):
    qmin, qmax = code_range(bits, symmetric=False)
    assert (qmin, qmax - qmin + 1) == (0, 2**bits)
    if bits > 1:
        qmin, qmax = code_range(bits, symmetric=True)
        assert qmin == -qmax and qmax - qmin + 1 == 2**bits - 1


@pytest.mark.parametrize(
    "bits, symmetric", [(0, False), (9, False), (9, True), (-1, True), (4.0, 0)]
)
def test_code_range_rejects_other_bits(bits, symmetric):
    with pytest.raises(ValueError, match=f"got {bits}"):
        code_range(bits, symmetric)


def test_one_bit_symmetric_says_why():
    with pytest.raises(ValueError, match="no level but 0"):
        code_range(1, symmetric=True)


@prop
@given(groups, grids)
def test_parameters_are_valid_and_match_the_formula_in_exact_arithmetic(x, grid):
    qmin, qmax = code_range(*grid)
    scale, zero = parameters(x, *grid)
    assert scale.dtype == torch.float32 and zero.dtype == torch.int32
    assert scale.shape == zero.shape == ()
    assert scale >= EPS and qmin <= zero <= qmax
    lo, hi = Fraction(x.min().item()), Fraction(x.max().item())
    if grid[1]:
        exact = max(abs(lo), abs(hi)) / Fraction(qmax - qmin, 2)
        assert zero == 0
    else:
        lo, hi = min(lo, Fraction(0)), max(hi, Fraction(0))
        exact = (hi - lo) / (qmax - qmin)
    exact = max(exact, Fraction(EPS))
    assert abs(Fraction(scale.item()) - exact) <= exact * Fraction(3, 2**24)  # two roundings
    if not grid[1]:  # z is the integer next to -lo / s
        assert abs(int(zero) + lo / exact) <= Fraction(1, 2) + Fraction(ROUNDING)


@prop
@given(groups, grids)
def test_zero_is_exact(x, grid):
    scale, zero = parameters(x, *grid)
    code = quantize(torch.zeros(1), scale, zero, *grid)
    assert code.item() == zero.item()
    assert dequantize(code, scale, zero).item() == 0.0


@prop
@given(groups, grids)
def test_error_is_at_most_half_a_step_in_the_range(x, grid):
    scale, zero = parameters(x, *grid)
    x_hat = dequantize(quantize(x, scale, zero, *grid), scale, zero)
    error = (x_hat.double() - x.double()).abs().max().item()
    assert error <= scale.item() * (0.5 + ROUNDING)


@prop
@given(groups, grids, scales, st.data())
def test_no_level_of_the_grid_is_nearer(x, grid, scale, data):
    """Brute force in exact arithmetic, for any grid, so also where x is clipped."""
    qmin, qmax = code_range(*grid)
    zero = 0 if grid[1] else data.draw(st.integers(qmin, qmax))
    codes = quantize(x, torch.tensor(scale), torch.tensor(zero), *grid)
    for value, code in zip(x.tolist(), codes.tolist(), strict=True):
        assert qmin <= code <= qmax
        ratio = Fraction(value) / Fraction(scale)  # in units of the step
        nearest = min(abs(ratio - (q - zero)) for q in range(qmin, qmax + 1))
        near_tie = Fraction(ROUNDING) if abs(ratio) < 512 else 0  # farther out everything clips
        assert abs(ratio - (code - zero)) <= nearest + near_tie


@prop
@given(grids, scales, st.data())
def test_codes_survive_the_round_trip(grid, scale, data):
    """quantize(dequantize(q)) == q for every code, so quantizing twice changes nothing."""
    qmin, qmax = code_range(*grid)
    zero = torch.tensor(0 if grid[1] else data.draw(st.integers(qmin, qmax)), dtype=torch.int32)
    scale = torch.tensor(scale)
    codes = torch.arange(qmin, qmax + 1).to(torch.int8 if grid[1] else torch.uint8)
    again = quantize(dequantize(codes, scale, zero), scale, zero, *grid)
    assert again.dtype == codes.dtype and torch.equal(again, codes)


@prop
@given(groups, groups, grids)
def test_codes_are_monotonic(x, other, grid):
    scale, zero = parameters(x, *grid)
    values = torch.cat([x, other]).sort().values
    codes = quantize(values, scale, zero, *grid).int()
    assert (codes.diff() >= 0).all()


@prop
@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=20), grids, st.integers(-60, 60))
def test_scale_equivariance(values, grid, exponent):
    """x -> 2^k x is exact in float32: same codes, scale 2^k times as large."""
    x = torch.tensor(values, dtype=torch.float32)
    factor = 2.0**exponent
    scale, zero = parameters(x, *grid)
    scale_k, zero_k = parameters(x * factor, *grid)
    assert zero_k == zero
    if x.any():  # else the floor
        assert scale_k == scale * factor
    codes = quantize(x, scale, zero, *grid)
    assert torch.equal(quantize(x * factor, scale_k, zero_k, *grid), codes)


@prop
@given(groups, st.integers(2, 8))
def test_symmetric_codes_change_sign_with_x(x, bits):
    scale, zero = parameters(x, bits, True)
    codes = quantize(x, scale, zero, bits, True)
    assert torch.equal(quantize(-x, *parameters(-x, bits, True), bits, True), -codes)


def test_ties_go_to_the_even_code_before_z_is_added():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])
    even = [0, 2, 2, 0, -2]
    assert quantize(x, torch.tensor(1.0), torch.tensor(0), 4, True).tolist() == even
    for zero in (7, 8):
        codes = quantize(x, torch.tensor(1.0), torch.tensor(zero), 4, False)
        assert codes.tolist() == [code + zero for code in even]


@pytest.mark.parametrize("zero", [5, torch.tensor(5, dtype=torch.uint8), torch.tensor([5])])
def test_dequantize_does_not_wrap_around(zero):
    codes = torch.tensor([3, 5, 255], dtype=torch.uint8)
    x_hat = dequantize(codes, torch.tensor(0.5), torch.as_tensor(zero))
    assert x_hat.tolist() == [-1.0, 0.0, 125.0] and x_hat.dtype == torch.float32
