"""Quantizing the key-value cache: keys per channel, values per token.

    q = clamp(round((x - m) / s), 0, 2^b - 1)        x_hat = s q + m

with m the smallest value of a group and s its range divided by 2^b - 1.  What is new is the
direction of the groups, for keys and values [B, Hkv, S, d]:

- Keys per channel: a group is G consecutive tokens of one channel.  Some channels of K are much
  larger than the rest in all tokens; with a range of their own they spoil no other channel.
  A group is complete only every G tokens, so the newest tokens wait in full precision.
- Values per token: a group is G channels of one token.  V has no such channels, and attention sums
  over tokens: a token with little weight keeps its error to itself.

Source: Liu et al. 2024, KIVI (arXiv:2402.02750), sections 3 and 4; independently Hooper et al.
2024, KVQuant (arXiv:2401.18079), section 3.1.

Where implementations differ
- Rotation.  Here and in KIVI keys are quantized after the rotary embedding.  KVQuant does it before
  (rotation mixes two channels, so an outlier channel blurs) and rotates whenever it reads.
- Zero.  m is a float, as in KIVI, and 0.0 need not be in the range: a key channel may well lie in
  [5, 7], and the weights' convention (see `linear`) would waste most codes there.
- Window.  Keys: as in KIVI blocks of R tokens are quantized when R are together, so 0 to R - 1 of
  them wait.  Values: the last R wait, and the oldest leave one by one.  R is a multiple of G.
- What is seen.  Tokens that arrive attend to each other in full precision, also a whole prompt, as
  in KIVI; they are quantized afterwards.  Nothing is quantized twice.  transformers'
  QuantizedCache quantizes its whole history again at each flush.
- KVQuant adds non-uniform levels and keeps outliers apart.  Not here.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_whole
from efflib.models.cache import expect_entry
from efflib.quantization.packing import expect_word_bits, pack, unpack

METADATA_BITS = 32  # of a group: s and m in float16
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


def bits_per_value(bits: int, group_size: int) -> float:
    """Of a quantized value: its code and its part of the metadata.  2 bits, G = 32: 3.0."""
    expect_whole(1, group_size=group_size)
    return bits + METADATA_BITS / group_size


class _Store:
    """The keys, or the values, of one layer: old ones as codes, the newest as they are."""

    def __init__(self, bits: int, group_size: int, direction: KeyGroups, block: int, keep: int):
        self.bits, self.group_size, self.direction = bits, group_size, direction
        self.block, self.keep = block, keep  # quantize whole blocks, leave at least `keep` tokens
        self.codes: Codes | None = None
        self.recent: Tensor | None = None  # [B, Hkv, r, d]

    def append(self, x: Tensor) -> Tensor:
        """Add x [B, Hkv, T, d]; return all tokens, then quantize what is due."""
        recent = x if self.recent is None else torch.cat([self.recent, x], dim=2)
        past = [] if self.codes is None else [dequantize_kv(self.codes).to(x.dtype)]
        due = max(0, recent.shape[2] - self.keep) // self.block * self.block
        if due:
            new = quantize_kv(recent[:, :, :due], self.bits, self.group_size, self.direction)
            self.codes = new if self.codes is None else _joined(self.codes, new)
        # a copy, so that the memory of the quantized part is free
        self.recent = recent[:, :, due:].clone()
        return torch.cat([*past, recent], dim=2)

    @property
    def nbytes(self) -> int:
        codes = 0 if self.codes is None else self.codes.nbytes
        recent = 0 if self.recent is None else self.recent.numel() * self.recent.element_size()
        return codes + recent


def _joined(a: Codes, b: Codes) -> Codes:
    parts = (torch.cat([p, q], dim=2) for p, q in zip(a[:3], b[:3], strict=True))
    return Codes(*parts, a.bits, a.direction)


class QuantizedKVCache:
    """A `cache.Cache` that holds old keys and values in b bits and the newest in full precision.

    keys: "channel", or "token" for the variant to compare with, in which keys are treated as
    values.  group_size: tokens (keys per channel) or channels (per token) that share s and m;
    residual: R of the module's text.
    Raises ValueError unless R is a positive multiple of the group size, and at the first flush if
    the group size does not divide the head size d.
    """

    def __init__(
        self, bits: int, group_size: int = 32, residual: int = 32, keys: KeyGroups = "channel"
    ) -> None:
        if keys not in ("channel", "token"):
            raise ValueError(f'keys is "channel" or "token", got {keys!r}')
        expect_word_bits(bits)
        expect_whole(1, group_size=group_size, residual=residual)
        if residual % group_size:
            raise ValueError(
                f"residual={residual} must be a positive multiple of group_size={group_size}"
            )
        self.bits, self.group_size, self.residual, self.keys = bits, group_size, residual, keys
        self.layers: list[tuple[_Store, _Store]] = []
        self._length = 0

    @property
    def length(self) -> int:
        """How many tokens have been seen: the position of the next one."""
        return self._length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add T new keys and values [B, Hkv, T, d]; return all, the old ones decoded.

        Raises ValueError as `cache.expect_entry`.
        """
        expect_entry(layer, [keys.recent for keys, _ in self.layers], k, v)
        if layer == len(self.layers):
            per_token = (self.bits, self.group_size, "token", 1, self.residual)
            per_channel = (self.bits, self.group_size, "channel", self.residual, 0)
            by_key = per_channel if self.keys == "channel" else per_token
            self.layers.append((_Store(*by_key), _Store(*per_token)))
        if layer == 0:
            self._length += k.shape[2]
        keys, values = self.layers[layer]
        return keys.append(k), values.append(v)

    @property
    def nbytes(self) -> int:
        """Bytes held: packed codes and metadata, and the newest tokens in the model's dtype."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)
