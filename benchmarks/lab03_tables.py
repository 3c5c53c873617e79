"""Numbers and figures of the chapter on AWQ, measured on the shipped model.

    python benchmarks/lab03_tables.py            writes course/chapters/_generated/lab03_*.md
                                                 and course/figures/lab03/*.svg, prints the tables

The experiment is the story in efflib.zoo.phenomena.awq, at its full scale.  Everything is
deterministic but for the order of float sums; run it again whenever the checkpoint changes.  Takes
four minutes on two cores.
"""

import math
from pathlib import Path

import lab03_roofline
import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.plots import channels, grid, salience, style
from efflib.quantization.awq import (
    RATIOS,
    ScaleSearch,
    mean_magnitude,
    scale_channels,
    scaled_rtn,
    top_channels,
)
from efflib.quantization.awq_model import Calibration, record, search_model
from efflib.quantization.linear import quantize_weight
from efflib.quantization.size import quantizable_linears
from efflib.zoo.phenomena import awq as story
from efflib.zoo.phenomena.story import FULL, losses, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab03"
BITS, GROUP = story.BITS, story.GROUP
WAYS = {  # title in the table -> key of the story
    "RTN": "RTN",
    "3 % of the channels in floating point, at random": "keep random",
    "... by mean of the weights": "keep |W|",
    "... by mean of the activations": "keep |X|",
    **{f"the same channels times {f}": f"x{f}" for f in (2, 4, 8, 16, 32)},
    "searched scales": "search",
    "searched scales and clipping": "search + clip",
}
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # of one layer
SWEEP = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # of the whole model
LAYER, NORM = "model.layers.2.self_attn.q_proj", "model.layers.2.input_layernorm"  # of the figures

Figures = dict[str, float]


# ---- text ------------------------------------------------------------------------------------


def table(figures: Figures) -> str:
    """Perplexity and added loss of every way, with the outlier channels and without (control)."""
    lines = [
        "| | with outliers: " + " | ".join(f"{b} bits" for b in BITS) + " | control: "
        + " | ".join(f"{b} bits" for b in BITS) + " |",
        "|---" * (1 + 2 * len(BITS)) + "|",
    ]  # fmt: skip
    for title, key in WAYS.items():
        cells = []
        for kind in ("outliers", "plain"):
            for bits in BITS:
                added = figures.get(f"{kind} {bits} {key}")
                cost = "" if added is None else f"{math.exp(figures['float'] + added):.1f}"
                cells.append("" if added is None else f"{cost} (+{added:.3f})")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def findings(figures: Figures, search: ScaleSearch) -> str:
    """The sentences of the chapter that hold measured numbers."""
    lines = [f"- The float model has perplexity {math.exp(figures['float']):.2f} on this text."]
    for bits in BITS:
        rtn, plain = figures[f"outliers {bits} RTN"], figures[f"plain {bits} RTN"]
        left = {key: figures[f"outliers {bits} {key}"] / rtn for key in WAYS.values()}
        left |= {f"x{f}": figures[f"outliers {bits} x{f}"] / rtn for f in SWEEP}
        best = min(SWEEP, key=lambda f, left=left: left[f"x{f}"])
        by = {"|X|": "chosen by |X|", "|W|": "by |W|", "random": "at random"}
        removed = ", ".join(f"{1 - left[f'keep {k}']:.1%} {text}" for k, text in by.items())
        lines += [
            f"- {bits} bits: of the loss that RTN adds, 3 % of the channels in floating point "
            f"remove {removed}. The best of the factors, {best}, leaves {left[f'x{best}']:.0%} of "
            f"it; the search leaves {left['search']:.0%}, with clipping "
            f"{left['search + clip']:.0%}.",
            f"- {bits} bits without outliers (control): RTN adds {plain:.3f} nats, the search "
            f"{figures[f'plain {bits} search']:.3f}, with clipping "
            f"{figures[f'plain {bits} search + clip']:.3f}.",
        ]
    share = min(search.losses) / search.losses[0]
    lines.append(
        f"- q, k and v of layer 2 at {BITS[0]} bits: the best ratio is {search.ratio:g}, its "
        f"scales run from {search.scales.min():.2f} to {search.scales.max():.2f}, and the loss "
        f"in the attention's output is {share:.1%} of plain rounding's."
    )
    return "\n".join(lines) + "\n"


# ---- figures ---------------------------------------------------------------------------------


