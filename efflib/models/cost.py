"""FLOPs and bytes of one pass over a model, part by part, from its shapes alone.

A pass reads `new` tokens in each of `batch` sequences that have `cached` tokens behind them.
Prefill is new = P, cached = 0; a step of decoding is new = 1.  A product and its sum are 2 FLOPs.

    matrices of a layer   w = D (2 H d + 2 Hkv d) + 3 D I        weights; 2 D I without a gate
    pairs                 p = new cached + new (new + 1) / 2     queries with keys; causal
    FLOPs   layers        2 new w  for each sequence and layer
            attention     4 H d p  for each sequence and layer:  q k, and the weights with v
            lm_head       2 V D    for each sequence: the last token alone goes through it
    bytes   weights       once for all sequences: the layers' matrices and lm_head
            cache         2 Hkv d  values for each token of each sequence: cached ones are read,
                          new ones written

The lecture's layer has H d = Hkv d = D, no gate and I = 4 D, so w = 12 D^2, and counts products:

    one more token behind L - 1 others    12 D^2 + 2 L D            (the lecture: 12 D^2 + L D)
    a prompt of L tokens                  12 L D^2 + L^2 D + L D    (the lecture: 12 L D^2 + L^2 D)

Reading a prompt is making its tokens one by one, so the second must be the sum of the first over
L.  The lecture's first line sums to half of its L^2 D: one of attention's two products is missing.
Source: Kaplan et al. 2020 (arXiv:2001.08361), section 2.1; Pope et al. 2022 (arXiv:2211.05102).

Not counted: activations, norms and softmax, the row of the token table that a token reads, and
what kernels start with.  `efflib.serving.roofline` counts norms too, latents, experts and windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from efflib.checks import expect_whole

MATRICES, ATTENTION, HEAD = "matrices", "attention", "lm_head"
PARTS = (MATRICES, ATTENTION, HEAD)
NAMES = {  # ours: Hugging Face's
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}


@dataclass(frozen=True)
class Shapes:
    """The sizes of a decoder without latents, experts and windows; biases are not counted."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    gated: bool = True  # gate, up and down; else up and down
    tied: bool = False  # lm_head is the token table

    def __post_init__(self) -> None:
        expect_whole(1, **{name: getattr(self, name) for name in NAMES})
        if self.heads % self.kv_heads:
            raise ValueError(f"heads={self.heads} must be a multiple of kv_heads={self.kv_heads}")

    @property
    def layer_weights(self) -> int:
        """Weights of one layer's matrices."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim
        return self.hidden * (attention + (3 if self.gated else 2) * self.intermediate)

    @property
    def table(self) -> int:
        """Weights of lm_head, and of the token table."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All of them, with two norms a layer and one at the end."""
        norms = (2 * self.layers + 1) * self.hidden
        return self.layers * self.layer_weights + (1 if self.tied else 2) * self.table + norms


def shapes(source: Any) -> Shapes:
    """The sizes of a `Shapes`, a `LlamaConfig`, a `Decoder`, or a dict with Hugging Face's names.

    In a dict, `gated_mlp` is ours, and false where the MLP has no gate.  Raises ValueError for a
    missing field, and for latents, experts and windows, which are not counted here.
    """
    if isinstance(source, Shapes):
        return source
    if isinstance(source, Mapping):
        return _from_config(source)
    if hasattr(source, "num_hidden_layers"):
        return _from_config({**vars(source), "tie_word_embeddings": source.tie_word_embeddings})
    for name in ("latent", "experts", "window"):
        if getattr(source, name, None):
            raise ValueError(f"{name} is not counted here: see efflib.serving.roofline")
    return Shapes(*(getattr(source, name) for name in NAMES), tied=source.tied)


