"""Numbers and figures of the chapter on quantization, measured on the shipped model.

    python benchmarks/lab01_tables.py            writes course/chapters/_generated/lab01_*.md
                                                 and course/figures/lab01/*.svg, prints the table

Everything is deterministic but for the order of float sums; run it again whenever the checkpoint
changes.  Takes some minutes on two cores, most of them for the k-means codebooks and the samples.
"""

import math
from itertools import pairwise
from pathlib import Path

import torch
from lab01_measure import (
    CONTEXT,
    GRANULARITIES,
    METHODS,
    TOKENS,
    WIDTHS,
    all_steps,
    losses,
    one_at_a_time,
    sweep,
    writers,
)
from lab01_training import RATES, STEPS, train_layer, training, training_steps
from torch import Tensor, nn

from efflib import zoo
from efflib.plots import granularity, grid, layers, matrices, pareto, style, writing
from efflib.quantization.linear import dequantize_weight, quantize_weight
from efflib.quantization.size import model_bits, quantizable_linears

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab01"
CLOSE = (1.02, 1.05, 1.10)  # "as good as fp16": at most this times its perplexity
SAMPLES, SAMPLE_TOKENS = 100, 96  # texts for each model
PROMPT = zoo.PROMPTS[4]

# ---- text ------------------------------------------------------------------------------------


