"""Numbers and figures of the chapter on attention sinks, measured on the zoo's models.

    python benchmarks/lab07_tables.py             writes course/chapters/_generated/lab07_*.md
    python benchmarks/lab07_tables.py opening     and course/figures/lab07/*.svg; or single parts

Perplexities are of held-out code, of the tokens from FIRST on, in N texts for each of SEEDS seeds.
Some minutes; the stream of 100 000 tokens is a command of its own, lab07_stream.py.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib import zoo
from efflib.attention import backcopy
from efflib.attention.maps import attention_maps, sink_scores
from efflib.attention.sink_bias import SinkBias, sink_softmax
from efflib.attention.streaming import StreamingCache, recomputed_logits, stream_logits
from efflib.models import KVCache, Llama
from efflib.models.cache import Cache
from efflib.plots import attention, style
from efflib.zoo.phenomena.story import Scale, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab07"
SIZE, SIZES, SINKS = 12, (8, 16, 32), (0, 1, 2, 4, 8)
N, LENGTH, FIRST, SEEDS = 12, 104, 40, 3
EARLY = range(4, 16)
FRONT = {"last 12": "0 + 12", "first + last 11": "1 + 11", "early + last 11": "early + 11"}
STEPS = 300


def texts(seed: int, n: int = N) -> Tensor:
    return windows("code", True, Scale(n, 1, 0, LENGTH), seed)


def losses(logits: Tensor, ids: Tensor) -> Tensor:
    """-ln p of ids[:, 1:] by logits [B, T, V] of ids[:, :-1]. [B, T]"""
    return F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


def through(model: Llama, ids: Tensor, cache: Cache) -> Tensor:
    return losses(stream_logits(model, ids[:, :-1], cache), ids)


def kept(model: Llama, pinned, size: int = SIZE) -> StreamingCache:
    return StreamingCache(size, pinned, model.config.rope_theta, model.config.rope_scaling)


def spread(a: list[Tensor], b: list[Tensor]) -> tuple[float, float, float]:
    """Ratio of perplexities with two standard errors over all texts of all seeds."""
    per_text = (torch.cat(a) - torch.cat(b))[:, FIRST:].double().mean(1)
    error = per_text.std() / len(per_text) ** 0.5
    return tuple(float((per_text.mean() + k * error).exp()) for k in (0, -2, 2))


def perplexity(runs: list[Tensor]) -> list[float]:
    return [run[:, FIRST:].mean().exp().item() for run in runs]


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}", flush=True)


def save(drawn: attention.Drawn, name: str) -> None:
    figure, alt = drawn
    style.save(figure, FIGURES / f"{name}.svg", alt)
    print(f"{name}: {alt}", flush=True)


def opening() -> None:
    model, ids = zoo.load("target"), texts(0, 32)[:, :73]
    more = through(model, ids, kept(model, ())) - through(model, ids, KVCache())
    curve = more.mean(0).unfold(0, 3, 1).mean(-1).exp().tolist()
    title = f"A model that remembers the last {SIZE} tokens"
    save(attention.opening(curve, SIZE, title, first=3), "opening")


def anew(model: Llama, ids: Tensor, begin: bool) -> Tensor:
    """Losses from FIRST on, by SIZE tokens that are read anew; before it zeros. [B, T]"""
    logits = recomputed_logits(model, ids, SIZE, torch.arange(FIRST, LENGTH), begin)
    return F.pad(losses(logits, ids[:, FIRST:]), (FIRST, 0))


def without_begin(model: Llama, ids: Tensor) -> Tensor:
    """Losses with everything kept, of texts that start without the begin token. [B, T]"""
    with torch.no_grad():
        return F.pad(losses(model(ids[:, 1:-1]), ids[:, 1:]), (1, 0))


class NoValue(StreamingCache):
    """The values of token 0 are zero: its key takes attention, and gives nothing for it."""

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().append(layer, k, v)
        first = self.tokens[layer] == 0
        return keys, values.masked_fill(first[:, None], 0.0)


def controls(model: Llama, ids: list[Tensor]) -> dict[str, list[Tensor]]:
    """Losses for each seed's texts: caches that tell apart what a first token is kept for."""
    early = [EARLY[s::SEEDS] for s in range(SEEDS)]  # four for each seed's texts
    theta, pairs = model.config.rope_theta, list(zip(ids, early, strict=True))
    return {
        "early + 11": [through(model, t, kept(model, e[1:2])) for t, e in pairs],
        "value 0": [through(model, t, NoValue(SIZE, (0,), theta)) for t in ids],
        "recompute": [anew(model, t, False) for t in ids],
        "<s>, recompute": [anew(model, t, True) for t in ids],
        "all": [through(model, t, KVCache()) for t in ids],
        "all, no <s>": [without_begin(model, t) for t in ids],
        "4 + 11": [through(model, t, kept(model, range(4), SIZE + 3)) for t in ids],
        "0 + 8": [through(model, t, kept(model, (), 8)) for t in ids],
        "4 early + 8": [through(model, t, kept(model, e)) for t, e in pairs],
    }


