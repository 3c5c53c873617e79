"""Quality against size.  A setting is on the front if nothing smaller is as good."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from efflib.plots import style
from efflib.plots.style import BLACK, COLOURS, GREY, MARKERS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ZOOM = 1.25  # the second panel holds what costs at most this times the reference
MARGIN = 0.01  # bits: a smaller difference in size is no reason to prefer a setting
RUINED = 8  # costs above this times the reference are drawn at it
NEAR = 12  # pixels: equal labels closer than this are written once


class Point(NamedTuple):
    """One measured setting.  size: e.g. total bits per weight; cost: e.g. perplexity.

    spread: how far the cost may be off, drawn as a bar; 0 draws none.
    """

    method: str
    granularity: str
    bits: int
    size: float
    cost: float
    spread: float = 0.0


def front(points: Sequence[Point], margin: float = MARGIN) -> list[Point]:
    """The points that no other one beats, in order of size.

    A point is beaten by one of less cost that is at most `margin` larger, and by a smaller one of
    the same cost.  Without the margin a ruined setting would stand on the front because its scales
    are some thousandths of a bit smaller than those of a good one.
    """

    def beaten(p: Point) -> bool:
        cheaper = any(q.cost < p.cost and q.size <= p.size + margin for q in points)
        return cheaper or any(q.cost == p.cost and q.size < p.size for q in points)

    return sorted(
        {(p.size, p.cost): p for p in points if not beaten(p)}.values(), key=lambda p: p.size
    )


def looks(points: Sequence[Point]) -> dict[tuple[str, str], dict]:
    """How each (method, granularity) is drawn: colour and fill by method, marker by granularity."""
    methods = list(dict.fromkeys(p.method for p in points))
    granularities = list(dict.fromkeys(p.granularity for p in points))
    found = {}
    for method, granularity in dict.fromkeys((p.method, p.granularity) for p in points):
        i, j = methods.index(method), granularities.index(granularity)
        colour = COLOURS[i % len(COLOURS)]
        found[method, granularity] = {
            "marker": MARKERS[j % len(MARKERS)],
            "edgecolors": colour,
            "facecolors": colour if i == 0 else "white",
        }
    return found


def _write(ax, text: str, at: tuple[float, float], offset: tuple[float, float], colour: str, **how):
    """A label beside a point, with a white edge: it stays legible on markers and lines."""
    from matplotlib.patheffects import withStroke

    edge = [withStroke(linewidth=2.5, foreground="white")]
    ax.annotate(
        text,
        at,
        xytext=offset,
        textcoords="offset points",
        fontsize=8,
        color=colour,
        path_effects=edge,
        zorder=5,
        **how,
    )


def _draw(ax, points: Sequence[Point], every: dict, ceiling: float) -> None:
    """The front and the points, those above the ceiling at it."""
    best = front(points)
    heights = [min(p.cost, ceiling) for p in best]
    name = f"front: nothing of this size (+ {MARGIN} bits) is better"
    ax.plot([p.size for p in best], heights, color=GREY, linewidth=4, alpha=0.35, label=name)
    for (method, granularity), look in every.items():
        mine = [p for p in points if (p.method, p.granularity) == (method, granularity)]
        ax.scatter(
            [p.size for p in mine],
            [min(p.cost, ceiling) for p in mine],
            s=45,
            zorder=3,
            label=f"{method}, {granularity}",
            **look,
        )
    sure = [p for p in points if p.spread and p.cost <= ceiling]
    if sure:
        heights, spreads = [p.cost for p in sure], [p.spread for p in sure]
        at = [p.size for p in sure]
        ax.errorbar(at, heights, spreads, fmt="none", ecolor=BLACK, elinewidth=0.8, capsize=2)


def _label(ax, points: Sequence[Point], every: dict, ceiling: float) -> None:
    """The bits of each point: right of those of the first method, left of the others.

    Above the ceiling: all about the point, one above another.  Equal labels at one place: one.
    """
    (low, high), drawn = ax.get_ylim(), []
    first = next(iter(every.values()))["edgecolors"] if every else None
    above = sorted((p for p in points if p.cost > ceiling), key=lambda p: p.size)
    for p in points:
        at, colour = (p.size, min(p.cost, ceiling)), every[p.method, p.granularity]["edgecolors"]
        if p in above:
            text = f"{p.bits}: {p.granularity} \u2191 {style.number(p.cost)}"
            _write(ax, text, at, (7, 4 + 11 * above[::-1].index(p)), colour)
            continue
        if not low <= p.cost <= high:
            continue
        x, y = ax.transData.transform(at)
        if any(p.bits == b and math.hypot(x - u, y - v) < NEAR for b, u, v in drawn):
            continue
        drawn.append((p.bits, x, y))
        right = colour == first
        offset, side = ((5, 4), "left") if right else ((-5, -11), "right")
        _write(ax, f"{p.bits}", at, offset, colour, ha=side)


def _draw_reference(axes, size: float, cost: float) -> None:
    """A dotted line at the cost; the size, far to the right, would squeeze all points."""
    for ax in axes:
        ax.axhline(cost, color=BLACK, linestyle=":", linewidth=1)
    text, where = f"not quantized, {size:g} bits: {cost:.3g}", axes[-1].get_yaxis_transform()
    below = {"xytext": (0, -3), "textcoords": "offset points", "va": "top", "fontsize": 8}
    axes[-1].annotate(text, (0.01, cost), xycoords=where, **below)


def _scale(ax) -> None:
    """A log axis of the costs, with plain numbers and as many of them as fit."""
    from matplotlib import ticker

    low, high = ax.get_ylim()
    ax.set_yscale("log")
    if 0 < low and high < 20 * low:  # powers of ten would make few ticks
        even = ticker.MaxNLocator(7, steps=[1, 2, 5, 10])
        ax.yaxis.set_major_locator(even if high < 4 * low else ticker.LogLocator(subs=(1, 2, 3, 5)))
        ax.yaxis.set_minor_locator(ticker.NullLocator())
        ax.yaxis.set_major_formatter(ticker.ScalarFormatter())
    else:
        ax.yaxis.set_major_formatter(ticker.LogFormatter())
        ax.yaxis.set_minor_formatter(ticker.LogFormatter())


def _zoom(ax, points: Sequence[Point], cost: float) -> None:
    """Limits of the axes that hold what is at most ZOOM times as costly as the reference."""
    close = [p for p in points if p.cost <= ZOOM * cost]
    sizes = [p.size for p in close]
    margin = 0.08 * (max(sizes) - min(sizes)) or 0.5
    ax.set_xlim(min(sizes) - margin, max(sizes) + margin)
    least = min(cost, *(p.cost for p in close))
    ax.set_ylim(least - 0.1 * (ZOOM - 1) * cost, ZOOM * cost)
    ax.set_title(f"enlarged: at most {ZOOM - 1:.0%} above the dotted line", fontsize=9)


def tradeoff(
    points: Sequence[Point],
    title: str,
    xlabel: str,
    ylabel: str,
    reference: tuple[float, float] | None = None,
    ceiling: float = math.inf,
) -> Figure:
    """Cost (log scale) against size: colour and fill tell the method, marker the granularity, and
    the number at a point the bits of its codes.  The grey line joins the front.

    reference: (size, cost) of the model before, a dotted line, and a second panel that enlarges
    what comes near it; ceiling: costs above it are drawn at it, with an arrow and the number, so
    that ruined settings do not squeeze the others.
    """
    every = looks(points)
    near = reference is not None and any(p.cost <= ZOOM * reference[1] for p in points)
    fig, axes = figure(columns=1 + near, width=10.0 if near else 8.0, height=4.6)
    for ax in axes:
        _draw(ax, points, every, ceiling)
        ax.set_xlabel(xlabel, fontsize=9)
    if reference is not None:
        _draw_reference(axes, *reference)
    axes[0].set_ylabel(ylabel)
    _scale(axes[0])
    if any(p.cost > ceiling for p in points):
        axes[0].set_ylim(top=1.12 * ceiling)  # room for their labels
    if near:
        _zoom(axes[1], points, reference[1])
    fig.draw_without_rendering()  # the layout is settled: distances in pixels can be told
    # what the second panel shows is labelled there: in the first one it lies too close
    _label(axes[0], [p for p in points if not near or p.cost > ZOOM * reference[1]], every, ceiling)
    for ax in axes[1:]:
        _label(ax, [p for p in points if p.cost <= ZOOM * reference[1]], every, ceiling)
    style.title(fig, title)
    legend = axes[0].legend(frameon=False, fontsize=8, title="number at a point: bits of a code")
    legend.get_title().set_fontsize(8)
    return fig


def of_a_weight(points: Sequence[Point], ratio: float) -> tuple[Figure, str]:
    """(figure, alt text): error against size of one weight.

    ratio: the error of 3 bits in groups of 16, in errors of 4 bits per channel.
    """
    fig = tradeoff(
        points,
        f"3 bits in groups of 16 have {ratio:.1f} times the error of 4 bits per channel",
        "total bits per weight",
        "mean squared error of the weight",
    )
    return fig, "Error against total bits per weight. " + _listed(points, "{:.2g}".format)


def of_a_model(
    points: Sequence[Point], best: Point, reference: tuple[float, float]
) -> tuple[Figure, str]:
    """(figure, alt text): perplexity against size; best: the setting that the title names."""
    fig = tradeoff(
        points,
        f"Smallest within 10 % of fp16: {best.bits} bits, {best.method}, {best.granularity} "
        f"({best.size:.1f} bits a parameter, {best.cost:.2f} \u00b1 {best.spread:.2f}; "
        f"10 % is {1.1 * reference[1]:.2f})",
        "total bits per parameter: codes, scales, tables; the rest in 16 bits",
        "perplexity on held-out code",
        reference=reference,
        ceiling=RUINED * reference[1],
    )
    return fig, "Perplexity against total bits per parameter. " + _listed(points, style.number)


def _listed(points: Sequence[Point], form: Callable[[float], str]) -> str:
    """'4 bits linear channel 12.7; ...'."""
    cells = (f"{p.bits} bits {p.method} {p.granularity} {form(p.cost)}" for p in points)
    return "; ".join(cells)
