"""Numbers and figures of the chapter on adapters and prompts.

    python benchmarks/lab16_tables.py             writes course/chapters/_generated/lab16_*.md
                                                  and course/figures/lab16/*.svg, prints the tables
    python benchmarks/lab16_tables.py bills       only this part (or some, see PARTS)

The trainings are those of `lab16_runs.py`, which keeps them in lab16_runs.json; here the file is
read.  What is trained here besides takes a minute of a core.
"""

import copy
import json
import sys
from pathlib import Path

import lab16_runs as runs
import torch
from torch import nn

from efflib.finetuning.adapters import Behind
from efflib.finetuning.bills import apart, bill
from efflib.finetuning.prompts import PromptModel, joined, next_token, prompt_of_words
from efflib.finetuning.tasks import TASKS, examples, score
from efflib.models.cache import KVCache
from efflib.models.config import LlamaConfig
from efflib.models.embedded import logits_of_vectors
from efflib.plots import adapters as plots
from efflib.plots import placements, style

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab16"
RUNS = json.loads(runs.FILE.read_text())
LLAMA3 = LlamaConfig(128_256, 4096, 14_336, 32, 32, 8, 128)
EQUAL = ["prompt 20", "prefix 5", "adapter 2", "BitFit 0", "LoRA 2", "random weights 2560"]
CONTROL = "random weights 2560"
LAST = "random, last block 2560"


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}")


def save(figure, name: str, alt: str) -> None:
    FIGURES.mkdir(exist_ok=True)
    style.save(figure, FIGURES / f"{name}.svg", alt)


def losses(way: str, task: str) -> list[float]:
    return RUNS[f"{way} {task}"]["losses"]


def named(way: str) -> str:
    """'prompt 20' as people say it."""
    name, _, size = way.rpartition(" ")
    unit = {"prompt": "n", "prefix": "n", "adapter": "m", "LoRA": "r", "LoRA, all seven": "r"}
    return f"{name}, {unit[name]} = {size}" if name in unit else name


def opening() -> None:
    ways = {"frozen": "frozen 0", "A": EQUAL[0], "B": CONTROL, "all weights": "all weights 0"}
    panels = {t: {name: losses(way, t) for name, way in ways.items()} for t in TASKS}
    head = "Two ways of training 2560 numbers of one model: B is below A on three tasks"
    alt = "; ".join(
        f"{t}: " + ", ".join(f"{n} {placements.mean(v):.2f}" for n, v in w.items())
        for t, w in panels.items()
    )
    save(plots.opening(panels, head), "opening", alt)


def equal() -> None:
    """Ways with about as many numbers, beside random weights."""
    lines = ["| | trained | C++ | format | label |", "|---|---|---|---|---|"]
    for way in ("frozen 0", *EQUAL, LAST, "all weights 0"):
        cells = [f"{RUNS[f'{way} C++']['trained']:,}"]
        for task in TASKS:
            own = losses(way, task)
            text = placements.plus_minus(own) if len(own) > 1 else f"{own[0]:.3g}"
            if way in EQUAL[:-1] or way == LAST:
                below = placements.mean(own) < placements.mean(losses(CONTROL, task))
                sign = "better" if below else "worse"
                text += f", {sign}" if apart(own, losses(CONTROL, task)) else ", alike"
            cells.append(text)
        lines.append(f"| {named(way)} | " + " | ".join(cells) + " |")
    won = [(w, t) for w in EQUAL[:-1] for t in TASKS if apart(losses(w, t), losses(CONTROL, t))]
    better = sum(
        placements.mean(losses(w, t)) < placements.mean(losses(CONTROL, t)) for w, t in won
    )
    lines.append(
        f"\nOf {len(EQUAL[:-1]) * len(TASKS)} comparisons with random weights {better} are better, "
        f"{len(won) - better} worse, and {len(EQUAL[:-1]) * len(TASKS) - len(won)} not apart."
    )
    write("lab16_equal", "\n".join(lines) + "\n")


