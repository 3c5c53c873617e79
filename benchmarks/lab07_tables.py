"""Numbers and figures of the chapter on attention sinks, measured on the zoo's models.

    python benchmarks/lab07_tables.py             writes course/chapters/_generated/lab07_*.md
    python benchmarks/lab07_tables.py opening     and course/figures/lab07/*.svg; or single parts

Perplexities are of held-out code, of the tokens from FIRST on, in N texts for each of SEEDS seeds.
Some minutes; the stream of 100 000 tokens is a command of its own, lab07_stream.py.
"""

import sys
from collections.abc import Callable, Sequence

import torch
from lab07_controls import (
    BACK,
    SIZE,
    Changed,
    Neither,
    NoKey,
    PutBack,
    noting,
    resting,
    smaller,
    with_functions,
)
from lab07_growth import grown
from lab07_texts import (
    FIRST,
    LENGTH,
    SEEDS,
    N,
    anew,
    curve,
    first_token,
    kept,
    perplexity,
    said,
    save,
    spread,
    texts,
    through,
    without_begin,
    write,
)
from torch import Tensor

from efflib import zoo
from efflib.attention.maps import attention_maps, sink_scores
from efflib.models import KVCache, Llama
from efflib.models.llama import AttentionFn
from efflib.plots import attention
from efflib.zoo import backcopy
from efflib.zoo.windows import Scale, windows

SIZES, SINKS = (8, 16, 32), (0, 1, 2, 4, 8)
EARLY = range(4, 16)
FRONT = {"last 12": "0 + 12", "first + last 11": "1 + 11", "early + last 11": "early + 11"}


def opening() -> None:
    model, ids = zoo.load("target"), texts(0, 32)[:, :73]
    full = through(model, ids, KVCache())
    curves = {
        f"the last {SIZE}": curve(through(model, ids, kept(model, ())), full),
        f"the first and the last {SIZE - 1}": curve(through(model, ids, kept(model, (0,))), full),
    }
    title = f"A model that remembers {SIZE} tokens"
    label = "perplexity, times that\nwith everything kept"
    save(attention.along(curves, {SIZE: "full: ?"}, title, 3, label), "opening")


def scores_of_first(model: Llama) -> tuple[Tensor, Tensor]:
    """On texts of the training, in "1 + 11": share and mean score of `<s>`. Two of [layers, H]"""
    ids = windows("code", False, Scale(0, N, 0, LENGTH), 0)
    notes = [[] for _ in model.model.layers]
    with_functions(
        model, [noting(n) for n in notes], lambda: through(model, ids, kept(model, (0,)))
    )
    scores = torch.stack([torch.stack(note[FIRST:]) for note in notes])  # [layers, T, B, H, SIZE]
    return scores.softmax(-1)[..., 0].mean((1, 2)), scores[..., 0].mean((1, 2))


def by_seed(ids: Tensor, run: Callable[[int, Tensor], Tensor]) -> Tensor:
    """run(seed, its texts) for every seed, together."""
    return torch.cat([run(seed, part) for seed, part in enumerate(ids.split(N))])


def controls(model: Llama, ids: Tensor) -> dict[str, Tensor]:
    """Losses: caches that tell apart what a first token is kept for."""
    early = [EARLY[s::SEEDS] for s in range(SEEDS)]  # four for each seed's texts
    theta, newline = model.config.rope_theta, zoo.load_tokenizer().encode("\n").ids[0]
    line, lines = ids.clone(), torch.cat([ids[:, :1].expand(-1, 3), ids], dim=1)
    line[:, 0], lines[:, :4] = newline, newline
    moved = torch.cat([ids[:, 1:6], ids[:, :1], ids[:, 6:]], dim=1)
    return {
        "early + 11": by_seed(ids, lambda s, t: through(model, t, kept(model, early[s][1:2]))),
        "line break": through(model, line, kept(model, (0,))),
        "<s> at 5": through(model, moved, kept(model, (5,))),
        "value 0": through(model, ids, Changed(SIZE, (0,), theta)),
        "key 0": through(model, ids, NoKey(SIZE, (0,), theta)),
        "recompute": anew(model, ids, False),
        "<s>, recompute": anew(model, ids, True),
        "all": through(model, ids, KVCache()),
        "all, no <s>": without_begin(model, ids),
        "4 line breaks + 8": through(model, lines, kept(model, range(4)))[:, 3:],
        "4 + 11": through(model, ids, kept(model, range(4), SIZE + 3)),
        "0 + 8": through(model, ids, kept(model, (), 8)),
        "4 early + 8": by_seed(ids, lambda s, t: through(model, t, kept(model, early[s]))),
    }


