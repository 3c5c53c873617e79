"""Pictures of a roofline: ceilings, what was predicted and measured, what a server's users get.

Every function returns (figure, alt text).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLACK, BLUE, COLOURS, GREY, MARKERS, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plain_ticks(ax: Axes) -> None:
    """1, 2, 5, 10, ... on a logarithmic y axis, in plain digits: spans here are short."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def roof(
    peak: float, bandwidth: float, points: Mapping[str, tuple[float, float]], machine: str
) -> tuple[Figure, str]:
    """GFLOP/s at most over FLOPs a byte, and points {name: (FLOPs a byte, FLOP/s)} below it."""
    fig, (ax,) = figure(height=3.6)
    ridge = peak / bandwidth
    at = [x for x, _ in points.values()] + [ridge]
    ends = [min(at) / 3, ridge, max(at) * 5]
    limits = [min(peak, x * bandwidth) / 1e9 for x in ends]
    ax.plot(ends, limits, color=BLACK, label="at most")
    ax.axvline(ridge, color=GREY, linestyle=":")
    ax.text(ridge, limits[0], f" ridge {style.number(ridge)}", va="bottom", color=GREY, fontsize=9)
    for i, (name, (x, speed)) in enumerate(points.items()):
        share = speed / min(peak, x * bandwidth)
        ax.plot(
            [x], [speed / 1e9], color=COLOURS[i % 6], marker=MARKERS[i % 6], linestyle="",
            label=f"{name}: {share:.0%} of what is possible",
        )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="FLOPs for each byte", ylabel="GFLOP/s")
    fig.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    left = [name for name, (x, _) in points.items() if x < ridge]
    text = f"{machine}: {', '.join(left) or 'nothing'} left of the ridge, where bytes decide"
    style.title(fig, text)
    said = "; ".join(
        f"{name} at {style.number(x)} FLOPs a byte, {style.number(y / 1e9)} GFLOP/s"
        for name, (x, y) in points.items()
    )
    return fig, f"A roofline with its ridge at {style.number(ridge)}. {text}. {said}."


def over_batch(
    batches: Sequence[int],
    predicted: Mapping[str, Sequence[float]],
    measured: Sequence[float],
    ridge: float,
) -> tuple[Figure, str]:
    """Milliseconds of a step, and of a token, over the batch: predicted, and measured."""
    fig, axes = figure(columns=2, width=8.4, height=3.6)
    alone = [measured[0] * b for b in batches]
    for ax, per_token in zip(axes, (False, True), strict=True):
        each = batches if per_token else [1] * len(batches)
        for i, (name, row) in enumerate(predicted.items()):
            shown = [1e3 * s / n for s, n in zip(row, each, strict=True)]
            ax.plot(
                batches, shown, color=COLOURS[i + 1], linestyle=["--", "-."][i % 2],
                label=None if per_token else f"predicted: {name}",
            )  # fmt: skip
        ax.plot(
            batches, [1e3 * s / n for s, n in zip(measured, each, strict=True)], color=BLUE,
            marker="o", label=None if per_token else "measured",
        )  # fmt: skip
        if not per_token:
            ax.plot(
                batches, [1e3 * s for s in alone], color=GREY, linestyle=":",
                label="if each cost as much as the first",
            )  # fmt: skip
        if ridge <= batches[-1]:
            ax.axvline(ridge, color=GREY, linewidth=0.8)
        ax.set(xscale="log", yscale="log", xlabel="sequences in a batch")
        plain_ticks(ax)
        ax.set_xticks(batches, [str(b) for b in batches])
        ax.minorticks_off()
        ax.set_ylabel("ms a token" if per_token else "ms a step")
    fig.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    times, last = measured[-1] / measured[0], batches[-1]
    text = f"{last} sequences take {times:.1f} times as long as one"
    style.title(fig, f"{text} (line: the ridge batch, {style.number(ridge)})")
    rows = "; ".join(f"{b}: {1e3 * s:.0f} ms" for b, s in zip(batches, measured, strict=True))
    return fig, f"Time of a decoding step over the batch. {text}. Measured: {rows}."


