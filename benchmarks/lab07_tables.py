"""Numbers and figures of the chapter on attention sinks, measured on the zoo's models.

    python benchmarks/lab07_tables.py             writes course/chapters/_generated/lab07_*.md
    python benchmarks/lab07_tables.py opening     and course/figures/lab07/*.svg; or single parts

Perplexities are of held-out code, of the tokens from FIRST on, in N texts for each of SEEDS seeds.
A few minutes; the stream of 100 000 tokens is a command of its own, lab07_stream.py.
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
    save(attention.opening(curve, SIZE - 1, title), "opening")


def ablation() -> None:
    model, ids = zoo.load("target"), [texts(seed) for seed in range(SEEDS)]
    runs = {
        f"{n} + {SIZE - n}": [through(model, t, kept(model, range(n))) for t in ids] for n in SINKS
    }
    orders = (torch.randperm(12, generator=torch.Generator().manual_seed(s)) for s in range(SEEDS))
    early = [[EARLY[i] for i in order[:4]] for order in orders]
    runs["4 random"] = [through(model, t, kept(model, e)) for t, e in zip(ids, early, strict=True)]
    at = torch.arange(FIRST, LENGTH)
    for name, first in (("recompute", False), ("recompute s", True)):
        runs[name] = [
            F.pad(
                F.cross_entropy(
                    recomputed_logits(model, t, SIZE, at, first).transpose(1, 2),
                    t[:, FIRST + 1 :],
                    reduction="none",
                ),
                (FIRST, 0),
            )
            for t in ids
        ]
    dense = [through(model, t, KVCache()) for t in ids]
    one = runs[f"1 + {SIZE - 1}"]
    lines = ["| cache | perplexity | times that of one sink |", "|---|---|---|"]
    for name, run in {**runs, "everything": dense}.items():
        ratio, low, high = spread(run, one)
        mean = sum(perplexity(run)) / SEEDS
        lines.append(f"| {name} | {mean:.2f} | {ratio:.2f} ({low:.2f} to {high:.2f}) |")
    write("lab07_ablation", "\n".join(lines) + "\n")
    bars = {name: perplexity(run) for name, run in runs.items()}
    gain = spread(runs[f"0 + {SIZE}"], one)[0]
    title = f"Without its first token a window is {gain:.2f} times worse; random ones don't help"
    reference = {"everything kept": sum(perplexity(dense)) / SEEDS}
    save(attention.caches(bars, title, reference, ["4 random"]), "ablation")


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
    places = dict.fromkeys([(0, 0), near, (layer, head)])
    panels = {f"layer {i}, head {h}": p[i, h, :48, :48] for i, h in places}
    title = "One spreads, one looks at the token before, one at the first"
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


def training() -> None:
    task = backcopy.make_task(seed=0)
    chains = backcopy.sample(task, 48, 24, torch.Generator().manual_seed(1000))
    late = ~task.is_trigger[chains[:, 13:-1]]
    curves, lines = (
        {},
        ["| model | first token | nowhere | all | window | first kept | other kept |"],
    )
    lines.append("|---|---|---|---|---|---|---|")
    for name in ("begin token", "no sink", "extra zero", "learned bias"):
        model, begin = backcopy.one_head_model(seed=0), name == "begin token"
        if name in ("extra zero", "learned bias"):
            model.model.layers[0].self_attn.attention = bias = SinkBias(1)
            bias.bias.requires_grad_(name == "learned bias")
        ids, curves[name] = chains[:, 0 if begin else 1 :], ([], [])
        for step, _ in backcopy.train(model, task, STEPS, begin=begin):
            if step == 1 or step % 50 == 0:
                curves[name][0].append(step)
                curves[name][1].append(idle_share(model, ids[:, :-1], late)[0])
        shares, excess = idle_share(model, ids[:, :-1], late), []
        for pinned in (None, (), (0,), (2,)):
            cache = KVCache() if pinned is None else kept(model, pinned, 8)
            more = through(model, ids, cache) - backcopy.best_losses(task, ids)
            excess.append(more[:, -late.shape[1] :][late].mean().item())
        row = " | ".join(f"{x:.2f}" for x in (*shares, *excess))
        lines.append(f"| {name} | {row} |")
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
