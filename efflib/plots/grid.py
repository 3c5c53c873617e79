"""Values and the levels they round to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from efflib.plots import style
from efflib.plots.style import BLUE, COLOURS, GREY, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 120
LINES = ["-", "--", "-.", ":"]


def _draw_histogram(ax, values: Tensor, levels: Tensor, title: str, quantity: str) -> None:
    counts, _, _ = ax.hist(values.flatten().numpy(), bins=BINS, color=GREY, alpha=0.75)
    height = max(counts)
    ax.vlines(levels.numpy(), 0, height, color=ORANGE, linewidth=1.0)
    ax.plot(
        levels.numpy(),
        torch.full_like(levels, 1.03 * height).numpy(),
        linestyle="none",
        marker="v",
        color=ORANGE,
        markersize=4,
    )
    ax.set_title(title, fontsize=10)
    ax.set_xlabel(quantity)


def histogram_with_grid(
    values: Tensor, grids: dict[str, Tensor], title: str, quantity: str = "weight"
) -> Figure:
    """Histogram of values with the levels of each grid as vertical lines: one panel per grid.

    values: any shape; grids: {panel title: levels [L]}.
    """
    fig, axes = figure(columns=len(grids), width=max(7.0, 3.6 * len(grids)))
    values = values.detach().float()
    for ax, (name, levels) in zip(axes, grids.items(), strict=True):
        unique = levels.detach().float().unique()
        _draw_histogram(ax, values, unique, f"{name}: {len(unique)} levels in use", quantity)
    axes[0].set_ylabel("number of values")
    style.title(fig, title)
    return fig


def lines(
    x: Tensor,
    panels: Sequence[dict[str, Tensor]],
    title: str,
    xlabel: str,
    ylabels: Sequence[str],
    at: float | None = None,
) -> Figure:
    """Curves over a common x: one panel per dictionary {label: y [len(x)]}; x = at is marked."""
    fig, axes = figure(columns=len(panels), width=max(7.0, 4.2 * len(panels)))
    for ax, panel, ylabel in zip(axes, panels, ylabels, strict=True):
        for i, (label, y) in enumerate(panel.items()):
            ax.plot(
                x.detach().numpy(),
                y.detach().numpy(),
                label=label,
                linewidth=1.8,
                color=COLOURS[i % len(COLOURS)],
                linestyle=LINES[i % len(LINES)],
            )
        ax.axhline(0, color=GREY, linewidth=0.6)
        if at is not None:
            ax.axvline(at, color=GREY, linestyle="--", linewidth=1)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig


def bars(values: dict[str, float], title: str, ylabel: str, log: bool = False) -> Figure:
    """One labelled bar per entry, with its number above it."""
    fig, (ax,) = figure(width=max(7.0, 1.05 * len(values)), height=3.2)
    drawn = ax.bar(list(values), list(values.values()), color=BLUE, width=0.6)
    ax.bar_label(drawn, labels=[style.number(v) for v in values.values()], fontsize=9)
    ax.tick_params(axis="x", labelsize=9)
    ax.set_ylabel(ylabel)
    ax.margins(y=0.15)
    if log:
        ax.set_yscale("log")
    style.title(fig, title)
    return fig