def table(points: list[pareto.Point], reference: float) -> str:
    """A row per method and width, a column per granularity; bold: on the front."""
    best = pareto.front(points)
    found = {(p.method, p.bits, p.granularity): p for p in points}
    lines = [
        "| method | bits | " + " | ".join(GRANULARITIES) + " |",
        "|---" * (2 + len(GRANULARITIES)) + "|",
        f"| fp16 | 16 | {reference:.2f} at 16.00 |" + " |" * (len(GRANULARITIES) - 1),
    ]
    for method in METHODS:
        for bits in WIDTHS:
            cells = []
            for name in GRANULARITIES:
                p = found.get((method, bits, name))
                mark = "**" if p in best else ""
                places = 2 if p and p.cost < 100 else 0  # a ruined model has no hundredths
                text = f"{mark}{p.cost:,.{places}f}{mark} ± {p.spread:,.{places}f}" if p else ""
                cells.append(f"{text} at {p.size:.2f}" if p else "")
            lines.append(f"| {method} | {bits} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def normal_range(n: int, draws: int = 4000) -> float:
    """Mean of max - min of n normal numbers, in standard deviations."""
    x = torch.randn(draws, n, generator=torch.Generator().manual_seed(0))
    return (x.amax(1) - x.amin(1)).mean().item()


def ranges() -> str:
    """The range of G normal numbers, and what halving G is worth and costs at 16-bit scales."""
    lines = ["| G | mean range, in $\\sigma$ | worth, bits | price at 4 bits |", "|---" * 4 + "|"]
    lines.append(f"| 192 | {normal_range(192):.2f} | | |")
    for large, small in pairwise((192, 64, 32, 16)):
        worth = math.log2(normal_range(large) / normal_range(small))
        price = 20 / small - 20 / large
        lines.append(f"| {small} | {normal_range(small):.2f} | {worth:.2f} | {price:.2f} |")
    return "\n".join(lines) + "\n"


def written(models: dict[int, nn.Module]) -> str:
    """Which share of drawn texts is Python, and how each model goes on with one prompt."""
    lines, shares = [], []
    for bits, model in models.items():
        share = zoo.parses_share(model, SAMPLES, SAMPLE_TOKENS)
        off = math.sqrt(share * (1 - share) / SAMPLES)
        shares.append(f"{share:.0%} ± {off:.0%} at {bits} bits")
        print(shares[-1], flush=True)
        text = zoo.sample(model, PROMPT, tokens=70).removeprefix(PROMPT)
        lines += [f"# {bits} bits", writing.cut(PROMPT.split("\n")[-1] + text, 10, 80), ""]
    head = f"Of {SAMPLES} texts drawn at temperature 1, `ast.parse` takes: {', '.join(shares)}.\n"
    return head + "\n```text\n" + "\n".join(lines).rstrip() + "\n```\n"


def findings(
    model: nn.Module,
    points: list[pareto.Point],
    reference: float,
    trained: dict,
    rise: dict[str, float],
) -> str:
    """The sentences of the chapter that hold measured numbers."""
    parameters = sum(p.numel() for p in model.parameters())
    linears = quantizable_linears(model)
    share = sum(layer.weight.numel() for layer in linears.values()) / parameters
    lines = [
        f"- The model has {parameters / 1e6:.2f} million parameters, {share:.0%} of them in "
        f"the {len(linears)} linear layers to quantize; {model_bits(model) / 8e6:.2f} MB in fp16. "
        f"Perplexity of fp16: {reference:.2f} on held-out code, "
        f"{losses(model, 'prose').mean().exp():.2f} on prose ({TOKENS} tokens each in 16 slices, "
        f"context {CONTEXT}).",
    ]
    for limit in CLOSE:
        good = [p for p in points if p.cost <= limit * reference]
        if good:
            p = min(good, key=lambda p: p.size)
            lines.append(
                f"- Smallest setting at most {limit - 1:.0%} worse than fp16: {p.bits} bits, "
                f"{p.method}, {p.granularity}: {p.size:.2f} bits a parameter."
            )
    [whole] = [p for p in points if (p.method, p.bits, p.granularity) == ("linear", 2, "channel")]
    lines.append(
        f"- 2 bits per channel: one layer at a time, the loss rises by {sum(rise.values()):.2f} "
        f"nats in all; with all layers at once by {math.log(whole.cost / reference):.2f}."
    )
    rounded = next(iter(trained.values()))[0]
    after = " and ".join(f"{row[2]:.3f} at rate {rate:g}" for rate, row in trained.items())
    lines.append(
        f"- One attention output layer at 2 bits per channel, relative squared output error on "
        f"held-out text: {rounded:.3f} after rounding; after {STEPS} steps of "
        f"training on its own outputs through the rounding {after} (in 1 / the largest curvature, "
        "falling to 0)."
    )
    return "\n".join(lines) + "\n"


# ---- figures ---------------------------------------------------------------------------------


def save_figures(
    model: nn.Module, points: list[pareto.Point], reference: float, alone: tuple
) -> None:
    name, layer = next(iter(quantizable_linears(model).items()))
    w = layer.weight.detach()

    def round_trip(bits: int, granularity: str | int) -> Tensor:
        return dequantize_weight(quantize_weight(w, bits, granularity))

    median = ((w.amax(1) - w.amin(1)) / (w.max() - w.min())).median().item()
    style.save(
        matrices.row_ranges(w, f"{name}: the median row needs {median:.0%} of the tensor's range"),
        FIGURES / "rows.svg",
        "Range of every row of a weight, sorted, inside the range of the whole weight",
    )
    style.save(
        matrices.before_after(w[:6, :8], round_trip(3, "channel")[:6, :8], "3 bits per channel"),
        FIGURES / "matrix.svg",
        "A corner of a weight before and after 3-bit quantization, and the error",
    )
    levels = {"tensor": round_trip(3, "tensor")[0], "channel": round_trip(3, "channel")[0]}
    style.save(
        grid.histogram_with_grid(w[0], levels, "3 bits: levels that the first row uses"),
        FIGURES / "levels.svg",
        "Histogram of a row with the levels of a tensor-wide and of its own grid",
    )
    near = [p for p in points if p.size < 17]
    best = min((p for p in points if p.cost <= CLOSE[-1] * reference), key=lambda p: p.size)
    style.save(*shown("pareto", *pareto.of_a_model(near, best, (16, reference))))
    style.save(*shown("steps", *granularity.worth(*all_steps(model))))
    rise, spread = alone
    style.save(*shown("layers", *layers.of_a_model(rise, spread)))
    style.save(*shown("gradient", *grid.straight_through(step=0.5, first=-2, last=4)))


def shown(name: str, fig, alt: str) -> tuple:
    """Arguments of style.save for a figure of this chapter."""
    return fig, FIGURES / f"{name}.svg", alt


def save_opening(models: dict[int, nn.Module]) -> None:
    """The picture that opens the lab: fewer levels, and what the model writes with them."""
    name = "model.layers.0.self_attn.q_proj"
    rows = []
    for bits, model in models.items():
        levels = None if bits == 16 else model.get_submodule(name).weight.detach()[0]
        text = zoo.sample(model, PROMPT, tokens=70).removeprefix(PROMPT)
        rows.append(writing.Written(f"{bits} bits", levels, PROMPT.split("\n")[-1] + text))
    row = models[16].get_submodule(name).weight.detach()[0]
    title = "One model, asked four times to go on with the same line"
    alt = "Four rows, from 16 bits down to 2: levels of a row of weights, and what the model writes"
    style.save(*shown("opening", writing.levels_and_text(row, rows, title), alt))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


def main() -> None:
    torch.manual_seed(0)
    model = zoo.load("target")
    models, reference = writers(model), losses(model).mean().exp().item()
    save_opening(models)
    print(f"fp16 perplexity {reference:.2f}; bits per parameter and perplexity of the rest:")
    points = sweep(model)
    outputs = [m for name, m in quantizable_linears(model).items() if name.endswith("o_proj")]
    alone = one_at_a_time(model)
    trained = {rate: train_layer(model, outputs[len(outputs) // 2], rate) for rate in RATES}
    write(GENERATED / "lab01_table.md", table(points, reference))
    write(GENERATED / "lab01_findings.md", findings(model, points, reference, trained, alone[0]))
    write(GENERATED / "lab01_ranges.md", ranges())
    write(GENERATED / "lab01_training.md", training(model))
    write(GENERATED / "lab01_steps.md", training_steps(model))
    write(GENERATED / "lab01_written.md", written(models))
    save_figures(model, points, reference, alone)


if __name__ == "__main__":
    main()
