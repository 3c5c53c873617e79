"""Attention sinks: what a cache of bounded size must not forget.

`target` reads held-out code token by token through caches of 32 and of 16 tokens: the most recent
ones only (window), 1, 2, 4 or 8 first tokens and the most recent ones (sinks), no cache but the
window recomputed for every token. All perplexities are over the same tokens, those from FIRST on,
for which the first token has left every window.

Recomputation is measured twice: over the last tokens, as in the paper, and over the begin token
and the last ones (recompute s). `target` never saw a text without its begin token, so the first
is hard for it, and the claims compare with the second, the lower perplexity.

Not claimed: that more sinks are better than one, as in the paper's models, which never saw a begin
token and spread the sink over several. Here there is one sink token, and every further one takes
the place of a recent token: at cache 16 the window recomputed beats four sinks, which leave twelve.

The effect grows with training, as the share of the begin token does, which `training.json`
records: at cache 32 the window alone was 1.05 times one sink after 13 M tokens, 1.16 after 17 M
(QUICK), and now is what the table says after 79 M.

CONTROL: four other early tokens, drawn at random, kept in place of the first four, beside as many
recent ones: what `sinks 4` has over `random 4` is due to which tokens they are. (The window has
four recent tokens more, so it says nothing about the worth of old ones; the lab on sinks compares
one early token with as many recent ones, a sink without its value, and texts without `<s>`.)

What a model does that has no begin token, or needs none: `sink_variants`.
"""

import torch
from torch import Tensor

from efflib import zoo
from efflib.attention.streaming import StreamingCache, recomputed_logits, stream_logits
from efflib.models import KVCache, Llama
from efflib.plots.style import BLUE, GREY, ORANGE
from efflib.zoo.phenomena.story import Claim, Scale, windows

SIZES = (32, 16)
SINKS = (1, 2, 4, 8)
FIRST = 64  # first position whose prediction counts
EARLY = range(4, 16)  # where the control's tokens come from


def perplexity_at(logits: Tensor, ids: Tensor, at: Tensor) -> float:
    """exp of the mean loss of ids[:, at + 1], predicted by logits [B, n, V]."""
    log_p = logits.float().log_softmax(-1)
    return (-log_p.gather(2, ids[:, at + 1, None]).mean()).exp().item()


def control_tokens(seed: int) -> list[int]:
    """Four of the tokens EARLY, at random."""
    order = torch.randperm(len(EARLY), generator=torch.Generator().manual_seed(seed))
    return [EARLY[i] for i in order[:4]]


def bounded(model: Llama, ids: Tensor, at: Tensor, seed: int) -> dict[str, float]:
    """Perplexity of ids [B, T] at positions `at` through every cache."""
    read = ids[:, : int(at[-1]) + 1]

    def through(cache: object) -> float:
        return perplexity_at(stream_logits(model, read, cache)[:, at], ids, at)

    figures = {"dense": through(KVCache())}
    for size in SIZES:
        kept = {"window": (), "random 4": control_tokens(seed)}
        kept |= {f"sinks {n}": range(n) for n in SINKS}
        for name, pinned in kept.items():
            cache = StreamingCache(size, pinned, model.config.rope_theta)
            figures[f"{name} @{size}"] = through(cache)
        for name, keep_first in (("recompute", False), ("recompute s", True)):
            recomputed = recomputed_logits(model, ids, size, at, keep_first)
            figures[f"{name} @{size}"] = perplexity_at(recomputed, ids, at)
    return figures


def measure(scale: Scale, seed: int) -> dict[str, float]:
    text = windows("code", True, scale, seed)[:, : min(scale.length, scale.steps) + 1]
    at = torch.arange(FIRST, text.shape[1] - 2)
    model = zoo.load("target")
    shares = zoo.begin_attention(model, text)  # [L, H]
    figures = bounded(model, text, at, seed)
    figures |= {"largest share": shares.max().item(), "mean share": shares.mean().item()}
    return figures | {
        f"share {layer}.{head}": shares[layer, head].item()
        for layer in range(shares.shape[0])
        for head in range(shares.shape[1])
    }


def claims(figures: dict[str, float]) -> list[Claim]:
    f = figures
    found = [
        Claim("perplexity of window / 1 sink, cache 32", f["window @32"] / f["sinks 1 @32"], 1.3),
    ]
    for size, most in zip(SIZES, (4, 1), strict=True):
        worst = max(f[f"sinks {n} @{size}"] for n in SINKS if n <= most)
        ratio = f[f"recompute s @{size}"] / worst
        which = f"worst of 1-{most} sinks" if most > 1 else "1 sink"
        found.append(Claim(f"recomputation / {which}, cache {size}", ratio, 0.95))
        ratio = f[f"random 4 @{size}"] / f[f"recompute s @{size}"]
        found.append(Claim(f"4 random early tokens / recomputation, cache {size}", ratio, 1.05))
    return found


def plot(figures: dict[str, float], axes: list) -> None:
    bars, heads = axes
    names = ["window", *(f"sinks {n}" for n in SINKS), "random 4", "recompute", "recompute s"]
    for size, colour, shift in ((32, BLUE, -0.2), (16, ORANGE, 0.2)):
        at = [i + shift for i in range(len(names))]
        values = [figures[f"{name} @{size}"] for name in names]
        bars.bar(at, values, width=0.4, color=colour, label=f"cache of {size}")
    bars.axhline(figures["dense"], color=GREY, linestyle="--", label="all tokens")
    bars.set_xticks(range(len(names)), names, rotation=45, ha="right")
    bars.set(ylabel="perplexity")
    bars.margins(y=0.35)  # room for the legend
    bars.legend(loc="upper left", ncols=3, fontsize=8)
    shares = sorted((v for k, v in figures.items() if k.startswith("share ")), reverse=True)
    heads.plot(range(1, len(shares) + 1), shares, marker="o", color=BLUE)
    heads.set(xlabel="heads, ordered", ylabel="attention the begin token gets", ylim=(0, 1))