def ablation() -> None:
    model, ids = zoo.load("target"), [texts(seed) for seed in range(SEEDS)]
    runs = {
        f"{n} + {SIZE - n}": [through(model, t, kept(model, range(n))) for t in ids] for n in SINKS
    }
    shown = len(runs) + 6  # the last three are compared with as many recent tokens: in the table
    runs |= controls(model, ids)
    one = runs[f"1 + {SIZE - 1}"]
    lines = ["| cache | perplexity | times that of one sink |", "|---|---|---|"]
    ratios = {name: spread(run, one) for name, run in runs.items()}
    means = {name: sum(perplexity(run)) / SEEDS for name, run in runs.items()}
    for name, (ratio, low, high) in ratios.items():
        lines.append(f"| {name} | {means[name]:.2f} | {ratio:.2f} ({low:.2f} to {high:.2f}) |")
    against = (("early + 11", "0 + 12"), ("4 early + 8", "0 + 8"), ("4 + 8", "0 + 8"))
    lines += ["", "| cache | compared with | times its perplexity |", "|---|---|---|"]
    for name, other in (*against, ("all, no <s>", "all")):
        ratio, low, high = spread(runs[name], runs[other])
        lines.append(f"| {name} | {other} | {ratio:.2f} ({low:.2f} to {high:.2f}) |")
    write("lab07_ablation", "\n".join(lines).replace("<s>", "`<s>`") + "\n")
    bars = dict(list(ratios.items())[:shown])
    empty = [name for name in list(bars)[len(SINKS) :] if name != "all"]
    title = f"A window is about {bars[f'0 + {SIZE}'][0]:.0f} times worse than one sink"
    save(attention.caches(bars, title, empty, "perplexity, times one sink"), "ablation")
    front = {text: means[name] for text, name in (FRONT | {"everything": "all"}).items()}
    save(attention.lengths(front, "perplexity"), "front")


def sizes() -> None:
    model, ids = zoo.load("target"), [texts(seed) for seed in range(SEEDS)]
    lines = ["| cache | window | one sink | ratio |", "|---|---|---|---|"]
    for size in SIZES:
        zero, one = ([through(model, t, kept(model, p, size)) for t in ids] for p in ((), (0,)))
        ratio, low, high = spread(zero, one)
        means = [sum(perplexity(run)) / SEEDS for run in (zero, one)]
        lines.append(
            f"| {size} | {means[0]:.2f} | {means[1]:.2f} | {ratio:.2f} ({low:.2f} to {high:.2f}) |"
        )
    write("lab07_sizes", "\n".join(lines) + "\n")


