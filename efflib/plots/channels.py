"""Channels of activations and weights: how large each one gets, and what smoothing does to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from efflib.plots import style
from efflib.plots.style import BLACK, BLUE, COLOURS, GREY, MARKERS, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOX = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}  # behind a number
CLOSE = 0.08  # of the width: numbers of channels that are nearer would overlap
FLOOR = 1e-2  # the log axis starts here or at the smallest value drawn, whichever is larger


def draw_magnitudes(ax, values: Tensor, title: str, marked: Sequence[int] = ()) -> None:
    """One bar per channel [K] on a log axis; marked channels have a point on top, and a number."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    values = values.detach().float()
    colours = [ORANGE if j in marked else BLUE for j in range(len(values))]
    ax.bar(range(len(values)), values.tolist(), width=1.0, color=colours, linewidth=0)
    tops = [values[j].item() for j in marked]
    ax.plot(list(marked), tops, color=ORANGE, marker="o", markersize=4, linestyle="none")
    place = {"textcoords": "offset points", "ha": "center", "fontsize": 7}
    height, last = 5, -len(values)
    for j, top in zip(marked, tops, strict=True):  # a number close to the one before stands higher
        height = height + 9 if j - last < CLOSE * len(values) else 5
        ax.annotate(str(j), (j, top), xytext=(0, height), bbox=BOX, **place)
        last = j
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    positive = values[values > 0]
    if len(positive):
        ax.set_ylim(bottom=max(FLOOR, positive.min().item() / 2), top=3 * positive.max().item())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("channel j")
    ax.set_title(title, fontsize=10)


def magnitudes(
    panels: dict[str, Tensor],
    title: str,
    ylabel: str,
    marked: Sequence[int] = (),
    unmarked: Sequence[str] = (),
) -> Figure:
    """The largest magnitude of every channel, a panel per entry {title: values [K]}, one scale.

    Channels `marked` stand out, but not in the panels `unmarked` (of a model with other channels).
    """
    fig, axes = figure(columns=len(panels), width=max(7.0, 4.2 * len(panels)))
    for ax, (name, values) in zip(axes, panels.items(), strict=True):
        draw_magnitudes(ax, values, name, () if name in unmarked else marked)
    limits = [ax.get_ylim() for ax in axes]
    for ax in axes:
        ax.set_ylim(min(lo for lo, _ in limits), max(hi for _, hi in limits))
    axes[0].set_ylabel(f"{ylabel} (log scale)")
    style.title(fig, title)
    return fig


def draw_sweep(
    ax, alphas: Sequence[float], curves: dict[str, Sequence[float]], at: float | None = None
) -> None:
    """A line per entry {label: value at every alpha}; `at` is marked, with its numbers."""
    from matplotlib.ticker import LogFormatter

    for i, (label, values) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        ax.plot(alphas, list(values), color=colour, marker=MARKERS[i], label=label)
        if at is not None:
            value = values[list(alphas).index(at)]
            side = {min(alphas): "left", max(alphas): "right"}.get(at, "center")  # inside the axes
            above = (0, -15 if i else 7)  # the first curve has its number above, others below
            place = {"xytext": above, "textcoords": "offset points", "ha": side}
            ax.annotate(f"{value:.3g}", (at, value), color=colour, bbox=BOX, fontsize=9, **place)
    if at is not None:
        ax.axvline(at, color=GREY, linestyle="--", linewidth=1)
    ax.set(yscale="log", xlabel="migration strength alpha")
    ax.margins(y=0.12)
    ax.set_xticks(list(alphas), [f"{alpha:g}" for alpha in alphas])
    ax.yaxis.set_major_formatter(LogFormatter())  # plain numbers; minor ones only where they fit
    ax.yaxis.set_minor_formatter(LogFormatter())


def sweep(
    alphas: Sequence[float],
    curves: dict[str, Sequence[float]],
    title: str,
    ylabel: str = "perplexity on held-out code",
    reference: float | None = None,
    at: float | None = None,
) -> Figure:
    """Quality against alpha; reference: the model before quantization, a dotted line."""
    fig, (ax,) = figure(height=3.8)
    draw_sweep(ax, alphas, curves, at)
    if reference is not None:
        ax.axhline(reference, color=BLACK, linestyle=":", label=f"fp32: {reference:.3g}")
    ax.set_ylabel(f"{ylabel} (log scale)")
    style.title(fig, title)
    ax.legend(frameon=False, fontsize=8)
    return fig


def smoothing(
    x_max: Tensor,
    w_max: Tensor,
    alphas: Sequence[float],
    curves: dict[str, Sequence[float]],
    at: float,
    title: str,
    marked: Sequence[int] = (),
    limits: tuple[float, float] | None = None,
) -> Figure:
    """One choice of alpha: channels of X / s, channels of W s, and where it stands in the sweep.

    x_max, w_max [K]: largest magnitudes after smoothing.  Both panels have one scale; limits: its
    ends, the same in figures that are compared.
    """
    fig, axes = figure(columns=3, width=11.0)
    draw_magnitudes(axes[0], x_max, "activations: max |X_j| / s_j", marked)
    draw_magnitudes(axes[1], w_max, "weights: max |W_:j| s_j", marked)
    lowest, highest = zip(*(ax.get_ylim() for ax in axes[:2]), strict=True)
    for ax in axes[:2]:
        ax.set_ylim(limits or (min(lowest), max(highest)))
    axes[0].set_ylabel("largest magnitude (log scale)")
    draw_sweep(axes[2], alphas, curves, at)
    axes[2].set_ylabel("perplexity (log scale)")
    axes[2].set_title("the model with W8A8", fontsize=10)
    axes[2].legend(frameon=False, fontsize=8)
    style.title(fig, title)
    return fig