def right() -> None:
    """Shares of right tokens, and the learning rates that the search found."""
    lines = ["| | C++ | format | label | rates |", "|---|---|---|---|---|"]
    for way in ("frozen 0", *EQUAL, LAST, "all weights 0"):
        found = [RUNS[f"{way} {task}"] for task in TASKS]
        shares = [f"{100 * placements.mean(f['right']):.0f} %" for f in found]
        if len(found[0]["right"]) > 1:
            shares = [
                f"{s} ({100 * min(f['right']):.0f} to {100 * max(f['right']):.0f})"
                for s, f in zip(shares, found, strict=True)
            ]
        rates = ", ".join(f"{f['rate']:g}" for f in found) if "rate" in found[0] else ""
        lines.append(f"| {named(way)} | " + " | ".join(shares) + f" | {rates} |")
    write("lab16_right", "\n".join(lines) + "\n")


def quality() -> None:
    """Loss against trained numbers, all sizes."""
    panels, references = {}, {}
    for task in TASKS:
        panels[task] = {}
        for way, (_, sizes, _) in runs.WAYS.items():
            keys = [k for s in sizes if (k := f"{way} {s} {task}") in RUNS]
            left_out = "all weights", "LoRA, all seven", "random, last block", "norm gains"
            if way not in left_out and keys:
                panels[task][way] = [(RUNS[k]["trained"], RUNS[k]["losses"]) for k in keys]
        references[task] = {"all weights": placements.mean(losses("all weights 0", task))}
    head = "Random places keep up with methods of as many numbers; on the label they lead"
    alt = "For each task a line of loss against trained numbers for every way; all fall."
    save(plots.learned(panels, references, head, "random weights"), "quality", alt)
    lines = ["| | trained | C++ | format | label |", "|---|---|---|---|---|"]
    for way, (_, sizes, _) in runs.WAYS.items():
        for size in sizes:
            if all(f"{way} {size} {t}" in RUNS for t in TASKS):
                own = f"{way} {size}"
                cells = " | ".join(placements.plus_minus(losses(own, t)) for t in TASKS)
                lines.append(f"| {named(own)} | {RUNS[f'{own} C++']['trained']:,} | {cells} |")
    write("lab16_quality", "\n".join(lines) + "\n")


