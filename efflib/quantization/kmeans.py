"""k-means quantization: a codebook of 2^b values fitted to the weights, and a b-bit code for each.

    codes = argmin_j |w - c_j|        w_hat = c[codes]        c minimizes sum (w - c[code])^2

The levels need not be equally spaced, so they go where the weights are; the price is a table of
2^b floats per group instead of one scale.
Source: Han, Mao and Dally 2016, Deep Compression (arXiv:1510.00149), section 3.

Why it is fast.  In one dimension clusters are intervals: on sorted values, cluster j is the slice
between two midpoints of neighbouring centroids, and its mean is a difference of two prefix sums.
Sort once; then one Lloyd iteration costs 2^b binary searches instead of n 2^b distances, and it is
the same iteration exactly.  (Lloyd finds a local minimum.  In one dimension the global one can be
had by dynamic programming, e.g. the ckmeans algorithm, which is slower.)

Where implementations differ
- Start.  Here linspace(min, max, 2^b), which Deep Compression found best (section 3.2): it keeps
  the rare large weights, which matter most.  scikit-learn starts from random samples (k-means++).
- Empty clusters.  Here they keep their centroid; scikit-learn moves them to the farthest sample.
  So with fewer distinct values than centroids the result is not always exact here: 0, 1, 10 with
  2 bits gives 0.5, 0.5, 10, as no centroid starts near enough to part 0 from 1.
- Weights.  KVQuant and SqueezeLLM weigh each value by its sensitivity.  Here all count alike.
- Deep Compression then trains the centroids on the summed gradients of their weights.  Not here.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from efflib.checks import expect_dims, expect_finite, expect_whole, expect_within
from efflib.quantization.linear import Granularity, code_range, from_groups, group_layout, to_groups

# On 3072 normal weights the error of 2 to 5 bits is then at its fixed point; after 50 it was up to
# 10 % above it for 5 bits.
ITERATIONS = 100


class CodebookWeight(NamedTuple):
    """A weight W [N, K] as codes into one codebook per group.  Groups as in `to_groups`."""

    codes: Tensor  # [N, K] uint8
    codebook: Tensor  # [R, n_groups, 2^b] float32, sorted
    bits: int
    granularity: Granularity
    shape: tuple[int, int]


def _midpoints(codebook: Tensor) -> Tensor:
    """[R, 2^b] -> [R, 2^b - 1], float64: the borders of the clusters.

    In float64 the sum of two float32 numbers is exact (unless one is 2^29 times the other), so
    that a tie is a tie.
    """
    return (codebook[:, 1:].double() + codebook[:, :-1].double()) / 2


def _lloyd(values: Tensor, size: int, iterations: int) -> Tensor:
    """Centroids [R, size], sorted, of each row of values [R, n] (1-D k-means, float32).

    Centroids are rounded to float32, as they are stored, in each iteration and not only at the
    end: so the final codes belong to exactly these centroids.  Sums are in float64.
    """
    values = values.double().sort(dim=1).values  # [R, n]
    sums = pad(values.cumsum(dim=1), (1, 0))  # [R, n + 1], of the first 0, 1, ..., n values
    lo, hi = values[:, :1], values[:, -1:]
    steps = torch.arange(size, dtype=torch.float64, device=values.device)
    centroids = (lo + (hi - lo) * steps / (size - 1)).float()  # [R, size]
    for _ in range(iterations):
        # right=True counts the values <= midpoint: a tie belongs to the lower cluster
        ends = torch.searchsorted(values, _midpoints(centroids), right=True)
        ends = pad(ends, (0, 1), value=values.shape[1])  # [R, size]
        count = torch.diff(ends, prepend=torch.zeros_like(ends[:, :1]))
        total = torch.diff(sums.gather(1, ends), prepend=torch.zeros_like(lo))
        means = (total / count.clamp(min=1)).float()
        moved = torch.where(count > 0, means, centroids)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids


def _fit(values: Tensor, bits: int, iterations: int) -> tuple[Tensor, Tensor]:
    """(codebook [R, 2^b], codes [R, n]) of each row of values [R, n]."""
    _, qmax = code_range(bits, symmetric=False)
    expect_whole(iterations=iterations)
    if values.numel() == 0:
        raise ValueError(f"nothing to cluster: values have shape {tuple(values.shape)}")
    values = values.detach().float()
    expect_finite(values=values)
    codebook = _lloyd(values, qmax + 1, iterations)
    # the number of midpoints below a value is the index of its nearest centroid
    codes = torch.searchsorted(_midpoints(codebook), values.double())
    return codebook, codes.to(torch.uint8)


def kmeans_codebook(
    values: Tensor, bits: int, iterations: int = ITERATIONS
) -> tuple[Tensor, Tensor]:
    """Cluster all values around 2^b centroids: at most `iterations` Lloyd iterations.

    values: any shape, int or float, finite; bits: 1 to 8.  Starts from linspace(min, max, 2^b)
    and stops early at a fixed point.  A value at equal distance goes to the lower centroid; a
    centroid without values stays where it is.
    Returns (codebook [2^b] float32 in ascending order, codes uint8 of the shape of values).
    Raises ValueError if values are empty or not finite.
    """
    codebook, codes = _fit(values.reshape(1, -1), bits, iterations)
    return codebook[0], codes.reshape(values.shape)


def dequantize_codebook(codes: Tensor, codebook: Tensor) -> Tensor:
    """The entries that codes stand for, in the shape of codes.

    codebook [2^b] with codes of any shape, or one codebook per row: codebook [..., 2^b] with codes
    [..., n] and the same leading dimensions.  Raises ValueError if these differ, and for codes that
    have no entry.
    """
    expect_dims("[..., 2^b]", codebook=codebook)
    expect_within(codes=codes, stop=codebook.shape[-1])
    if codebook.dim() == 1:
        return codebook[codes.long()]
    if codebook.shape[:-1] != codes.shape[:-1]:
        raise ValueError(
            f"codes {tuple(codes.shape)} and codebook {tuple(codebook.shape)} differ in the "
            "dimensions before the last"
        )
    return codebook.gather(-1, codes.long())


def kmeans_quantize_weight(
    w: Tensor, bits: int, granularity: Granularity = "tensor"
) -> CodebookWeight:
    """One codebook per tensor, output channel, or group of G inputs of w [N, K].

    The last group is shorter if G does not divide K: copies of a value would draw a centroid to
    them, so `to_groups` does not serve for fitting.  Raises ValueError as `group_layout` does.
    """
    rows, length, size = group_layout(w.shape, granularity)
    parts = w.reshape(rows, length).split(size, dim=1)  # n_groups of [R, G], the last shorter
    fitted = [_fit(part, bits, ITERATIONS) for part in parts]
    codebook = torch.stack([codebook for codebook, _ in fitted], dim=1)  # [R, n_groups, 2^b]
    codes = torch.cat([codes for _, codes in fitted], dim=1).reshape(w.shape)
    return CodebookWeight(codes, codebook, bits, granularity, (w.shape[0], w.shape[1]))


def dequantize_kmeans_weight(cw: CodebookWeight) -> Tensor:
    """The weight [N, K], float32, that the codes stand for."""
    groups = to_groups(cw.codes, cw.granularity)  # [R, n_groups, G]
    return from_groups(dequantize_codebook(groups, cw.codebook), cw.shape)
