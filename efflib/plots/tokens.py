"""Which tokens are kept, and what that costs.  Every function returns (figure, alt text)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLACK, BLUE, COLOURS, GREY, MARKERS, SKY, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

Drawn = tuple["Figure", str]
LINES = ["-", "--", "-.", ":"]


def two_axes(points: dict[str, dict[int, tuple[float, float, float]]], title: str) -> Drawn:
    """Perplexity against what is kept and against what is read.

    points: {way: {budget: (kept, read, perplexity)}}, both shares of everything.
    """
    from matplotlib.ticker import NullLocator, ScalarFormatter

    fig, axes = figure(columns=2, width=10.0, height=3.8)
    for ax, at, label in zip(axes, (0, 1), ("kept", "read for a token"), strict=True):
        for i, (way, budgets) in enumerate(points.items()):
            rows = sorted((p[at], p[2]) for p in budgets.values())
            x, y = zip(*rows, strict=True)
            look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
            look["markerfacecolor"] = "white" if i >= len(COLOURS) else look["color"]
            ax.plot(x, y, label=way, linestyle=LINES[i % len(LINES)], **look)
        ax.set(xscale="log", yscale="log", xlabel=f"numbers {label}, of everything")
        ax.set_xticks([0.06, 0.12, 0.25, 0.5, 1.0], ["0.06", "0.12", "0.25", "0.5", "1"])
        ax.set_yticks([9, 10, 12, 15, 20, 30])
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_minor_locator(NullLocator())
    axes[0].set_ylabel("perplexity")
    axes[0].legend(frameon=False, fontsize=8)
    style.title(fig, title)
    said = []
    for way, budgets in points.items():
        kept, read, value = min(budgets.values(), key=lambda p: p[1])
        said.append(f"{way} keeps {kept:.2f}, reads {read:.2f}, has {value:.1f}")
    return fig, f"{title}. Smallest budget of each way: " + "; ".join(said)


def prefixes(words: Sequence[str], alive: Tensor, title: str) -> Drawn:
    """A row for each layer, a box for each token: filled with its text while it is there.

    alive [layers, n] bool.
    """
    rows, n = alive.shape
    fig, (ax,) = figure(columns=1, width=max(7.0, 0.42 * n), height=0.9 + 0.4 * rows)
    for i in range(rows):
        for j in range(n):
            there = bool(alive[i, j])
            face = SKY if there else "white"
            edge = BLUE if there else GREY
            ax.add_patch(_box(j, i, face, edge))
            text = words[j].replace("\n", "\\n").strip(" ") or "·"
            if there:
                ax.text(j, i, text[:5], ha="center", va="center", fontsize=6, color=BLACK)
            else:
                ax.plot([j - 0.2, j + 0.2], [i, i], color=GREY, linewidth=0.8)
    ax.set(xlim=(-0.6, n - 0.4), ylim=(rows - 0.4, -0.6), xlabel="token", ylabel="layer")
    ax.set_xticks([0, n - 1])
    ax.set_yticks(range(rows))
    style.title(fig, title)
    left = ", ".join(str(int(row.sum())) for row in alive)
    return fig, f"{title}. Of {n} tokens these many are there, layer by layer: {left}."


def _box(x: float, y: float, face: str, edge: str):
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.45, y - 0.4), 0.9, 0.8, facecolor=face, edgecolor=edge, linewidth=0.7)


def kept_maps(panels: dict[str, Tensor], title: str) -> Drawn:
    """For each entry {rule: seen [T, T] bool} which keys every query of one head may look at."""
    fig, axes = figure(columns=len(panels), width=2.7 * len(panels), height=3.4)
    for ax, (name, seen) in zip(axes, panels.items(), strict=True):
        ax.imshow(seen.float().tolist(), cmap="Blues", vmin=0, vmax=1.3, interpolation="nearest")
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("key")
    axes[0].set_ylabel("query")
    style.title(fig, title)
    said = "; ".join(f"{name}: {int(seen[-1].sum())} keys for the last query" for name, seen in
                     panels.items())  # fmt: skip
    return fig, f"{title}. Maps of queries and the keys that are still there. {said}."
