"""Numbers and figures of the chapter on outliers and SmoothQuant, measured on the shipped model.

    python benchmarks/lab02_tables.py            writes course/chapters/_generated/lab02_*.md
                                                 and course/figures/lab02/*.svg, prints the tables

The outliers are those of the story in efflib.zoo.phenomena.smoothquant, in PLACEMENTS draws of the
channels that they stand in; tables hold means, and ranges where they matter.  Everything is
deterministic but for the order of float sums; run it again whenever the checkpoint changes.  Takes
some minutes on two cores.
"""

import copy
import math
from pathlib import Path
from statistics import mean

import torch
from lab02_figures import ALPHA, ALPHAS, KINDS, Figures, Rows, save_figures, sweep
from torch import Tensor, nn

from efflib import zoo
from efflib.models.groups import norm_groups
from efflib.quantization.llm_int8 import llm_int8, outlier_columns
from efflib.quantization.ptq import quantize_model
from efflib.quantization.shifting import channel_middles, shift
from efflib.quantization.size import quantizable_linears
from efflib.quantization.smoothquant import channel_maxima, smooth, w8a8
from efflib.quantization.w8a8 import Int8Linear
from efflib.zoo import corpus
from efflib.zoo.phenomena.smoothquant import GAINS, LEVELS

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
TOKENS, CONTEXT = 4096, 256  # held-out tokens, in disjoint windows
SAMPLES = 16  # of CONTEXT tokens of training text, for calibration
PLACEMENTS = 3
FACTORS = (0.5, 0.7, 0.85, 1.0, 1.2)  # where static grids end, in calibrated maxima
CONSTANT = (2, 75.0)  # channels and size of outliers that do not vary


def perplexity(model: nn.Module) -> float:
    return zoo.perplexity(model, split="code", tokens=TOKENS, context=CONTEXT, stride=CONTEXT)


