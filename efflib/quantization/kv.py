"""Quantizing the key-value cache: keys per channel, values per token.

The grid is that of `kv_codes`: asymmetric, in groups.  What is new is the direction of the groups,
for keys and values [B, Hkv, S, d]:

- Keys per channel: a group is G consecutive tokens of one channel.  Some channels of K are much
  larger than the rest in all tokens; with a range of their own they spoil no other channel.
  A group is complete only every G tokens, so the newest tokens wait in full precision.
- Values per token: a group is G channels of one token.  V has no such channels, and attention sums
  over tokens: a token with little weight keeps its error to itself.

Source: Liu et al. 2024, KIVI (arXiv:2402.02750), sections 3 and 4; independently Hooper et al.
2024, KVQuant (arXiv:2401.18079), section 3.1.

Where implementations differ
- Rotation.  In KIVI, and here without `theta`, keys are quantized after the rotary embedding.
  KVQuant does it before (rotation mixes two channels, so an outlier channel blurs) and rotates
  whenever it reads: with `theta`.
- Zero.  m is a float, as in KIVI, and 0.0 need not be in the range: a key channel may well lie in
  [5, 7], and the weights' convention (see `linear`) would waste most codes there.
- Window.  Keys: as in KIVI blocks of R tokens are quantized when R are together, so 0 to R - 1 of
  them wait.  Values: the last R wait, and the oldest leave one by one.  R is a multiple of G.
- What is seen.  Tokens that arrive attend to each other in full precision, also a whole prompt, as
  in KIVI; they are quantized afterwards.  Nothing is quantized twice.  transformers'
  QuantizedCache quantizes its whole history again at each flush.
- KVQuant keeps about 1 % of the values apart (`outliers`) and has non-uniform levels, which are not
  here.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from efflib.checks import expect_whole
from efflib.models.cache import expect_entry
from efflib.models.rotary import RopeScaling, rotate
from efflib.quantization.kv_codes import (
    Apart,
    Codes,
    KeyGroups,
    bits_per_value,
    quantize_apart,
    quantize_kv,
)
from efflib.quantization.packing import expect_word_bits


class _Store:
    """The keys, or the values, of one layer: old ones as codes, the newest as they are."""

    def __init__(self, encode: Callable[[Tensor], Codes | Apart], block: int, keep: int):
        self.encode = encode
        self.block, self.keep = block, keep  # quantize whole blocks, leave at least `keep` tokens
        self.codes: Codes | Apart | None = None
        self.recent: Tensor | None = None  # [B, Hkv, r, d]

    def append(self, x: Tensor) -> Tensor:
        """Add x [B, Hkv, T, d]; return all tokens, then quantize what is due."""
        recent = x if self.recent is None else torch.cat([self.recent, x], dim=2)
        past = [] if self.codes is None else [self.codes.decode().to(x.dtype)]
        due = max(0, recent.shape[2] - self.keep) // self.block * self.block
        if due:
            new = self.encode(recent[:, :, :due])
            self.codes = new if self.codes is None else self.codes.joined(new)
        # a copy, so that the memory of the quantized part is free
        self.recent = recent[:, :, due:].clone()
        return torch.cat([*past, recent], dim=2)

    @property
    def nbytes(self) -> int:
        codes = 0 if self.codes is None else self.codes.nbytes
        recent = 0 if self.recent is None else self.recent.numel() * self.recent.element_size()
        return codes + recent


class QuantizedKVCache:
    """A `cache.Cache` that holds old keys and values in b bits and the newest in full precision.

    keys: "channel", or "token" for the variant to compare with, in which keys are treated as
    values.  group_size: tokens (keys per channel) or channels (per token) that share s and m;
    residual: R of the module's text.  outliers: share of the values kept apart in float16.
    theta, scaling: the model's ``config.rope_theta`` and ``config.rope_scaling``, to quantize keys
    before they are turned; all rows of the batch then stand at positions 0, 1, 2 ..
    Raises ValueError unless R is a positive multiple of the group size, and at the first flush if
    the group size does not divide the head size d.
    """

    def __init__(
        self,
        bits: int,
        group_size: int = 32,
        residual: int = 32,
        keys: KeyGroups = "channel",
        outliers: float = 0.0,
        theta: float | None = None,
        scaling: RopeScaling | None = None,
    ) -> None:
        if keys not in ("channel", "token"):
            raise ValueError(f'keys is "channel" or "token", got {keys!r}')
        expect_word_bits(bits)
        expect_whole(1, group_size=group_size, residual=residual)
        if residual % group_size:
            raise ValueError(
                f"residual={residual} must be a positive multiple of group_size={group_size}"
            )
        if theta is not None and not theta > 0:
            raise ValueError(f"theta={theta} must be positive")
        self.bits_per_value = bits_per_value(bits, group_size, outliers)
        self.bits, self.group_size, self.residual, self.keys = bits, group_size, residual, keys
        self.outliers, self.theta, self.scaling = outliers, theta, scaling
        self.keeps_raw_keys = theta is not None
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
            per_token = (self._encoder("token"), 1, self.residual)
            per_channel = (self._encoder("channel"), self.residual, 0)
            by_key = per_channel if self.keys == "channel" else per_token
            self.layers.append((_Store(*by_key), _Store(*per_token)))
        if layer == 0:
            self._length += k.shape[2]
        keys, values = self.layers[layer]
        k, v = keys.append(k), values.append(v)
        if self.theta is not None:
            positions = torch.arange(k.shape[2], device=k.device)
            k = rotate(k, positions, self.theta, self.scaling)
        return k, v

    def _encoder(self, direction: KeyGroups) -> Callable[[Tensor], Codes | Apart]:
        options = {"bits": self.bits, "group_size": self.group_size, "direction": direction}
        if self.outliers:
            return partial(quantize_apart, outliers=self.outliers, **options)
        return partial(quantize_kv, **options)

    @property
    def nbytes(self) -> int:
        """Bytes held: packed codes and metadata, and the newest tokens in the model's dtype."""
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)
