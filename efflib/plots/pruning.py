"""Pruned weights: where the zeros are, and what they cost and save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from efflib.plots import style
from efflib.plots.style import BLUE, COLOURS, GREY, MARKERS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def mask_map(mask: Tensor, norms: Tensor, title: str) -> Figure:
    """Which weights stay, as a map, under the size of the input that each column meets.

    mask [N, K] bool, norms [K].  Raises ValueError if they do not fit.
    """
    if mask.ndim != 2 or norms.shape != mask.shape[1:]:
        raise ValueError(f"need mask [N, K], norms [K], got {mask.shape} and {norms.shape}")
    from matplotlib.colors import ListedColormap

    fig, _ = figure(width=7.0, height=3.8)
    fig.clear()
    top, below = fig.subplots(2, 1, sharex=True, height_ratios=[1, 2.4])
    top.bar(range(len(norms)), norms.tolist(), color=BLUE)
    top.set(ylabel="size of input")
    top.spines[["top", "right"]].set_visible(False)
    colours = ListedColormap(["white", BLUE])
    below.imshow(mask.int().numpy(), cmap=colours, vmin=0, vmax=1, aspect="auto")
    below.set(xlabel="input channel (the 8 largest, and others)", ylabel="output")
    below.set_title("filled: the weight stays", fontsize=9)
    style.title(fig, title)
    return fig


def cost_and_quality(
    points: dict[str, Sequence[tuple[float, float]]], dense: float, title: str
) -> Figure:
    """Perplexity (log) against the share of products that are done: {way: [(share, perplexity)]}.

    dense: the perplexity of the model with all of them.
    """
    fig, (ax,) = figure(height=3.8)
    for i, (way, pairs) in enumerate(points.items()):
        pairs = sorted(pairs)
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        line = "-" if len(pairs) > 1 else ""
        ax.plot(*zip(*pairs, strict=True), color=colour, marker=marker, linestyle=line, label=way)
    ax.axhline(dense, color=GREY, linestyle="--", label="dense")
    ax.set(yscale="log", xlabel="share of the products of the dense model", ylabel="perplexity")
    ticks = [v for v in (5, 7, 10, 15, 20, 30, 50, 100, 200, 500, 1000) if v > 0.8 * dense]
    highest = max(value for pairs in points.values() for _, value in pairs)
    ticks = [v for v in ticks if v <= 1.5 * highest]
    ax.set_yticks(ticks, [f"{v}" for v in ticks])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig


def sweep(
    shares: Sequence[float], curves: dict[str, Sequence[float]], dense: float, title: str
) -> Figure:
    """Perplexity (log) against the share of zeros: a line for each way, {way: perplexities}.

    Raises ValueError if a way has not one perplexity for each share.
    """
    if any(len(values) != len(shares) for values in curves.values()):
        raise ValueError(f"need {len(shares)} perplexities for every way")
    fig, (ax,) = figure(height=3.8)
    for i, (way, values) in enumerate(curves.items()):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
        ax.plot(shares, values, color=colour, marker=marker, label=way)
    ax.axhline(dense, color=GREY, linestyle="--", label="dense")
    ax.set(yscale="log", xlabel="share of the weights that are 0", ylabel="perplexity")
    ax.set_xticks(list(shares), [f"{share:.0%}" for share in shares])
    highest = max(max(values) for values in curves.values())
    ticks = [
        v for v in (5, 10, 20, 50, 100, 200, 500, 1000, 2000) if 0.8 * dense < v < 1.5 * highest
    ]
    ax.set_yticks(ticks, [f"{v}" for v in ticks])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig


def opening(perplexities: dict[str, float], title: str) -> Figure:
    """A bar for each model, without numbers: those are what the lab asks for.

    Only the smaller bars are drawn to scale.  One above twice the smallest leaves the picture.
    """
    fig, (ax,) = figure(width=7.0, height=2.2)
    names, values = list(perplexities), list(perplexities.values())
    edge = 2 * min(values)
    ax.barh(range(len(names)), [min(v, edge) for v in values], color=BLUE, height=0.6)
    for y, value in enumerate(values):
        if value > edge:
            ax.text(1.02 * edge, y, "and on", va="center", fontsize=10)
    ax.set_yticks(range(len(names)), names)
    ax.set_xticks([])
    ax.set_xlim(0, 1.15 * edge)
    ax.invert_yaxis()
    ax.set_xlabel("perplexity on held-out code")
    style.title(fig, title)
    return fig