def without_a_sink(model: Llama, ids: Tensor) -> dict[str, Tensor]:
    """Losses of a window whose heads give less, or whose softmax may rest."""
    share, score = scores_of_first(model)
    least, most = share.mean(1).min(), share.mean(1).max()
    heads = f"over half in {int((share > 0.5).sum())} of {share.numel()}"
    print(
        f"share of <s> in 1 + {SIZE - 1}: mean {share.mean():.2f}, evenly {1 / SIZE:.2f}, {heads}"
    )
    print(f"means of the layers: {least:.2f} to {most:.2f}")
    generator = torch.Generator().manual_seed(0)
    mixed = torch.stack([row[torch.randperm(len(row), generator=generator)] for row in share])

    def run(functions: Sequence[AttentionFn], size: int = SIZE) -> Tensor:
        return with_functions(model, functions, lambda: through(model, ids, kept(model, (), size)))

    return {
        "x (1 - share)": run(smaller(1 - share)),
        "x the same, other heads": run(smaller(1 - mixed)),
        "x their mean": run(smaller(1 - share.mean().expand_as(share))),
        "b = 0": run(resting(0 * score)),
        "b of each head": run(resting(score)),
        "b of each head, last 11": run(resting(score), SIZE - 1),
        "key and value 0": through(model, ids, Neither(SIZE, (0,), model.config.rope_theta)),
    }


def table(runs: dict[str, Tensor], one: Tensor) -> dict[str, tuple[float, float, float]]:
    ratios = {name: spread(run, one) for name, run in runs.items()}
    lines = ["| cache | perplexity | times that of one sink |", "|---|---|---|"]
    lines += [f"| {n} | {perplexity(runs[n]):.2f} | {said(r)} |" for n, r in ratios.items()]
    return ratios, "\n".join(lines).replace("<s>", "`<s>`") + "\n"


def ablation() -> None:
    model, ids = zoo.load("target"), torch.cat([texts(seed) for seed in range(SEEDS)])
    runs = {f"{n} + {SIZE - n}": through(model, ids, kept(model, range(n))) for n in SINKS}
    one, shown = runs[f"1 + {SIZE - 1}"], len(runs) + 9
    runs |= controls(model, ids)
    ratios, text = table(runs, one)
    lines = ["", "| cache | compared with | times its perplexity |", "|---|---|---|"]
    against = (("early + 11", "0 + 12"), ("4 early + 8", "0 + 8"), ("4 + 8", "0 + 8"))
    for name, other in (*against, ("all, no <s>", "all")):
        lines.append(f"| {name} | {other} | {said(spread(runs[name], runs[other]))} |")
    write("lab07_ablation", text + "\n".join(lines).replace("<s>", "`<s>`") + "\n")
    bars = {n: r for n, r in list(ratios.items())[:shown] if n != "8 + 4"}
    empty = [name for name in list(bars)[len(SINKS) - 1 :] if name != "all"]
    title = f"A window is about {bars[f'0 + {SIZE}'][0]:.0f} times worse than one sink"
    save(attention.caches(bars, title, empty, "perplexity, times one sink"), "ablation")
    shown = (FRONT | {"everything": "all"}).items()
    front = {text: round(perplexity(runs[name]), 2) for text, name in shown}
    save(attention.lengths(front, "perplexity"), "front")


def nosink() -> None:
    model, ids = zoo.load("target"), torch.cat([texts(seed) for seed in range(SEEDS)])
    one, window = (through(model, ids, kept(model, p)) for p in ((0,), ()))
    write("lab07_nosink", table({"window": window} | without_a_sink(model, ids), one)[1])
    constants = KVCache()
    with torch.no_grad():
        model(torch.tensor([[zoo.BEGIN_ID]]), cache=constants)
    back = through(model, ids, PutBack(model, constants))
    marks = {SIZE: "full", BACK: "put back"}
    curves = {"the last 12": curve(window, one), "the last 11, `<s>` put back": curve(back, one)}
    curves = {name.replace("`", ""): row for name, row in curves.items()}
    title = "The constants of the begin token repair a window in a few tokens"
    save(attention.along(curves, marks, title, 3, "perplexity, times one sink"), "back")
    lines = ["| tokens read | window | put back at 60 |", "|---|---|---|"]
    for a, b in ((40, 60), (60, 61), (61, 64), (64, 70), (70, LENGTH)):
        pair = (said(spread(run, one, a, b)) for run in (window, back))
        lines.append(f"| {a + 1} to {b} | {' | '.join(pair)} |")
    write("lab07_back", "\n".join(lines) + "\n")


def first() -> None:
    ids = torch.cat([texts(seed) for seed in range(SEEDS)])
    write("lab07_first", first_token(zoo.load("target"), ids))


def sizes() -> None:
    model, ids = zoo.load("target"), torch.cat([texts(seed) for seed in range(SEEDS)])
    lines = ["| cache | window | one sink | ratio |", "|---|---|---|---|"]
    for size in SIZES:
        zero, one = (through(model, ids, kept(model, p, size)) for p in ((), (0,)))
        means = " | ".join(f"{perplexity(run):.2f}" for run in (zero, one))
        lines.append(f"| {size} | {means} | {said(spread(zero, one))} |")
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


def training() -> None:
    task = backcopy.make_task(seed=0)
    chains = backcopy.sample(task, 48, 24, torch.Generator().manual_seed(1000))
    curves = {}
    names = ["model", "first token", "nowhere", "as wide as", "gives", "after triggers"]
    names += ["all", "+ window", "+ first kept", "+ other kept"]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
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


PARTS = {f.__name__: f for f in (opening, ablation, nosink, first, sizes, maps, training)}


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
