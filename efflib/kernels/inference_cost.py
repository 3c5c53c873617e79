"""What the inference kernels have to move and compute, on paper; `efflib.meter` counts the same.

Decode attention, B sequences with n_b keys, H query heads on Hkv key heads, splits of whole blocks
of block_n keys; rows: the H / Hkv query heads of a key head, filled up to a power of two >= 16.

    K, V  Hkv sum_b n_b d each    Q  splits B H d    parts  splits B H d float32, their lse 4 bytes
    FLOPs  4 rows block_n d  and exponentials  rows (block_n + 1)  per block of keys and key head

With more than one split the parts are read once to be merged, with an exponential for each (their
number filled up to a power of two).  A paged cache adds the 4-byte entry of the block table for
each key and key head (one address each; neighbours share them), and 4 bytes for each program to
know its length.

Products, y [M, N] of K inputs in tiles [block_m, block_n]: what belongs to a row of x is read once
per column of tiles and what belongs to a row of W once per row of tiles,

    bytes = ceil(N / block_n) bytes(x) + ceil(M / block_m) bytes(W) + bytes(y)

W4A16's bytes(W) are 4 bits a weight (rows filled up to words), and for each tile along K 2 bytes of
scale and 1 byte that holds the zero point; a tile has 128 inputs, those of its group filled up.
"""

from __future__ import annotations

from typing import NamedTuple

from efflib.kernels import w4a16, w8a8
from efflib.kernels.flash_attention import SMALLEST_BLOCK
from efflib.quantization.nf4 import BLOCK, SCALE_BLOCK

FLOAT32 = INT32 = 4  # bytes
LEVELS = 16  # of NF4


class KernelCost(NamedTuple):
    """Bytes read and written by argument, FLOPs of matrix products, exponentials."""

    reads: dict[str, int]
    writes: dict[str, int]
    flops: int = 0
    exponentials: int = 0

    @property
    def bytes(self) -> int:
        return sum(self.reads.values()) + sum(self.writes.values())


def _tiles(n: int, block: int) -> int:
    return -(-n // block)


def _block(n: int, largest: int) -> int:
    """The power of two, from 16 to largest, that a dimension of n is filled up to."""
    return min(largest, max(SMALLEST_BLOCK, 1 << (n - 1).bit_length()))


def decoding_cost(
    heads: tuple[int, int],
    d: int,
    lengths: list[int],
    itemsize: int,
    splits: int,
    block_n: int = 64,
    paged: bool = False,
) -> KernelCost:
    """Cost of `flash_decoding`, or of `paged_attention` if paged; heads: (H, Hkv).

    splits: as launched; lengths: keys of each sequence.
    """
    (H, Hkv), B, keys = heads, len(lengths), sum(lengths)
    tiles = Hkv * sum(_tiles(n, block_n) for n in lengths)
    rows = _block(H // Hkv, H + SMALLEST_BLOCK)
    vector = B * H * d
    kv = Hkv * keys * d * itemsize
    reads = {"Q": splits * vector * itemsize, "K": kv, "V": kv}
    if paged:
        reads |= {"Table": Hkv * keys * INT32, "Lengths": B * Hkv * splits * INT32}
    writes = {
        "Part": splits * vector * (FLOAT32 if splits > 1 else itemsize),
        "PartLSE": splits * B * H * FLOAT32,
    }
    exponentials = tiles * rows * (block_n + 1)
    if splits > 1:
        reads |= writes
        writes = writes | {"Out": vector * itemsize, "LSE": B * H * FLOAT32}
        exponentials += B * H * (1 << (splits - 1).bit_length())
    return KernelCost(reads, writes, 4 * tiles * rows * block_n * _block(d, 2 * d), exponentials)


def w4a16_cost(shape: tuple[int, int, int], group_size: int, itemsize: int) -> KernelCost:
    """Cost of `w4a16_matmul` for shape (M, N, K); itemsize: bytes of an element of x and y."""
    M, N, K = shape
    size = min(group_size, K)
    tiles = _tiles(K, size) * _tiles(size, w4a16.BLOCK_K)
    if M == 1:
        columns, rows, flops = _tiles(N, w4a16.GEMV_BLOCK_N), 1, 0
    else:
        block_m = _block(M, w4a16.LARGEST_BLOCK_M)
        columns, rows = _tiles(N, w4a16.GEMM_BLOCK_N), _tiles(M, block_m)
        flops = 2 * rows * block_m * columns * w4a16.GEMM_BLOCK_N * tiles * w4a16.BLOCK_K
    reads = {
        "X": columns * M * K * itemsize,
        "Words": rows * N * _tiles(K, 8) * INT32,
        "Scale": rows * N * tiles * 2,
        "Zeros": rows * N * tiles,
    }
    return KernelCost(reads, {"Out": M * N * itemsize}, flops)


def w8a8_cost(shape: tuple[int, int, int], itemsize: int | None) -> KernelCost:
    """Cost of `w8a8_matmul` for shape (M, N, K); itemsize: of an element of y, None: int32 sums."""
    M, N, K = shape
    block_m = _block(M, w8a8.LARGEST_BLOCK_M)
    columns, rows = _tiles(N, w8a8.BLOCK_N), _tiles(M, block_m)
    reads = {"X": columns * M * K, "W": rows * N * K}
    if itemsize is not None:
        reads |= {"XScale": columns * M * FLOAT32, "WScale": rows * N * FLOAT32}
    inputs = _tiles(K, w8a8.BLOCK_K) * w8a8.BLOCK_K
    flops = 2 * rows * block_m * columns * w8a8.BLOCK_N * inputs
    return KernelCost(reads, {"Out": M * N * (itemsize or INT32)}, flops)


def nf4_cost(n: int, double: bool, itemsize: int, blocks_of_program: int) -> KernelCost:
    """Cost of decoding n weights to elements of itemsize bytes.

    Second scales are asked for once per block, that is SCALE_BLOCK times each.
    """
    blocks = _tiles(n, BLOCK)
    programs = _tiles(blocks, blocks_of_program)
    reads = {"Packed": _tiles(n, 2), "Levels": programs * LEVELS * FLOAT32}
    if double:
        reads |= {"A": blocks, "Dynamic": blocks * FLOAT32, "Second": blocks * FLOAT32}
        reads |= {"Mean": programs * FLOAT32}
    else:
        reads |= {"A": blocks * FLOAT32}
    return KernelCost(reads, {"Out": n * itemsize})


def least_nf4_scale_bytes(n: int) -> int:
    """Bytes of the scales of n doubly quantized weights, each once: what has to be read."""
    blocks = _tiles(n, BLOCK)
    return blocks + FLOAT32 * (_tiles(blocks, SCALE_BLOCK) + 1)
