"""Figures of lab 11: what bits buy, and what a rotation does to channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from efflib.plots import style
from efflib.plots.style import BLACK, BLUE, COLOURS, MARKERS, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = ["-", "--", "-.", ":"]


def bits_and_cost(
    curves: dict[str, Sequence[tuple[float, float]]], reference: float, title: str, ylabel: str
) -> Figure:
    """A line for each way through its (total bits a weight, cost); reference: a dotted line."""
    from matplotlib.ticker import NullLocator, ScalarFormatter

    fig, (ax,) = figure(columns=1, width=7.0, height=3.8)
    for i, (label, points) in enumerate(curves.items()):
        size, cost = zip(*sorted(points), strict=True)
        look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        ax.plot(size, cost, label=label, linestyle=LINES[i % len(LINES)], **look)
    ax.axhline(reference, color=BLACK, linestyle=":", linewidth=1)
    ax.annotate(
        f"not rounded, {reference:.3g}",
        (0.99, reference),
        xycoords=ax.get_yaxis_transform(),
        xytext=(0, -4),
        textcoords="offset points",
        va="top",
        ha="right",
        fontsize=8,
    )
    ax.set(yscale="log", xlabel="all bits, per weight: codes, scales, zeros, index", ylabel=ylabel)
    ax.set_ylim(0.9 * reference, None)
    ax.set_yticks([t for t in (10, 12, 15, 20, 30, 50, 100) if t >= 0.9 * reference])
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig


def channels(inputs: dict[str, Tensor], title: str) -> Figure:
    """For each entry {label: x [T, K]} the largest |x| of every channel, over the rms of all."""
    fig, axes = figure(columns=len(inputs), width=3.4 * len(inputs), height=2.8)
    tops = [x.abs().amax(0) / x.square().mean().sqrt() for x in inputs.values()]
    highest = max(top.max().item() for top in tops)
    for ax, label, top in zip(axes, inputs, tops, strict=True):
        ax.bar(range(len(top)), top.tolist(), width=1.0, color=BLUE)
        ax.set_ylim(0, 1.08 * highest)
        ax.set_xlabel("channel")
        ax.set_title(f"{label}: at most {top.max().item():.1f}", fontsize=10)
    axes[0].set_ylabel("largest |x| / rms of all")
    style.title(fig, title)
    return fig


def prices(alone: Tensor, behind: Tensor, title: str) -> Figure:
    """What a change of 1 costs in every column, in its turn: alone, and repaired by those behind.

    alone, behind [K], both in the order of the columns.
    """
    fig, (ax,) = figure(columns=1, width=7.0, height=3.2)
    ax.plot(alone.tolist(), color=COLOURS[1], linestyle="--", linewidth=1, label="nothing follows")
    ax.plot(behind.tolist(), color=BLUE, linewidth=1, label="all columns behind follow")
    ax.set(yscale="log", xlabel="column, in the order of rounding", ylabel="price of a change of 1")
    ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig
