"""Codes of keys and values: groups along time or along channels, and outliers kept apart.

    q = clamp(round((x - m) / s), 0, 2^b - 1)        x_hat = s q + m

with m the smallest value of a group and s its range divided by 2^b - 1.  `kv` says which direction
serves keys and which values.

Outliers apart (Hooper et al. 2024, KVQuant, section 3.4): the share of values that lie farthest
from the median of their group, measured by the group's own mean distance, are stored as they are,
in float16 beside their place.  The median stands in for them while the others are rounded, so they
stretch no group.  With 4 bytes for a place, a share of 1 % costs 0.48 bits a value.

Where implementations differ: KVQuant finds the limits of keys offline, by percentiles over
calibration text, and keeps outliers as sparse rows or columns; here they are found in what arrives.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_whole
from efflib.quantization.packing import expect_word_bits, pack, unpack

METADATA_BITS = 32  # of a group: s and m in float16
PLACE_BITS, VALUE_BITS = 32, 16  # of an outlier
SMALLEST = 1e-12  # of a spread: in a constant group nothing is unusual
KeyGroups = Literal["channel", "token"]


class Codes(NamedTuple):
    """A tensor [B, Hkv, S, d] as codes.  All fields grow along dimension 2."""

    words: Tensor  # [B, Hkv, S, d bits / 32] int32
    scale: Tensor  # float16: [B, Hkv, S / G, d] per channel, [B, Hkv, S, d / G] per token
    low: Tensor  # as scale
    bits: int
    direction: KeyGroups

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.words, self.scale, self.low))

    def decode(self) -> Tensor:
        """As `dequantize_kv`."""
        return dequantize_kv(self)

    def joined(self, new: "Codes") -> "Codes":
        """With later tokens behind."""
        parts = (torch.cat(pair, dim=2) for pair in zip(self[:3], new[:3], strict=True))
        return Codes(*parts, self.bits, self.direction)


def _grouped(x: Tensor, group_size: int, direction: KeyGroups) -> Tensor:
    """[B, Hkv, S, d] -> [B, Hkv, S/G, G, d] per channel, [B, Hkv, S, d/G, G] per token."""
    if direction not in ("channel", "token"):
        raise ValueError(f'direction is "channel" or "token", got {direction!r}')
    dim = 2 if direction == "channel" else 3
    expect_whole(1, group_size=group_size)
    if x.shape[dim] % group_size:
        raise ValueError(
            f"groups of {group_size} per {direction} must divide dimension {dim} of "
            f"x [B, H, S, d], got {tuple(x.shape)}"
        )
    return x.unflatten(dim, (-1, group_size))


def quantize_kv(x: Tensor, bits: int, group_size: int, direction: KeyGroups) -> Codes:
    """Asymmetric codes of x [B, Hkv, S, d]; direction "channel" groups G tokens of one channel,
    "token" G channels of one token.

    s and m are stored in float16 and the codes chosen for the stored ones, so
    |x_hat - x| <= s / 2 + 2^-11 (|m| + range), the last term for their rounding.
    bits: 1, 2, 4 or 8, where words of 32 bits hold d codes.
    Raises ValueError for groups that do not fit, or if float16 does not hold s and m.
    """
    expect_dims("[B, Hkv, S, d]", x=x)
    expect_word_bits(bits)
    if x.shape[-1] * bits % 32:
        raise ValueError(f"{x.shape[-1]} codes of {bits} bits do not fill 32-bit words")
    groups = _grouped(x.detach().float(), group_size, direction)
    dim = -2 if direction == "channel" else -1
    low, high = groups.aminmax(dim=dim, keepdim=True)
    scale = ((high - low) / (2**bits - 1)).half()
    low = low.half()
    if not (torch.isfinite(scale).all() and torch.isfinite(low).all()):
        raise ValueError(f"float16 cannot hold values of size {x.abs().max().item():.6g}")
    # a scale of 0 is that of a constant group: all its codes are 0, and x_hat = m
    step = torch.where(scale > 0, scale.float(), 1.0)
    codes = ((groups - low.float()) / step).round().clamp(0, 2**bits - 1)
    words = pack(codes.reshape(x.shape).to(torch.uint8), bits)
    return Codes(words, scale.squeeze(dim), low.squeeze(dim), bits, direction)


def dequantize_kv(codes: Codes) -> Tensor:
    """x_hat [B, Hkv, S, d], float32."""
    per_word = 32 // codes.bits
    q = unpack(codes.words, codes.words.shape[-1] * per_word, codes.bits).float()
    dim, inner = (2, -2) if codes.direction == "channel" else (3, -1)
    if codes.scale.shape[dim] == 0:
        return q
    groups = q.unflatten(dim, (codes.scale.shape[dim], -1))
    x_hat = groups * codes.scale.float().unsqueeze(inner) + codes.low.float().unsqueeze(inner)
    return x_hat.reshape(q.shape)


def bits_per_value(bits: int, group_size: int, outliers: float = 0.0) -> float:
    """Of a quantized value: its code, its part of the metadata, and of the share of outliers.

    2 bits, G = 32: 3.0.
    """
    expect_whole(1, group_size=group_size)
    return bits + METADATA_BITS / group_size + _share(outliers) * (PLACE_BITS + VALUE_BITS)


def _share(outliers: float) -> float:
    if not 0 <= outliers < 0.5:
        raise ValueError(f"outliers={outliers} must be a share of at least 0 and below 0.5")
    return outliers


class Apart(NamedTuple):
    """Codes, and beside them the values that were kept out of them."""

    codes: Codes
    places: Tensor  # [n] int32, in [S, B, Hkv, d]: later tokens have larger ones
    values: Tensor  # [n] float16

    @property
    def nbytes(self) -> int:
        outliers = sum(t.numel() * t.element_size() for t in (self.places, self.values))
        return self.codes.nbytes + outliers

    def decode(self) -> Tensor:
        """x_hat [B, Hkv, S, d], float32, with the outliers in their places."""
        by_time = self.codes.decode().permute(2, 0, 1, 3).contiguous()  # [S, B, Hkv, d]
        by_time.view(-1)[self.places.long()] = self.values.float()
        return by_time.permute(1, 2, 0, 3)

    def joined(self, new: "Apart") -> "Apart":
        """With later tokens behind.  Raises ValueError for more than 2^31 values."""
        b, h, s, words = self.codes.words.shape
        before = b * h * s * words * (32 // self.codes.bits)
        if before + new.codes.words.numel() * (32 // self.codes.bits) > 2**31:
            raise ValueError(f"int32 places do not reach beyond {before} values: fewer sequences")
        places = torch.cat([self.places, new.places + before])
        return Apart(self.codes.joined(new.codes), places, torch.cat([self.values, new.values]))


def quantize_apart(
    x: Tensor, bits: int, group_size: int, direction: KeyGroups, outliers: float
) -> Apart:
    """As `quantize_kv`, with round(outliers x numel) values of x [B, Hkv, S, d] kept in float16.

    Raises ValueError as `quantize_kv`, and unless 0 <= outliers < 0.5.
    """
    expect_dims("[B, Hkv, S, d]", x=x)
    groups = _grouped(x.detach().float(), group_size, direction)
    dim = -2 if direction == "channel" else -1
    median = groups.median(dim=dim, keepdim=True).values
    distance = (groups - median).abs()
    spread = distance.mean(dim=dim, keepdim=True)
    unusual = (distance / spread.clamp(min=SMALLEST)).reshape(x.shape).permute(2, 0, 1, 3)
    count = round(_share(outliers) * x.numel())
    places = unusual.flatten().topk(count).indices.sort().values
    chosen = torch.zeros(x.numel(), dtype=torch.bool, device=x.device)
    chosen[places] = True
    chosen = chosen.view(unusual.shape).permute(1, 2, 0, 3)  # [B, Hkv, S, d]
    middle = median.expand_as(groups).reshape(x.shape)
    codes = quantize_kv(torch.where(chosen, middle, x.float()), bits, group_size, direction)
    values = x.detach().permute(2, 0, 1, 3).flatten()[places].half()
    if not torch.isfinite(values).all():
        raise ValueError(f"float16 cannot hold values of size {x.abs().max().item():.6g}")
    return Apart(codes, places.int(), values)
