"""What a way of adapting a model costs, by arithmetic, and a choice among several.

    way        size   trained numbers          decoding, beside the base, a token of a row
    lora       r      r (N + K), 7 linears     2 FLOPs a trained number; all of them read
    adapter    m      2 (2 D m + m + D)        8 D m FLOPs a block;      all of them read
    prompt     n      n D                      4 n H d FLOPs a block; n 2 Hkv d numbers read
    prefix     n      n L 2 Hkv d              as a prompt of n
    bitfit     -      N, 7 linears             a sum; all of them read
    random     n      n                        nothing: they lie in the weights

Products alone are counted, 2 FLOPs for each multiplication with its sum.  A prompt is read once,
before the text; what every token reads again are its keys and values, as many as those of a prefix.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from efflib.checks import expect_whole
from efflib.models.config import LlamaConfig

WAYS = ("lora", "adapter", "prompt", "prefix", "bitfit", "random")
STATES, HALF = 8, 2  # bytes: AdamW's two float32, a 16-bit number


class Bill(NamedTuple):
    """One line of the table."""

    trained: int
    optimizer_bytes: int
    flops: int  # a token of decoding, of one row
    read_bytes: int  # the same, 16-bit numbers
    context: int  # positions that the text loses
    mergeable: bool  # exactly, into arrays that the model has
    batchable: bool  # every row its own, while each weight is read once


def block_linears(c: LlamaConfig) -> list[tuple[int, int]]:
    """[N, K] of q, k, v, o, gate, up, down."""
    d, q, kv, f = c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.intermediate_size
    q, kv = q * c.head_dim, kv * c.head_dim
    return [(q, d), (kv, d), (kv, d), (d, q), (f, d), (f, d), (d, f)]


def bill(way: str, size: int, c: LlamaConfig) -> Bill:
    """The costs of a way with its size (r, m or n; of bitfit it is not looked at)."""
    expect_whole(size=size)
    if way not in WAYS:
        raise ValueError(f"{way=} must be one of {WAYS}")
    layers, d, linears = c.num_hidden_layers, c.hidden_size, block_linears(c)
    keys = layers * 2 * c.num_key_value_heads * c.head_dim  # and values, of one position
    trained = {
        "lora": layers * sum(size * (n + k) for n, k in linears),
        "adapter": layers * 2 * (2 * d * size + size + d),
        "prompt": size * d,
        "prefix": size * keys,
        "bitfit": layers * sum(n for n, _ in linears),
        "random": size,
    }[way]
    before = size if way in ("prompt", "prefix") else 0
    flops = {"lora": 2 * trained, "adapter": layers * 8 * d * size}.get(way, 0)
    flops += 4 * before * layers * c.num_attention_heads * c.head_dim
    beside = trained if way in ("lora", "adapter", "bitfit") else before * keys
    mergeable = way in ("lora", "random") or (way == "bitfit" and c.attention_bias and c.mlp_bias)
    return Bill(trained, STATES * trained, flops, HALF * beside, before, mergeable, way != "random")


def spread(values: Sequence[float]) -> float:
    return max(values) - min(values)


def apart(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether the means differ by more than the larger of the two spreads (largest - smallest)."""
    distance = abs(sum(a) / len(a) - sum(b) / len(b))
    return distance > max(spread(a), spread(b))


def fits(candidate: Mapping, need: Mapping) -> bool:
    """need: {column: True, it must be so; a number, at most so much}."""
    return all(
        bool(candidate[key]) or not limit if isinstance(limit, bool) else candidate[key] <= limit
        for key, limit in need.items()
    )


def choose(candidates: Mapping[str, Mapping], need: Mapping) -> str | None:
    """Of the candidates that fit, those whose losses are not apart from the best; the fewest
    trained of them, then the first.  candidates: {name: {"losses": [...], columns of a bill}}.
    None if none fits."""
    fit = {name: c for name, c in candidates.items() if fits(c, need)}
    if not fit:
        return None
    best = min(fit.values(), key=lambda c: sum(c["losses"]) / len(c["losses"]))
    as_good = [n for n, c in fit.items() if not apart(c["losses"], best["losses"])]
    return min(as_good, key=lambda n: fit[n]["trained"])
