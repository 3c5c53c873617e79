"""Sentences and tables of the chapter on outliers and SmoothQuant, for lab02_tables.py."""

from statistics import mean

from lab02_controls import FACTORS
from lab02_figures import ALPHA, ALPHAS, KINDS, Figures, Rows, sweep

PLACEMENTS = 3
CONTEXT, SAMPLES = 256, 16  # tokens of a window; windows of training text, for calibration
ENDS = (0.5, 0.7, 0.85, 1.0, 1.2)  # where static grids end after smoothing, in calibrated maxima
CONSTANT = (2, 75.0)  # channels and size of outliers that do not vary
MORE = 20.0  # a threshold of LLM.int8() beside the 6 of the paper


def spread(values: list[float]) -> str:
    """The mean, and the range of the placements where there are several."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def table(figures: Figures) -> str:
    """A row per setting, a column per model."""
    rows = {
        "fp32": "fp32",
        "W8A8, activations per tensor": "W8A8, tensor",
        "W8A8, activations per token": "W8A8, token",
        "outlier channels left out, W8A8 per tensor": "left out",
        "shifted, W8A8 per tensor": "shifted",
        "clipped: static, not smoothed": "clipped",
        f"smoothed (alpha {ALPHA:g}), O1 (per token)": "O1",
        "smoothed, O2 (per tensor)": "O2",
        "smoothed, O3 (static)": "O3",
        "shifted, then smoothed, O2": "shifted, smoothed",
        "W8A8, per token and per row of W": "rows",
        "the same, smoothed": "rows, smoothed",
        "the same, split at 6: LLM.int8()": "LLM.int8",
    }
    lines = [f"| perplexity | with outliers: mean of {PLACEMENTS} placements (range) | control |"]
    lines.append("|---|---|---|")
    for title, key in rows.items():
        lines.append(f"| {title} | " + " | ".join(spread(figures[k][key]) for k in KINDS) + " |")
    return "\n".join(lines) + "\n"


def sweep_table(figures: Figures, sides: dict[str, Rows]) -> str:
    """A row per model, with outliers also per side; a column without smoothing and per alpha."""
    keys = [f"alpha {alpha}" for alpha in ALPHAS]
    lines = ["| alpha | not smoothed | " + " | ".join(f"{a:g}" for a in ALPHAS) + " |"]
    lines.append("|---" * (2 + len(ALPHAS)) + "|")
    out, control = (figures[kind] for kind in KINDS)
    rows = {"with outliers": [out["W8A8, tensor"], *(out[key] for key in keys)]}
    for side, found in sides.items():
        rows[f"with outliers, {side}"] = [found["not smoothed"], *(found[key] for key in keys)]
    rows["control"] = [control["W8A8, tensor"], *(control[key] for key in keys)]
    for title, row in rows.items():
        lines.append(f"| {title} | " + " | ".join(f"{mean(p):.2f}" for p in row) + " |")
    return "\n".join(lines) + "\n"


def ends(found: Rows) -> str:
    """Dynamic scales, and static ones that end at each multiple of the calibrated maximum."""
    static = ", ".join(f"{f:g}: {spread(found[f'ends at {f}'])}" for f in ENDS)
    return f"{spread(found['O2'])} with dynamic scales; ends at {static}"


def damage(out: dict[str, float], control: dict[str, float]) -> list[str]:
    """What the outliers cost, and what each repair leaves of that."""
    kinds = ("W8A8, tensor", "W8A8, token", "left out", "shifted", "clipped", "O2")
    cost = {kind: out[kind] - control[kind] for kind in kinds}
    part = {kind: f"{value / cost['W8A8, tensor']:.0%}" for kind, value in cost.items()}
    return [
        f"- The emulation keeps the function: in fp32 {out['fp32']:.3f} with outliers and "
        f"{control['fp32']:.3f} without.",
        f"- W8A8 per tensor loses {cost['W8A8, tensor']:.2f} of perplexity to the outliers, beyond "
        f"what the control loses. A scale per token leaves {part['W8A8, token']} of that; per "
        f"tensor, leaving the channels out leaves {part['left out']}, shifting {part['shifted']}, "
        f"clipping {part['clipped']}, smoothing (O2) {part['O2']}.",
    ]


def simpler(found: Rows, control: Rows) -> list[str]:
    """The repairs that are simpler than smoothing, and the model without equal channels."""
    out = {name: mean(values) for name, values in found.items()}
    ends = ", ".join(f"{end:g}" for end in found["end"])
    merged = ", ".join(f"{out[f'merged, alpha {alpha}']:.2f}" for alpha in (0.0, 0.5, 1.0))
    factors = ", ".join(f"{by}: {spread(found[f'divided by {by}'])}" for by in FACTORS)
    return [
        f"- Left out, the four channels cost {out['left out, fp32'] - out['fp32']:.2f} of "
        f"perplexity before anything is rounded.",
        f"- The calibration text likes static grids best that end at {ends} of the calibrated "
        f"maximum (a placement each); on the control at {control['end'][0]:g}.",
        f"- The four channels of every norm divided by one factor, and their columns multiplied by "
        f"it, W8A8 per tensor: {factors}. The formula's own, beside the median channel's, is "
        f"{out['formula']:.1f} on average.",
        f"- One of two equal channels reads for both, W8A8 per tensor: {out['merged']:.2f} (fp32 "
        f"{out['merged, fp32']:.2f}); smoothed with alpha = 0, 0.5, 1: {merged}.",
    ]


def sweep_lines(figures: Figures, sides: dict[str, Rows]) -> list[str]:
    """The valley, its ends, and what is left in it."""
    out = {name: mean(values) for name, values in figures["with outliers"].items()}
    control = {name: values[0] for name, values in figures["control"].items()}
    weights, activations = (
        {key: mean(values) for key, values in sides[side].items()} for side in sides
    )
    at, curve = f"alpha {ALPHA}", sweep(figures["control"])
    return [
        f"- Rounding only the activations gives {activations['not smoothed']:.2f}, only the "
        f"weights {weights['not smoothed']:.2f}, both {out['W8A8, tensor']:.2f}.",
        f"- Smoothing at alpha = {ALPHA:g} brings W8A8 per tensor from {out['W8A8, tensor']:.2f} "
        f"to {out['O2']:.2f}, where the control has {control['W8A8, tensor']:.2f}; the ends of the "
        f"sweep are at {out['alpha 0.0']:.1f} and {out['alpha 1.0']:.1f}. On the control alpha "
        f"moves the perplexity by {max(curve) / min(curve) - 1:.1%} in all.",
        f"- What is left at alpha = {ALPHA:g}: rounding only the weights adds "
        f"{weights[at] - out['fp32']:.2f} to fp32, only the activations "
        f"{activations[at] - out['fp32']:.2f}.",
        f"- Smoothed, per tensor: {ends(figures['with outliers'])} of the calibrated maximum. The "
        f"control: {ends(figures['control'])}.",
        f"- With products of integers in place of simulated ones, O1 has {out['integers']:.3f} "
        f"instead of {out['O1']:.3f}.",
    ]


def findings(
    figures: Figures,
    share: dict[str, dict[str, float]],
    sides: dict[str, Rows],
    constant: dict[str, float],
    alone: Rows,
) -> str:
    """The sentences of the chapter that hold measured numbers."""
    rows = figures["with outliers"]
    out = {name: mean(values) for name, values in rows.items()}
    control = {name: values[0] for name, values in figures["control"].items()}
    norms = [mean(values) - out["fp32"] for values in alone.values()]
    six, more = share["6"], share["more"]
    lines = [
        *damage(out, control),
        *simpler(rows, figures["control"]),
        f"- Only the layers that read one norm in W8A8: each of the {len(alone)} norms adds "
        f"{min(norms):.2f} to {max(norms):.2f} to fp32 (means), all layers together "
        f"{out['W8A8, tensor'] - out['fp32']:.2f}.",
        f"- Outliers that are constant ({CONSTANT[1]:g} in {CONSTANT[0]} channels): W8A8 per "
        f"tensor has {constant['W8A8']:.2f}, shifted {constant['shifted']:.2f}; without any it "
        f"has {control['W8A8, tensor']:.2f}.",
        f"- LLM.int8() with the threshold 6 keeps {six['q_proj']:.1f} % of the columns in floating "
        f"point where a norm feeds the layer, {six['o_proj']:.1f} % in front of `o_proj`, and "
        f"{six['down_proj']:.1f} % in front of `down_proj`; of all columns {six['all']:.1f} %. "
        f"With the threshold {MORE:g} that is {more['all']:.1f} % of all, and the perplexity "
        f"{out['split at more']:.2f} in place of {out['LLM.int8']:.2f} (shares: first "
        f"placement, inputs of {SAMPLES * CONTEXT} tokens). The control keeps "
        f"{share['control']['all']:.1f} % with the threshold 6.",
        *sweep_lines(figures, sides),
    ]
    return "\n".join(lines) + "\n"
