"""Figures of what a meter counted: reads per element, and traffic against on-chip memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from efflib.plots.style import BLUE, GREY, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from efflib.meter.meter import Meter

LIGHT_TO_DARK = "viridis"  # counts: one direction, readable in grey and by colour-blind readers


def heat_maps(m: Meter, names: Sequence[str], title: str, kind: str = "read") -> Figure:
    """How often each element of some arguments was read (or "write": written), one panel each.

    A tensor [..., rows, columns] is drawn as a matrix with its leading dimensions below one
    another.  All panels share one colour scale.
    Raises KeyError for an unknown argument, ValueError for no names.
    """
    from matplotlib.ticker import MaxNLocator

    if not names:
        raise ValueError("name at least one argument to draw")
    counts = {name: m.counts(name, kind) for name in names}
    most = max(1, max(int(c.max(initial=0)) for c in counts.values()))
    fig, axes = figure(columns=len(names), width=1.5 + 2.8 * len(names), height=3.6)
    for ax, (name, count) in zip(axes, counts.items(), strict=True):
        columns = count.shape[-1] if count.ndim > 1 else 1
        image = ax.imshow(
            count.reshape(-1, columns),
            cmap=LIGHT_TO_DARK,
            vmin=0,
            vmax=most,
            aspect="auto",
            interpolation="nearest",
        )
        ax.set_title(f"{name} {list(count.shape)}", fontsize=10)
        ax.set_xlabel("column")
    axes[0].set_ylabel("row")
    label = "reads" if kind == "read" else "writes"
    bar = fig.colorbar(image, ax=axes, shrink=0.85, label=f"{label} of an element")
    bar.locator = MaxNLocator(integer=True)
    bar.update_ticks()
    fig.suptitle(title, fontsize=11)
    return fig


class BlockSize(NamedTuple):
    """One setting of a sweep: what it held on chip (M) and what it moved, in bytes."""

    label: str
    on_chip: float
    moved: float


def fitted_exponent(points: Sequence[BlockSize]) -> float:
    """Slope of log(moved) over log(on chip), least squares: -1 if moved is proportional to 1 / M.

    Raises ValueError unless at least two sizes differ.
    """
    if len({p.on_chip for p in points}) < 2:
        raise ValueError(f"a slope needs two sizes, got {[p.on_chip for p in points]}")
    x, y = (np.log([getattr(p, name) for p in points]) for name in ("on_chip", "moved"))
    return float(np.polyfit(x, y, 1)[0])


def block_sweep(points: Sequence[BlockSize], title: str) -> Figure:
    """Bytes moved against bytes on chip, both logarithmic, with the law  moved ~ N^2 d^2 / M.

    The grey line is c / M through the first point: N and d are the same for all points of a sweep.
    What moves whatever M is, such as Q and O, lifts the counted line above it in the end.
    Source of the law: FlashAttention, arXiv:2205.14135, theorem 2.
    """
    from matplotlib.ticker import NullLocator

    slope = fitted_exponent(points)
    fig, (ax,) = figure(width=6.0, height=4.0)
    on_chip = np.array([p.on_chip for p in points], float)
    law = points[0].moved * points[0].on_chip / on_chip
    ax.plot(on_chip, law, color=GREY, linewidth=4, alpha=0.4, label="proportional to 1 / M")
    moved = [p.moved for p in points]
    ax.plot(on_chip, moved, "o-", color=BLUE, label=f"counted, slope {slope:.2f}")
    for p in points:
        ax.annotate(
            p.label, (p.on_chip, p.moved), xytext=(6, 5), textcoords="offset points", fontsize=8
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis, values in ((ax.xaxis, on_chip), (ax.yaxis, moved)):
        axis.set_minor_locator(NullLocator())
        axis.set_ticks(values, [f"{value / 1000:.3g}" for value in values])
    ax.margins(x=0.12, y=0.1)
    ax.set_xlabel("M: live tiles of one program, kB")
    ax.set_ylabel("read and written, kB")
    ax.set_title(title, fontsize=11)
    ax.legend(frameon=False, fontsize=8)
    return fig