def _from_config(raw: Mapping) -> Shapes:
    filled = dict(raw)
    if filled.get("sliding_window") and filled.get("use_sliding_window", True):
        raise ValueError("sliding_window is not counted here: see efflib.serving.roofline")
    heads = filled.get("num_attention_heads")
    if filled.get("num_key_value_heads") is None:
        filled["num_key_value_heads"] = heads
    if filled.get("head_dim") is None and heads:
        filled["head_dim"] = filled.get("hidden_size", 0) // heads
    if missing := [theirs for theirs in NAMES.values() if filled.get(theirs) is None]:
        raise ValueError(f"the config lacks {', '.join(missing)}")
    sizes = {ours: filled[theirs] for ours, theirs in NAMES.items()}
    gated, tied = filled.get("gated_mlp", True), bool(filled.get("tie_word_embeddings"))
    return Shapes(**sizes, gated=bool(gated), tied=tied)


class Part(NamedTuple):
    """What a part of a pass computes and moves, for all sequences together."""

    flops: int
    weights: float  # bytes, read once
    cache: float  # bytes of keys and values, read or written

    @property
    def moved(self) -> float:
        """Bytes."""
        return self.weights + self.cache


def pairs(new: int, cached: int = 0) -> int:
    """Queries and keys that meet: token i of the new ones sees cached + i, itself included."""
    expect_whole(1, new=new)
    expect_whole(cached=cached)
    return new * cached + new * (new + 1) // 2


def layer_cost(
    source: Any, new: int, cached: int = 0, batch: int = 1, bits: float = 16, kv_bits: float = 16
) -> dict[str, Part]:
    """Parts of one layer: {"matrices": Part, "attention": Part}.  Arguments as `step_cost`."""
    m = shapes(source)
    expect_whole(1, batch=batch)
    _positive(bits=bits, kv_bits=kv_bits)
    met = pairs(new, cached)
    kept = 2 * m.kv_heads * m.head_dim * (cached + new)  # values of a sequence
    return {
        MATRICES: Part(2 * batch * new * m.layer_weights, m.layer_weights * bits / 8, 0.0),
        ATTENTION: Part(4 * batch * m.heads * m.head_dim * met, 0.0, batch * kept * kv_bits / 8),
    }


def step_cost(
    source: Any, new: int, cached: int = 0, batch: int = 1, bits: float = 16, kv_bits: float = 16
) -> dict[str, Part]:
    """Parts of a whole pass: {"matrices", "attention", "lm_head"}; `total` adds them up.

    bits of a weight, kv_bits of a key or value.  Raises ValueError for new or batch < 1, for
    cached < 0, and unless bits and kv_bits are above 0.
    """
    m = shapes(source)
    layer = layer_cost(m, new, cached, batch, bits, kv_bits)
    parts = {name: Part(*(m.layers * x for x in part)) for name, part in layer.items()}
    return parts | {HEAD: Part(2 * batch * m.table, m.table * bits / 8, 0.0)}


def total(parts: Mapping[str, Part]) -> Part:
    """All parts together."""
    return Part(*(sum(column) for column in zip(*parts.values(), strict=True)))


def prefill_cost(source: Any, tokens: int, batch: int = 1, bits: float = 16) -> Part:
    """The pass that reads a prompt of so many tokens, keys and values in as many bits."""
    return total(step_cost(source, tokens, 0, batch, bits, bits))


def decode_cost(source: Any, cached: int, batch: int = 1, bits: float = 16) -> Part:
    """A step that makes one token behind so many, keys and values in as many bits."""
    return total(step_cost(source, 1, cached, batch, bits, bits))


def attention_share(source: Any, new: int, cached: int = 0) -> float:
    """The part of a pass's FLOPs that is in attention, lm_head not counted.

    Attention takes half of them where a query sees w / (2 H d) keys on average.
    """
    layer = layer_cost(source, new, cached)
    return layer[ATTENTION].flops / (layer[ATTENTION].flops + layer[MATRICES].flops)


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name}={number!r} must be above 0")
