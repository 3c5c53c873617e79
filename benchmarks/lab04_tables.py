"""Numbers and figures of the chapter on pruning, on the zoo's target.

    python benchmarks/lab04_tables.py [part ...]    writes course/chapters/_generated/lab04_*.md
                                                    and course/figures/lab04/*.svg, prints the
                                                    tables; parts: methods, sweep, texts, units

Perplexities on 2048 tokens of held-out code, in windows of 128.  Calibration: the 32 texts of 128
tokens that the lab reads, and in `texts` four later pieces of the same documents.  Methods are
measured on three draws of the emulation of large channels and on the model as trained; units are
removed from the model as trained.  Minutes on a quiet machine with two cores.
"""

import copy
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.finetuning.training import finetune
from efflib.models.groups import norm_groups
from efflib.plots import placements, pruning, style
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import model_bits
from efflib.recovery import retrain
from efflib.sequential import block_linears
from efflib.sparsity.importance import Importance, importance
from efflib.sparsity.magnitude import magnitude_mask, prune_magnitude
from efflib.sparsity.masks import keep, sparsity
from efflib.sparsity.nm import compress, compressed_bits
from efflib.sparsity.prune import Rule, prune_sequentially
from efflib.sparsity.sparsegpt import prune_sparsegpt
from efflib.sparsity.structured import shrink
from efflib.sparsity.wanda import prune_wanda, wanda_mask, wanda_scores
from efflib.units import Shape, linear_flops
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
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7)
WINDOW, WINDOWS = 127, 5  # tokens behind the first one, and pieces of each document
PARTS = ("methods", "sweep", "texts", "units")
LAYER = "model.layers.2.self_attn.q_proj"


def training_texts() -> tuple[list[Tensor], Tensor]:
    """(five sets of calibration texts [32, 128], batches for a short training [40, 4, 128]).

    The lab calibrates on the first set, the beginnings of its documents.
    """
    long = [d for d in corpus.documents("code", held_out=False).values() if len(d) > 4000]
    long = long[:: len(long) // 64][:64]
    ids = [zoo.load_tokenizer().encode(d[:4000]).ids[: WINDOWS * WINDOW] for d in long]
    starts = range(0, WINDOWS * WINDOW, WINDOW)
    windows = [[zoo.BEGIN_ID, *row[i : i + WINDOW]] for row in ids[1::2] for i in starts]
    order = torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))
    rows = torch.tensor(windows)[order].view(STEPS, -1, WINDOW + 1)
    sets = [
        torch.tensor([[zoo.BEGIN_ID, *row[i : i + WINDOW]] for row in ids[::2]]) for i in starts
    ]
    return sets, rows


def perplexity(model: nn.Module, text: Tensor) -> float:
    losses = token_losses(model, text, context=128, stride=128)
    return losses.double().mean().exp().item()


def shuffled(w: Tensor, norms: Tensor) -> Tensor:
    """Wanda's mask at 50 % with the norms in another order: the control."""
    order = torch.randperm(len(norms), generator=torch.Generator().manual_seed(0))
    return wanda_mask(w, norms[order], 0.5)


def eight_stay(w: Tensor, norms: Tensor) -> Tensor:
    """The eight largest inputs are left alone as far as possible, magnitude decides on the rest."""
    eighth = norms.topk(8).values[-1]
    return wanda_mask(w, torch.where(norms >= eighth, 1e9, 1.0), 0.5)


def by_layer(w: Tensor, norms: Tensor) -> Tensor:
    """Wanda's scores, compared over the layer."""
    return keep(wanda_scores(w, norms), 0.5, "layer")


def prune_by_gain(model: nn.Module) -> nn.Module:
    """|W| times the gain of the norm layer before it, by row, at 50 %: needs no data."""
    pruned = copy.deepcopy(model)
    gains = {n: g.norm.weight.detach().abs() for g in norm_groups(model) for n in g.linears}
    with torch.no_grad():
        for linears in block_linears(pruned):
            for name, linear in linears.items():
                gain = gains.get(name, torch.ones(linear.in_features))
                linear.weight.mul_(wanda_mask(linear.weight, gain, 0.5))
    return pruned


