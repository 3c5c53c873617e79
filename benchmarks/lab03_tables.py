"""Numbers and figures of the chapter on AWQ, measured on the shipped model.

    python benchmarks/lab03_tables.py            writes course/chapters/_generated/lab03_*.md
                                                 and course/figures/lab03/*.svg, prints the tables

The experiment is in lab03_story.py.  Everything is deterministic but for the order of float sums;
run it again whenever the checkpoint changes.  Takes some minutes on two cores.
"""

import math
from pathlib import Path

import lab03_opening
import lab03_roofline
import lab03_story as story
import torch
from lab03_story import BITS, FRACTION, GROUP, PLACEMENTS, Figures
from torch import Tensor, nn

from efflib import zoo
from efflib.models.recorded import Calibration, record
from efflib.plots import channels, grid, placements, salience, style
from efflib.quantization.awq import RATIOS, ScaleSearch, mean_magnitude, scaled_rtn, top_channels
from efflib.quantization.awq_model import search_model
from efflib.quantization.linear import quantize_weight

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab03"
WAYS = {  # title in the table -> key of the story
    "RTN": "RTN",
    "RTN, twins merged": "RTN, twins merged",
    "RTN in groups of 16": "RTN, G = 16",
    "RTN and corrected biases": "RTN + bias",
    "3 % of the channels in floating point, at random": "keep random",
    "... by mean of the weights": "keep |W|",
    "... by mean of the activations": "keep |X|",
    **{f"the same channels times {f}": f"x{f}" for f in story.FACTORS},
    "searched scales": "search",
    "searched scales and clipping": "search + clip",
}
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # of one layer
LAYER, NORM = "model.layers.2.self_attn.q_proj", "model.layers.2.input_layernorm"  # of the figures


# ---- text ------------------------------------------------------------------------------------


def table(figures: Figures, model: nn.Module) -> str:
    """Added loss of every way: mean, smallest and largest of the placements, and the control."""
    widths = " | ".join(f"{b} bits" for b in BITS)
    lines = [
        f"| | bits a weight | {widths} | control: {widths} |",
        "|---" * (2 + 2 * len(BITS)) + "|",
    ]
    for title, key in WAYS.items():
        cells = [" and ".join(f"{story.bits_a_weight(model, b, key):.2f}" for b in BITS)]
        cells += [placements.plus_minus(figures["outliers", b, key], 2) for b in BITS]
        for b in BITS:
            alone = figures.get(("control", b, key))
            cells.append(f"{alone[0]:.3f}" if alone else "")
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def findings(figures: Figures, searches: list[ScaleSearch], runs: list) -> str:
    """The sentences of the chapter that hold measured numbers."""
    cost = math.exp(figures["control", 16, "float"][0])
    lines = [f"- The float model has perplexity {cost:.2f} on this text."]
    for bits in BITS:
        mean = {key: placements.mean(figures["outliers", bits, key]) for key in WAYS.values()}
        left = {key: value / mean["RTN"] for key, value in mean.items()}
        best = min(story.FACTORS, key=lambda f, left=left: left[f"x{f}"])
        by = {"|X|": "chosen by |X|", "|W|": "by |W|", "random": "at random"}
        removed = ", ".join(f"{1 - left[f'keep {k}']:.0%} {text}" for k, text in by.items())
        lines.append(
            f"- {bits} bits: of the loss that RTN adds, 3 % of the channels in floating point "
            f"remove {removed}. The best of the factors, {best}, leaves {left[f'x{best}']:.0%} of "
            f"it; the search leaves {left['search']:.0%}, with clipping "
            f"{left['search + clip']:.0%}; corrected biases leave {left['RTN + bias']:.0%}."
        )
    shares = [min(s.losses) / s.losses[0] for s in searches]
    ratios = ", ".join(f"{s.ratio:g}" for s in searches)
    lines.append(
        f"- q, k and v of layer 2 at {BITS[0]} bits: the best ratios of the placements are "
        f"{ratios}, and the loss in the attention's output is "
        f"{placements.plus_minus(shares, 2)} of plain rounding's."
    )
    for factor in (2.0, 8.0):
        i, one = FACTORS.index(factor), [run[0] for run in runs]
        shown = []
        for what in ("weight", "theory"):
            ratio = [
                run[i]["scaled", what] / o["scaled", what] for run, o in zip(runs, one, strict=True)
            ]
            shown.append(f"{placements.mean(ratio):.3f}")
        lines.append(
            f"- Factor {factor:g} leaves {shown[0]} of the scaled channels' squared weight error; "
            f"the theory says {shown[1]}."
        )
    return "\n".join(lines) + "\n"


# ---- figures ---------------------------------------------------------------------------------


