"""Linear (affine) quantization: the grid of equally spaced levels.

    q = clamp(round(x / s) + z, qmin, qmax)        x_hat = s (q - z)

s (float, > 0) is the distance of two levels and z (integer) the code of 0.0.  Inside the range
[s (qmin - z), s (qmax - z)] the error is at most s / 2; outside, x is clipped.  s and z are shared
by a tensor, by an output channel, or by a group of G neighbours in a row: the granularity.
Sources: Jacob et al. 2018 (arXiv:1712.05877), section 2.1; Krishnamoorthi 2018 (arXiv:1806.08342).

Where well-known implementations differ
- Symmetric range.  Here -(2^(b-1) - 1) .. 2^(b-1) - 1 and s = absmax / (2^(b-1) - 1), as in
  SmoothQuant, bitsandbytes and BitNet: both ends fall on a level.  torchao and torch.ao use
  -2^(b-1) .. 2^(b-1) - 1 with absmax / ((2^b - 1) / 2): one code more, but a value at the positive
  end is clipped, and x / s there is a rounding tie.
- Zero in the range.  Here, in torchao, torch.ao and GPTQ the asymmetric range is stretched to hold
  0.0, so 0.0 (padding, ReLU, pruned weights) is exact.  AWQ does not stretch it and clamps z, which
  breaks groups of one sign.  HQQ and tinygemm keep z as a float instead.
- Rounding.  Half to even, as everywhere in torch.  Here, in torch.fake_quantize and torchao z is
  added after rounding; torch.quantize_per_tensor adds it before, so there the way a tie goes
  depends on whether z is odd.
- Floor of s.  Everybody has another one, see EPS.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from efflib.checks import expect_integers

# Smallest normal float32, 2^-126.  A group of zeros would have s = 0; with any smaller s, 1 / s
# overflows and 0 * inf is NaN.  A larger floor (torch.ao: 2^-23) coarsens groups of tiny weights.
EPS = torch.finfo(torch.float32).tiny

Granularity = str | int  # "tensor", "channel", or the group size G >= 1


class QuantizedWeight(NamedTuple):
    """A weight W [N, K] as codes.  R x n_groups groups: see `to_groups`."""

    codes: Tensor  # [N, K] int8 (symmetric) or uint8
    scale: Tensor  # [R, n_groups] float32
    zero: Tensor  # [R, n_groups] int32
    bits: int
    granularity: Granularity
    shape: tuple[int, int]
    symmetric: bool


def code_range(bits: int, symmetric: bool) -> tuple[int, int]:
    """(qmin, qmax) of b-bit codes.

    Symmetric: -(2^(b-1) - 1) .. 2^(b-1) - 1, b = 2..8.  Asymmetric: 0 .. 2^b - 1, b = 1..8.
    Raises ValueError for other bits.
    """
    if symmetric and bits == 1:
        raise ValueError("1 bit symmetric has no level but 0: use at least 2 bits, or asymmetric")
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 8:
        lowest = 2 if symmetric else 1
        raise ValueError(f"bits must be an integer from {lowest} to 8, got {bits!r}")
    if symmetric:
        return -(2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def affine_parameters(lo: Tensor, hi: Tensor, bits: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Scale and zero point of groups whose values span [lo, hi].

        symmetric:   s = max(|lo|, |hi|) / ((qmax - qmin) / 2)        z = 0
        asymmetric:  lo <- min(lo, 0), hi <- max(hi, 0)
                     s = (hi - lo) / (qmax - qmin)                    z = qmin - round(lo / s)

    lo, hi: smallest and largest value of each group, any one shape.  Returns (scale float32, zero
    int32 in [qmin, qmax]) of that shape; scale >= EPS.  Raises ValueError if the shapes differ, if
    lo > hi, if a bound is not finite, or if hi - lo overflows float32.
    """
    qmin, qmax = code_range(bits, symmetric)
    if lo.shape != hi.shape or lo.numel() == 0:
        raise ValueError(
            f"lo and hi need one non-empty shape, got {tuple(lo.shape)} and {tuple(hi.shape)}"
        )
    lo, hi = lo.float(), hi.float()
    bad = ~(torch.isfinite(lo) & torch.isfinite(hi) & (lo <= hi))
    if bad.any():
        raise ValueError(
            f"need finite lo <= hi, got lo={lo[bad][0].item()} and hi={hi[bad][0].item()}"
        )
    if symmetric:
        scale = torch.maximum(lo.abs(), hi.abs()) / ((qmax - qmin) / 2)
        zero = torch.zeros_like(scale)
    else:
        lo, hi = lo.clamp(max=0), hi.clamp(min=0)
        scale = (hi - lo) / (qmax - qmin)
        # 0 <= -lo / s <= qmax - qmin, because 0 is in the range: z is a code and needs no clamp
        zero = qmin - torch.round(lo / scale.clamp(min=EPS))
    if torch.isinf(scale).any():
        raise ValueError(f"hi - lo overflows float32: lo={lo.min().item()}, hi={hi.max().item()}")
    return scale.clamp(min=EPS), zero.to(torch.int32)


