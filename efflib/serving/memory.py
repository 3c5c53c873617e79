"""Memory of a model in bytes: parameters, the key-value cache, activations, an optimizer.

    cache of a token    2 L Hkv d  values        L layers, Hkv key heads of size d; keys and values
    with a latent       L (r + p)  values        DeepSeek: one vector and one key for all heads
    T tokens            T of them, in a layer with a window w min(T, w)
    in b bits           values (b + metadata / G) / 8 bytes, a group of G sharing its scale
    sequences that fit  floor( (memory (1 - reserve) - parameters) / (tokens x cache of a token) )

MHA, GQA and MQA differ in Hkv alone: H, a divisor of it, 1.  Every result is exact, a whole number
or a `fractions.Fraction`: a floor one below the truth is a sequence that is turned away.

Sizes: KiB, MiB and GiB here are powers of 2.  Datasheets of GPUs write GB for the same (80 GB of
an H100 are 80 GiB); papers and disks mean powers of 10.  The lecture's 512 KB are 512 KiB.

What this does not count: fragmentation and what is reserved for tokens that never come (see paged
attention), the CUDA context, workspaces of kernels.  `reserve` is for them: vLLM's default leaves
10 % of the memory alone too.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from efflib.checks import expect_whole, nearest
from efflib.serving.decoder import Decoder

KiB, MiB, GiB = 2**10, 2**20, 2**30
RESERVE = Fraction(1, 10)  # of the memory, for what is not counted
ADAM_BITS = 3 * 32  # of a trained parameter: a float32 copy, two moments (Adam, mixed precision)

GPU_MEMORY = {  # bytes; datasheets, whose GB are GiB
    "A100": 80 * GiB,
    "H100": 80 * GiB,
    "H200": 141 * GiB,
    "B200": 180 * GiB,
    "RTX 4090": 24 * GiB,
}


@dataclass(frozen=True)
class Format:
    """How values are stored: `bits` each, and `metadata` bits for every group of them.

    `Format(2, 32, 32)` is KIVI's: s and m in float16 for 32 codes, 3 bits a value in all.
    """

    bits: int = 16
    group_size: int | None = None
    metadata: int = 32

    def __post_init__(self) -> None:
        expect_whole(1, bits=self.bits, group_size=self.group_size or 1)
        expect_whole(metadata=self.metadata)
        if self.group_size == 0:
            raise ValueError("group_size=0 must be None or an integer of at least 1")

    @property
    def per_value(self) -> Fraction:
        """Bits of a value with its part of the metadata."""
        if self.group_size is None:
            return Fraction(self.bits)
        return self.bits + Fraction(self.metadata, self.group_size)


FP16 = Format()
W4 = Format(4, 128, 16 + 4)  # AWQ, GPTQ: a float16 scale and a 4-bit zero point for 128 weights


def gpu_memory(name: str) -> int:
    """Bytes of a GPU of the table.  Raises ValueError for another name."""
    if name not in GPU_MEMORY:
        raise ValueError(
            f"no GPU {name!r} in the table{nearest(name, GPU_MEMORY)} "
            f"(there are {', '.join(GPU_MEMORY)})"
        )
    return GPU_MEMORY[name]


# ---- what is stored --------------------------------------------------------------------------


def layer_values(m: Decoder) -> int:
    """Numbers that one token adds to the cache of one layer."""
    return 2 * m.kv_heads * m.head_dim if m.latent is None else m.latent.rank + m.latent.rope


def kv_values(m: Decoder) -> int:
    """Numbers that one token adds to the cache, in all layers."""
    return m.layers * layer_values(m)


def kv_bytes(m: Decoder, tokens: int = 1, batch: int = 1, cache: Format = FP16) -> Fraction:
    """Bytes of the cache of `batch` sequences of so many tokens.

    A layer with a window keeps no more than that.  Raises ValueError for negative numbers.
    """
    expect_whole(tokens=tokens, batch=batch)
    return batch * m.kept(tokens) * layer_values(m) * cache.per_value / 8


def weight_bytes(m: Decoder, weights: Format = FP16) -> Fraction:
    """Bytes of the parameters: matrices of the layers in `weights`, all others in 16 bits.

    The others are norms, biases, the token table and lm_head, as in `quantization.size`.
    """
    quantized = m.matrices()
    return (quantized * weights.per_value + 16 * (m.parameters() - quantized)) / 8


def activation_bytes(m: Decoder, tokens: int, logits: int = 1, bits: int = 16) -> Fraction:
    """The most that one pass over `tokens` tokens (of all sequences together) holds at a time.

    That is in the MLP, the residual stream, its norm, and gate, up and their product, or at the
    end, the stream and `logits` rows of the vocabulary:

        max( T (2 D + 3 I),  T D + logits V )  values

    Attention by blocks (flash) keeps no T x T matrix; of experts, those that a token uses count.
    """
    expect_whole(tokens=tokens, logits=logits)
    expect_whole(1, bits=bits)
    width = m.intermediate
    if (e := m.experts) is not None:
        width = max(m.intermediate if e.dense_layers else 0, e.width * (e.used + e.shared))
    inside = tokens * (2 * m.hidden + 3 * width)
    return Fraction(max(inside, tokens * m.hidden + logits * m.vocab) * bits, 8)


def optimizer_bytes(trained: int, gradient_bits: int = 16) -> int:
    """Bytes beside the weights to train so many parameters with Adam in mixed precision.

    A gradient, a float32 copy of the parameter and two float32 moments: 14 bytes each, 16 with the
    weight (Rajbhandari et al. 2019, ZeRO, arXiv:1910.02054, section 3.1).
    """
    expect_whole(trained=trained)
    expect_whole(1, gradient_bits=gradient_bits)
    return math.ceil(trained * Fraction(gradient_bits + ADAM_BITS, 8))


# ---- what fits -------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What a memory is spent on."""

    usable: Fraction  # bytes, without the reserve
    weights: Fraction
    per_sequence: Fraction  # cache of one sequence of `context` tokens
    batch: int  # sequences that fit; 0 also where the weights do not

    @property
    def left(self) -> Fraction:
        """Bytes for the cache, negative where the weights do not fit."""
        return self.usable - self.weights


