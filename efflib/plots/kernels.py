"""Attention kernels in pictures.  Every function returns (figure, alt text)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from efflib.plots.style import AMBER, BLUE, COLOURS, GREY, MARKERS, ORANGE, figure, title

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
GRID = 128  # at most so many blocks of queries or keys are drawn


def online_steps(scores: Sequence[float], block: int, seen: int) -> Drawn:
    """Scores of a row, those that were seen, and the state after them."""
    if not 0 < seen <= len(scores):
        raise ValueError(f"seen must be from 1 to {len(scores)}, got {seen}")
    m, total, lines = -math.inf, 0.0, []
    for start in range(0, seen, block):
        piece = scores[start : min(start + block, seen)]
        larger = max(m, *piece)
        factor = math.exp(m - larger)
        total = total * factor + sum(math.exp(s - larger) for s in piece)
        old = f"old sum times {factor:.3f}" if start else "nothing before"
        lines.append(f"m = {larger:g}, {old}, sum {total:.3f}")
        m = larger
    fig, (left, right) = figure(columns=2, width=8.0, height=3.0)
    now = range((seen - 1) // block * block, seen)
    for j, s in enumerate(scores):
        colour = ORANGE if j in now else BLUE if j < seen else "none"
        left.bar(j, s, color=colour, edgecolor=GREY, hatch="//" if j in now else None)
    left.axhline(m, color=GREY, linestyle="--")
    left.annotate("m", (len(scores) - 0.5, m), fontsize=9, va="bottom")
    left.set(xlabel="key", ylabel="score", title="striped: this tile; empty: not read yet")
    right.axis("off")
    text = "\n\n".join(f"tile {i}: {line}" for i, line in enumerate(lines, start=1))
    right.text(0, 0.9, text, fontsize=9, va="top", family="monospace")
    title(fig, "A larger score shrinks what was summed before")
    return fig, f"Scores of {len(scores)} keys, {seen} of them seen. " + "; ".join(lines) + "."


def traffic(blocks: Sequence[int], curves: Mapping[str, Sequence[float]], head: str) -> Drawn:
    """Megabytes against queries of a block, both logarithmic, for some ways to do the same."""
    fig, (ax,) = figure(width=7.0, height=3.8)
    parts = []
    for (name, moved), colour, mark in zip(curves.items(), COLOURS, MARKERS, strict=False):
        ax.plot(blocks, [b / 1e6 for b in moved], mark + "-", color=colour, label=name)
        parts.append(f"{name} {moved[0] / 1e6:.0f} and {moved[-1] / 1e6:.0f} MB")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(blocks, [str(n) for n in blocks])
    ax.set(xlabel="queries of a block", ylabel="MB moved")
    ax.legend(fontsize=8)
    title(fig, head)
    ends = f"with {blocks[0]} and with {blocks[-1]} queries a block"
    return fig, f"Megabytes {ends}: " + ", ".join(parts) + "."


def schedule(T: int, S: int, BM: int, BN: int, head: str) -> Drawn:
    """Which tiles of the scores a causal kernel computes: whole, on the diagonal, or never."""
    rows, columns = -(-T // BM), -(-S // BN)
    if max(rows, columns) > GRID:
        raise ValueError(f"{rows} x {columns} blocks are too many to draw, at most {GRID}")
    from matplotlib.patches import Patch, Rectangle

    fig, (ax,) = figure(width=6.4, height=4.2)
    counts = {"whole": 0, "diagonal": 0, "never read": 0}
    looks = {"whole": (BLUE, None), "diagonal": (AMBER, "//"), "never read": ("none", None)}
    for i in range(rows):
        first, last = i * BM + S - T, min((i + 1) * BM, T) - 1 + S - T
        for j in range(columns):
            start, stop = j * BN, min((j + 1) * BN, S)
            kind = "never read" if start > last else "whole" if stop - 1 <= first else "diagonal"
            counts[kind] += 1
            colour, hatch = looks[kind]
            spot = (j * BN, i * BM)
            box = {"facecolor": colour, "edgecolor": GREY, "hatch": hatch}
            ax.add_patch(Rectangle(spot, stop - start, min(BM, T - i * BM), **box))
    ax.set(xlim=(0, S), ylim=(T, 0), xlabel="keys", ylabel="queries", aspect="equal")
    handles = [
        Patch(facecolor=c, edgecolor=GREY, hatch=h, label=f"{kind}: {counts[kind]}")
        for kind, (c, h) in looks.items()
    ]
    ax.legend(handles=handles, fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1))
    title(fig, head)
    said = ", ".join(f"{n} {kind}" for kind, n in counts.items())
    return fig, f"Tiles of {T} queries and {S} keys, causal: {said}."


def reads(maps: Mapping[str, np.ndarray], head: str) -> Drawn:
    """How often each element [S, d] was read, one panel for each kernel, with one colour scale."""
    fig, axes = figure(columns=len(maps), width=1.6 + 2.8 * len(maps), height=3.8)
    most = max(1, *(int(c.max()) for c in maps.values()))
    said = []
    for ax, (name, counts) in zip(axes, maps.items(), strict=True):
        image = ax.imshow(counts, vmin=0, vmax=most, aspect="auto", interpolation="nearest")
        ax.set(title=name, xlabel="dimension")
        said.append(
            f"{name}: {counts.max()} times at the first key, {counts[-1].min()} at the last"
        )
    axes[0].set_ylabel("key")
    fig.colorbar(image, ax=axes, shrink=0.85, label="reads of an element")
    title(fig, head)
    return fig, "Reads of each element of K. " + "; ".join(said) + "."


def law(memory: Sequence[float], moved: Sequence[float], head: str) -> Drawn:
    """Bytes moved against elements on the chip, and the line c / M through the first point."""
    fig, (ax,) = figure(width=6.4, height=3.6)
    line = [moved[0] * memory[0] / m / 1e6 for m in memory]
    ax.plot(memory, line, color=GREY, linewidth=4, alpha=0.4, label="proportional to 1 / M")
    ax.plot(memory, [b / 1e6 for b in moved], "o-", color=BLUE, label="these blocks")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(memory, [f"{m:,.0f}" for m in memory], fontsize=8)
    ax.set(xlabel="M, room on the chip, elements", ylabel="MB moved")
    ax.legend(fontsize=8)
    title(fig, head)
    ends = f"{moved[0] / 1e6:.0f} MB with {memory[0]:,.0f} elements on the chip"
    return fig, f"Bytes against memory: {ends}, {moved[-1] / 1e6:.0f} with {memory[-1]:,.0f}."


def roofline_of(points: Mapping[str, float], gpu: str, head: str, dtype: str = "fp16") -> Drawn:
    """FLOPs per byte of some kernels on a GPU's roofline.

    points: {name: FLOPs per byte}.  Raises ValueError for an unknown GPU.
    """
    from efflib.meter.roofline import gpu_named

    chosen = gpu_named(gpu)
    peak, band = chosen.tensor[dtype], chosen.bandwidth
    fig, (ax,) = figure(width=6.8, height=3.8)
    ends = [0.5 * min(points.values()), peak / band, 4 * max(*points.values(), peak / band)]
    ax.plot(ends, [min(peak, i * band) / 1e12 for i in ends], color=GREY)
    said = []
    for (name, x), colour, mark in zip(points.items(), COLOURS, MARKERS, strict=False):
        reached = min(peak, x * band) / 1e12
        ax.plot(x, reached, mark, color=colour, label=f"{name}: {x:.0f} FLOPs/byte")
        said.append(f"{name} {x:.0f} FLOPs per byte")
    ax.axvline(peak / band, color=GREY, linestyle=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set(xlabel="FLOPs per byte", ylabel="TFLOP/s at most")
    ax.legend(fontsize=8)
    title(fig, f"{head} ({gpu})")
    return fig, f"Roofline, {gpu}, ridge at {peak / band:.0f}: " + ", ".join(said) + "."


def stored_against_tiled(
    lengths: Sequence[int], ways: Mapping[str, Sequence[float]], head: str
) -> Drawn:
    """Groups of bars of megabytes for some lengths, a bar for each way to do the same."""
    fig, (ax,) = figure(width=7.0, height=3.2)
    wide, hatches = 0.8 / len(ways), ["//", "..", None]
    for j, ((name, moved), colour) in enumerate(
        zip(ways.items(), (ORANGE, AMBER, BLUE), strict=False)
    ):
        for i, each in enumerate(moved):
            x = i + (j - (len(ways) - 1) / 2) * wide
            label = name if i == 0 else None
            ax.bar(x, each / 1e6, wide, color=colour, hatch=hatches[j], label=label)
            ax.annotate(f"{each / 1e6:,.0f}", (x, each / 1e6), ha="center", va="bottom", fontsize=8)
    ax.set_xticks(range(len(lengths)), [f"{n:,} tokens" for n in lengths])
    ax.set_ylabel("MB moved by one head")
    ax.legend(fontsize=8)
    title(fig, head)
    said = (
        f"{n:,} tokens " + ", ".join(f"{name} {moved[i] / 1e6:.0f}" for name, moved in ways.items())
        for i, n in enumerate(lengths)
    )
    return fig, "Megabytes: " + "; ".join(said) + "."
