"""What each layer of a model does to the whole."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLUE, GREY, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAP = 1.5  # bars of empty space between two kinds of layer


def kind_of(name: str) -> str:
    """'down_proj' of 'model.layers.3.mlp.down_proj'."""
    return name.rsplit(".", 1)[-1]


def depth_of(name: str) -> str:
    """'3' of 'model.layers.3.mlp.down_proj': the first part that is a number, '' without one."""
    return next((part for part in name.split(".") if part.isdigit()), "")


def one_at_a_time(
    cost: dict[str, float], title: str, ylabel: str, spread: dict[str, float] | None = None
) -> Figure:
    """A bar for each layer {name: cost}, side by side by kind, its depth below the bar.

    spread: how far each cost may be off, as a line on the bar.
    """
    kinds = list(dict.fromkeys(map(kind_of, cost)))
    names = sorted(cost, key=lambda name: kinds.index(kind_of(name)))  # stable: by depth within
    places = [i + GAP * kinds.index(kind_of(name)) for i, name in enumerate(names)]
    fig, (ax,) = figure(width=10.0, height=3.6)
    errors = [spread[name] for name in names] if spread else None
    how = {"ecolor": GREY, "capsize": 1.5, "color": BLUE, "width": 0.85}
    ax.bar(places, [cost[name] for name in names], yerr=errors, **how)
    ax.set_xticks(places, [depth_of(name) for name in names], fontsize=7)
    for kind in kinds:
        mine = [x for x, name in zip(places, names, strict=True) if kind_of(name) == kind]
        middle = (mine[0] + mine[-1]) / 2
        below = {"xytext": (0, -18), "textcoords": "offset points", "ha": "center", "fontsize": 9}
        ax.annotate(kind, (middle, 0), xycoords=("data", "axes fraction"), va="top", **below)
    ax.axhline(0, color=GREY, linewidth=0.6)
    ax.set_xlabel("layer, by kind", labelpad=16)
    ax.set_ylabel(ylabel)
    style.title(fig, title)
    return fig


def as_bad(rise: dict[str, float], spread: dict[str, float]) -> list[str]:
    """The worst layer first, then those that are not surely better: less than two uncertainties."""
    first, *others = sorted(rise, key=rise.get, reverse=True)
    off = {n: 2 * math.hypot(spread[first], spread[n]) for n in others}
    return [first, *(n for n in others if rise[first] - rise[n] < off[n])]


def of_a_model(rise: dict[str, float], spread: dict[str, float]) -> tuple[Figure, str]:
    """(figure, alt text): how much the loss rises, in nats, if one layer alone is quantized."""
    worst, *near = [name.removeprefix("model.") for name in as_bad(rise, spread)]
    title = f"Quantized alone, {worst} hurts most"
    if near:
        title += f", {len(near)} more not surely less"
    fig = one_at_a_time(rise, title, "loss above that of fp16, nats", spread)
    order = sorted(rise, key=rise.get, reverse=True)[:5]
    alt = "A bar for each layer; the largest: " + ", ".join(f"{n} {rise[n]:.3f}" for n in order)
    return fig, alt
