"""k-means codebooks against a brute-force Lloyd iteration in float64, and its invariants."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.quantization.kmeans import (
    dequantize_codebook,
    dequantize_kmeans_weight,
    kmeans_codebook,
    kmeans_quantize_weight,
)

U = 2.0**-24  # half a unit in the last place of float32
prop = settings(deadline=None, max_examples=80)
# few distinct values make ties and empty clusters common
integers = st.lists(
    st.one_of(st.integers(-4, 4), st.integers(-50, 50)), min_size=1, max_size=60
).map(lambda values: torch.tensor(values, dtype=torch.float32))
HAN = torch.tensor(
    [
        [2.09, -0.98, 1.48, 0.09],
        [0.05, -0.14, -1.08, 2.12],
        [-0.91, 1.92, 0.00, -1.03],
        [1.87, 0.00, 1.53, 1.49],
    ]
)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def lloyd(values, bits, iterations):
    """Every distance of every value to every centroid, in float64; centroids kept in float32."""
    values = values.double().numpy().ravel()
    span = (values.max() - values.min()) * np.arange(2**bits) / (2**bits - 1)
    centroids = (values.min() + span).astype(np.float32)
    for _ in range(iterations):
        distance = np.abs(values[:, None] - centroids.astype(np.float64))
        codes = distance.argmin(1)  # the first of equals: the lower
        for j in range(2**bits):
            if (codes == j).any():
                centroids[j] = np.float32(values[codes == j].mean())
    return torch.from_numpy(centroids)


def inertia(values, codebook, codes):
    return (values.double() - dequantize_codebook(codes, codebook).double()).square().sum().item()


def test_the_worked_example_of_deep_compression():
    codebook, codes = kmeans_codebook(HAN, 2)
    assert [round(c, 2) for c in codebook.tolist()] == [-1.0, 0.0, 1.5, 2.0]
    assert codes.tolist() == [[3, 0, 2, 1], [1, 1, 0, 3], [0, 3, 1, 0], [3, 1, 2, 2]]
    means = [HAN.double()[codes == j].mean().item() for j in range(4)]
    assert codebook.tolist() == pytest.approx(means, rel=U, abs=1e-9)


@prop
@given(integers, st.integers(1, 8), st.integers(0, 50))
def test_each_iteration_is_the_brute_force_iteration(values, bits, iterations):
    """Exactly, ties included: the sums of integers and their distances have no rounding."""
    codebook, _ = kmeans_codebook(values, bits, iterations)
    assert torch.equal(codebook, lloyd(values, bits, iterations))


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_real_weights_agree_with_brute_force(bits):
    values = normal(500, seed=bits)
    codebook, _ = kmeans_codebook(values, bits)
    # sums in another order: means that differ by 1e-12 may round to neighbours in float32
    torch.testing.assert_close(codebook, lloyd(values, bits, 50), rtol=2 * U, atol=1e-12)


@prop
@given(integers, st.integers(1, 8), st.integers(0, 50))
def test_every_code_is_the_nearest_centroid_ties_to_the_lower(values, bits, iterations):
    codebook, codes = kmeans_codebook(values, bits, iterations)
    assert codebook.shape == (2**bits,) and codebook.dtype == torch.float32
    assert codes.shape == values.shape and codes.dtype == torch.uint8
    assert (codebook.diff() >= 0).all()
    # the distances of integers to float32 numbers below 50 are exact in float64
    distance = (values.double().unsqueeze(-1) - codebook.double()).abs()
    assert codes.tolist() == [row.index(min(row)) for row in distance.tolist()]


@prop
@given(integers, st.integers(1, 8))
def test_a_fixed_point_holds_the_means_of_its_clusters(values, bits):
    codebook, codes = kmeans_codebook(values, bits, iterations=1000)
    assert values.min() <= codebook[0] and codebook[-1] <= values.max()
    for j in codes.unique().tolist():
        mean = values[codes == j].double().mean()  # sums of integers are exact
        assert codebook[j] == mean.float()


@prop
@given(integers, st.integers(1, 8))
def test_the_error_never_rises_with_iterations(values, bits):
    errors = [inertia(values, *kmeans_codebook(values, bits, i)) for i in range(8)]
    slack = len(values) * (50 * U) ** 2 + 2 * 50 * U * sum(abs(values)).item()  # float32 centroids
    assert all(after <= before + slack for before, after in zip(errors, errors[1:], strict=False))


@prop
@given(integers, st.integers(1, 8), st.integers(-20, 20))
def test_scale_equivariance(values, bits, exponent):
    codebook, codes = kmeans_codebook(values, bits)
    scaled, scaled_codes = kmeans_codebook(values * 2.0**exponent, bits)
    assert torch.equal(scaled, codebook * 2.0**exponent) and torch.equal(scaled_codes, codes)


def test_a_tie_goes_to_the_lower_cluster_while_fitting_and_in_the_codes():
    values = torch.tensor([0.0, 1.0, 2.0])  # start: 0, 2; 1 is between them
    codebook, codes = kmeans_codebook(values, 1, iterations=1)
    assert codebook.tolist() == [0.5, 2.0] and codes.tolist() == [0, 0, 1]
    assert kmeans_codebook(values, 1, iterations=0)[1].tolist() == [0, 0, 1]


def test_an_empty_cluster_keeps_its_centroid():
    values = torch.tensor([0.0, 0.0, 1.0, 9.0])  # start: 0, 3, 6, 9
    codebook, codes = kmeans_codebook(values, 2)
    assert codes.tolist() == [0, 0, 0, 3]
    assert codebook.tolist() == [torch.tensor(1 / 3).item(), 3.0, 6.0, 9.0]


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("value", [0.0, -3.7, 1e30, 1e-40])
def test_constant_and_single_values_are_exact(value, bits):
    for values in (torch.full((7,), value), torch.full((1,), value), torch.tensor(value)):
        codebook, codes = kmeans_codebook(values, bits)
        assert torch.equal(dequantize_codebook(codes, codebook), values)
        assert torch.isfinite(codebook).all()


def test_two_values_are_exact_with_any_bits():
    values = torch.tensor([[-1.5, 4.25, -1.5], [4.25, 4.25, -1.5]])
    for bits in range(1, 9):
        codebook, codes = kmeans_codebook(values, bits)
        assert torch.equal(dequantize_codebook(codes, codebook), values)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int32])
def test_other_dtypes_strides_and_no_mutation(dtype):
    values = (normal(30, 20) * 5).to(dtype).t()  # [20, 30], not contiguous, many equal values
    before = values.clone()
    codebook, codes = kmeans_codebook(values, 3)
    expected = kmeans_codebook(values.float().contiguous(), 3)
    assert torch.equal(codebook, expected[0]) and torch.equal(codes, expected[1])
    assert torch.equal(values, before) and values.dtype == dtype


@pytest.mark.parametrize("granularity, size", [("tensor", 70), ("channel", 14), (4, 4), (99, 14)])
@pytest.mark.parametrize("bits", [1, 3])
def test_weights_are_clustered_slice_by_slice(granularity, size, bits):
    w = normal(5, 14)
    cw = kmeans_quantize_weight(w, bits, granularity)
    w_hat = dequantize_kmeans_weight(cw)
    assert cw.codes.shape == w_hat.shape == cw.shape == (5, 14)
    rows = w.reshape(-1, 70 if granularity == "tensor" else 14)
    codes, hats = cw.codes.reshape(rows.shape), w_hat.reshape(rows.shape)
    for i in range(rows.shape[0]):
        for j, first in enumerate(range(0, rows.shape[1], size)):
            part = slice(first, first + size)  # the last one of size 4 holds 2 columns
            codebook, expected = kmeans_codebook(rows[i, part], bits)
            torch.testing.assert_close(cw.codebook[i, j], codebook, rtol=2 * U, atol=1e-12)
            assert torch.equal(codes[i, part], expected)
            assert torch.equal(hats[i, part], cw.codebook[i, j][expected.long()])


def test_more_bits_than_values_in_a_group_still_work():
    w = normal(3, 5)
    cw = kmeans_quantize_weight(w, 8, 2)
    assert cw.codebook.shape == (3, 3, 256)
    assert torch.equal(dequantize_kmeans_weight(cw), w)  # two values or one per group


def test_at_equal_bits_a_codebook_beats_the_grid_it_starts_from():
    values = normal(4096)
    start, fitted = kmeans_codebook(values, 3, 0), kmeans_codebook(values, 3)
    assert inertia(values, *fitted) < 0.5 * inertia(values, *start)


@pytest.mark.parametrize("values", [torch.empty(0), torch.empty(3, 0)])
def test_empty_values_are_an_error(values):
    with pytest.raises(ValueError, match="nothing to cluster"):
        kmeans_codebook(values, 2)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e300])
def test_values_that_are_not_finite_in_float32_are_an_error(bad):
    with pytest.raises(ValueError, match="finite"):
        kmeans_codebook(torch.tensor([1.0, bad], dtype=torch.float64), 2)


@pytest.mark.parametrize("bits", [0, 9])
def test_bits_are_checked(bits):
    with pytest.raises(ValueError, match=f"got {bits}"):
        kmeans_codebook(torch.ones(3), bits)


def test_codebooks_and_codes_must_have_the_same_rows():
    with pytest.raises(ValueError, match=r"\(3, 5\).*\(2, 4\)"):
        dequantize_codebook(torch.zeros(3, 5, dtype=torch.uint8), torch.zeros(2, 4))


def test_bad_weights_are_an_error():
    with pytest.raises(ValueError, match="got shape"):
        kmeans_quantize_weight(torch.zeros(0, 4), 2)
    with pytest.raises(ValueError, match="granularity is"):
        kmeans_quantize_weight(torch.zeros(2, 4), 2, 0)
