"""Figures of several devices: messages, schedules of a pipeline, speed-ups, which plan.

Every function returns (figure, alt text).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from efflib.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    COLOURS,
    DARK_TEXT,
    GREY,
    LIGHT_TEXT,
    MARKERS,
    SKY,
    figure,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
LINES = ["-", "--", "-.", ":", "--"]


def messages(
    sizes: Sequence[int], curves: Mapping[str, Sequence[float]], head: str | None = None
) -> Drawn:
    """Seconds of calls by bytes, both on logarithmic axes."""
    fig, (ax,) = figure(width=7.0, height=3.6)
    for i, (name, row) in enumerate(curves.items()):
        look = {"color": COLOURS[i % 6], "marker": MARKERS[i % 6], "linestyle": LINES[i % 5]}
        ax.plot(sizes, [1e6 * s for s in row], label=name, **look)
    ax.set(xscale="log", yscale="log", xlabel="bytes of x", ylabel="µs, fastest")
    ax.legend(frameon=False, fontsize=8)
    head = head or "A call costs something although it is empty, then something for every byte"
    title(fig, head)
    said = "; ".join(
        f"{name}: {', '.join(f'{1e6 * s:.0f}' for s in row)}" for name, row in curves.items()
    )
    return fig, f"{head}. Microseconds at {', '.join(map(str, sizes))} bytes: {said}."


def schedule(
    orders: Sequence[Sequence[tuple[str, int]]],
    starts: Sequence[Sequence[float]],
    lengths: tuple[float, float],
    live: Sequence[int],
    name: str,
) -> Drawn:
    """Boxes of all work, a row for each stage: forwards blue, backwards amber and hatched.

    lengths: of a forward and of a backward; live: the most activations that each stage holds.
    """
    from matplotlib.patches import Rectangle

    fig, (ax,) = figure(width=9.0, height=0.42 * len(orders) + 1.3)
    sizes = dict(zip("FB", lengths, strict=True))
    work = [
        pair for o, row in zip(orders, starts, strict=True) for pair in zip(o, row, strict=True)
    ]
    ends = [begin + sizes[kind] for (kind, _), begin in work]
    end = max(ends, default=1.0)
    for s, (order, row) in enumerate(zip(orders, starts, strict=True)):
        for (kind, i), begin in zip(order, row, strict=True):
            face = {"facecolor": BLUE} if kind == "F" else {"facecolor": AMBER, "hatch": "///"}
            box = Rectangle((begin, s - 0.4), sizes[kind], 0.8, edgecolor="white", **face)
            ax.add_patch(box)
            if end <= 80:
                ink = LIGHT_TEXT if kind == "F" else DARK_TEXT
                spot = (begin + sizes[kind] / 2, s)
                back = None if kind == "F" else {"facecolor": AMBER, "edgecolor": "none", "pad": 1}
                ax.text(*spot, i, ha="center", va="center", fontsize=8, color=ink, bbox=back)
        ax.text(end * 1.01, s, f"{live[s]} alive", va="center", fontsize=8)
    busy = sum(sizes[kind] for kind, _ in orders[0])
    ax.set(xlim=(0, end * 1.1), ylim=(len(orders) - 0.5, -0.5), xlabel="time, in forwards")
    ax.set_yticks(range(len(orders)), [f"stage {s}" for s in range(len(orders))])
    waits = 1 - busy / end
    head = f"{name}: each stage waits {100 * waits:.0f} % of the time; {max(live)} alive at most"
    title(fig, head)
    alt = (
        f"{head}. {len(orders)} rows of numbered boxes, forwards and backwards (hatched) of "
        f"{sum(k == 'F' for k, _ in orders[0])} micro-batches; activations alive by stage: "
        f"{', '.join(map(str, live))}."
    )
    return fig, alt


def speedups(
    devices: Sequence[int], lines: Mapping[str, Sequence[float]], head: str | None = None
) -> Drawn:
    """Times as fast as one device; the first line is what was measured."""
    from matplotlib.ticker import NullLocator

    fig, (ax,) = figure(width=7.0, height=3.6)
    for i, (name, row) in enumerate(lines.items()):
        look = {"color": BLACK if i == 0 else COLOURS[i - 1], "marker": MARKERS[i % 6]}
        ax.plot(devices, row, label=name, linestyle=LINES[i % 5], linewidth=2 - (i > 0), **look)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(list(devices), list(map(str, devices)))
    ax.set_yticks(list(devices), list(map(str, devices)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set(xlabel="devices", ylabel="times as fast as one")
    ax.legend(frameon=False, fontsize=8)
    measured = next(iter(lines.values()))
    head = head or f"{devices[-1]} devices are {measured[-1]:.2f} times as fast as one"
    title(fig, head)
    said = "; ".join(f"{n}: {', '.join(f'{v:.2f}' for v in row)}" for n, row in lines.items())
    return fig, f"{head}. Times as fast with {', '.join(map(str, devices))} devices: {said}."


def plans(table: Mapping[tuple[str, int], tuple[float, float]], head: str) -> Drawn:
    """A map: rows networks, columns batches.  table: {(network, batch): (tensor s, pipeline s)}."""
    from matplotlib.patches import Rectangle

    rows = list(dict.fromkeys(name for name, _ in table))
    columns = list(dict.fromkeys(batch for _, batch in table))
    fig, (ax,) = figure(width=9.0, height=0.55 * len(rows) + 1.3)
    said = []
    for (name, batch), (tensor, pipeline) in table.items():
        x, y = columns.index(batch), rows.index(name)
        better, factor = ("tensor", pipeline / tensor)
        face = {"facecolor": SKY}
        if pipeline < tensor:
            better, factor = "pipeline", tensor / pipeline
            face = {"facecolor": AMBER, "hatch": "//"}
        ax.add_patch(Rectangle((x, y), 1, 1, edgecolor="white", **face))
        box = {"facecolor": face["facecolor"], "edgecolor": "none", "pad": 1}
        text = f"{better}\n{factor:.3g} x"
        spot = (x + 0.5, y + 0.5)
        ax.text(*spot, text, ha="center", va="center", fontsize=8, color=DARK_TEXT, bbox=box)
        said.append(f"{name}, batch {batch}: {better} {factor:.3g}")
    ax.set(xlim=(0, len(columns)), ylim=(len(rows), 0), xlabel="batch, sequences")
    ax.set_xticks([i + 0.5 for i in range(len(columns))], list(map(str, columns)))
    ax.set_yticks([i + 0.5 for i in range(len(rows))], rows)
    ax.tick_params(length=0)
    title(fig, head)
    return fig, f"{head}. Times as fast as the other: {'; '.join(said)}."


def opening(devices: Sequence[int], rates: Sequence[float]) -> Drawn:
    """Tokens per second on several GPUs, beside an even share."""
    fig, (ax,) = figure(width=7.0, height=3.2)
    places = range(len(devices))
    ax.bar(places, rates, 0.55, color=BLUE)
    even = [rates[0] * p / devices[0] for p in devices]
    for x, top, rate in zip(places, even, rates, strict=True):
        ax.plot([x - 0.35, x + 0.35], [top, top], color=GREY, linestyle="--")
        inside = {"ha": "center", "va": "top", "fontsize": 9, "color": LIGHT_TEXT}
        ax.text(x, rate - 0.01 * even[-1], f"{rate:.0f}", **inside)
        if top > rate:
            ax.text(x, top, f"{top:.0f}", ha="center", va="bottom", fontsize=9, color=GREY)
    ax.set_xticks(list(places), list(map(str, devices)))
    ax.set(xlabel="GPUs", ylabel="tokens per second")
    head = f"{devices[-1]} GPUs read {devices[-1]} times the bytes, and are "
    head += f"{rates[-1] / rates[0]:.2f} times as fast"
    title(fig, head)
    said = ", ".join(f"{p}: {r:.0f}" for p, r in zip(devices, rates, strict=True))
    return fig, f"{head}. Bars of tokens per second by GPUs: {said}; dashed, an even share."