def maps() -> None:
    model, ids = zoo.load("target"), texts(0, 8)
    p = attention_maps(model, ids)
    scores = sink_scores(p)
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    near = divmod(int(p.diagonal(-1, 2, 3).mean(-1).argmax()), p.shape[1])
    entropy = -(p * p.clamp(min=1e-9).log()).sum(-1).mean(-1)  # [L, H]
    wide = divmod(int(entropy.argmax()), p.shape[1])
    places = dict.fromkeys([wide, near, (layer, head)])
    panels = {f"layer {i}, head {h}": p[i, h, :48, :48] for i, h in places}
    title = "Looking most widely, most at the token before, at the first"
    save(attention.maps(panels, title), "maps")
    even = sum(1 / (t + 1) for t in range(32, p.shape[2])) / (p.shape[2] - 32)
    title = f"The head that does it most gives the first token {100 * scores.max():.0f} %"
    save(attention.layers(scores, title, even), "layers")


def idle_share(model: Llama, ids: Tensor, late: Tensor) -> tuple[float, float]:
    """Of late queries that need no head: share of the first token, and of no token."""
    attn = model.model.layers[0].self_attn
    own, seen = attn._modules.pop("attention", None), []
    plain = None if own else attn.attention

    def recording(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        s = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf"))
        p = sink_softmax(s, own.bias) if own else s.softmax(-1)
        seen.append(p[:, 0, -late.shape[1] :])
        return p @ v

    attn.attention = recording
    with torch.no_grad():
        model(ids)
    attn.attention = own if own else plain
    p = seen[0]
    return p[..., 0][late].mean().item(), (1 - p.sum(-1))[late].mean().item()


def grown(task: backcopy.Task, chains: Tensor, name: str, seed: int) -> tuple[tuple, list[float]]:
    """Train one model: ((steps, shares of the first token), the numbers of its row)."""
    late = ~task.is_trigger[chains[:, 13:-1]]
    model, begin = backcopy.one_head_model(seed=seed), name == "begin token"
    if name in ("extra zero", "learned bias"):
        model.model.layers[0].self_attn.attention = bias = SinkBias(1)
        bias.bias.requires_grad_(name == "learned bias")
    ids, curve = chains[:, 0 if begin else 1 :], ([], [])
    for step, _ in backcopy.train(model, task, STEPS, seed=seed, begin=begin):
        if step == 1 or step % 50 == 0:
            curve[0].append(step)
            curve[1].append(idle_share(model, ids[:, :-1], late)[0])
    excess = []  # nats above the best possible loss, of idle queries
    for pinned in (None, (), (0,), (2,)):
        cache = KVCache() if pinned is None else kept(model, pinned, 8)
        more = through(model, ids, cache) - backcopy.best_losses(task, ids)
        excess.append(more[:, -late.shape[1] :][late].mean().item())
    rises = [x - excess[0] for x in excess[1:]]
    return curve, [*idle_share(model, ids[:, :-1], late), excess[0], *rises]


def training() -> None:
    task = backcopy.make_task(seed=0)
    chains = backcopy.sample(task, 48, 24, torch.Generator().manual_seed(1000))
    curves = {}
    lines = ["| model | first token | nowhere | all | + window | + first kept | + other kept |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name in ("begin token", "no sink", "extra zero", "learned bias"):
        runs = [grown(task, chains, name, seed) for seed in range(SEEDS)]
        curves[name] = runs[0][0]
        columns = zip(*(row for _, row in runs), strict=True)
        cells = (f"{sum(c) / SEEDS:.2f} ({min(c):.2f} to {max(c):.2f})" for c in columns)
        lines.append(f"| {name} | {' | '.join(cells)} |".replace("-0.00", "0.00"))
    write("lab07_training", "\n".join(lines) + "\n")
    share = curves["begin token"][1][-1]
    title = f"A sink grows on the begin token, to {share:.2f}, and nowhere else"
    save(attention.training(curves, title), "training")


PARTS = {f.__name__: f for f in (opening, ablation, sizes, maps, training)}


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