def two_lines(
    batches: Sequence[float],
    computing: Sequence[float],
    moving: Sequence[float],
    meet: float,
    what: str,
) -> tuple[Figure, str]:
    """Milliseconds of computing and of moving bytes in a step over the batch; inf: they never meet.

    meet: the batch at which both take the same time.
    """
    fig, (ax,) = figure(height=3.6)
    ax.plot(batches, [1e3 * s for s in computing], color=BLUE, label="computing")
    ax.plot(batches, [1e3 * s for s in moving], color=ORANGE, linestyle="--", label="moving bytes")
    if batches[0] <= meet <= batches[-1]:
        ax.axvline(meet, color=GREY, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="sequences in a batch", ylabel="ms a step, at least")
    ax.legend(frameon=False, fontsize=9)
    never = math.isinf(meet)
    end = "moving takes longer for every batch" if never else f"they meet at batch {meet:,.0f}"
    style.title(fig, f"{what}: {end}")
    last = " and ".join(f"{1e3 * line[-1]:.1f} ms" for line in (computing, moving))
    ends = f"at batch {batches[-1]:,.0f} {last}"
    return fig, f"Computing and moving bytes of a step over the batch. {what}: {end}; {ends}."


def opening(batches: Sequence[int], measured: Sequence[float]) -> tuple[Figure, str]:
    """Measured milliseconds of a step over the batch, beside as many times the first one."""
    fig, (ax,) = figure(height=3.2)
    ax.plot(batches, [1e3 * s for s in measured], color=BLUE, marker="o", label="measured")
    ax.plot(
        batches, [1e3 * measured[0] * b for b in batches], color=GREY, linestyle=":",
        label="if each reader cost as much as the first",
    )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="readers served at once")
    plain_ticks(ax)
    ax.set_ylabel("ms for one more token each")
    ax.set_xticks(batches, [str(b) for b in batches])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=9)
    style.title(fig, "One more token for every reader: what a step takes")
    rows = "; ".join(f"{b}: {1e3 * s:.0f} ms" for b, s in zip(batches, measured, strict=True))
    return fig, f"Time of a step that writes a token for each reader, measured. {rows}."


def served(
    rates: Sequence[float], finished: Sequence[float], good: Sequence[float], limits: str
) -> tuple[Figure, str]:
    """Requests per second that are finished, and that are good, over those that arrive."""
    fig, (ax,) = figure(height=3.4)
    ax.plot(rates, rates, color=GREY, linestyle=":", label="all that arrive")
    ax.plot(rates, finished, color=BLUE, marker="o", label="finished")
    ax.plot(rates, good, color=ORANGE, marker="s", linestyle="--", label=f"good: {limits}")
    ax.set(xlabel="requests that arrive per second", ylabel="requests per second", ylim=(0, None))
    ax.legend(frameon=False, fontsize=9)
    best = max(range(len(rates)), key=lambda i: good[i])
    text = (
        f"Goodput is best at {rates[best]:g} a second, {good[best]:.1f}, and "
        f"{good[-1]:.1f} at {rates[-1]:g}, where {finished[-1]:.1f} are finished"
    )
    style.title(fig, text)
    return fig, f"What is finished, and what is good, over the rate of arrivals. {text}."


def by_passes(
    read: Sequence[float], perplexities: Sequence[float], names: Sequence[str]
) -> tuple[Figure, str]:
    """Perplexity of one text over the tokens read for each one scored."""
    fig, (ax,) = figure(height=3.2)
    ax.plot(read, perplexities, color=BLUE, marker="o")
    for x, y, name in zip(read, perplexities, names, strict=True):
        ax.annotate(name, (x, y), textcoords="offset points", xytext=(6, 5), fontsize=9)
    ax.set(xscale="log", xlabel="tokens read for each token scored", ylabel="perplexity")
    ax.margins(x=0.15, y=0.15)
    text = (
        f"The same model and text: {perplexities[0]:.2f} to {perplexities[-1]:.2f}, "
        f"for {read[-1] / read[0]:.0f} times the work"
    )
    style.title(fig, text)
    rows = "; ".join(f"{n}: {p:.2f}" for n, p in zip(names, perplexities, strict=True))
    return fig, f"Perplexity over the work of scoring. {text}. {rows}."