Pruner = Callable[[nn.Module, Tensor], nn.Module]


def dense_norms(rule: Rule) -> Pruner:
    """Masks by the norms of the model as it was."""
    return lambda m, ids: prune_sequentially(m, ids, rule, sequential=False)


def methods() -> dict[tuple[str, str], Pruner]:
    """{(method, pattern): pruned copy of a model, by calibration texts}."""
    made: dict[tuple[str, str], Pruner] = {
        ("dense", "50%"): lambda m, ids: m,
        ("magnitude by row", "50%"): lambda m, ids: prune_magnitude(m, 0.5, "row"),
        ("weight times gain, no data", "50%"): lambda m, ids: prune_by_gain(m),
        ("Wanda, norms shuffled", "50%"): dense_norms(shuffled),
        ("eight largest inputs stay", "50%"): dense_norms(eight_stay),
        ("Wanda by layer", "50%"): dense_norms(by_layer),
    }
    for name, p in PATTERNS.items():
        made |= {
            ("magnitude by layer", name): lambda m, ids, p=p: prune_magnitude(m, p),
            ("Wanda", name): dense_norms(lambda w, norms, p=p: wanda_mask(w, norms, p)),
            ("Wanda, block by block", name): lambda m, ids, p=p: prune_wanda(m, ids, p),
            ("SparseGPT", name): lambda m, ids, p=p: prune_sparsegpt(m, ids, p, sequential=False),
            ("SparseGPT, block by block", name): lambda m, ids, p=p: prune_sparsegpt(m, ids, p),
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
    """The same draws as the lab's: layer by layer, heads and then neurons."""
    generator, full = torch.Generator().manual_seed(seed), Shape.of(model)
    drawn = [
        [torch.rand(n, generator=generator) for n in (full.heads, full.neurons)]
        for _ in range(full.layers)
    ]
    heads, neurons = (torch.stack(part) for part in zip(*drawn, strict=True))
    return Importance(heads, neurons, torch.rand(full.layers, generator=generator))


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
                points[kind].append((share, median(value)))
    points["half of the weights 0"] = [(1.0, perplexity(prune_wanda(model, ids, 0.5), text))]
    return "\n".join(lines) + "\n", points


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def interval(values: list[float]) -> str:
    """The median, the smallest and the largest: what draws give is skewed."""
    low, high = (style.number(v) for v in (min(values), max(values)))
    return style.number(median(values)) + ("" if low == high else f" ({low} to {high})")


def without_v(model: nn.Module) -> nn.Module:
    """The emulation without the weights V, which read the difference of two equal channels.

    What such a pair reads of the model's own function is the same in both, so their mean is it.
    """
    plain, embedding = copy.deepcopy(model), model.model.embed_tokens.weight
    with torch.no_grad():
        for group in norm_groups(plain):
            gain = group.norm.weight
            hot = (gain > 2 * gain.median()).nonzero().flatten().tolist()
            twins = [
                (a, b) for a in hot for b in hot if a < b and embedding[:, a].equal(embedding[:, b])
            ]
            for linear in group.linears.values():
                for a, b in twins:
                    linear.weight[:, [a, b]] = linear.weight[:, [a, b]].mean(1, keepdim=True)
    return plain


def bits_held(model: nn.Module, pairs: bool) -> float:
    """Bits a weight of all pruned matrices in 16 bits: as 2:4, or values and a bitmap."""
    weights = [m.weight for linears in block_linears(model) for m in linears.values()]
    if pairs:
        parts = [compress(w.detach().half()) for w in weights]
        held = sum(8 * (part.values.nbytes + part.indices.nbytes) for part in parts)
    else:
        held = sum(16 * int(w.count_nonzero()) + w.numel() for w in weights)
    return held / sum(w.numel() for w in weights)


def four_bits(models: list[nn.Module], text: Tensor) -> tuple[list[float], float]:
    """(perplexities with 4-bit linears in the blocks, groups of 32, rounded; bits a weight)."""
    made = [quantize_model(m, 4, 32, skip=("lm_head",))[0] for m in models]
    linears = nn.ModuleList(m for own in block_linears(models[-1]) for m in own.values())
    bits = model_bits(linears, 4, 32, skip=()) / sum(p.numel() for p in linears.parameters())
    return [perplexity(m, text) for m in made], bits


def findings(figures: Figures, models: list, ids: Tensor, text: Tensor, rows: list) -> str:
    control, dense = models[-1], figures["dense", "50%"][-1]
    shown = {
        name: [v - dense for v in figures[name, "50%"][:-1]]
        for name in ("magnitude by layer", "Wanda", "SparseGPT", "eight largest inputs stay")
    }
    added = {name: placements.mean(values) for name, values in shown.items()}
    sparse, anywhere = (methods()["Wanda", name](control, ids) for name in ("2:4", "50%"))
    trained, _ = retrain(sparse, rows, RATE)
    longer, _ = retrain(control, rows, RATE)
    zeros = {sparsity(m.get_submodule(LAYER).weight) for m in (sparse, trained)}
    w = control.get_submodule("model.layers.2.mlp.up_proj").weight.detach()
    lost = 1 - magnitude_mask(w, 0.5, "layer").float().mean(1)
    whole = (1, 4)
    plain = [perplexity(prune_magnitude(without_v(m), 0.5), text) for m in models[:-1]]
    drawn = figures["magnitude by layer", "50%"][:-1]
    rounded, bits = four_bits(models, text)
    lines = [
        f"- Of what magnitude adds to the perplexity at 50 % with large channels, sparing the "
        f"eight largest inputs leaves "
        f"{added['eight largest inputs stay'] / added['magnitude by layer']:.1%}, Wanda "
        f"{added['Wanda'] / added['magnitude by layer']:.1%}, SparseGPT "
        f"{added['SparseGPT'] / added['magnitude by layer']:.1%}.",
        f"- Magnitude over a layer: rows of `up_proj` in layer 2 lose from {lost.min():.0%} to "
        f"{lost.max():.0%} of their weights.",
        f"- Four 16-bit weights in {compressed_bits(whole)} bits: "
        f"{64 / compressed_bits(whole):.2f} times smaller; four 8-bit ones in "
        f"{compressed_bits(whole, 8)}: {32 / compressed_bits(whole, 8):.2f}.",
        f"- The model as trained, all pruned matrices: Wanda at 2:4 in "
        f"{bits_held(sparse, True):.2f} bits a weight, "
        f"perplexity {perplexity(sparse, text):.1f}; at 50 % anywhere with a bitmap "
        f"{bits_held(anywhere, False):.2f} bits, perplexity {perplexity(anywhere, text):.1f}; "
        f"rounded to 4 bits in groups of 32, {bits:.2f} bits, perplexity {rounded[-1]:.1f} (with "
        f"large channels {placements.plus_minus(rounded[:-1])}).",
        f"- Wanda at 2:4 on the model as trained: {perplexity(sparse, text):.2f}. After {STEPS} "
        f"steps of training with the zeros held, {perplexity(trained, text):.2f} (zeros: "
        f"{', '.join(f'{z:.0%}' for z in zeros)}); the dense model trained as long: "
        f"{perplexity(longer, text):.2f}, before {dense:.2f}.",
        f"- What differs between the draws: magnitude by layer at 50 % gives "
        f"{', '.join(f'{v:.1f}' for v in drawn)}; without the weights that the emulation draws, "
        f"{', '.join(f'{v:.1f}' for v in plain)}.",
    ]
    return "\n".join(lines) + "\n"


def sweep(models: list[nn.Module], ids: Tensor, text: Tensor) -> str:
    """A table over shares of zeros, and its figure."""
    ways = {
        "magnitude": lambda m, p: prune_magnitude(m, p),
        "Wanda": lambda m, p: dense_norms(lambda w, norms: wanda_mask(w, norms, p))(m, ids),
    }
    found = {
        way: [[perplexity(f(m, p), text) for m in models] for p in SHARES]
        for way, f in ways.items()
    }
    lines = ["| zeros | " + " | ".join(f"{p:.0%}" for p in SHARES) + " |"]
    lines += ["|---" * (1 + len(SHARES)) + "|"]
    curves = {}
    for kind, of in (("as trained", lambda v: v[-1]), ("large", lambda v: median(v[:-1]))):
        for way, values in found.items():
            curves[f"{way}, {kind}"] = [of(v) for v in values]
            cells = " | ".join(style.number(v) for v in curves[f"{way}, {kind}"])
            lines.append(f"| {way}, {kind.replace('large', 'large channels')} | {cells} |")
    at, other = SHARES.index(0.7), SHARES.index(0.5)
    a, b = curves["magnitude, as trained"], curves["Wanda, as trained"]
    title = f"Even channels: {a[other] / b[other]:.2f} times apart at 50 %, "
    title += f"{a[at] / b[at]:.1f} times at 70 %"
    fig = pruning.sweep(list(SHARES), curves, perplexity(models[-1], text), title)
    style.save(fig, FIGURES / "sweep.svg", "Perplexity against the share of zeros")
    return "\n".join(lines) + "\n"


def texts(models: list[nn.Module], sets: list[Tensor], text: Tensor) -> str:
    """Wanda by dense norms and block by block, calibrated on each set: the yardstick."""
    lines = ["| model, pattern | Wanda | Wanda, block by block | block by block adds |"]
    lines += ["|---|---|---|---|"]
    for label, model in (("as trained", models[-1]), ("large channels, one draw", models[0])):
        for name in PATTERNS:
            once, after = (
                [perplexity(methods()[way, name](model, ids), text) for ids in sets]
                for way in ("Wanda", "Wanda, block by block")
            )
            added = [b - a for a, b in zip(once, after, strict=True)]
            cells = [placements.plus_minus(once), placements.plus_minus(after)]
            cells += [f"{placements.mean(added):.2f} ({min(added):.2f} to {max(added):.2f})"]
            lines.append(f"| {label}, {name} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def save_figures(figures: Figures, model: nn.Module, ids: Tensor) -> None:
    half = {way: placements.mean(figures[way, "50%"][:-1]) for way, p in figures if p == "50%"}
    bars = {
        "as it is": half["dense"],
        "half of the weights 0, chosen by ?": half["magnitude by layer"],
        "half of the weights 0, chosen by ??": half["Wanda"],
    }
    title = "One model, half of its weights set to zero in two ways: what did they look at?"
    alt = "Perplexity of one model as it is, and with half of its weights zero in two ways"
    style.save(pruning.opening(bars, title), FIGURES / "opening.svg", alt)
    ways = list(dict.fromkeys(way for way, _ in figures if (way, "2:4") in figures))
    panels = {f"{p}": {way: figures[way, p][:-1] for way in ways} for p in PATTERNS}
    title = f"Half of the weights gone: {half['magnitude by layer']:.1f} by magnitude, "
    title += f"{half['Wanda']:.1f} by Wanda, {half['SparseGPT']:.1f} with repair; "
    title += f"dense {half['dense']:.1f}"
    fig = placements.bars(panels, title, "perplexity, large channels; marks: draws")
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
    parts = sys.argv[1:] or PARTS
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"no part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    torch.manual_seed(0)
    control, text = zoo.load("target"), held_out_segments("code", 2048)
    sets, batches = training_texts()
    calibration, rows = sets[0], list(batches)
    models = [zoo.with_outliers(control, calibration, GAINS, seed=seed) for seed in SEEDS]
    models.append(control)
    if "methods" in parts:
        figures = measure(models, calibration, text)
        write(GENERATED / "lab04_table.md", table(figures))
        save_figures(figures, models[0], calibration)
        write(GENERATED / "lab04_findings.md", findings(figures, models, calibration, text, rows))
    if "sweep" in parts:
        write(GENERATED / "lab04_sweep.md", sweep(models, calibration, text))
    if "texts" in parts:
        write(GENERATED / "lab04_texts.md", texts(models, sets, text))
    if "units" in parts:
        units, points = structured(control, calibration, text, rows)
        write(GENERATED / "lab04_units.md", units)
        half = points["activation"][-1]
        title = f"Half of the neurons removed: {half[0]:.0%} of the products, "
        title += f"perplexity {half[1]:.0f}"
        fig = pruning.cost_and_quality(points, perplexity(control, text), title)
        alt = "Perplexity against the share of products that are done"
        style.save(fig, FIGURES / "units.svg", alt)


if __name__ == "__main__":
    main()
