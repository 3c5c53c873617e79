"""Quality against size.  A setting is on the front if nothing smaller is as good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from efflib.plots.style import BLACK, COLOURS, GREY, MARKERS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """One measured setting.  size: e.g. total bits per weight; cost: e.g. perplexity."""

    method: str
    granularity: str
    bits: int
    size: float
    cost: float


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other point beats in size and cost together, in order of size."""
    best, kept = float("inf"), []
    for point in sorted(points, key=lambda p: (p.size, p.cost)):
        if point.cost < best:
            kept.append(point)
            best = point.cost
    return kept


def _draw_setting(ax, points: list[Point], ceiling: float, above: list, **look) -> None:
    """The points of one method and granularity, each with its bits; above the ceiling: on it.

    above: all points above the ceiling, so that their labels can stand below one another.
    """
    ax.scatter(
        [p.size for p in points],
        [min(p.cost, ceiling) for p in points],
        s=55,
        zorder=3,
        **look,
    )
    for p in points:
        text, right, drop = f"{p.bits}", 5, 0
        if p in above:
            text, right = f"{p.bits} (\u2191 {p.cost:.4g})", 12
            drop = 11 * above.index(p)
        ax.annotate(
            text,
            (p.size, min(p.cost, ceiling)),
            xytext=(right, 4 - drop),
            textcoords="offset points",
            fontsize=8,
            color=look["edgecolors"],
        )


def _draw_reference(ax, size: float, cost: float) -> None:
    """A dotted line at the cost; the size, far to the right, would squeeze all points."""
    ax.axhline(cost, color=BLACK, linestyle=":", linewidth=1)
    text = f"before: {cost:.3g} at {size:g}"
    ax.annotate(text, (0.01, cost), xycoords=ax.get_yaxis_transform(), va="bottom", fontsize=8)


def tradeoff(
    points: Sequence[Point],
    title: str,
    xlabel: str,
    ylabel: str,
    reference: tuple[float, float] | None = None,
    ceiling: float = math.inf,
) -> Figure:
    """Cost (log scale) against size: colour and fill tell the method, marker the granularity, and
    the number at a point its bits.  The grey line joins the front.

    reference: (size, cost) of the model before, a dotted line; ceiling: costs above it are drawn
    at it, with an arrow and the number, so that ruined settings do not squeeze the others.
    """
    from matplotlib.ticker import LogFormatter

    methods = list(dict.fromkeys(p.method for p in points))
    granularities = list(dict.fromkeys(p.granularity for p in points))
    fig, (ax,) = figure(width=8.0, height=4.6)
    best = front(points)
    heights = [min(p.cost, ceiling) for p in best]
    above = sorted(p for p in points if p.cost > ceiling)
    ax.plot([p.size for p in best], heights, color=GREY, linewidth=4, alpha=0.35, label="front")
    for method, granularity in dict.fromkeys((p.method, p.granularity) for p in points):
        i, j = methods.index(method), granularities.index(granularity)
        colour = COLOURS[i % len(COLOURS)]
        _draw_setting(
            ax,
            [p for p in points if (p.method, p.granularity) == (method, granularity)],
            ceiling,
            above,
            label=f"{method}, {granularity}",
            marker=MARKERS[j % len(MARKERS)],
            edgecolors=colour,
            facecolors=colour if i == 0 else "white",
        )
    if reference is not None:
        _draw_reference(ax, *reference)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(LogFormatter())  # plain numbers; minor ones only where they fit
    ax.yaxis.set_minor_formatter(LogFormatter())
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.set_title(title, fontsize=11)
    ax.legend(frameon=False, fontsize=8)
    return fig
