"""Salient channels: what protecting them by a factor does, and the roofline of decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.placements import mean
from efflib.plots.style import BLACK, BLUE, COLOURS, GREEN, GREY, MARKERS, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {  # key of a point -> its name, colour, line style, marker
    "scaled": ("scaled channels", ORANGE, "--", "s"),
    "other": ("other channels", GREEN, ":", "^"),
    "all": ("all", BLUE, "-", "o"),
}
THEORY = {"scaled": r"$(\Delta' / (s\,\Delta))^2$", "other": r"$(\Delta' / \Delta)^2$"}
BEHIND = {"linewidth": 4, "markersize": 9, "alpha": 0.5, "zorder": 1.8}  # what others may lie on

Point = dict[tuple[str, str], float]  # (part, "weight", "theory" or "output") -> squared error


def protection(
    factors: Sequence[float], runs: Sequence[Sequence[Point]], title: str, at: float | None = None
) -> Figure:
    """What a factor on some channels does: errors of weights beside the theory, and of outputs.

    runs: for every placement a point per factor.  Left: ("scaled" or "other", "weight") as markers
    and (.., "theory") as lines, each relative to the first factor.  Right: (part, "output"),
    relative to ("all", "output") of the first factor.  Means over the placements, right in bands
    from the smallest to the largest; `at` is marked.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    fig, (left, right) = figure(columns=2, width=9.5, height=3.7)
    for part, formula in THEORY.items():
        name, colour, line, marker = PARTS[part]
        weights, theory = (_relative(runs, part, what, part) for what in ("weight", "theory"))
        seen = [mean(column) for column in zip(*weights, strict=True)]
        says = [mean(column) for column in zip(*theory, strict=True)]
        left.plot(factors, seen, color=colour, marker=marker, linestyle="none", label=name)
        left.plot(factors, says, color=colour, linestyle=line, label=f"theory, {formula}")
    for part, (name, colour, line, marker) in PARTS.items():
        columns = list(zip(*_relative(runs, part, "output", "all"), strict=True))
        low, high = [min(c) for c in columns], [max(c) for c in columns]
        right.fill_between(factors, low, high, color=colour, alpha=0.2, linewidth=0)
        heights = [mean(c) for c in columns]
        look = BEHIND if part == "all" else {}
        right.plot(
            factors, heights, color=colour, linestyle=line, marker=marker, label=name, **look
        )
    left.set(ylabel="squared weight error, RTN = 1")
    right.set(ylabel="squared output error, RTN = 1")
    for ax in (left, right):
        ax.set(xscale="log", yscale="log", xlabel="factor s on the channels")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xticks(list(factors), [f"{f:g}" for f in factors])
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.legend(frameon=False, fontsize=8)
        if at is not None:
            ax.axvline(at, color=GREY, linestyle="--", linewidth=1)
    style.title(fig, title)
    return fig


def _relative(runs: Sequence[Sequence[Point]], part: str, what: str, to: str) -> list[list[float]]:
    """For every placement the errors of a part over that of part `to` at the first factor."""
    return [[p[part, what] / points[0][to, what] for p in points] for points in runs]


def decode(
    batches: Sequence[float],
    rates: dict[str, Sequence[float]],
    measured: dict[str, tuple[float, float]],
    title: str,
    with_cache: dict[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    cache: str = "with a KV cache",
) -> Figure:
    """Tokens per second against the batch, both log: a line per entry of rates.

    measured: {label: (batch, tokens per second)}, drawn as points with the label to their left.
    with_cache: {label of rates: (batches, rates where keys and values are read as well)}; dashed,
    with a mark at the last batch, for which the memory is full.  cache: what the legend says of it.
    """
    fig, (ax,) = figure(height=3.8)
    for i, (label, values) in enumerate(rates.items()):
        ax.plot(batches, list(values), color=COLOURS[i % len(COLOURS)], label=label)
        if with_cache:
            _cached(ax, *with_cache[label], f"{label}, {cache}", COLOURS[i % len(COLOURS)])
    for i, (label, (batch, rate)) in enumerate(measured.items()):
        ax.plot(batch, rate, color=BLACK, marker=MARKERS[i % len(MARKERS)], linestyle="none")
        place = {"xytext": (-7, -3), "textcoords": "offset points", "ha": "right", "fontsize": 8}
        ax.annotate(label, (batch, rate), **place)
    ax.set(xlabel="sequences that decode together", ylabel="tokens per second, all together")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = [4**i for i in range(9) if batches[0] <= 4**i <= batches[-1]]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_xlim(left=batches[0] / 5)  # room for the labels of points
    style.title(fig, title)
    ax.legend(frameon=False, fontsize=8)
    return fig


def _cached(ax, batches: Sequence[float], rates: Sequence[float], label: str, colour: str) -> None:
    """Rates with a cache, dashed; a mark and a number where the memory is full."""
    ax.plot(list(batches), list(rates), color=colour, linestyle="--", label=label)
    end = (batches[-1], rates[-1])
    ax.plot(*end, color=colour, marker="X", markersize=8, linestyle="none", label="_full")
    place = {"xytext": (8, -3), "textcoords": "offset points", "fontsize": 8, "color": colour}
    ax.annotate(f"full: {batches[-1]:.0f} sequences", end, **place)
