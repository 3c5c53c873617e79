"""Figures of the chapter on outliers and SmoothQuant, for benchmarks/lab02_tables.py."""

from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn

from efflib.models.groups import norm_groups
from efflib.plots import channels, outliers, repairs, style
from efflib.quantization.smoothquant import channel_maxima, smoothing_scales

FIGURES = Path(__file__).parents[1] / "course" / "figures" / "lab02"
ALPHAS = (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0)
ALPHA = 0.5  # the middle of the valley, for everything but the sweep
KINDS = ("with outliers", "control")
NORM = "model.layers.2.input_layernorm"  # the one that figures show
OPENING_TOKENS = 64  # rows of the map that opens the lab

Rows = dict[str, list[float]]  # {setting: perplexity for each placement of the outliers}
Figures = dict[str, Rows]  # {kind of model: ...}; the control has one placement


def sweep(found: Rows) -> list[float]:
    """The mean over placements, for each alpha."""
    return [mean(found[f"alpha {alpha}"]) for alpha in ALPHAS]


def reader(model: nn.Module) -> str:
    """A linear layer that reads the norm that figures show."""
    [group] = [group for group in norm_groups(model) if group.name == NORM]
    return next(iter(group.linears))


def inputs_of(model: nn.Module, ids: Tensor, name: str) -> Tensor:
    """What that layer reads: [tokens, K]."""
    seen = []
    layer = model.get_submodule(name)
    hook = layer.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        model(ids)
    hook.remove()
    return seen[0].flatten(0, -2)


def save_figures(figures: Figures, bars: Rows, model: nn.Module, ids: Tensor) -> None:
    """Write all figures of the chapter, and the one that opens the lab; model: the first placement.

    bars: of the figure that opens the lab, {what is rounded: perplexity for each placement}.
    """
    out = figures["with outliers"]
    curves = {
        kind: list(zip(*(figures[kind][f"alpha {a}"] for a in ALPHAS), strict=True))
        for kind in KINDS
    }
    flat = sweep(figures["control"])
    found = {name: mean(out[name]) for name in ("left out", "shifted", "clipped")}
    found |= {"tensor": mean(out["W8A8, tensor"])}
    found |= {"fp": mean(out["fp32"]), "flat": 100 * (max(flat) / min(flat) - 1)}
    save(repairs.migration(ALPHAS, curves, found), "sweep")
    x = inputs_of(model, ids, reader(model))
    hot = outliers.hot_channels(x)
    early = inputs_of(model, ids, "model.layers.0.mlp.gate_proj")
    layers = {"layer 0, mlp": early, "layer 2, attention": x}
    save(outliers.intervals(layers, hot), "ranges")
    means = {name: mean(values) for name, values in bars.items()}
    save(outliers.opening(x[:OPENING_TOKENS], hot, means), "opening")
    save_repairs(out, figures["control"])
    save_channels(model, ids, {kind: sweep(figures[kind]) for kind in KINDS})


def save(drawn: outliers.Drawn, name: str) -> None:
    figure, alt = drawn
    style.save(figure, FIGURES / f"{name}.svg", alt)


def save_repairs(out: Rows, control: Rows) -> None:
    """Everything but the sweep: means and ranges of the placements."""
    rows = {"fp32": out["fp32"], "control, per tensor": control["W8A8, tensor"]}
    rows |= {name.replace(",", " per"): out[name] for name in ("W8A8, tensor", "W8A8, token")}
    simple = {"left out": "left out", "shifted": "shifted", "clipped (static)": "clipped"}
    rows |= {title: out[name] for title, name in simple.items()}
    rows |= {f"smoothed, {name}": out[name] for name in ("O1", "O2", "O3")}
    rows |= {"rows and tokens": out["rows"], "rows and tokens, smoothed": out["rows, smoothed"]}
    rows |= {"rows and tokens, split": out["LLM.int8"]}
    save(repairs.points(rows, "What repairs W8A8, and what does not"), "repairs")


def save_channels(model: nn.Module, ids: Tensor, curves: dict[str, list[float]]) -> None:
    """Channels of one layer, before and after smoothing."""
    [group] = [group for group in norm_groups(model) if group.name == NORM]
    weights = [linear.weight.detach() for linear in group.linears.values()]
    x_max = channel_maxima(model, ids)[reader(model)]
    w_max = torch.cat(weights).abs().amax(0)
    hot = outliers.hot_channels(x_max[None])
    ratio = (x_max.max() / x_max.median()).item()
    title = f"The largest channel of X is {ratio:.0f} times the median one, that of W "
    title += f"{(w_max.max() / w_max.median()).item():.1f} times"
    panels = {"activations: max |X_j|": x_max, "weights: max |W_:j|": w_max}
    alt = "Largest magnitude of every channel of activations and of weights, on a log scale"
    save((channels.magnitudes(panels, title, "largest magnitude", hot), alt), "channels")
    s = smoothing_scales(x_max, weights, ALPHA)
    ratios = [(m.max() / m.median()).item() for m in (x_max / s, w_max * s)]
    text = f"alpha = {ALPHA:g}: the largest channel of X / s is {ratios[0]:.1f} times the median "
    text += f"one, that of W s {ratios[1]:.1f} times"
    fig = channels.smoothing(x_max / s, w_max * s, ALPHAS, curves, ALPHA, text, hot)
    alt = "Channels of activations and weights after smoothing, and the sweep with this alpha"
    save((fig, alt), "smoothing")
