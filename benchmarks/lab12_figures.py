"""Figures of the chapter on token pruning; `lab12_tables.py` measures what they show."""

import math
from statistics import mean

from matplotlib.figure import Figure

from efflib.plots.style import BLACK, BLUE, COLOURS, GREY, MARKERS, SKY, figure

Drawn = tuple[Figure, str]  # and what it shows, in words


def opening(found: dict[str, list[float]], exact: list[float]) -> Drawn:
    """Four rules for which sixteen tokens to keep, without their names."""
    fig, (ax,) = figure(1, width=7.0, height=3.0)
    names = list("ABCD")
    heights = [mean(v) for v in found.values()]
    ax.bar(names, heights, color=SKY, edgecolor=BLUE, width=0.55)
    for name, values, height in zip(names, found.values(), heights, strict=True):
        ax.vlines(name, min(values), max(values), color=BLACK)
        ax.annotate(f"{height:.0f}", (name, max(values)), (0, 3), textcoords="offset points",
                    ha="center", fontsize=9)  # fmt: skip
    ax.axhline(mean(exact), color=GREY, linestyle="--", label="everything kept")
    ax.set(ylabel="perplexity, held-out code", xlabel="a rule: which 16 tokens a head keeps")
    title = f"Which sixteen tokens: perplexity {max(heights):.0f} or {min(heights):.0f}"
    ax.set_title(title, fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    ax.margins(y=0.15)
    said = ", ".join(f"{n} {h:.0f}" for n, h in zip(names, heights, strict=True))
    alt = (
        "Perplexity of one model that keeps sixteen tokens in every head, by four rules: "
        f"{said}; with everything kept it is {mean(exact):.1f}."
    )
    return fig, alt


def against_size(found: dict[tuple[str, int], list[float]], exact: list[float]) -> Drawn:
    """Perplexity against the tokens that are kept, for every rule."""
    fig, (ax,) = figure(1, width=7.5, height=4.0)
    ways, sizes = (list(dict.fromkeys(key[i] for key in found)) for i in (0, 1))
    for i, way in enumerate(ways):
        rows = [found[way, size] for size in sizes]
        look = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        ax.plot(
            sizes, [mean(r) for r in rows], label=way, linestyle=["-", "--", ":"][i % 3], **look
        )
        low, high = [min(r) for r in rows], [max(r) for r in rows]
        ax.fill_between(sizes, low, high, color=look["color"], alpha=0.12, linewidth=0)
    ax.axhline(mean(exact), color=GREY, linestyle="--")
    ax.annotate("everything kept", (sizes[-1], mean(exact)), (0, -10), textcoords="offset points",
                ha="right", fontsize=8)  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="tokens kept by every head", ylabel="perplexity")
    ax.set_xticks(sizes, [str(s) for s in sizes])
    ax.set_yticks([10, 15, 20, 30], ["10", "15", "20", "30"])
    ax.minorticks_off()
    part = part_of_h2o(found, sizes[0])
    title = f"4 sinks + recent: {part:.0%} of what H2O gains on recent, in nats, at {sizes[0]}"
    ax.set_title(title, fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    alt = "Perplexity against tokens kept, on two logarithmic axes. " + "; ".join(
        f"{way}: {', '.join(f'{mean(found[way, s]):.1f} at {s}' for s in sizes)}" for way in ways
    )
    return fig, alt


def part_of_h2o(found: dict[tuple[str, int], list[float]], size: int) -> float:
    """How much of what H2O gains on the most recent tokens, in nats, sinks and recent ones gain."""
    ways = ("recent", "4 sinks + recent", "H2O")
    window, sinks, h2o = (mean(map(math.log, found[way, size])) for way in ways)
    return (window - sinks) / (window - h2o)
