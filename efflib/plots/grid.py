"""Values and the levels they round to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def bars(
    values: dict[str, float],
    title: str,
    ylabel: str,
    log: bool = False,
    form: Callable[[float], str] = style.number,
    width: float | None = None,
) -> Figure:
    """One labelled bar per entry, with its number, written by `form`, above it."""
    fig, (ax,) = figure(width=width or max(7.0, 1.05 * len(values)), height=3.2)
    drawn = ax.bar(list(values), list(values.values()), color=BLUE, width=0.6)
    ax.bar_label(drawn, labels=[form(v) for v in values.values()], fontsize=9)
    ax.tick_params(axis="x", labelsize=9)
    ax.set_ylabel(ylabel)
    ax.margins(y=0.15)
    if log:
        ax.set_yscale("log")
    style.title(fig, title)
    return fig


def _around(step: float, first: int, last: int) -> tuple[Tensor, Tensor]:
    """(x, from two levels before the first to two behind the last; steps x rounds to)."""
    x = torch.linspace((first - 1.5) * step, (last + 1.5) * step, 800)
    return x, torch.round(x / step)


def staircase(step: float, first: int, last: int) -> tuple[Figure, str]:
    """(figure, alt text): x_hat and its error on the levels first * step .. last * step."""
    x, steps = _around(step, first, last)
    x_hat, half = steps.clamp(first, last) * step, torch.full_like(x, step / 2)
    fig = lines(
        x,
        [{"x": x, "x_hat": x_hat}, {"x_hat - x": x_hat - x, "+s/2": half, "-s/2": -half}],
        "Inside the range the error stays within half a step; outside it grows without limit",
        "x",
        ["value", "error"],
    )
    alt = (
        f"Left: a staircase of levels {step:g} apart follows the diagonal from {first * step:g} to "
        f"{last * step:g} and is flat beyond. Right: the error is a sawtooth between {-step / 2:g} "
        f"and {step / 2:g} that grows where x is clipped."
    )
    return fig, alt


def straight_through(step: float, first: int, last: int) -> tuple[Figure, str]:
    """(figure, alt text): the staircase, its true derivative and the straight-through estimate."""
    x, steps = _around(step, first, last)
    inside = ((steps >= first) & (steps <= last)).float()
    fig = lines(
        x,
        [
            {"x": x, "x_hat": steps.clamp(first, last) * step},
            {"true": 0 * x, "straight-through": inside},
        ],
        "The true derivative is 0 between the jumps; the estimate is 1 inside the range",
        "x",
        ["forward", "backward: derivative"],
    )
    alt = (
        "Left: the staircase of a quantizer. Right: its true derivative is 0 between the jumps, "
        f"the straight-through estimate is 1 from {(first - 0.5) * step:g} to "
        f"{(last + 0.5) * step:g} and 0 outside."
    )
    return fig, alt


def with_outlier(w: Tensor, w_hats: dict[str, Tensor], ratio: float) -> tuple[Figure, str]:
    """(figure, alt text): the levels of grids that were made with and without an outlier.

    w: the weight without it; w_hats: {name: its values on a grid}; ratio: how many times as large
    the mean error became.  Levels far outside are not shown.
    """
    most = 1.5 * w.abs().max()
    near = {name: w_hat[w_hat.abs() <= most] for name, w_hat in w_hats.items()}
    counts = " and ".join(f"{len(near[name].unique())} ({name})" for name in near)
    title = (
        f"One outlier (far outside, not shown): mean error of the rest {ratio:.1f} times as large"
    )
    alt = (
        "Histograms of the same bell-shaped weights with the levels of their grids as vertical "
        f"lines. Of the levels, {counts} fall into the range of the weights."
    )
    return histogram_with_grid(w, near, title), alt


def levels_of_a_row(row: Tensor, row_hat: Tensor, text: str) -> tuple[Figure, str]:
    """(figure, text): the histogram of a row and the levels that it uses."""
    return histogram_with_grid(row, {"a row": row_hat}, text), text


def training(paths: dict[str, Tensor]) -> tuple[Figure, str]:
    """(figure, alt text): losses on the way, {name: [steps]}, relative to the first of each."""
    curves = {name: path / path[0] for name, path in paths.items()}
    ends = ", ".join(f"{name} {curve[-1]:.2f}" for name, curve in curves.items())
    steps = torch.arange(len(next(iter(paths.values()))))
    title = f"Loss at the end, relative to the start: {ends}"
    fig = lines(steps, [curves], title, "steps of training", ["loss, start = 1"])
    fig.axes[0].set_ylim(bottom=0)
    return fig, f"Loss against steps of training. At the end, relative to the start: {ends}."
