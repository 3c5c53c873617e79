"""Fine-tuning: what is learned and forgotten, what training holds, and levels of 4 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from efflib.plots import style
from efflib.plots.placements import mean
from efflib.plots.style import BLUE, COLOURS, GREY, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = ("weights", "gradients", "optimizer", "activations")
HATCHES = ("", "//", "..", "xx")


def learned_and_forgotten(
    methods: dict[str, tuple[float, Sequence[float], Sequence[float]]],
    frozen: tuple[float, float],
    title: str,
) -> Figure:
    """Perplexity of new and of old text against the share that is trained (log scale).

    methods: {name: (share in %, perplexities of the new text, of the old)}, one for each run.
    """
    fig, axes = figure(2, width=8.0, height=3.4)
    shares = [share for share, _, _ in methods.values()]
    sides = (("new text", 1), ("old text", 2))
    for ax, (what, place), level in zip(axes, sides, frozen, strict=True):
        runs = [entry[place] for entry in methods.values()]
        ax.plot(shares, [mean(run) for run in runs], marker="o", color=BLUE, label="trained")
        for share, run in zip(shares, runs, strict=True):
            ax.vlines(share, min(run), max(run), color=BLUE, linewidth=4, alpha=0.3)
        for (name, (share, *_)), run in zip(methods.items(), runs, strict=True):
            near = {"xytext": (7, 4), "textcoords": "offset points", "fontsize": 8}
            near["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
            ax.annotate(name, (share, mean(run)), **near)
        ax.axhline(level, color=GREY, linestyle="--", label="frozen")
        ax.set(xscale="log", xlabel="trained, % of all parameters", ylabel=f"perplexity, {what}")
        ax.set_xlim(0.6 * min(shares), 4 * max(shares))
        ax.legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig


def memory_bars(methods: dict[str, Sequence[float]], card: float, title: str) -> Figure:
    """For each method its four parts in GB as one bar, and the size of the card as a line.

    Right, the same from 0 to the smaller bars, where thin parts can be seen.
    """
    fig, axes = figure(2, width=8.0, height=2.6)
    for ax in axes:
        _stacked_parts(ax, methods, card)
    for y, parts in enumerate(methods.values()):
        place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        axes[0].annotate(f"{style.number(sum(parts))} GB", (sum(parts), y), **place)
    totals = sorted(sum(parts) for parts in methods.values())
    axes[0].set_xlim(0, 1.3 * max(card, totals[-1]))
    axes[1].set_xlim(0, 1.1 * max(totals[0], min(card, totals[1])))
    axes[1].set_title("the left end of it", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, frameon=False, fontsize=8, ncols=5, loc="outside lower center")
    style.title(fig, title)
    return fig


def _stacked_parts(ax, methods: dict[str, Sequence[float]], card: float) -> None:
    """One bar of four parts for each method, and the line of the card."""
    for y, parts in enumerate(methods.values()):
        if len(parts) != len(PARTS):
            raise ValueError(f"need {PARTS} in GB, got {len(parts)} numbers")
        left = 0.0
        for i, value in enumerate(parts):
            kind = {"color": COLOURS[i], "hatch": HATCHES[i], "edgecolor": "white"}
            ax.barh(y, value, left=left, height=0.6, label=PARTS[i] if y == 0 else None, **kind)
            left += value
    ax.axvline(card, color="black", linestyle="--", linewidth=1, label=f"card, {card:g} GB")
    ax.set_yticks(range(len(methods)), list(methods))
    ax.invert_yaxis()
    ax.set_xlabel("GB")


def levels_and_use(codebooks: dict[str, tuple[Tensor, Tensor]], title: str) -> Figure:
    """A stem at every level, as high as the share of weights with its code, a panel each.

    codebooks: {name: (levels [L], shares [L])}.
    """
    fig, axes = figure(len(codebooks), width=8.0, height=3.0)
    top = 100 * max(float(used.max()) for _, used in codebooks.values())
    for ax, (name, (levels, used)) in zip(axes, codebooks.items(), strict=True):
        shares = [100 * share for share in used.tolist()]
        ax.vlines(levels.tolist(), 0, shares, color=ORANGE)
        ax.plot(levels.tolist(), shares, "o", color=ORANGE, markersize=4)
        ax.set(xlabel="level, in parts of the block's range", ylim=(0, 1.1 * top))
        ax.set_title(f"{name}: from {min(shares):.1f} % to {max(shares):.1f} %", fontsize=10)
    axes[0].set_ylabel("weights with this code, %")
    style.title(fig, title)
    return fig


def opening(gigabytes: dict[str, float], card: float, title: str) -> Figure:
    """A bar for each way of training, and a line for the memory of one card."""
    fig, (ax,) = figure(width=7.0, height=2.2)
    values = list(gigabytes.values())
    ax.barh(range(len(values)), values, color=BLUE, height=0.6)
    for y, value in enumerate(values):
        place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center", "fontsize": 10}
        ax.annotate(f"{style.number(value)} GB", (max(value, card), y), **place)
    ax.axvline(card, color=ORANGE, linestyle="--")
    ax.text(card, -0.75, f"one card, {card:.0f} GB", fontsize=9, ha="left")
    ax.set_yticks(range(len(values)), list(gigabytes))
    ax.set_xlim(0, 1.2 * max(values))
    ax.invert_yaxis()
    ax.set_xlabel("GB")
    style.title(fig, title)
    return fig
