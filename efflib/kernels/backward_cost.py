"""What windowed attention and the backward pass move and compute; `efflib.meter` counts the same.

For each block of queries (rows first .. last of a head) the keys it may see are

    sinks   0 .. min(sinks, start)          start = max(0, first + shift + 1 - window), 0 without
    others  start .. stop                   stop  = max(0, last + 1 + shift), S if not causal

each walked in tiles of block_n, of which only existing keys are read.  For each block of keys the
dK, dV kernel reads the queries from the first that sees one of them to the last, once for each
query head of the key head.

    forward   4 block_m block_n d FLOPs and block_m (block_n + 1) exponentials per tile
    dQ        6 block step d        and   block step
    dK, dV    8 block step d        and   block step
"""

from __future__ import annotations

from typing import NamedTuple

from efflib.kernels.flash_attention import alignment_shift

FLOAT_BYTES = 4  # lse, delta
Shape = tuple[int, int, int, int]


class Masks(NamedTuple):
    """Which keys a query sees, as the arguments of `attention`."""

    causal: str | None = None
    window: int | None = None
    sinks: int = 0


class Work(NamedTuple):
    """Bytes read and written by argument, FLOPs of matrix products, exponentials."""

    reads: dict[str, int]
    writes: dict[str, int]
    flops: int
    exponentials: int


class Walk(NamedTuple):
    """What all programs of one head walk along: rows read, and tiles."""

    rows: int
    tiles: int


def _walk(ranges: list[tuple[int, int]], block: int) -> Walk:
    lengths = [max(0, stop - start) for start, stop in ranges]
    return Walk(sum(lengths), sum(-(-n // block) for n in lengths))


def walk_of_queries(T: int, S: int, masks: Masks, block_m: int, block_n: int) -> Walk:
    """Keys that the blocks of queries of one head read."""
    shift, ranges = alignment_shift(T, S, masks.causal), []
    for first in range(0, T, block_m):
        start, stop = 0, S
        if masks.causal:
            stop = min(S, max(0, min(first + block_m, T) + shift))
        if masks.window is not None:
            start = min(S, max(0, first + shift + 1 - masks.window))
        ranges += [(0, min(masks.sinks, start)), (start, stop)]
    return _walk(ranges, block_n)


def walk_of_keys(T: int, S: int, masks: Masks, block_m: int, block_n: int) -> Walk:
    """Queries of one query head that the blocks of keys read."""
    shift, ranges = alignment_shift(T, S, masks.causal), []
    for first in range(0, S, block_n):
        start, stop = 0, T
        if masks.causal:
            start = max(0, first - shift)
        if masks.window is not None and first >= masks.sinks:
            stop = min(T, min(first + block_n, S) - 1 + masks.window - shift)
        ranges.append((start, stop))
    return _walk(ranges, block_m)


def windowed_attention_cost(
    q_shape: Shape, kv_shape: Shape, itemsize: int, masks: Masks, block_m: int, block_n: int
) -> Work:
    """Cost of `windowed_attention` for q [B, H, T, d] and k, v [B, Hkv, S, d]."""
    (B, H, T, d), S = q_shape, kv_shape[2]
    walk = walk_of_queries(T, S, masks, block_m, block_n)
    rows, kv = B * H * T * d * itemsize, B * H * walk.rows * d * itemsize
    tiles = B * H * walk.tiles
    return Work(
        {"Q": rows, "K": kv, "V": kv},
        {"Out": rows, "LSE": B * H * T * FLOAT_BYTES},
        4 * tiles * block_m * block_n * d,
        tiles * block_m * (block_n + 1),
    )


def attention_backward_cost(
    q_shape: Shape, kv_shape: Shape, itemsize: int, masks: Masks, block: int, step: int
) -> Work:
    """Cost of both kernels of `attention_backward`, together."""
    (B, H, T, d), (_, Hkv, S, _) = q_shape, kv_shape
    first = walk_of_queries(T, S, masks, block, step)
    second = walk_of_keys(T, S, masks, step, block)
    heads, row = B * H, d * itemsize
    keys, numbers = B * Hkv * S * row, heads * T * FLOAT_BYTES
    kv = heads * first.rows * row + keys
    queries, walked = heads * (T + second.rows) * row, heads * second.rows * FLOAT_BYTES
    tile = heads * block * step
    return Work(
        {"Q": queries, "DOut": queries, "K": kv, "V": kv, "Out": heads * T * row,
         "LSE": numbers + walked, "DLSE": numbers, "Delta": walked},
        {"DQ": heads * T * row, "Delta": numbers, "DK": keys, "DV": keys},
        tile * d * (6 * first.tiles + 8 * second.tiles),
        tile * (first.tiles + second.tiles),
    )  # fmt: skip
