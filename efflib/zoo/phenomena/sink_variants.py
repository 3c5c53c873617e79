"""Attention sinks by design: no begin token, a begin token, an extra zero in the softmax.

Three small models of one size, text and number of steps, as in table 3 of "Efficient Streaming
Language Models with Attention Sinks" (Xiao et al., 2024):

    vanilla         texts begin anywhere; no token stands before all of them
    learnable_sink  one token does, the begin token: the model can learn to rest its attention on it
    zero_sink       no such token, but the softmax has an extra zero: heads may attend to nothing

Each reads held-out code token by token through caches of 32 and of 16 tokens: 0, 1, 2 or 4 first
tokens and the most recent ones.  All perplexities are over the same tokens, those from FIRST on.

CONTROL: `vanilla`. What keeping first tokens gives it is what old text is worth, without a sink.

The one token that was learned is all the sink there is: a window without it collapses, with it the
model is where the others are, and three more first tokens only take places from recent ones.  In
the paper, at 160 M parameters, the vanilla model has a sink as well (perplexity 27.87 without first
tokens, 18.05 with four) and the extra zero does not spare one (29214 and 18.01).  These models are
a hundred times smaller and saw less text: without a place made for it, no sink has grown yet.
"""

import torch
from torch import Tensor

from efflib import zoo
from efflib.attention.streaming import StreamingCache, stream_logits
from efflib.models import KVCache, Llama
from efflib.plots.style import BLUE, GREEN, ORANGE
from efflib.zoo.phenomena.sinks import FIRST, SIZES, perplexity_at
from efflib.zoo.phenomena.story import Claim, Scale, windows

MODELS = {
    "vanilla": "as usual",
    "zero_sink": "with an extra zero",
    "learnable_sink": "with a learnable sink token",
}
LOOKS = (ORANGE, "o"), (GREEN, "s"), (BLUE, "^")  # colour and marker of each
SINKS = (0, 1, 2, 4)


def streamed(model: Llama, ids: Tensor, at: Tensor) -> dict[str, float]:
    """Perplexity of ids [B, T] at positions `at`, with all tokens and through every cache."""

    def through(cache: object) -> float:
        return perplexity_at(stream_logits(model, ids[:, : int(at[-1]) + 1], cache)[:, at], ids, at)

    figures = {"dense": through(KVCache())}
    for size in SIZES:
        for n in SINKS:
            cache = StreamingCache(size, range(n), model.config.rope_theta)
            figures[f"{n}+{size - n}"] = through(cache)
    return figures


def measure(scale: Scale, seed: int) -> dict[str, float]:
    text = windows("code", True, scale, seed)[:, : min(scale.length, scale.steps) + 1]
    figures = {}
    for name in MODELS:
        model, begin = zoo.load(name), name == "learnable_sink"
        ids = text if begin else text[:, 1:]
        at = torch.arange(FIRST, text.shape[1] - 2) - int(not begin)  # the same tokens
        shares = zoo.begin_attention(model, ids, zero_sink=name == "zero_sink")  # [L, H]
        found = streamed(model, ids, at) | {"largest share": shares.max().item()}
        figures |= {f"{name} {key}": value for key, value in found.items()}
    return figures


def gain(figures: dict[str, float], name: str, size: int) -> float:
    """Perplexity of the window over that of one first token and the rest."""
    return figures[f"{name} 0+{size}"] / figures[f"{name} 1+{size - 1}"]


def claims(figures: dict[str, float]) -> list[Claim]:
    f = figures
    found = []
    for size in SIZES:
        learnable = gain(f, "learnable_sink", size)
        for other in ("vanilla", "zero_sink"):
            text = f"what 1 first token gains, learnable_sink / {other}, cache {size}"
            found.append(Claim(text, learnable / gain(f, other, size), 1.1))
        one, four = f[f"learnable_sink 1+{size - 1}"], f[f"learnable_sink 4+{size - 4}"]
        found.append(Claim(f"learnable_sink: 4 first tokens / 1, cache {size}", four / one, 0.95))
    return found


def plot(figures: dict[str, float], axes: list) -> None:
    for ax, size in zip(axes, SIZES, strict=True):
        for (name, label), (colour, marker) in zip(MODELS.items(), LOOKS, strict=True):
            values = [figures[f"{name} {n}+{size - n}"] / figures[f"{name} dense"] for n in SINKS]
            ax.plot(range(len(SINKS)), values, marker=marker, color=colour, label=label)
        ax.axhline(1, color="black", linewidth=0.6)
        ax.set_xticks(range(len(SINKS)), [f"{n}+{size - n}" for n in SINKS])
        ax.set(xlabel="first tokens + recent tokens", title=f"cache of {size}")
    axes[0].set(ylabel="perplexity / that with all tokens")
    axes[0].legend(fontsize=8)
