"""Numbers and figures of the chapter on pruning, on the zoo's target.

    python benchmarks/lab04_tables.py [units]    writes course/chapters/_generated/lab04_*.md
                                                 and course/figures/lab04/*.svg, prints the tables;
                                                 units: only what is about removed units

Perplexities on 2048 tokens of held-out code, in windows of 128.  Calibration: the 32 texts of 128
tokens that the lab reads.  Methods are measured on three placements of the outlier
channels and on the model as trained; units are removed from the model as trained.  Minutes on a
quiet machine with two cores.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.finetuning.training import finetune
from efflib.plots import placements, pruning, style
from efflib.sparsity.importance import Importance, importance
from efflib.sparsity.magnitude import magnitude_mask, prune_magnitude
from efflib.sparsity.masks import sparsity
from efflib.sparsity.nm import compressed_bits
from efflib.sparsity.prune import prune_sequentially
from efflib.sparsity.retrain import retrain
from efflib.sparsity.sparsegpt import prune_sparsegpt
from efflib.sparsity.structured import Shape, linear_flops, shrink
from efflib.sparsity.wanda import prune_wanda, wanda_mask
from efflib.zoo import corpus
from efflib.zoo.evaluation import held_out_segments, token_losses

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab04"
GAINS, SEEDS = {3: 8.0, 5: 8.0}, (0, 1, 2)
PATTERNS = {"50%": 0.5, "2:4": (2, 4)}
SHAPES = {
    "all": Shape(6, 6, 512),
    "neurons 3/4": Shape(6, 6, 384),
    "neurons 1/2": Shape(6, 6, 256),
    "heads 5/6": Shape(6, 5, 512),
    "heads 5/6, neurons 3/4": Shape(6, 5, 384),
    "layers 5/6": Shape(5, 6, 512),
}
DRAWN = ("all", "neurons 3/4", "neurons 1/2")
KINDS = ("activation", "taylor", "magnitude")
STEPS, RATE = 40, 3e-4  # of the short training
LAYER = "model.layers.2.self_attn.q_proj"


def training_texts() -> tuple[Tensor, Tensor]:
    """(what the lab calibrates on [32, 128], batches that it trains on [40, 4, 128])."""
    long = [d for d in corpus.documents("code", held_out=False).values() if len(d) > 4000]
    long = long[:: len(long) // 64][:64]
    ids = [zoo.load_tokenizer().encode(d[:4000]).ids[: 5 * 127] for d in long]
    begin = zoo.BEGIN_ID
    windows = [[begin, *row[i : i + 127]] for row in ids[1::2] for i in range(0, 5 * 127, 127)]
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))
    rows = torch.tensor(windows)[order].view(STEPS, -1, 128)
    return torch.tensor([[begin, *row[:127]] for row in ids[::2]]), rows


def perplexity(model: nn.Module, text: Tensor) -> float:
    losses = token_losses(model, text, context=128, stride=128)
    return losses.double().mean().exp().item()


def shuffled(w: Tensor, norms: Tensor) -> Tensor:
    """Wanda's mask at 50 % with the norms in another order: the control."""
    order = torch.randperm(len(norms), generator=torch.Generator().manual_seed(0))
    return wanda_mask(w, norms[order], 0.5)


Pruner = Callable[[nn.Module, Tensor], nn.Module]


def methods() -> dict[tuple[str, str], Pruner]:
    """{(method, pattern): pruned copy of a model, by calibration texts}."""
    made: dict[tuple[str, str], Pruner] = {
        ("dense", "50%"): lambda m, ids: m,
        ("magnitude by row", "50%"): lambda m, ids: prune_magnitude(m, 0.5, "row"),
        ("Wanda, norms shuffled", "50%"): lambda m, ids: prune_sequentially(m, ids, shuffled),
    }
    for name, p in PATTERNS.items():
        made |= {
            ("magnitude by layer", name): lambda m, ids, p=p: prune_magnitude(m, p),
            ("Wanda, all norms dense", name): lambda m, ids, p=p: prune_sequentially(
                m, ids, lambda w, norms: wanda_mask(w, norms, p), sequential=False
            ),
            ("Wanda, block by block", name): lambda m, ids, p=p: prune_wanda(m, ids, p),
            ("SparseGPT", name): lambda m, ids, p=p: prune_sparsegpt(m, ids, p),
        }
    return made