def opening(plain: nn.Module) -> Rows:
    """What opens the lab: rounding one side, on the lab's own text, calibration and windows."""
    texts = [t for t in corpus.documents("code", held_out=False).values() if len(t) > 4000]
    rows = [zoo.load_tokenizer().encode(t[1000:3000]).ids[:127] for t in texts[:: len(texts) // 8]]
    ids = torch.tensor([[zoo.BEGIN_ID, *row] for row in rows[:8]])
    found: Rows = {"nothing": [], "weights": [], "activations": []}
    for seed in range(PLACEMENTS):
        model = zoo.with_outliers(plain, ids, GAINS, seed=seed)
        weights, activations = rounded_sides(model)
        for name, which in zip(found, (model, weights, activations), strict=True):
            value = zoo.perplexity(which, split="code", tokens=2048, context=128, stride=128)
            found[name].append(value)
    return found


def shifted(model: nn.Module, sample: Tensor) -> nn.Module:
    return shift(model, channel_middles(model, sample))


def settings(model: nn.Module, sample: Tensor) -> dict[str, float]:
    """Perplexity of every setting on one model."""
    found = {"fp32": perplexity(model)}
    found["W8A8, tensor"] = perplexity(w8a8(model, "tensor"))
    found["W8A8, token"] = perplexity(w8a8(model, "token"))
    found["LLM.int8"] = perplexity(llm_int8(model))
    found["rows"] = perplexity(llm_int8(model, threshold=math.inf))  # its grids, no split
    maxima = channel_maxima(model, sample)
    for alpha in ALPHAS:
        found[f"alpha {alpha}"] = perplexity(w8a8(smooth(model, maxima, alpha), "tensor"))
    smoothed = smooth(model, maxima, ALPHA)
    static = channel_maxima(smoothed, sample)
    for level, activations in LEVELS.items():
        found[level] = perplexity(w8a8(smoothed, activations, static))
    for factor in FACTORS:
        ends = {name: factor * x_max for name, x_max in static.items()}
        found[f"ends at {factor}"] = perplexity(w8a8(smoothed, "static", ends))
    found["rows, smoothed"] = perplexity(llm_int8(smoothed, threshold=math.inf))
    found["integers"] = perplexity(w8a8(smoothed, "token", kind=Int8Linear))
    centred = shifted(model, sample)
    found["shifted"] = perplexity(w8a8(centred, "tensor"))
    both = smooth(centred, channel_maxima(centred, sample), ALPHA)
    found["shifted, smoothed"] = perplexity(w8a8(both, "tensor"))
    return found


def measure(models: dict[str, list[nn.Module]], sample: Tensor) -> Figures:
    """{kind: {setting: perplexity for each placement}}; prints a line for each setting."""
    figures: Figures = {}
    for kind, placements in models.items():
        found = [settings(model, sample) for model in placements]
        figures[kind] = {name: [row[name] for row in found] for name in found[0]}
        for name, values in figures[kind].items():
            print(f"{kind:14s} {name:18s}", *(f"{v:9.3f}" for v in values), flush=True)
    return figures


def rounded_sides(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The model with only its weights, and with only its activations, rounded per tensor."""
    activations = w8a8(model, "tensor")
    for name, linear in quantizable_linears(model).items():
        activations.get_submodule(name).weight = linear.weight.detach()
    return quantize_model(model, 8, "tensor", True)[0], activations


def one_norm(placements: list[nn.Module]) -> Rows:
    """W8A8 per tensor in the layers that read one norm, and nowhere else: {norm: perplexities}."""
    found: Rows = {}
    for model in placements:
        rounded = w8a8(model, "tensor")
        for group in norm_groups(model):
            one = copy.deepcopy(model)
            for name in group.linears:
                one.set_submodule(name, rounded.get_submodule(name))
            found.setdefault(group.name, []).append(perplexity(one))
    return found


def one_side(placements: list[nn.Module], sample: Tensor) -> dict[str, Rows]:
    """Only the weights, or only the activations, rounded per tensor: unsmoothed, then the sweep."""
    found: dict[str, Rows] = {"weights only": {}, "activations only": {}}
    for model in placements:
        maxima = channel_maxima(model, sample)
        for alpha in (None, *ALPHAS):
            smoothed = model if alpha is None else smooth(model, maxima, alpha)
            key = "not smoothed" if alpha is None else f"alpha {alpha}"
            for side, rounded in zip(found.values(), rounded_sides(smoothed), strict=True):
                side.setdefault(key, []).append(perplexity(rounded))
    return found


def float_share(model: nn.Module, sample: Tensor) -> dict[str, float]:
    """The share of columns that LLM.int8 keeps in floating point, in percent: by kind of layer,
    and "all" columns of all layers.
    """
    shares: dict[str, list[tuple[int, int]]] = {}
    hooks = []
    for name, linear in quantizable_linears(model).items():

        def look(module: nn.Module, args: tuple, kind: str = name.split(".")[-1]) -> None:
            mask = outlier_columns(args[0])
            for key in (kind, "all"):
                shares.setdefault(key, []).append((int(mask.sum()), len(mask)))

        hooks.append(linear.register_forward_pre_hook(look))
    with torch.no_grad():
        model(sample)
    for hook in hooks:
        hook.remove()
    return {k: 100 * sum(c for c, _ in v) / sum(n for _, n in v) for k, v in shares.items()}


# ---- text ------------------------------------------------------------------------------------


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
        "shifted, W8A8 per tensor": "shifted",
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
    static = ", ".join(f"{f:g}: {spread(found[f'ends at {f}'])}" for f in FACTORS)
    return f"{spread(found['O2'])} with dynamic scales; ends at {static}"


def findings(
    figures: Figures,
    share: dict[str, float],
    sides: dict[str, Rows],
    constant: dict[str, float],
    alone: Rows,
) -> str:
    """The sentences of the chapter that hold measured numbers."""
    out = {name: mean(values) for name, values in figures["with outliers"].items()}
    control = {name: values[0] for name, values in figures["control"].items()}
    kinds = ("W8A8, tensor", "W8A8, token", "shifted", "O2")
    cost = {kind: out[kind] - control[kind] for kind in kinds}
    norms = [mean(values) - out["fp32"] for values in alone.values()]
    weights, activations = (
        {key: mean(values) for key, values in sides[side].items()} for side in sides
    )
    at = f"alpha {ALPHA}"

    def part(kind: str) -> str:
        return f"{cost[kind] / cost['W8A8, tensor']:.0%}"

    flat = max(sweep(figures["control"])) / min(sweep(figures["control"])) - 1
    lines = [
        f"- The emulation keeps the function: in fp32 {out['fp32']:.3f} with outliers and "
        f"{control['fp32']:.3f} without.",
        f"- W8A8 per tensor loses {cost['W8A8, tensor']:.2f} of perplexity to the outliers, beyond "
        f"what the control loses. A scale per token leaves {part('W8A8, token')} of that, shifting "
        f"(per tensor) {part('shifted')}, smoothing (O2) {part('O2')}.",
        f"- Only the layers that read one norm in W8A8: each of the {len(alone)} norms adds "
        f"{min(norms):.2f} to {max(norms):.2f} to fp32 (means), all layers together "
        f"{out['W8A8, tensor'] - out['fp32']:.2f}.",
        f"- Outliers that are constant ({CONSTANT[1]:g} in {CONSTANT[0]} channels): W8A8 per "
        f"tensor has {constant['W8A8']:.2f}, shifted {constant['shifted']:.2f}; without any it "
        f"has {control['W8A8, tensor']:.2f}.",
        f"- Rounding only the activations gives {activations['not smoothed']:.2f}, only the "
        f"weights {weights['not smoothed']:.2f}, both {out['W8A8, tensor']:.2f}.",
        f"- LLM.int8() keeps {share['q_proj']:.1f} % of the columns in floating point where a norm "
        f"feeds the layer, {share['o_proj']:.1f} % in front of `o_proj`, and "
        f"{share['down_proj']:.1f} % in front of `down_proj`; of all columns {share['all']:.1f} % "
        f"(inputs of {SAMPLES * CONTEXT} tokens).",
        f"- Smoothing at alpha = {ALPHA:g} brings W8A8 per tensor from {out['W8A8, tensor']:.2f} "
        f"to {out['O2']:.2f}, where the control has {control['W8A8, tensor']:.2f}; the ends of the "
        f"sweep are at {out['alpha 0.0']:.1f} and {out['alpha 1.0']:.1f}. On the control alpha "
        f"moves the perplexity by {flat:.1%} in all.",
        f"- What is left at alpha = {ALPHA:g}: rounding only the weights adds "
        f"{weights[at] - out['fp32']:.2f} to fp32, only the activations "
        f"{activations[at] - out['fp32']:.2f}.",
        f"- Smoothed, per tensor: {ends(figures['with outliers'])} of the calibrated maximum. The "
        f"control: {ends(figures['control'])}.",
        f"- With products of integers in place of simulated ones, O1 has {out['integers']:.3f} "
        f"instead of {out['O1']:.3f}.",
    ]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


def main() -> None:
    torch.manual_seed(0)
    plain = zoo.load("target")
    sample = zoo.calibration("code", n=SAMPLES, length=CONTEXT)
    placements = [zoo.with_outliers(plain, sample, GAINS, seed=i) for i in range(PLACEMENTS)]
    figures = measure({"with outliers": placements, "control": [plain]}, sample)
    sides, alone = one_side(placements, sample), one_norm(placements)
    steady = zoo.with_offset(plain, *CONSTANT)
    constant = {"W8A8": perplexity(w8a8(steady, "tensor"))}
    constant["shifted"] = perplexity(w8a8(shifted(steady, sample), "tensor"))
    share = float_share(placements[0], sample)
    write(GENERATED / "lab02_table.md", table(figures))
    write(GENERATED / "lab02_sweep.md", sweep_table(figures, sides))
    write(GENERATED / "lab02_findings.md", findings(figures, share, sides, constant, alone))
    save_figures(figures, opening(plain), placements[0], sample)


if __name__ == "__main__":
    main()
