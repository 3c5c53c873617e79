"""What lab07_tables.py reads, compares and writes."""

from pathlib import Path

import torch
import torch.nn.functional as F
from lab07_controls import SIZE
from torch import Tensor

from efflib.attention.streaming import StreamingCache, recomputed_logits, stream_logits
from efflib.models import Llama
from efflib.models.cache import Cache, KVCache
from efflib.plots import attention, style
from efflib.zoo.windows import Scale, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab07"
N, LENGTH, FIRST, SEEDS = 12, 104, 40, 3


def texts(seed: int, n: int = N) -> Tensor:
    return windows("code", True, Scale(n, 1, 0, LENGTH), seed)


def losses(logits: Tensor, ids: Tensor) -> Tensor:
    """-ln p of ids[:, 1:] by logits [B, T, V] of ids[:, :-1]. [B, T]"""
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def through(model: Llama, ids: Tensor, cache: Cache) -> Tensor:
    return losses(stream_logits(model, ids[:, :-1], cache), ids)


def anew(model: Llama, ids: Tensor, begin: bool) -> Tensor:
    """Losses from FIRST on, by SIZE tokens that are read anew; before it zeros. [B, T]"""
    logits = recomputed_logits(model, ids, SIZE, torch.arange(FIRST, LENGTH), begin)
    return F.pad(losses(logits, ids[:, FIRST:]), (FIRST, 0))


def without_begin(model: Llama, ids: Tensor) -> Tensor:
    """Losses with everything kept, of texts that start without the begin token. [B, T]"""
    with torch.no_grad():
        return F.pad(losses(model(ids[:, 1:-1]), ids[:, 1:]), (1, 0))


def kept(model: Llama, pinned, size: int = SIZE) -> StreamingCache:
    return StreamingCache(size, pinned, model.config.rope_theta, model.config.rope_scaling)


@torch.no_grad()
def first_token(model: Llama, ids: Tensor) -> str:
    """How long values and hidden states of the first token are; ids [B, T]."""
    cache, hidden = KVCache(), []
    note = [
        m.register_forward_hook(lambda _, args, x: hidden.append(x)) for m in model.model.layers
    ]
    model(ids[:, :-1], cache=cache)
    for hook in note:
        hook.remove()
    apart = max(float((x[:, :, 0] - x[:1, :, 0]).abs().max()) for x in cache.keys + cache.values)
    norms = [v.norm(dim=-1) for v in cache.values]  # [B, H, T]
    heads = [n[:, :, 0] / n[:, :, 1:].median(-1).values for n in norms]
    heads = torch.stack([each.mean(0) for each in heads]).flatten().sort().values
    norms = [x.norm(dim=-1) for x in hidden]  # [B, T]
    first, *_, last = [float((n[:, 0] / n[:, 1:].median(-1).values).mean()) for n in norms]
    return (
        f"The value of `<s>` is {heads[0]:.2f} to {heads[-1]:.2f} times as long as the median "
        f"token's, below {heads.median():.2f} in half of the heads. Its hidden state is "
        f"{first:.1f} times as long as the median token's behind the first layer and {last:.1f} "
        f"times behind the last. In {len(ids)} texts its keys and values lie {apart} apart.\n"
    )


def spread(a: Tensor, b: Tensor, first: int = FIRST, last: int | None = None) -> tuple:
    """Ratio of perplexities with two standard errors over all texts of all seeds."""
    per_text = (a - b)[:, first:last].double().mean(1)
    error = per_text.std() / len(per_text) ** 0.5
    return tuple(float((per_text.mean() + k * error).exp()) for k in (0, -2, 2))


def said(ratio: tuple[float, float, float]) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*ratio)


def perplexity(run: Tensor) -> float:
    """Of all tokens together, so that ratios are quotients of perplexities."""
    return run[:, FIRST:].mean().exp().item()


def curve(a: Tensor, b: Tensor, of: int = 3) -> list[float]:
    """Perplexity of a over that of b along the text, the mean over texts and `of` tokens."""
    return (a - b).mean(0).unfold(0, of, 1).mean(-1).exp().tolist()


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}", flush=True)


def save(drawn: attention.Drawn, name: str) -> None:
    figure, alt = drawn
    style.save(figure, FIGURES / f"{name}.svg", alt)
    print(f"{name}: {alt}", flush=True)