def protect(x: Tensor, w: Tensor, where: Tensor, bits: int, factor: float) -> dict[str, float]:
    """Squared output errors by where they come from, and the step of the groups with `where`."""
    s = torch.ones(w.shape[1]).index_fill(0, where, factor)
    d = scaled_rtn(w, s, bits, GROUP) - w
    rest = torch.ones(w.shape[1], dtype=torch.bool).index_fill(0, where, False)
    step = quantize_weight(w * s, bits, GROUP).scale[:, (where // GROUP).unique()]
    parts = {"scaled channels": where, "other channels": rest, "all": slice(None)}
    errors = {key: (x[:, p] @ d[:, p].T).square().mean().item() for key, p in parts.items()}
    return errors | {"step": step.mean().item()}


def save_layer_figures(model: nn.Module, calibration: Calibration, search: ScaleSearch) -> None:
    x = calibration.inputs[LAYER].flatten(0, -2)
    w = model.get_submodule(LAYER).weight.detach()
    where = top_channels(mean_magnitude(x), story.FRACTION)
    large = mean_magnitude(x).topk(story.CHANNELS).indices.tolist()
    style.save(
        channels.magnitudes(
            {"activations: mean |X_j|": mean_magnitude(x), "weights: mean |W_:j|": w.abs().mean(0)},
            "What a few channels of the activations do, the weights do not show",
            "mean magnitude",
            marked=large,
        ),
        FIGURES / "channels.svg",
        "Mean magnitude of every channel of activations and of weights, on a log scale",
    )
    points = [protect(x, w, where, BITS[0], factor) for factor in FACTORS]
    best = min(range(len(FACTORS)), key=lambda i: points[i]["all"])
    style.save(
        salience.protection(
            FACTORS,
            points,
            f"Least error at factor {FACTORS[best]:g}, where the step is "
            f"{points[best]['step'] / points[0]['step']:.2f} times that of RTN",
            at=FACTORS[best],
        ),
        FIGURES / "protection.svg",
        "Output error of scaled and other channels, and the step of their groups, by the factor",
    )
    losses = torch.tensor(search.losses) / search.losses[0]
    style.save(
        grid.lines(
            torch.tensor(RATIOS),
            [{"q, k and v of layer 2": losses}],
            f"The search finds ratio {search.ratio:g}",
            "ratio",
            ["loss of the attention's output, RTN = 1"],
        ),
        FIGURES / "search.svg",
        "Loss of the attention's output against the ratio of the search",
    )


def sweep(model: nn.Module, calibration: Calibration) -> Figures:
    """Added loss of every factor of SWEEP on the 3 % of channels with large activations."""
    held_out = windows("code", True, FULL, seed=0)[::2]
    linears, before = quantizable_linears(model), losses(model, held_out).mean().item()
    where = {
        name: top_channels(mean_magnitude(calibration.inputs[name]), story.FRACTION)
        for name in linears
    }
    found = {}
    for bits in BITS:
        for f in SWEEP:
            weights = {
                n: scale_channels(m.weight, where[n], float(f), bits, GROUP)
                for n, m in linears.items()
            }
            after = losses(story.with_weights(model, weights), held_out).mean().item()
            found[f"outliers {bits} x{f}"] = after - before
    return found


def save_model_figures(figures: Figures) -> None:
    curves = {f"{b} bits": [figures[f"outliers {b} x{f}"] for f in SWEEP] for b in BITS}
    best = {name: SWEEP[row.index(min(row))] for name, row in curves.items()}
    style.save(
        grid.lines(
            torch.tensor(SWEEP),
            [{name: torch.tensor(row) for name, row in curves.items()}],
            "Least loss at factor " + ", ".join(f"{f} ({name})" for name, f in best.items()),
            "factor on the channels with large activations (1: plain rounding)",
            ["added loss, nats per token"],
        ),
        FIGURES / "factors.svg",
        "Added loss of the model against the factor on the salient channels, at 4 and 3 bits",
    )
    names = ("RTN", "keep random", "keep |W|", "keep |X|", "search", "search + clip")
    bars = {name.replace(" + ", "\n+ "): figures[f"outliers {BITS[0]} {name}"] for name in names}
    style.save(
        grid.bars(bars, f"Which channels are kept decides ({BITS[0]} bits)", "added loss, nats"),
        FIGURES / "ways.svg",
        "Added loss of each way to treat salient channels at 4 bits",
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(text, f"wrote {path.relative_to(ROOT)}", sep="\n", flush=True)


def main() -> None:
    torch.manual_seed(0)
    write(GENERATED / "lab03_roofline.md", lab03_roofline.table())
    style.save(lab03_roofline.figure(), FIGURES / "decode.svg", lab03_roofline.ALT)
    model = zoo.with_offset(zoo.load("target"), story.CHANNELS, story.OFFSET)
    calibration = record(model, windows("code", False, FULL, seed=0)[::4, :-1])
    search = search_model(model, calibration, BITS[0], GROUP)[NORM]
    save_layer_figures(model, calibration, search)
    figures = story.measure(FULL, seed=0) | sweep(model, calibration)
    write(GENERATED / "lab03_table.md", table(figures))
    write(GENERATED / "lab03_findings.md", findings(figures, search))
    save_model_figures(figures)


if __name__ == "__main__":
    main()