def _broadcasts(small: Tensor, x: Tensor) -> bool:
    """Whether small is broadcastable to x, and x stays as it is."""
    sizes = zip(reversed(small.shape), reversed(x.shape), strict=False)
    return small.ndim <= x.ndim and all(a in (1, b) for a, b in sizes)


def _unclamped_codes(x: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """round(x / s) + z as float32, before clamping.  Raises ValueError; see `quantize`."""
    if x.numel() == 0:
        raise ValueError(f"nothing to quantize: x has shape {tuple(x.shape)}")
    expect_integers(zero=zero)
    if not (_broadcasts(scale, x) and _broadcasts(zero, x)):
        raise ValueError(
            f"scale {tuple(scale.shape)} and zero {tuple(zero.shape)} must broadcast to x "
            f"{tuple(x.shape)}"
        )
    if not ((scale >= EPS) & torch.isfinite(scale)).all():
        raise ValueError(f"scale must be finite and >= EPS = {EPS:.3g}, got {scale.tolist()}")
    if torch.isnan(x).any():
        raise ValueError("x holds NaN, and no code stands for NaN")
    # x * (1 / s), not x / s: one division per group instead of one per value, as in
    # torch.fake_quantize and torchao.  The two differ by one code in rare near-ties, so a copy of
    # those libraries that divides does not agree with them bit by bit.
    return torch.round(x.float() * (1.0 / scale)) + zero


def quantize(x: Tensor, scale: Tensor, zero: Tensor, bits: int, symmetric: bool) -> Tensor:
    """clamp(round(x / s) + z, qmin, qmax), rounding half to even.

    x: any shape, int or float.  scale, zero: broadcastable to x, e.g. [N, 1] for x [N, K].
    Returns codes of x's shape, int8 if symmetric, else uint8.  Infinite x is clipped.
    Raises ValueError if x is empty or holds NaN, if scale < EPS, or if shapes do not broadcast.
    """
    qmin, qmax = code_range(bits, symmetric)
    codes = _unclamped_codes(x, scale, zero).clamp(qmin, qmax)
    return codes.to(torch.int8 if symmetric else torch.uint8)


def dequantize(codes: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """s (q - z) as float32, in the shape of codes.

    The difference is taken in int32: uint8 minus a zero point of uint8, or minus a 0-dimensional
    or Python integer, stays uint8 in torch, and 3 - 5 would be 254.
    Raises ValueError for codes or zero points that are no integers.
    """
    expect_integers(codes=codes, zero=zero)
    return (codes.to(torch.int32) - zero.to(torch.int32)) * scale


def fake_quantize(x: Tensor, scale: Tensor, zero: Tensor, bits: int, symmetric: bool) -> Tensor:
    """dequantize(quantize(x)), float32, with the straight-through gradient (Bengio et al. 2013).

    The derivative of round is 0 almost everywhere, so nothing would learn.  Pretend it is 1 where
    qmin <= round(x / s) + z <= qmax, and keep the true 0 where x is clipped.  s and z get none.
    """
    qmin, qmax = code_range(bits, symmetric)
    with torch.no_grad():
        codes = _unclamped_codes(x, scale, zero)
        inside = (codes >= qmin) & (codes <= qmax)
        x_hat = dequantize(codes.clamp(qmin, qmax).to(torch.int32), scale, zero)
    # x - x.detach() is exactly 0 with derivative 1.  (x + (x_hat - x).detach(), the usual one
    # line, also passes the gradient where x is clipped, and there it loses bits of x_hat.)
    x = x.float()
    return x_hat + torch.where(inside, x - x.detach(), 0.0)


def group_layout(shape: tuple[int, ...], granularity: Granularity) -> tuple[int, int, int]:
    """(rows, row length, group size) of W [N, K].

    "tensor": (1, N K, N K).  "channel": (N, K, K).  G: (N, K, min(G, K)).
    Raises ValueError if the shape is empty or not 2-D, or for another granularity.
    """
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"need a non-empty weight [N, K], got shape {tuple(shape)}")
    n, k = shape
    if granularity == "tensor":
        return 1, n * k, n * k
    if granularity == "channel":
        return n, k, k
    if isinstance(granularity, bool) or not isinstance(granularity, int) or granularity < 1:
        raise ValueError(f'granularity is "tensor", "channel" or G >= 1, got {granularity!r}')
    return n, k, min(granularity, k)


def group_count(shape: tuple[int, ...], granularity: Granularity) -> int:
    """Number of groups (of scales) of a weight [N, K]: 1, N, or N ceil(K / G)."""
    rows, length, size = group_layout(shape, granularity)
    return rows * math.ceil(length / size)


def to_groups(w: Tensor, granularity: Granularity) -> Tensor:
    """W [N, K] -> [R, n_groups, G]: every group along the last dimension; undo with `from_groups`.

    "tensor": [1, 1, N K].  "channel": [N, 1, K].  G: [N, ceil(K / G), G]; if G does not divide K,
    the last group is filled with copies of the row's last value, which move neither its minimum
    nor its maximum.  Raises ValueError for an empty or not 2-D weight or another granularity.
    """
    rows, length, size = group_layout(w.shape, granularity)
    w = w.reshape(rows, length)
    missing = -length % size
    if missing:
        w = torch.cat([w, w[:, -1:].expand(rows, missing)], dim=1)
    return w.reshape(rows, -1, size)  # [R, n_groups, G]


def from_groups(groups: Tensor, shape: tuple[int, int]) -> Tensor:
    """[R, n_groups, G] -> [N, K] = shape, without the filling of the last group."""
    rows = groups.shape[0]
    return groups.reshape(rows, -1)[:, : shape[0] * shape[1] // rows].reshape(shape)


def _group_parameters(groups: Tensor, bits: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Min-max scale and zero [R, n_groups, 1] of groups [R, n_groups, G]."""
    lo, hi = groups.aminmax(dim=-1, keepdim=True)
    return affine_parameters(lo, hi, bits, symmetric)


def quantize_weight(
    w: Tensor, bits: int, granularity: Granularity, symmetric: bool = False
) -> QuantizedWeight:
    """Round to nearest ("RTN"): min-max parameters of each group, then codes.  w: [N, K]."""
    groups = to_groups(w.detach(), granularity)  # [R, n_groups, G]
    scale, zero = _group_parameters(groups, bits, symmetric)
    codes = from_groups(quantize(groups, scale, zero, bits, symmetric), w.shape)
    shape = (w.shape[0], w.shape[1])
    return QuantizedWeight(
        codes, scale.squeeze(-1), zero.squeeze(-1), bits, granularity, shape, symmetric
    )


def dequantize_weight(qw: QuantizedWeight) -> Tensor:
    """The weight [N, K], float32, that the codes stand for."""
    groups = to_groups(qw.codes, qw.granularity)  # [R, n_groups, G]
    w_hat = dequantize(groups, qw.scale.unsqueeze(-1), qw.zero.unsqueeze(-1))
    return from_groups(w_hat, qw.shape)


def fake_quantize_weight(
    w: Tensor, bits: int, granularity: Granularity, symmetric: bool = False
) -> Tensor:
    """dequantize_weight(quantize_weight(w)), float32, with the straight-through gradient to w."""
    groups = to_groups(w, granularity)
    scale, zero = _group_parameters(groups.detach(), bits, symmetric)
    return from_groups(fake_quantize(groups, scale, zero, bits, symmetric), w.shape)
