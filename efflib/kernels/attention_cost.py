"""What attention has to move and compute, counted on paper; `efflib.meter` counts the same.

FlashAttention, for each of B H heads and each block of queries i (rows first .. last):

    keys_i = S                                        without a causal mask
           = min(S, max(0, last + 1 + shift))         with it: what the last row sees
    tiles_i = ceil(keys_i / block_n)

    Q  T d,   K and V  sum_i min(S, tiles_i block_n) d each,   O  T d,   LSE  T      elements
    FLOPs  4 block_m block_n d per tile (two products, whole tiles)
    exponentials  block_m (block_n + 1) per tile

With T = S = N and no mask that is 2 N^2 d / block_m for K and V, and as block_m is what fits into
on-chip memory of M elements, M ~ block_m d:  traffic ~ N^2 d^2 / M  (arXiv:2205.14135, theorem 2).

Plain attention stores its scores: S = Q K^T is written, read for softmax, P written and read again
(algorithm 0 there), 4 T S elements per head, whatever M is.
"""

from __future__ import annotations

from typing import NamedTuple

from efflib.kernels.flash_attention import alignment_shift

LSE_BYTES = 4


class Cost(NamedTuple):
    """Bytes by argument, FLOPs of matrix products, exponentials."""

    Q: int
    K: int
    V: int
    Out: int
    LSE: int
    flops: int
    exponentials: int

    @property
    def bytes(self) -> int:
        return self.Q + self.K + self.V + self.Out + self.LSE


def keys_per_block(T: int, S: int, causal: str | None, block_m: int) -> list[int]:
    """Keys that each block of queries has to look at."""
    shift = alignment_shift(T, S, causal)
    if causal is None:
        return [S] * -(-T // block_m)
    ends = (min(first + block_m, T) for first in range(0, T, block_m))
    return [min(S, max(0, end + shift)) for end in ends]


def flash_attention_cost(
    q_shape: tuple[int, int, int, int],
    kv_shape: tuple[int, int, int, int],
    itemsize: int,
    causal: str | None = None,
    block_m: int = 64,
    block_n: int = 64,
) -> Cost:
    """Cost of `flash_attention` for q [B, H, T, d] and k, v [B, Hkv, S, d] of itemsize bytes.

    Query heads that share a key head read it each for themselves: Hkv does not count.
    """
    (B, H, T, d), S = q_shape, kv_shape[2]
    keys = keys_per_block(T, S, causal, block_m)
    tiles = [-(-n // block_n) for n in keys]
    rows = B * H * T * d * itemsize
    kv = B * H * sum(min(S, t * block_n) for t in tiles) * d * itemsize
    count = B * H * sum(tiles)
    return Cost(
        Q=rows,
        K=kv,
        V=kv,
        Out=rows,
        LSE=B * H * T * LSE_BYTES,
        flops=4 * count * block_m * block_n * (1 << (d - 1).bit_length()),  # of whole tiles
        exponentials=count * block_m * (block_n + 1),
    )


def plain_attention_bytes(
    q_shape: tuple[int, int, int, int], kv_shape: tuple[int, int, int, int], itemsize: int
) -> int:
    """Bytes of attention that stores scores and probabilities, all in itemsize bytes."""
    (B, H, T, d), (_, Hkv, S, _) = q_shape, kv_shape
    return itemsize * (B * H * (2 * T * d + 4 * T * S) + 2 * B * Hkv * S * d)