def bills() -> None:
    """The table for a model of 8 billion."""
    sizes = {"lora": 4, "adapter": 64, "prompt": 100, "prefix": 100, "bitfit": 0, "random": 10**6}
    lines = [
        "| | trained | AdamW, MB | MFLOPs a token | MB read a token | positions | merges | mixed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for way, size in sizes.items():
        b = bill(way, size, LLAMA3)
        flags = " | ".join("yes" if f else "no" for f in (b.mergeable, b.batchable))
        lines.append(
            f"| {way}{f' of {size:,}' if size else ''} | {b.trained:,} | "
            f"{b.optimizer_bytes / 1e6:.1f} | {b.flops / 1e6:.1f} | {b.read_bytes / 1e6:.1f} | "
            f"{b.context} | {flags} |"
        )
    write("lab16_bills", "\n".join(lines) + "\n")
    grid = {
        "lora": (1, 4, 16, 64),
        "adapter": (1, 8, 64, 512),
        "prompt": (1, 10, 100, 1000),
        "prefix": (1, 10, 100, 1000),
        "bitfit": (1,),
        "random": (10**3, 10**4, 10**5, 10**6),
    }
    points = {
        way: [(bill(way, s, LLAMA3).trained, bill(way, s, LLAMA3).read_bytes) for s in own]
        for way, own in grid.items()
    }
    head = "Llama 3 8B: a prompt trains little and is read again for every token"
    alt = "Bytes read besides for a token against trained numbers; prompts lie far above the rest."
    save(plots.bills(points, head, "read_bytes"), "bills", alt)


def between(prompts, texts, gap: bool):
    """(x, positions, mask) where texts are filled up first: filling lies behind the prompt."""
    longest = max(len(t) for t in texts)
    blank = torch.full((1, texts[0].shape[1]), float("nan"))  # marks a filling
    pairs = zip(prompts, texts, strict=True)
    made = [torch.cat([p, blank.expand(longest - len(t), -1), t]) for p, t in pairs]
    s = max(map(len, made))
    x = torch.stack([torch.cat([blank.expand(s - len(r), -1), r]) for r in made])
    real = ~x.isnan().any(-1)  # [B, S]
    positions = torch.arange(s).expand_as(real) if gap else (real.cumsum(1) - 1).clamp(min=0)
    mask = torch.ones(s, s, dtype=torch.bool).tril() & real[:, None, None, :]
    return x.nan_to_num(), positions, mask | torch.eye(s, dtype=torch.bool)


@torch.no_grad()
def rows() -> None:
    """Seven rows of unlike prompts in one batch, right and with the usual mistakes."""
    model, text = runs.fresh(), examples("C++", "held out", 7, 0).ids
    embed = model.model.embed_tokens
    prompts = [prompt_of_words(model, n, n) for n in (0, 3, 20, 7, 1, 0, 12)]
    texts = [embed(text[i, : 6 + 5 * i]) for i in range(7)]
    both = zip(prompts, texts, strict=True)
    alone = torch.stack([logits_of_vectors(model, torch.cat(p)[None])[0, -1] for p in both])
    x, positions, mask = joined(prompts, texts)
    edge = torch.arange(x.shape[1]).expand_as(positions)
    causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    lines = ["| | largest difference of a logit | rows with another likeliest token |"]
    lines.append("|---|---|---|")
    for way, (vectors, where, seen) in {
        "positions of each row, fillings hidden": (x, positions, mask),
        "positions from the edge of the rectangle: a shift": (x, edge, mask),
        "a causal mask alone": (x, positions, causal),
        "texts filled first, positions by column: a gap": between(prompts, texts, True),
        "texts filled first, positions without the gap": between(prompts, texts, False),
    }.items():
        logits = logits_of_vectors(model, vectors, positions=where, mask=seen)[:, -1]
        off = (logits - alone).abs().max().item()
        other = int((logits.argmax(-1) != alone.argmax(-1)).sum())
        lines.append(f"| {way} | {off:.2g} | {other} of 7 |")
    cache = KVCache()
    logits_of_vectors(model, x, cache, positions, mask)
    positions, mask = next_token(positions, mask)
    new = embed(torch.full((7, 1), 300))
    right = logits_of_vectors(model, new, cache, positions, mask)[:, -1]
    cache.truncate(x.shape[1])
    wrong = logits_of_vectors(model, new, cache, positions, torch.ones_like(mask))[:, -1]
    off = (right - wrong).abs().max().item()
    lines.append(f"\nThe next token with a row of ones for its mask: off by {off:.2g}.")
    write("lab16_rows", "\n".join(lines) + "\n")


def begun(ids) -> PromptModel:
    """A prompt that begins as these tokens."""
    model = runs.fresh()
    return PromptModel(model, model.model.embed_tokens.weight[ids].detach().clone())


def shots() -> None:
    """Nothing is trained: examples of the task stand before the text."""
    model = runs.fresh()
    held = {t: examples(t, "held out", runs.HELD_OUT, 0) for t in TASKS}
    lines = ["| before the text | C++ | format | label |", "|---|---|---|---|"]
    cells = " | ".join(f"{losses('frozen 0', t)[0]:.2f}" for t in TASKS)
    lines.append(f"| nothing | {cells} |")
    for count in (1, 2, 4):
        own = []
        for task in TASKS:
            found = []
            for seed in runs.SEEDS:
                ids = examples(task, "training", count, seed).ids[:, 1:].flatten()
                prompt = PromptModel(model, model.model.embed_tokens(ids))
                found.append(score(prompt, held[task]).loss)
            own.append(placements.plus_minus(found))
        lines.append(f"| {count} example{'s' if count > 1 else ''} | " + " | ".join(own) + " |")
    cells = " | ".join(placements.plus_minus(losses("prompt 20", t)) for t in TASKS)
    lines.append(f"| 20 trained vectors | {cells} |")
    own = []
    for task in TASKS:
        held, found = examples(task, "held out", runs.HELD_OUT, 0), []
        for seed in runs.SEEDS:
            ids = examples(task, "training", 8, seed).ids[:, 1:].flatten()[:20]
            runs.WAYS["begun"] = (lambda n, s, ids=ids: begun(ids), (20,), 0.1)
            rate = RUNS[f"prompt 20 {task}"]["rate"]
            found.append(score(runs.trained("begun", 20, task, rate, seed), held).loss)
        own.append(placements.plus_minus(found))
    lines.append("| the same, begun as an example's first 20 tokens | " + " | ".join(own) + " |")
    write("lab16_shots", "\n".join(lines) + "\n")


def seeds() -> None:
    """LoRA beside random weights, seed by seed: both have read the same text."""
    lines = ["| LoRA minus random weights | seed 0 | seed 1 | seed 2 | by the rule |"]
    lines.append("|---|---|---|---|---|")
    for task in TASKS:
        a, b = losses("LoRA 2", task), losses(CONTROL, task)
        cells = " | ".join(f"{x - y:+.3f}" for x, y in zip(a, b, strict=True))
        lines.append(f"| {task} | {cells} | {'apart' if apart(a, b) else 'alike'} |")
    write("lab16_seeds", "\n".join(lines) + "\n")


def longer() -> None:
    """The same with four times the steps."""
    lines = ["| | steps | format | label | label, right |", "|---|---|---|---|---|"]
    for way, size in runs.LONGER:
        for end, steps in (("", runs.STEPS), (" longer", runs.TIMES * runs.STEPS)):
            own = [RUNS[f"{way} {size} {task}{end}"] for task in TASKS[1:]]
            cells = " | ".join(placements.plus_minus(r["losses"]) for r in own)
            share = 100 * placements.mean(own[1]["right"])
            lines.append(f"| {named(f'{way} {size}')} | {steps} | {cells} | {share:.0f} % |")
    write("lab16_longer", "\n".join(lines) + "\n")


@torch.no_grad()
def folded(model: nn.Module, task: str, means: bool) -> nn.Module:
    """A copy with one linear for each layer and its adapter; means: W as it was and a bias."""
    drawn, made, inputs = examples(task, "training", 96, 5), copy.deepcopy(model), {}
    places = {n: m for n, m in model.named_modules() if isinstance(m, Behind)}
    for name, layer in places.items():

        def note(module, args, name=name):
            inputs[name] = args[0].flatten(0, -2)

        handle = layer.register_forward_pre_hook(note)
        model(drawn.ids[:, :-1])
        handle.remove()
        change = (layer(inputs[name]) - layer.base(inputs[name])).double()
        ones = torch.ones(len(change), 1, dtype=torch.float64)
        x = ones if means else torch.cat([inputs[name].double(), ones], 1)
        square = x.T @ x + 1e-6 * torch.eye(x.shape[1])
        fit = torch.linalg.solve(square, x.T @ change)  # [K + 1, N]
        linear = nn.Linear(layer.base.in_features, layer.base.out_features)
        linear.weight.copy_(layer.base.weight + (0.0 if means else fit[:-1].T))
        linear.bias.copy_(fit[-1])
        made.set_submodule(name, linear)
    return made


def folds() -> None:
    """Adapters folded by least squares: which part of the gain is left, three runs."""
    lines = ["| gain left, % | C++ | format |", "|---|---|---|"]
    for m in (2, 32):
        for means in (False, True):
            cells = []
            for task in TASKS[:2]:
                held, left = examples(task, "held out", runs.HELD_OUT, 0), []
                frozen = losses("frozen 0", task)[0]
                for seed in runs.SEEDS:
                    rate = RUNS[f"adapter {m} {task}"]["rate"]
                    model = runs.trained("adapter", m, task, rate, seed)
                    whole = score(model, held).loss
                    one = score(folded(model, task, means), held).loss
                    left.append(100 * (frozen - one) / (frozen - whole))
                cells.append(placements.plus_minus(left))
            what = "a bias alone, the mean" if means else "a weight and a bias"
            lines.append(f"| m = {m}: {what} | {' | '.join(cells)} |")
    write("lab16_folds", "\n".join(lines) + "\n")


FIRST = (opening, equal, right, quality, bills, rows, shots, seeds, longer, folds)
PARTS = {f.__name__: f for f in FIRST}


def main() -> None:
    torch.set_num_threads(1)
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
