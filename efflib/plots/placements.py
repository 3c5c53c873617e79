"""Results that were measured several times: means with their spread.

Where outlier channels are put, or which text is read, moves a result.  Here a result is a list, one
value per placement; what is drawn is the mean and everything from the smallest to the largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLACK, BLUE, COLOURS, GREY, MARKERS, SKY, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ["-", "--", "-.", ":"]

Runs = Sequence[Sequence[float]]  # for every placement its values, at the same places


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def plus_minus(values: Sequence[float], digits: int = 3) -> str:
    """'0.512 (0.498 to 0.530)': the mean, the smallest and the largest."""
    shown = [f"{v:#.{digits}g}" for v in (mean(values), min(values), max(values))]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def draw_curves(ax, x: Sequence[float], curves: dict[str, Runs]) -> None:
    """For each entry {label: runs} the mean over the runs, in a band from least to most."""
    for i, (label, runs) in enumerate(curves.items()):
        columns = list(zip(*runs, strict=True))
        colour, line, marker = COLOURS[i % len(COLOURS)], LINES[i % len(LINES)], MARKERS[i]
        low, high = [min(c) for c in columns], [max(c) for c in columns]
        ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        heights = [mean(c) for c in columns]
        ax.plot(x, heights, color=colour, linestyle=line, marker=marker, label=label)


def curves(
    x: Sequence[float], panels: dict[str, dict[str, Runs]], title: str, xlabel: str, ylabel: str
) -> Figure:
    """Means with bands against x (log scale): one panel per entry {title: {label: runs}}."""
    from matplotlib.ticker import NullFormatter

    fig, axes = figure(columns=len(panels), width=max(7.0, 4.5 * len(panels)), height=3.6)
    for ax, (name, entries) in zip(axes, panels.items(), strict=True):
        draw_curves(ax, x, entries)
        ax.set(xscale="log", xlabel=xlabel, ylim=(0, None))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xticks(list(x), [f"{value:g}" for value in x])
        ax.set_title(name, fontsize=10)
        ax.legend(frameon=False, fontsize=8)
    axes[0].set_ylabel(ylabel)
    style.title(fig, title)
    return fig


def bars(
    panels: dict[str, dict[str, Sequence[float]]],
    title: str,
    xlabel: str,
    controls: Sequence[str] = (),
    notes: dict[str, dict[str, str]] | None = None,
) -> Figure:
    """A bar per way with the mean as a number, and a point for each placement.

    panels: {title: {way: values}}, the same ways in all of them.  controls: ways that are
    drawn without a filling.  notes: {title: {way: what is written behind its mean}}.
    """
    from matplotlib.ticker import MaxNLocator

    ways = list(next(iter(panels.values())))
    width, height = max(7.0, 4.6 * len(panels)), 0.9 + 0.33 * len(ways)
    fig, axes = figure(columns=len(panels), width=width, height=height)
    for ax, (name, values) in zip(axes, panels.items(), strict=True):
        means = [mean(values[way]) for way in ways]
        faces = ["white" if way in controls else SKY for way in ways]
        places = range(len(ways))
        ax.barh(places, means, height=0.62, color=faces, edgecolor=BLUE)
        for y, way in zip(places, ways, strict=True):
            dots = [y] * len(values[way])
            ax.plot(list(values[way]), dots, color=BLACK, marker="|", linestyle="none")
        right = max(max(values[way]) for way in ways)
        for y, way, average in zip(places, ways, means, strict=True):
            text = f"{average:.2f}" if abs(average) >= 0.1 else f"{average:#.2g}"
            text += f", {notes[name][way]}" if notes else ""
            ax.text(max(values[way]) + 0.02 * right, y, text, va="center", fontsize=8)
        ax.axvline(0, color=GREY, linewidth=0.8)
        ax.set_yticks(list(places), ways if ax is axes[0] else [""] * len(ways), fontsize=9)
        left = min(min(values[way]) for way in ways)  # room for a mark below 0
        ax.set_xlim(min(0.0, 1.2 * left), (1.4 if notes else 1.15) * right)
        ax.invert_yaxis()
        ax.xaxis.set_major_locator(MaxNLocator(5))
        ax.set_xlabel(xlabel)
        ax.set_title(name, fontsize=10)
    style.title(fig, title)
    return fig
