"""2:4 sparsity, stored: half the values and a 2-bit index for each.

    row:      [ 0  5  0 -1 |  3  0  0  2 ]        at most 2 of every 4 neighbours are not zero
    values:   [ 5 -1 | 3 2 ]                      K / 2 of them
    indices:  [ 1  3 | 0 3 ]                      where in its four each value stands, 2 bits

Bits a value: 16-bit weights need 2 * 16 + 2 * 2 = 36 bits for four instead of 64, 9/16; 8-bit ones
20 of 32, 5/8.  The indices pick the inputs that are multiplied, so half the products are left out:

    y_ti = sum over the K / 2 values v of row i of   v * x_t,place(v)

A sparse tensor core does it for 4 inputs at a time; `multiply` here shows the arithmetic and is
slower than a dense product.  Source: Mishra et al. 2021 (arXiv:2104.08378), section 3.

Where implementations differ
- cuSPARSELt and CUTLASS store the same values in the same order, and the same 2-bit indices, but
  pack them into 16- or 32-bit words that are reordered for the hardware.  Here: four indices a
  byte, the first in the lowest bits, in the order of the row.
- A group with fewer than two values that are not zero still stores two.  Which zero is stored does
  not matter to the product.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from efflib.checks import expect_dims

KEPT, GROUP = 2, 4
INDEX_BITS = 2  # a place among four
PER_BYTE = 8 // INDEX_BITS
MULTIPLE = GROUP * PER_BYTE // KEPT  # 8 weights of a row fill one byte of indices


class Compressed(NamedTuple):
    """A 2:4 sparse weight [N, K]."""

    values: Tensor  # [N, K / 2], the weight's dtype
    indices: Tensor  # [N, K / 8] uint8, four 2-bit indices a byte, the first in the lowest bits


def compress(w: Tensor) -> Compressed:
    """Store w [N, K] whose groups of 4 hold at most 2 values that are not zero.

    Raises ValueError if K is not a multiple of 8 or a group holds more; it names the first.
    """
    if w.ndim != 2 or w.numel() == 0 or w.shape[1] % MULTIPLE:
        raise ValueError(f"need [N, K] with K a multiple of {MULTIPLE}, got {tuple(w.shape)}")
    groups = w.detach().reshape(w.shape[0], -1, GROUP)  # [N, K / 4, 4]
    used = groups != 0
    too_many = (used.sum(-1) > KEPT).nonzero()
    if len(too_many):
        row, group = too_many[0].tolist()
        raise ValueError(
            f"row {row}, inputs {GROUP * group} to {GROUP * group + 3} hold "
            f"{groups[row, group].tolist()}: more than {KEPT} are not zero"
        )
    # stable: first the places of the values in order, then those of the zeros in order
    kept = (~used).to(torch.uint8).sort(dim=-1, stable=True).indices[..., :KEPT]
    kept = kept.sort(dim=-1).values  # [N, K / 4, 2]
    values = groups.gather(-1, kept).flatten(1)  # [N, K / 2]
    quads = kept.flatten(1).reshape(w.shape[0], -1, PER_BYTE)  # [N, K / 8, 4]
    shifts = INDEX_BITS * torch.arange(PER_BYTE, device=w.device)
    return Compressed(values, (quads << shifts).sum(-1).to(torch.uint8))


def decompress(stored: Compressed) -> Tensor:
    """The weight [N, K] that was stored."""
    _expect_stored(stored)
    n, half = stored.values.shape
    groups = stored.values.new_zeros(n, half // KEPT, GROUP)
    return groups.scatter(-1, places(stored), stored.values.reshape(n, -1, KEPT)).flatten(1)


def places(stored: Compressed) -> Tensor:
    """Where in its four each value stands, 0 .. 3. [N, K / 4, 2] int64"""
    shifts = INDEX_BITS * torch.arange(PER_BYTE, device=stored.values.device)
    unpacked = (stored.indices.long().unsqueeze(-1) >> shifts) & (GROUP - 1)  # [N, K / 8, 4]
    return unpacked.reshape(len(unpacked), -1, KEPT)


def multiply(stored: Compressed, x: Tensor) -> Tensor:
    """x [..., K] times the stored weight, computed from its K / 2 values a row. [..., N]

    Summed in float32, or float64 where x or the values are; the result has the dtype of x.
    Raises ValueError if the last dimension of x is not the weight's K.
    """
    _expect_stored(stored)
    n, half = stored.values.shape
    expect_dims("[..., K]", x=x)
    if x.shape[-1] != 2 * half:
        raise ValueError(f"x {tuple(x.shape)} must end in K = {2 * half} of the weight")
    groups = torch.arange(half // KEPT, device=x.device)[:, None]  # [K / 4, 1]
    inputs = (GROUP * groups + places(stored)).flatten(1)  # [N, K / 2], which x each value meets
    wide = torch.promote_types(torch.promote_types(x.dtype, stored.values.dtype), torch.float32)
    rows, values = x.reshape(-1, 2 * half).to(wide), stored.values.to(wide)
    out = torch.stack([(row[inputs] * values).sum(1) for row in rows])  # [T, N]
    return out.reshape(*x.shape[:-1], n).to(x.dtype)


def _expect_stored(stored: Compressed) -> None:
    expect_dims("[N, K / 2]", values=stored.values)
    n, half = stored.values.shape
    if stored.indices.shape != (n, half // PER_BYTE) or stored.indices.dtype != torch.uint8:
        raise ValueError(
            f"values {n, half} need uint8 indices {n, half // PER_BYTE}, got "
            f"{stored.indices.dtype} {tuple(stored.indices.shape)}"
        )


def compressed_bits(shape: tuple[int, int], value_bits: int = 16) -> int:
    """Bits of a 2:4 weight [N, K] = shape: K / 2 values a row and an index for each."""
    n, k = shape
    if n < 1 or k < 1 or k % GROUP:
        raise ValueError(f"rows of {tuple(shape)} do not divide into groups of {GROUP}")
    return n * (k // GROUP) * KEPT * (value_bits + INDEX_BITS)