def errors(x: Tensor, w: Tensor, bits: int, factor: float) -> salience.Point:
    """Squared errors of weights, by the theory and of outputs, of scaled and of other channels."""
    where = top_channels(mean_magnitude(x), FRACTION).tolist()
    s = torch.ones(w.shape[1]).index_fill(0, torch.tensor(where), factor)
    d = scaled_rtn(w, s, bits, GROUP) - w
    step = quantize_weight(w * s, bits, GROUP).scale.repeat_interleave(GROUP, dim=1) / s
    rest, point = [j for j in range(w.shape[1]) if j not in where], {}
    for part, j in (("scaled", where), ("other", rest), ("all", where + rest)):
        point[part, "weight"] = d[:, j].square().mean().item()
        point[part, "theory"] = step[:, j].square().mean().item()
        point[part, "output"] = (x[:, j] @ d[:, j].T).square().mean().item()
    return point


def layer_of(model: nn.Module, calibration: Calibration) -> tuple[Tensor, Tensor]:
    return calibration.inputs[LAYER].flatten(0, -2), model.get_submodule(LAYER).weight.detach()


def save_channels(x: Tensor, w: Tensor) -> None:
    large = mean_magnitude(x).topk(2 * len(story.GAINS)).indices.tolist()
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


def save_layer_figures(runs: list, searches: list[ScaleSearch]) -> None:
    total = [
        placements.mean([run[i]["all", "output"] for run in runs]) for i in range(len(FACTORS))
    ]
    best = FACTORS[total.index(min(total))]
    title = f"Errors of weights go with the step; least output error at factor {best:g}"
    style.save(
        salience.protection(FACTORS, runs, title),
        FIGURES / "protection.svg",
        "Errors of weights beside the theory, and of outputs, by the factor",
    )
    losses = {
        f"placement {i}": torch.tensor(s.losses) / s.losses[0] for i, s in enumerate(searches)
    }
    style.save(
        grid.lines(
            torch.tensor(RATIOS),
            [losses],
            "The search finds ratios " + ", ".join(f"{s.ratio:g}" for s in searches),
            "ratio",
            ["loss of the attention's output, RTN = 1"],
        ),
        FIGURES / "search.svg",
        "Loss of the attention's output against the ratio of the search",
    )


def save_model_figures(figures: Figures, model: nn.Module) -> None:
    keys = {1.0: "RTN"} | {float(f): f"x{f}" for f in story.FACTORS}
    panels, best = {}, []
    for b in BITS:
        every = range(len(PLACEMENTS))
        runs = [[figures["outliers", b, key][i] for key in keys.values()] for i in every]
        panels[f"{b} bits"] = {"channels with large |X|": runs}
        means = {f: placements.mean(figures["outliers", b, key]) for f, key in keys.items()}
        best.append(f"{min(means, key=means.get):g} ({b} bits)")
    style.save(
        placements.curves(
            list(keys),
            panels,
            "Least loss at factor " + ", ".join(best),
            "factor on the 3 % of channels with large activations",
            "added loss, nats per token",
        ),
        FIGURES / "factors.svg",
        "Added loss of the model against the factor on the salient channels, at 4 and 3 bits",
    )
    names = ["RTN", "RTN, G = 16", "RTN + bias", "keep random", "keep |W|", "keep |X|", "search"]
    names.append("search + clip")
    notes = {
        f"{b} bits": {way: f"{story.bits_a_weight(model, b, way):.2f} b" for way in names}
        for b in BITS
    }
    style.save(
        placements.bars(
            {f"{b} bits": {way: figures["outliers", b, way] for way in names} for b in BITS},
            "Which channels are kept decides; white bars are controls",
            "nats added, bits (b) a weight; marks: placements",
            controls=names[1:5],
            notes=notes,
        ),
        FIGURES / "ways.svg",
        "Added loss of each way to treat salient channels at 4 and 3 bits",
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(text, f"wrote {path.relative_to(ROOT)}", sep="\n", flush=True)


def main() -> None:
    torch.manual_seed(0)
    write(GENERATED / "lab03_roofline.md", lab03_roofline.table())
    style.save(lab03_roofline.figure(), FIGURES / "decode.svg", lab03_roofline.ALT)
    control, ids = zoo.load("target"), story.text()
    style.save(lab03_opening.figure(control, ids), FIGURES / "opening.svg", lab03_opening.ALT)
    models = story.placements(control, ids)
    calibrations = [record(model, ids[:4]) for model in models]
    layers = [layer_of(*pair) for pair in zip(models, calibrations, strict=True)]
    save_channels(*layers[0])
    runs = [[errors(x, w, BITS[0], factor) for factor in FACTORS] for x, w in layers]
    searches = [
        search_model(model, calibration, BITS[0], GROUP)[NORM]
        for model, calibration in zip(models, calibrations, strict=True)
    ]
    save_layer_figures(runs, searches)
    figures = story.measure(control, ids)
    write(GENERATED / "lab03_table.md", table(figures, models[0]))
    write(GENERATED / "lab03_findings.md", findings(figures, searches, runs))
    save_model_figures(figures, models[0])


if __name__ == "__main__":
    main()
