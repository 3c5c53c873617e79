"""Figures of lab 13: loads over training, what decides a token's experts, bills, skipped bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLACK, COLOURS, GREY, MARKERS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ["-", "--", "-.", ":"]


def busiest(
    steps: Sequence[int], shares: dict[str, Sequence[Sequence[float]]], title: str
) -> Figure:
    """For each model {label: [step][layer]} the share of the busiest expert, a line a layer."""
    fig, axes = figure(columns=len(shares), width=9.0, height=3.2)
    for ax, (label, rows) in zip(axes, shares.items(), strict=True):
        for i, values in enumerate(zip(*rows, strict=True)):
            look = {"color": COLOURS[i], "linestyle": LINES[i % 4], "marker": MARKERS[i]}
            ax.plot(steps, values, markersize=4, label=f"layer {i}", **look)
        ax.axhline(1 / 8, color=GREY, linewidth=0.8)
        ax.axhline(1 / 2, color=GREY, linewidth=0.8)
        ax.annotate("even", (steps[-1], 1 / 8), va="top", ha="right", fontsize=8)
        ax.annotate("every token", (steps[0], 1 / 2), va="bottom", fontsize=8)
        ax.set(ylim=(0, 0.56), xlabel="step of the training")
        ax.set_title(label, fontsize=10)
    axes[0].set_ylabel("share of the busiest expert")
    axes[0].legend(frameon=False, fontsize=8, ncols=2)
    style.title(fig, title)
    return fig


def alike(divided: dict[str, Sequence[float]], title: str) -> Figure:
    """For each way {label: [layer]} the share of experts in common, bars side by side."""
    fig, (ax,) = figure(columns=1, width=7.0, height=3.2)
    width = 0.8 / len(divided)
    for i, (label, values) in enumerate(divided.items()):
        at = [j + (i - (len(divided) - 1) / 2) * width for j in range(len(values))]
        ax.bar(
            at, values, 0.92 * width, color=COLOURS[i], label=label, hatch=["", "//", ".."][i % 3]
        )
    ax.set_xticks(range(len(values)), [f"layer {j}" for j in range(len(values))])
    ax.set(ylim=(0, 1.18), ylabel="experts in common")
    ax.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")
    style.title(fig, title)
    return fig


def bill(
    batches: Sequence[int], seconds: dict[str, Sequence[float]], ratio: Sequence[float], title: str
) -> Figure:
    """Microseconds of a step for each token by layer, and the first entry over the second."""
    fig, (left, right) = figure(columns=2, width=9.0, height=3.4)
    for i, (label, values) in enumerate(seconds.items()):
        each = [1e6 * s / b for s, b in zip(values, batches, strict=True)]
        look = {"color": COLOURS[i], "linestyle": LINES[i], "marker": MARKERS[i]}
        left.plot(batches, each, markersize=4, label=label, **look)
    left.set(xscale="log", yscale="log", xlabel="tokens in the batch")
    left.set_ylabel("µs for each token, one layer")
    left.legend(frameon=False, fontsize=8)
    right.plot(batches, ratio, color=COLOURS[0], marker=MARKERS[0], markersize=4)
    right.axhline(1, color=BLACK, linestyle=":", linewidth=1)
    right.set(xscale="log", xlabel="tokens in the batch", ylim=(0, None))
    right.set_ylabel("mixture / dense of equal work")
    style.title(fig, title)
    return fig


def skipped(curves: dict[str, Sequence[tuple[float, float]]], title: str) -> Figure:
    """A line for each way through its (share of the MLPs' bytes, loss added)."""
    fig, (ax,) = figure(columns=1, width=7.0, height=3.6)
    for i, (label, points) in enumerate(curves.items()):
        size, lost = zip(*points, strict=True)
        look = {"color": COLOURS[i], "linestyle": LINES[i % 4], "marker": MARKERS[i]}
        ax.plot([100 * s for s in size], lost, label=label, **look)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set(xlabel="% of the MLPs' bytes, one token, prediction included")
    ax.set_ylabel("loss added (nats per token)")
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig
