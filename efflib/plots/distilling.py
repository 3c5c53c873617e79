"""Figures of lab 15: one normal distribution on two modes; ternary and float by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.placements import LINES, mean
from efflib.plots.style import BLACK, COLOURS, MARKERS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from efflib.finetuning.gaussians import Fit


def fits(teacher: Tensor, found: dict[str, Fit], title: str) -> Figure:
    """The teacher's density (logits [GRID]) and a fitted normal one for each divergence."""
    from efflib.finetuning.gaussians import GRID, normal

    fig, (ax,) = figure(width=7.0, height=3.2)
    width, seen = (GRID[1] - GRID[0]).item(), GRID.abs() <= 9
    x, height = GRID[seen], teacher.softmax(-1)[seen] / width
    ax.fill_between(x, height, color=style.GREY, alpha=0.4, label="teacher")
    for i, (name, end) in enumerate(found.items()):
        density = normal(GRID.new_tensor(end.mean), GRID.new_tensor(end.deviation)).softmax(-1)
        label = f"{name}: mean {end.mean:.1f}, deviation {end.deviation:.1f}"
        ax.plot(x, density[seen] / width, color=COLOURS[i], linestyle=LINES[i], label=label)
    ax.set(xlabel="x, deviations of a mode", ylabel="density", ylim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig


def sizes(
    panels: dict[str, dict[str, Sequence[tuple[float, Sequence[float]]]]], title: str
) -> Figure:
    """Loss against size: {what is counted: {way: [(count, losses of the seeds)]}}.

    A way looks the same in all panels; ticks stand at the counts of the first one.
    """
    from matplotlib.ticker import NullFormatter

    names = list(dict.fromkeys(way for ways in panels.values() for way in ways))
    fig, axes = figure(len(panels), width=4.0 * len(panels), height=3.6)
    for ax, (counted, ways) in zip(axes, panels.items(), strict=True):
        for way, points in ways.items():
            i = names.index(way)
            x, y = [p[0] for p in points], [mean(p[1]) for p in points]
            off = [[m - min(p[1]) for m, p in zip(y, points, strict=True)]]
            off += [[max(p[1]) - m for m, p in zip(y, points, strict=True)]]
            look = {"color": COLOURS[i], "marker": MARKERS[i], "linestyle": LINES[i % len(LINES)]}
            ax.errorbar(x, y, yerr=off, capsize=2, label=way, markersize=5, **look)
        ax.set(xscale="log", xlabel=counted)
        ax.xaxis.set_minor_formatter(NullFormatter())
        ticks = [count for count, _ in next(iter(ways.values()))]
        ax.set_xticks(ticks, [short(count) for count in ticks])
    axes[0].set_ylabel("held-out loss, nats a token")
    most = max(axes, key=lambda ax: len(ax.containers))
    most.legend(frameon=False, fontsize=7)
    style.title(fig, title)
    return fig


def short(count: float) -> str:
    """'47 k', '1.81 M'."""
    return f"{count / 1e6:.2f} M" if count >= 1e6 else f"{count / 1e3:.0f} k"


def opening(bars: dict[str, Sequence[float]], title: str) -> Figure:
    """A bar from 0 for each way, with a mark for each run."""
    fig, (ax,) = figure(width=7.0, height=2.2)
    values = [mean(v) for v in bars.values()]
    ax.barh(range(len(bars)), values, height=0.6, color=COLOURS[0])
    for y, runs in enumerate(bars.values()):
        ax.plot(list(runs), [y] * len(runs), color=BLACK, marker="|", linestyle="none")
        ax.annotate(
            f"{values[y]:.2f}", (max(runs), y), (4, 0), textcoords="offset points", va="center"
        )
    ax.set_yticks(range(len(bars)), list(bars))
    ax.invert_yaxis()
    ax.set(xlim=(0, 1.15 * max(values)), xlabel="held-out loss, nats a token")
    style.title(fig, title)
    return fig