def plan(
    m: Decoder,
    memory: int,
    context: int,
    weights: Format = FP16,
    cache: Format = FP16,
    reserve: Fraction | float = RESERVE,
) -> Plan:
    """How many sequences of `context` tokens fit into `memory` bytes beside the weights.

    Raises ValueError unless memory and context are at least 1 and 0 <= reserve < 1.
    """
    expect_whole(1, memory=memory, context=context)
    usable = memory * (1 - _share(reserve))
    stored, each = weight_bytes(m, weights), kv_bytes(m, context, cache=cache)
    return Plan(usable, stored, each, max(0, math.floor((usable - stored) / each)))


def longest_context(
    m: Decoder,
    memory: int,
    batch: int = 1,
    weights: Format = FP16,
    cache: Format = FP16,
    reserve: Fraction | float = RESERVE,
) -> float:
    """Tokens that each of `batch` sequences may have: a whole number, or inf behind a window."""
    expect_whole(1, memory=memory, batch=batch)
    left = memory * (1 - _share(reserve)) - weight_bytes(m, weights)
    places = math.floor(left / (batch * layer_values(m) * cache.per_value / 8))  # in all layers
    tokens = max(0, places // m.layers)
    if m.window is None or tokens < m.window:
        return tokens
    return (places - m.window_layers * m.window) // m.full_layers if m.full_layers else math.inf


def devices_needed(
    m: Decoder,
    memory: int,
    context: int,
    batch: int = 1,
    weights: Format = FP16,
    cache: Format = FP16,
    reserve: Fraction | float = RESERVE,
) -> int:
    """Devices of `memory` bytes whose memories together hold weights and cache; 1: it fits.

    A lower bound: some cannot be divided evenly, and what is not divided lies on each.
    """
    expect_whole(1, memory=memory, context=context)
    stored = weight_bytes(m, weights) + kv_bytes(m, context, batch, cache)
    return max(1, math.ceil(stored / (memory * (1 - _share(reserve)))))


def _share(reserve: Fraction | float) -> Fraction:
    if not 0 <= reserve < 1:
        raise ValueError(f"reserve={reserve} must be at least 0 and below 1")
    return Fraction(str(reserve)) if isinstance(reserve, float) else Fraction(reserve)