Figures = dict[tuple[str, str], list[float]]


def measure(models: list[nn.Module], ids: Tensor, text: Tensor) -> Figures:
    """Perplexities of every method on every model; the last model is the control."""
    figures = {}
    for key, prune in methods().items():
        figures[key] = [perplexity(prune(model, ids), text) for model in models]
        print(key, *(f"{value:.2f}" for value in figures[key]), flush=True)
    return figures


def table(figures: Figures) -> str:
    lines = [
        "| | " + " | ".join(f"{p}, large channels | {p}, as trained" for p in PATTERNS) + " |",
        "|---" * (1 + 2 * len(PATTERNS)) + "|",
    ]
    for method in dict.fromkeys(method for method, _ in figures):
        cells = []
        for pattern in PATTERNS:
            values = figures.get((method, pattern))
            both = [placements.plus_minus(values[:-1]), f"{values[-1]:.3g}"] if values else ["", ""]
            cells += both
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def random_scores(model: nn.Module, seed: int) -> Importance:
    generator, full = torch.Generator().manual_seed(seed), Shape.of(model)
    sizes = (full.layers, full.heads), (full.layers, full.neurons), (full.layers,)
    return Importance(*(torch.rand(size, generator=generator) for size in sizes))


def structured(model: nn.Module, ids: Tensor, text: Tensor, rows: list[Tensor]) -> tuple:
    """(markdown, {kind: [(share of products, perplexity)]}) of smaller models."""
    scores = {kind: [importance(model, kind, ids)] for kind in KINDS}
    scores["random"] = [random_scores(model, seed) for seed in SEEDS]
    lines = ["| what stays | products | " + " | ".join(scores) + " | activation, trained on |"]
    lines += ["|---" * (3 + len(scores)) + "|"]
    points: dict[str, list] = {kind: [] for kind in scores}
    for label, shape in SHAPES.items():
        made = {kind: [shrink(model, s, shape) for s in own] for kind, own in scores.items()}
        share = linear_flops(made["activation"][0]) / linear_flops(model)
        values = {kind: [perplexity(m, text) for m in own] for kind, own in made.items()}
        after = perplexity(finetune(made["activation"][0], rows, RATE)[0], text)
        cells = [interval(values[kind]) for kind in scores] + [interval([after])]
        lines.append(f"| {label} | {share:.0%} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
        if label in DRAWN:
            for kind, value in values.items():
                points[kind].append((share, placements.mean(value)))
    points["half of the weights 0"] = [(1.0, perplexity(prune_wanda(model, ids, 0.5), text))]
    return "\n".join(lines) + "\n", points


def interval(values: list[float]) -> str:
    low, high = (style.number(v) for v in (min(values), max(values)))
    return style.number(placements.mean(values)) + ("" if low == high else f" ({low} to {high})")


def findings(figures: Figures, control: nn.Module, ids: Tensor, text: Tensor, rows: list) -> str:
    dense = figures["dense", "50%"][-1]
    shown = {
        name: [v - dense for v in figures[name, "50%"][:-1]]
        for name in ("magnitude by layer", "Wanda, block by block", "SparseGPT")
    }
    added = {name: placements.mean(values) for name, values in shown.items()}
    sparse = prune_wanda(control, ids, (2, 4))
    trained, _ = retrain(sparse, rows, RATE)
    longer, _ = retrain(control, rows, RATE)
    zeros = {sparsity(m.get_submodule(LAYER).weight) for m in (sparse, trained)}
    w = control.get_submodule("model.layers.2.mlp.up_proj").weight.detach()
    lost = 1 - magnitude_mask(w, 0.5, "layer").float().mean(1)
    whole = (1, 4)
    lines = [
        f"- Of what magnitude adds to the perplexity at 50 % with large channels, Wanda leaves "
        f"{added['Wanda, block by block'] / added['magnitude by layer']:.1%}, SparseGPT "
        f"{added['SparseGPT'] / added['magnitude by layer']:.1%}.",
        f"- Magnitude over a layer: rows of `up_proj` in layer 2 lose from {lost.min():.0%} to "
        f"{lost.max():.0%} of their weights.",
        f"- Four 16-bit weights in {compressed_bits(whole)} bits: "
        f"{64 / compressed_bits(whole):.2f} times smaller; four 8-bit ones in "
        f"{compressed_bits(whole, 8)}: {32 / compressed_bits(whole, 8):.2f}.",
        f"- Wanda at 2:4 on the model as trained: {perplexity(sparse, text):.2f}. After {STEPS} "
        f"steps of training with the zeros held, {perplexity(trained, text):.2f} (zeros: "
        f"{', '.join(f'{z:.0%}' for z in zeros)}); the dense model trained as long: "
        f"{perplexity(longer, text):.2f}, before {dense:.2f}.",
    ]
    return "\n".join(lines) + "\n"


def save_figures(figures: Figures, model: nn.Module, ids: Tensor) -> None:
    half = {way: placements.mean(figures[way, "50%"][:-1]) for way, p in figures if p == "50%"}
    bars = {
        "as it is": half["dense"],
        "half of the weights 0, chosen by ?": half["magnitude by layer"],
        "half of the weights 0, chosen by ??": half["Wanda, block by block"],
    }
    title = "One model, half of its weights set to zero in two ways: what did they look at?"
    alt = "Perplexity of one model as it is, and with half of its weights zero in two ways"
    style.save(pruning.opening(bars, title), FIGURES / "opening.svg", alt)
    ways = list(dict.fromkeys(way for way, _ in figures if (way, "2:4") in figures))
    panels = {f"{p}": {way: figures[way, p][:-1] for way in ways} for p in PATTERNS}
    title = f"Half of the weights gone: {half['magnitude by layer']:.1f} by magnitude, "
    title += f"{half['Wanda, block by block']:.1f} by Wanda, {half['SparseGPT']:.1f} with repair; "
    title += f"dense {half['dense']:.1f}"
    fig = placements.bars(panels, title, "perplexity, large channels; marks: placements")
    style.save(fig, FIGURES / "ways.svg", "Perplexity of every method at 50 % and 2:4")
    x = inputs_of(model, ids, LAYER)
    w, norms = model.get_submodule(LAYER).weight.detach(), x.norm(dim=0)
    large = norms.argsort(descending=True)
    columns = torch.cat([large[:8], large[-40:]]).sort().values
    for name, mask in (
        ("magnitude", magnitude_mask(w, 0.5)),
        ("wanda", wanda_mask(w, norms, 0.5)),
    ):
        kept = mask[:, large[:8]].float().mean().item()
        title = f"{name.capitalize()}, 50 %: of the weights of the 8 largest inputs {kept:.0%} stay"
        fig = pruning.mask_map(mask[:24, columns], norms[columns], title)
        style.save(fig, FIGURES / f"mask_{name}.svg", title)


@torch.no_grad()
def inputs_of(model: nn.Module, ids: Tensor, name: str) -> Tensor:
    """What a linear layer reads. [tokens, K]"""
    seen = []
    hook = model.get_submodule(name).register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    model(ids)
    hook.remove()
    return seen[0].flatten(0, -2)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(text, f"wrote {path.relative_to(ROOT)}", sep="\n", flush=True)


def main() -> None:
    torch.manual_seed(0)
    control, text = zoo.load("target"), held_out_segments("code", 2048)
    calibration, batches = training_texts()
    rows = list(batches)
    if sys.argv[1:] != ["units"]:
        models = [zoo.with_outliers(control, calibration, GAINS, seed=seed) for seed in SEEDS]
        figures = measure([*models, control], calibration, text)
        write(GENERATED / "lab04_table.md", table(figures))
        save_figures(figures, models[0], calibration)
        write(GENERATED / "lab04_findings.md", findings(figures, control, calibration, text, rows))
    units, points = structured(control, calibration, text, rows)
    write(GENERATED / "lab04_units.md", units)
    half = points["activation"][-1]
    title = f"Half of the neurons removed: {half[0]:.0%} of the products, perplexity {half[1]:.0f}"
    fig = pruning.cost_and_quality(points, perplexity(control, text), title)
    style.save(fig, FIGURES / "units.svg", "Perplexity against the share of products that are done")


if __name__ == "__main__":
    main()
