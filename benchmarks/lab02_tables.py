"""Numbers and figures of the chapter on outliers and SmoothQuant, measured on the shipped model.

    python benchmarks/lab02_tables.py            writes course/chapters/_generated/lab02_*.md
                                                 and course/figures/lab02/*.svg, prints the tables

The outliers are those of the story in efflib.zoo.phenomena.smoothquant.  Everything is
deterministic but for the order of float sums; run it again whenever the checkpoint changes.  Takes
three minutes on two cores.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.models.groups import norm_groups
from efflib.plots import channels, grid, style
from efflib.quantization.llm_int8 import llm_int8, outlier_columns
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import quantizable_linears
from efflib.quantization.smoothquant import channel_maxima, smooth, smoothing_scales, w8a8
from efflib.quantization.w8a8 import Int8Linear
from efflib.zoo.phenomena.smoothquant import CHANNELS, LEVELS, OFFSET

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab02"
TOKENS, CONTEXT = 8192, 256  # held-out tokens, in disjoint windows
SAMPLES = 16  # of CONTEXT tokens of training text, for calibration
ALPHAS = (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0)
KINDS = ("with outliers", "control")
NORM = "model.layers.2.input_layernorm"  # the one that figures show

Figures = dict[str, dict[str, float]]  # {kind of model: {setting: perplexity}}


def perplexity(model: nn.Module) -> float:
    return zoo.perplexity(model, split="code", tokens=TOKENS, context=CONTEXT, stride=CONTEXT)


def measure(models: dict[str, nn.Module], sample: Tensor) -> Figures:
    """Perplexity of every setting on both models; prints a line for each."""
    figures: Figures = {}
    for kind, model in models.items():
        found = figures[kind] = {"fp32": perplexity(model)}
        found["W8A8, tensor"] = perplexity(w8a8(model, "tensor"))
        found["W8A8, token"] = perplexity(w8a8(model, "token"))
        found["LLM.int8"] = perplexity(llm_int8(model))
        maxima = channel_maxima(model, sample)
        for alpha in ALPHAS:
            found[f"alpha {alpha}"] = perplexity(w8a8(smooth(model, maxima, alpha), "tensor"))
        smoothed = smooth(model, maxima, best_alpha(found))
        static = channel_maxima(smoothed, sample)
        for level, activations in LEVELS.items():
            found[level] = perplexity(w8a8(smoothed, activations, static))
        found["integers"] = perplexity(w8a8(smoothed, "token", kind=Int8Linear))
        for name, value in found.items():
            print(f"{kind:14s} {name:14s} {value:10.3f}", flush=True)
    return figures


def one_side(model: nn.Module, sample: Tensor) -> dict[str, list[float]]:
    """The sweep with only the weights, or only the activations, rounded per tensor."""
    maxima = channel_maxima(model, sample)
    found: dict[str, list[float]] = {"weights only": [], "activations only": []}
    for alpha in ALPHAS:
        smoothed = smooth(model, maxima, alpha)
        found["weights only"].append(perplexity(quantize_model(smoothed, 8, "tensor", True)[0]))
        quantized = w8a8(smoothed, "tensor")
        for name, linear in quantizable_linears(smoothed).items():
            quantized.get_submodule(name).weight = linear.weight.detach()
        found["activations only"].append(perplexity(quantized))
        print(
            f"alpha {alpha}", {side: round(row[-1], 2) for side, row in found.items()}, flush=True
        )
    return found


def sweep(found: dict[str, float]) -> list[float]:
    return [found[f"alpha {alpha}"] for alpha in ALPHAS]


def best_alpha(found: dict[str, float]) -> float:
    return min(ALPHAS, key=lambda alpha: found[f"alpha {alpha}"])


# ---- text ------------------------------------------------------------------------------------


def table(figures: Figures) -> str:
    """A row per setting, a column per model."""
    alpha = best_alpha(figures["with outliers"])
    rows = {
        "fp32": "fp32",
        "W8A8, activations per tensor": "W8A8, tensor",
        "W8A8, activations per token": "W8A8, token",
        "LLM.int8(), threshold 6": "LLM.int8",
        "smoothed, O1 (per token)": "O1",
        "smoothed, O2 (per tensor)": "O2",
        "smoothed, O3 (static)": "O3",
    }
    lines = [
        f"| perplexity | with outliers (smoothed: alpha {alpha:g}) | control (smoothed: alpha "
        f"{best_alpha(figures['control']):g}) |",
        "|---|---|---|",
    ]
    for title, key in rows.items():
        lines.append(f"| {title} | " + " | ".join(f"{figures[k][key]:.2f}" for k in KINDS) + " |")
    return "\n".join(lines) + "\n"


def sweep_table(figures: Figures, sides: dict[str, list[float]]) -> str:
    """A row per model, with outliers also per side, a column per alpha; bold: the best."""
    lines = ["| alpha | " + " | ".join(f"{a:g}" for a in ALPHAS) + " |"]
    lines.append("|---" * (1 + len(ALPHAS)) + "|")
    rows = {"with outliers": sweep(figures["with outliers"])}
    rows |= {f"with outliers, {side}": row for side, row in sides.items()}
    rows["control"] = sweep(figures["control"])
    for title, row in rows.items():
        cells = [f"**{p:.2f}**" if p == min(row) else f"{p:.2f}" for p in row]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def float_share(model: nn.Module, sample: Tensor) -> dict[str, float]:
    """The share of columns that LLM.int8 keeps in floating point, by kind of layer, in percent."""
    shares: dict[str, list[float]] = {}
    hooks = []
    for name, linear in quantizable_linears(model).items():

        def look(module: nn.Module, args: tuple, kind: str = name.split(".")[-1]) -> None:
            share = outlier_columns(args[0]).float().mean().item()
            shares.setdefault(kind, []).append(100 * share)

        hooks.append(linear.register_forward_pre_hook(look))
    with torch.no_grad():
        model(sample)
    for hook in hooks:
        hook.remove()
    return {kind: sum(values) / len(values) for kind, values in shares.items()}


def findings(figures: Figures, share: dict[str, float], width: int) -> str:
    """The sentences of the chapter that hold measured numbers."""
    out, control = figures["with outliers"], figures["control"]
    lost = out["W8A8, tensor"] - out["fp32"]
    repaired = (out["W8A8, tensor"] - out["W8A8, token"]) / lost
    flat = max(sweep(control)) / min(sweep(control)) - 1
    lines = [
        f"- The emulation adds {OFFSET:g} to {CHANNELS} of {width} channels of every norm's "
        f"output; in fp32 that changes nothing ({out['fp32']:.3f} and {control['fp32']:.3f}).",
        f"- A scale per token repairs {repaired:.0%} of what the outliers cost.",
        f"- LLM.int8() keeps {share['q_proj']:.1f} % of the columns in floating point where a norm "
        f"feeds the layer, {share['o_proj']:.1f} % in front of `o_proj`, and "
        f"{share['down_proj']:.1f} % in front of `down_proj`.",
        f"- Smoothing at alpha = {best_alpha(out):g} brings W8A8 per tensor from "
        f"{out['W8A8, tensor']:.1f} to {out['O2']:.1f}; the ends of the sweep are at "
        f"{sweep(out)[0]:.1f} and {sweep(out)[-1]:.1f}. On the control alpha moves the perplexity "
        f"by {flat:.1%} in all.",
        f"- With products of integers in place of simulated ones, O1 has {out['integers']:.3f} "
        f"instead of {out['O1']:.3f}.",
    ]
    return "\n".join(lines) + "\n"


# ---- figures ---------------------------------------------------------------------------------


def save_figures(figures: Figures, model: nn.Module, sample: Tensor) -> None:
    out, control = figures["with outliers"], figures["control"]
    [group] = [group for group in norm_groups(model) if group.name == NORM]
    weights = [linear.weight.detach() for linear in group.linears.values()]
    x_max = channel_maxima(model, sample)[next(iter(group.linears))]
    w_max = torch.cat(weights).abs().amax(0)
    large = x_max.topk(CHANNELS).indices.sort().values.tolist()
    ratio = (x_max.max() / x_max.median()).item()
    style.save(
        channels.magnitudes(
            {"activations: max |X_j|": x_max, "weights: max |W_:j|": w_max},
            f"The largest channel is {ratio:.0f} times the median one; the weights are even",
            "largest magnitude",
            marked=large,
        ),
        FIGURES / "channels.svg",
        "Largest magnitude of every channel of activations and of weights, on a log scale",
    )
    alpha = best_alpha(out)
    s = smoothing_scales(x_max, weights, alpha)
    curves = {"with outliers": sweep(out), "control": sweep(control)}
    text = f"alpha = {alpha:g}: activations and weights are both moderately uneven"
    style.save(
        channels.smoothing(x_max / s, w_max * s, ALPHAS, curves, alpha, text, large),
        FIGURES / "smoothing.svg",
        "Channels of activations and weights after smoothing, and the sweep with this alpha marked",
    )
    style.save(
        channels.sweep(
            ALPHAS,
            curves,
            f"Least perplexity at alpha = {alpha:g}; without outliers alpha hardly matters",
            reference=out["fp32"],
            at=alpha,
        ),
        FIGURES / "sweep.svg",
        "Perplexity against migration strength with outliers (a U) and without (flat)",
    )
    bars = {name.replace(", ", "\n"): out[name] for name in ("fp32", "W8A8, tensor", "W8A8, token")}
    bars |= {name: out[name] for name in ("LLM.int8", *LEVELS)}
    style.save(
        grid.bars(bars, "What repairs W8A8, and what does not", "perplexity"),
        FIGURES / "repairs.svg",
        "Perplexity of fp32, plain W8A8, LLM.int8() and the three levels of SmoothQuant",
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}")


def main() -> None:
    torch.manual_seed(0)
    plain = zoo.load("target")
    models = {"with outliers": zoo.with_outliers(plain, CHANNELS, OFFSET), "control": plain}
    sample = zoo.calibration("code", n=SAMPLES, length=CONTEXT)
    figures = measure(models, sample)
    sides = one_side(models["with outliers"], sample)
    share = float_share(models["with outliers"], sample)
    width = plain.config.hidden_size
    write(GENERATED / "lab02_table.md", table(figures))
    write(GENERATED / "lab02_sweep.md", sweep_table(figures, sides))
    write(GENERATED / "lab02_findings.md", findings(figures, share, width))
    save_figures(figures, models["with outliers"], sample)


if __name__ == "__main__":
    main()
