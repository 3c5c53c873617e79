"""Figures of lab 16: quality against trained numbers, and bills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.placements import LINES, mean
from efflib.plots.style import BLACK, COLOURS, GREY, MARKERS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNITS = {
    "read_bytes": "bytes read besides, a token",
    "flops": "FLOPs besides, a token",
    "context": "positions taken from the text",
}


def _look(i: int) -> dict:
    return {
        "color": COLOURS[i % len(COLOURS)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": LINES[i % len(LINES)],
    }


def bills(points: dict[str, Sequence[tuple[int, int]]], title: str, column: str) -> Figure:
    """A line for each way through its (trained numbers, cost), both by factors, cost from 0."""
    fig, (ax,) = figure(width=7.0, height=3.6)
    for i, (way, pairs) in enumerate(points.items()):
        numbers, costs = zip(*pairs, strict=True)
        ax.plot(numbers, costs, label=way, **_look(i))
    ax.set_xscale("log")
    ax.set_yscale("symlog", linthresh=1)
    ax.set(xlabel="trained numbers", ylabel=UNITS.get(column, column))
    ax.set_ylim(-0.3, 4 * max(cost for pairs in points.values() for _, cost in pairs) + 1)
    ax.legend(frameon=False, fontsize=8, ncols=2)
    style.title(fig, title)
    return fig


def learned(
    panels: dict[str, dict[str, Sequence[tuple[int, Sequence[float]]]]],
    references: dict[str, dict[str, float]],
    title: str,
    control: str = "",
) -> Figure:
    """Loss against trained numbers: a panel for each task, a line for each way.

    panels: {task: {way: [(trained, losses of the seeds)]}}: mean, and a bar from least to most;
    references: {task: {label: loss}}, dotted lines; control: a way that is drawn in black.
    """
    fig, axes = figure(len(panels), width=4.0 * len(panels), height=4.0)
    for ax, (task, ways) in zip(axes, panels.items(), strict=True):
        for i, (way, points) in enumerate(ways.items()):
            look = _look(i) | ({"color": BLACK, "linestyle": "-"} if way == control else {})
            x = [p[0] for p in points]
            y = [mean(p[1]) for p in points]
            off = [[m - min(p[1]) for m, p in zip(y, points, strict=True)]]
            off += [[max(p[1]) - m for m, p in zip(y, points, strict=True)]]
            ax.errorbar(x, y, yerr=off, capsize=2, label=way, markersize=5, **look)
        for label, loss in references[task].items():
            ax.axhline(loss, color=GREY, linestyle=":", linewidth=1)
            ax.annotate(
                label,
                (0.01, loss),
                xycoords=ax.get_yaxis_transform(),
                ha="left",
                va="bottom",
                fontsize=8,
                color=BLACK,
            )
        ax.set(xscale="log", xlabel="trained numbers")
        ax.set_title(task, fontsize=10)
    axes[0].set_ylabel("loss, nats a token")
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    style.title(fig, title)
    return fig


def opening(panels: dict[str, dict[str, Sequence[float]]], title: str) -> Figure:
    """Bars of some ways for each task, each from 0, with a mark for each run."""
    fig, axes = figure(len(panels), width=8.0, height=2.3)
    for ax, (task, ways) in zip(axes, panels.items(), strict=True):
        values = [mean(v) for v in ways.values()]
        ax.barh(range(len(ways)), values, height=0.6, color=[COLOURS[0]] * len(ways))
        for y, losses in enumerate(ways.values()):
            ax.plot(list(losses), [y] * len(losses), color=BLACK, marker="|", linestyle="none")
            ax.annotate(
                f"{values[y]:.2f}",
                (max(losses), y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        ax.set_yticks(range(len(ways)), list(ways) if ax is axes[0] else [""] * len(ways))
        ax.invert_yaxis()
        ax.set_xlim(0, 1.25 * max(values))
        ax.set_title(task, fontsize=10)
        ax.set_xlabel("loss, nats a token")
    style.title(fig, title)
    return fig
