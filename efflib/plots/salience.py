"""Salient channels: what protecting them by a factor does, and the roofline of decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLACK, BLUE, COLOURS, GREEN, GREY, MARKERS, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {  # key of a point -> colour, line style, marker
    "scaled channels": (ORANGE, "--", "s"),
    "other channels": (GREEN, ":", "^"),
    "all": (BLUE, "-", "o"),
}


def protection(
    factors: Sequence[float],
    points: Sequence[dict[str, float]],
    title: str,
    at: float | None = None,
) -> Figure:
    """Output error by where it comes from, and the step of the scaled groups, against the factor.

    points: a dictionary per factor with the keys of PARTS (squared errors of the output) and
    "step" (mean step of the groups that hold a scaled channel).  Everything is drawn relative to
    the first factor, with 1 / s^2 beside the error of the scaled channels; `at` is marked.
    """
    from matplotlib.ticker import LogFormatter, NullFormatter

    fig, axes = figure(columns=2, width=9.0)
    whole = points[0]["all"]
    for key, (colour, line, marker) in PARTS.items():
        heights = [p[key] / whole for p in points]
        axes[0].plot(factors, heights, color=colour, linestyle=line, marker=marker, label=key)
    ideal = [points[0]["scaled channels"] / whole * (factors[0] / f) ** 2 for f in factors]
    axes[0].plot(
        factors, ideal, color=GREY, linestyle="-.", linewidth=1, label="1 / s^2, if the step held"
    )
    axes[0].set(yscale="log", ylabel="squared output error, RTN = 1")
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].plot(factors, [p["step"] / points[0]["step"] for p in points], color=BLUE, marker="o")
    axes[1].set(ylabel="mean step of their groups, RTN = 1", ylim=(0, None))
    for ax in axes:
        ax.set(xscale="log", xlabel="factor s on the channels")
        ax.xaxis.set_major_formatter(LogFormatter())
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xticks(list(factors), [f"{f:g}" for f in factors])
        if at is not None:
            ax.axvline(at, color=GREY, linestyle="--", linewidth=1)
    style.title(fig, title)
    return fig


def decode(
    batches: Sequence[float],
    rates: dict[str, Sequence[float]],
    measured: dict[str, tuple[float, float]],
    title: str,
    with_cache: dict[str, Sequence[float]] | None = None,
) -> Figure:
    """Tokens per second against the batch, both log: a line per entry of rates.

    measured: {label: (batch, tokens per second)}, drawn as points with the label to their left.
    with_cache: the same labels, rates where keys and values are read as well; dashed.
    """
    fig, (ax,) = figure(height=3.8)
    for i, (label, values) in enumerate(rates.items()):
        ax.plot(batches, list(values), color=COLOURS[i % len(COLOURS)], label=label)
        if with_cache:
            cached = with_cache[label]
            ax.plot(batches, list(cached), color=COLOURS[i % len(COLOURS)], linestyle="--",
                    label=f"{label}, with a KV cache")  # fmt: skip
    for i, (label, (batch, rate)) in enumerate(measured.items()):
        ax.plot(batch, rate, color=BLACK, marker=MARKERS[i % len(MARKERS)], linestyle="none")
        place = {"xytext": (-7, -3), "textcoords": "offset points", "ha": "right", "fontsize": 8}
        ax.annotate(label, (batch, rate), **place)
    ax.set(xlabel="sequences that decode together", ylabel="tokens per second, all together")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = [4**i for i in range(9) if batches[0] <= 4**i <= batches[-1]]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_xlim(left=batches[0] / 5)  # room for the labels of points
    style.title(fig, title)
    ax.legend(frameon=False, fontsize=8)
    return fig
