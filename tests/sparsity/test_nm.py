"""2:4 storage: what went in comes out, in 9/16 of the bits, with torch's values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.sparse import _semi_structured_conversions as conversions

from efflib.sparsity.magnitude import magnitude_mask
from efflib.sparsity.masks import apply_mask
from efflib.sparsity.nm import compress, compressed_bits, decompress, multiply

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int8]


def sparse(seed, n=64, k=128, dtype=torch.float32):
    w = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)) * 20
    return apply_mask(w, magnitude_mask(w, (2, 4))).to(dtype)


def test_the_example_of_the_module():
    stored = compress(torch.tensor([[0.0, 5, 0, -1, 3, 0, 0, 2]]))
    assert stored.values.tolist() == [[5, -1, 3, 2]]
    assert stored.indices.tolist() == [[0b11_00_11_01]]  # 1 3 | 0 3, the first lowest


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.9]))
def test_round_trip_also_where_groups_hold_fewer(dtype, seed, dropped):
    w = sparse(seed, n=3, k=16, dtype=dtype)
    gone = torch.rand(3, 16, generator=torch.Generator().manual_seed(seed)) < dropped
    w = w.masked_fill(gone, 0)
    before = w.clone()
    stored = compress(w)
    assert stored.values.dtype == dtype and torch.equal(decompress(stored), w)
    assert torch.equal(w, before)


@pytest.mark.parametrize("places", [(a, b) for b in range(4) for a in range(b)])
def test_every_pair_of_places_of_every_four(places):
    w = torch.zeros(1, 8)
    w[0, list(places)] = torch.tensor([1.0, 2.0])
    w[0, [4 + p for p in places]] = torch.tensor([3.0, 4.0])
    stored = compress(w)
    assert stored.values.tolist() == [[1, 2, 3, 4]]
    a, b = places
    assert stored.indices.item() == a + 4 * b + 16 * a + 64 * b
    assert torch.equal(decompress(stored), w)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_values_and_bits_are_those_of_torchs_format(dtype):
    w = sparse(0, dtype=dtype)
    w[w == 0] = 0
    if dtype == torch.int8:
        w[(w == 0) & (sparse(0) != 0)] = 1  # what rounding to int8 made zero
    values, meta = conversions.sparse_semi_structured_from_dense_cutlass(w)
    stored = compress(w)
    assert torch.equal(stored.values, values)
    assert torch.equal(conversions.sparse_semi_structured_to_dense_cutlass(values, meta), w)
    theirs = 8 * (values.nbytes + meta.nbytes)
    ours = 8 * (stored.values.nbytes + stored.indices.nbytes)
    bits = 8 * w.element_size()
    assert theirs == ours == compressed_bits(w.shape, bits)
    assert ours / (8 * w.nbytes) == {16: 9 / 16, 8: 5 / 8}[bits]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(st.integers(0, 10**6))
def test_the_product_is_that_of_the_weight_with_its_zeros(dtype, seed):
    w = sparse(seed, n=5, k=16, dtype=dtype)
    x = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(seed)).to(dtype)
    exact = x.double() @ w.double().T
    y = multiply(compress(w), x)
    assert y.dtype == dtype
    # 8 products summed in float32, and one rounding to the dtype
    bound = 16 * 2**-24 * (x.double().abs() @ w.double().abs().T)
    bound = bound + exact.abs() * torch.finfo(dtype).eps
    assert ((y.double() - exact).abs() <= bound).all()


def test_a_product_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"x \(2, 8\) must end in K = 16"):
        multiply(compress(sparse(0, n=2, k=16)), torch.zeros(2, 8))


def test_four_16_bit_weights_take_36_bits():
    assert compressed_bits((1, 4)) == 36


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"multiple of 8, got \(2, 12\)"):
        compress(torch.zeros(2, 12))
    w = torch.zeros(2, 8)
    w[1, 4:7] = torch.tensor([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"row 1, inputs 4 to 7 hold \[1.0, 2.0, 3.0, 0.0\]"):
        compress(w)
    with pytest.raises(ValueError, match=r"\(2, 6\) do not divide"):
        compressed_bits((2, 6))
