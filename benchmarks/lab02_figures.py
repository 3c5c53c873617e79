"""Figures of the chapter on outliers and SmoothQuant, for benchmarks/lab02_tables.py."""

from pathlib import Path

import torch
from torch import Tensor, nn

from efflib.models.groups import norm_groups
from efflib.plots import channels, grid, style
from efflib.quantization.smoothquant import channel_maxima, smoothing_scales
from efflib.zoo.phenomena.smoothquant import CHANNELS, LEVELS

FIGURES = Path(__file__).parents[1] / "course" / "figures" / "lab02"
ALPHAS = (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0)
ALPHA = 0.5  # the middle of the valley, for everything but the sweep
KINDS = ("with outliers", "control")
NORM = "model.layers.2.input_layernorm"  # the one that figures show

Figures = dict[str, dict[str, float]]  # {kind of model: {setting: perplexity}}


def sweep(found: dict[str, float]) -> list[float]:
    return [found[f"alpha {alpha}"] for alpha in ALPHAS]


def valley(found: dict[str, float]) -> tuple[float, float]:
    """The least and the largest perplexity of the sweep between its ends."""
    inner = sweep(found)[1:-1]
    return min(inner), max(inner)


def save_figures(figures: Figures, model: nn.Module, sample: Tensor) -> None:
    """Write all figures of the chapter; model: the one with outliers."""
    curves = {kind: sweep(figures[kind]) for kind in KINDS}
    save_channels(model, sample, curves)
    save_perplexities(figures, curves)


def save_channels(model: nn.Module, sample: Tensor, curves: dict[str, list[float]]) -> None:
    """Channels of one layer, before and after smoothing."""
    [group] = [group for group in norm_groups(model) if group.name == NORM]
    weights = [linear.weight.detach() for linear in group.linears.values()]
    x_max = channel_maxima(model, sample)[next(iter(group.linears))]
    w_max = torch.cat(weights).abs().amax(0)
    large = x_max.topk(CHANNELS).indices.sort().values.tolist()
    ratio = (x_max.max() / x_max.median()).item()
    style.save(
        channels.magnitudes(
            {"activations: max |X_j|": x_max, "weights: max |W_:j|": w_max},
            f"The largest channel of X is {ratio:.0f} times the median one, that of W "
            f"{(w_max.max() / w_max.median()).item():.1f} times",
            "largest magnitude",
            marked=large,
        ),
        FIGURES / "channels.svg",
        "Largest magnitude of every channel of activations and of weights, on a log scale",
    )
    s = smoothing_scales(x_max, weights, ALPHA)
    ratios = [(m.max() / m.median()).item() for m in (x_max / s, w_max * s)]
    text = f"alpha = {ALPHA:g}: the largest channel of X / s is {ratios[0]:.1f} times the median "
    text += f"one, that of W s {ratios[1]:.1f} times"
    style.save(
        channels.smoothing(x_max / s, w_max * s, ALPHAS, curves, ALPHA, text, large),
        FIGURES / "smoothing.svg",
        "Channels of activations and weights after smoothing, and the sweep with this alpha marked",
    )


def save_perplexities(figures: Figures, curves: dict[str, list[float]]) -> None:
    """The sweep, and bars of everything else."""
    out, control = figures["with outliers"], figures["control"]
    style.save(
        channels.sweep(
            ALPHAS,
            curves,
            f"A valley of {valley(out)[0]:.1f} to {valley(out)[1]:.1f} between ends at "
            f"{sweep(out)[0]:.1f} and {sweep(out)[-1]:.1f}; without outliers alpha hardly matters",
            reference=out["fp32"],
            at=ALPHA,
        ),
        FIGURES / "sweep.svg",
        "Perplexity against migration strength with outliers (a U) and without (flat)",
    )
    bars = {"fp32": out["fp32"], "control\ntensor": control["W8A8, tensor"]}
    bars |= {name.replace(", ", "\n"): out[name] for name in ("W8A8, tensor", "W8A8, token")}
    bars |= {f"smoothed\n{name}": out[name] for name in LEVELS}
    bars |= {"rows and\ntokens": out["rows"], "rows, tokens\nsmoothed": out["rows, smoothed"]}
    bars |= {"rows, tokens\nsplit": out["LLM.int8"]}
    style.save(
        grid.bars(bars, "What repairs W8A8, and what does not", "perplexity"),
        FIGURES / "repairs.svg",
        "Perplexity of fp32, plain W8A8, the three levels of SmoothQuant, and the grids of "
        "LLM.int8() plain, smoothed and split",
    )
