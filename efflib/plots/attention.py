"""Attention maps, sinks and streams.  Every function returns (figure, alt text)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.placements import mean
from efflib.plots.style import BLACK, BLUE, COLOURS, GREY, MARKERS, SKY, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

Drawn = tuple["Figure", str]
LEAST = 1e-3  # of a map: what is below has the colour of this
LINES = ["-", "--", "-.", ":"]


def maps(panels: dict[str, Tensor], title: str) -> Drawn:
    """Maps [T, S] of several heads side by side, on a log scale from LEAST to 1."""
    from matplotlib.colors import LogNorm

    fig, axes = figure(columns=len(panels), width=2.6 * len(panels) + 1.0, height=3.4)
    for ax, (name, p) in zip(axes, panels.items(), strict=True):
        shown = [[max(LEAST, x) if x > 0 else float("nan") for x in row] for row in p.tolist()]
        image = ax.imshow(shown, norm=LogNorm(LEAST, 1), cmap="cividis", interpolation="nearest")
        ax.set_title(name, fontsize=10)
        ax.set_xlabel("key")
    axes[0].set_ylabel("query")
    fig.colorbar(image, ax=axes, label="attention", shrink=0.8)
    style.title(fig, title)
    shares = (f"{name}: first key {float(p[:, 0].mean()):.2f}" for name, p in panels.items())
    return fig, "Attention maps, mean share of the first column over all queries. " + "; ".join(
        shares
    )


def layers(scores: Tensor, title: str, even: float | None = None) -> Drawn:
    """The sink score of every head against its layer; scores [L, H].  even: of no preference."""
    fig, (ax,) = figure(width=7.0, height=3.2)
    rows = scores.tolist()
    for i, row in enumerate(rows):
        ax.plot([i] * len(row), row, "o", color=BLUE, alpha=0.6, markersize=6)
    ax.plot(range(len(rows)), [mean(row) for row in rows], color=BLACK, label="mean of the heads")
    if even is not None:
        ax.axhline(even, color=GREY, linestyle="--", label="attention spread evenly")
    ax.set(xlabel="layer", ylabel="share of the first token", ylim=(0, 1))
    ax.set_xticks(range(len(rows)))
    ax.legend(frameon=False, fontsize=9)
    style.title(fig, title)
    said = (f"layer {i}: {mean(row):.2f} (most {max(row):.2f})" for i, row in enumerate(rows))
    return fig, "Share of the first token by layer, mean of the heads. " + "; ".join(said)


def training(curves: dict[str, tuple[Sequence[int], Sequence[float]]], title: str) -> Drawn:
    """The share of the first token while models train.  curves: {name: (steps, shares)}."""
    fig, (ax,) = figure(width=7.0, height=3.2)
    for i, (name, (steps, shares)) in enumerate(curves.items()):
        look = {"color": COLOURS[i % 6], "linestyle": LINES[i % 4], "marker": MARKERS[i % 6]}
        ax.plot(steps, shares, label=name, **look)
    ax.set(xlabel="training step", ylabel="share of the first token", ylim=(0, 1))
    ax.legend(frameon=False, fontsize=9)
    style.title(fig, title)
    said = (f"{name}: {s[0]:.2f} to {s[-1]:.2f}" for name, (_, s) in curves.items())
    return fig, "Share of the first token during training. " + "; ".join(said)


def caches(
    values: dict[str, tuple[float, float, float]],
    title: str,
    controls: Sequence[str] = (),
    ylabel: str = "perplexity",
) -> Drawn:
    """A bar for every cache, with its interval.  values: {name: (value, low, high)}.

    controls: caches that are drawn without a filling.
    """
    fig, (ax,) = figure(width=8.0, height=3.6)
    for i, (name, (value, low, high)) in enumerate(values.items()):
        face = "white" if name in controls else SKY
        ax.bar(i, value, width=0.62, color=face, edgecolor=BLUE)
        if low < high:  # what the others are compared with has no interval
            ax.vlines(i, low, high, color=BLACK)
        at, text = (i, max(value, high)), f"{value:.2f}"
        ax.annotate(text, at, (0, 4), textcoords="offset points", ha="center", fontsize=9)
    shown = [name.replace(", ", ",\n") for name in values]
    ax.set_xticks(range(len(values)), shown, fontsize=8)
    ax.set_ylabel(ylabel)
    ax.margins(y=0.15)
    style.title(fig, title)
    said = (f"{name}: {v:.2f} ({low:.2f} to {high:.2f})" for name, (v, low, high) in values.items())
    return fig, f"{ylabel} by cache: " + "; ".join(said)


def lengths(values: dict[str, float], label: str) -> Drawn:
    """A line for every name, its value at the end.  Narrow, so that a phone need not shrink it."""
    fig, (ax,) = figure(width=4.4, height=1.6)
    bars = ax.barh(
        range(len(values)), list(values.values()), height=0.62, color=SKY, edgecolor=BLUE
    )
    ax.bar_label(bars, [f"{value:.1f}" for value in values.values()], padding=4, fontsize=11)
    ax.set_yticks(range(len(values)), list(values), fontsize=11)
    ax.invert_yaxis()  # the first one on top
    ax.set_xlabel(label, fontsize=11)
    ax.set_xticks([])  # each bar says its value
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(left=False)
    ax.margins(x=0.15)
    return fig, f"{label}: " + "; ".join(f"{name} {value:.1f}" for name, value in values.items())


def stream(
    tokens: Sequence[int],
    kilobytes: dict[str, Sequence[float]],
    perplexity: dict[str, Sequence[float]],
    title: str,
) -> Drawn:
    """Memory held, on a log scale, and perplexity of the last piece, against tokens read."""
    fig, (left, right) = figure(columns=2, width=10.0, height=3.4)
    for ax, curves, label in (
        (left, kilobytes, "held, KB"),
        (right, perplexity, "perplexity of a piece"),
    ):
        for name, row in curves.items():
            i = list(kilobytes).index(name) if name in kilobytes else len(kilobytes)
            n = len(row)  # a way that is not followed to the end has fewer points
            ax.plot(tokens[:n], row, label=name, color=COLOURS[i % 6], linestyle=LINES[i % 4])
        ax.set(xlabel="tokens read", ylabel=label)
        ax.legend(frameon=False, fontsize=9)
    left.set_yscale("log")
    right.set_ylim(bottom=0)
    style.title(fig, title)
    said = [f"{n} holds {r[0]:,.0f} KB at first, {r[-1]:,.0f} at the end" for n, r in
            kilobytes.items()]  # fmt: skip
    said += [f"{n} has perplexity {min(r):.1f} to {max(r):.1f}" for n, r in perplexity.items()]
    return fig, f"A stream of {tokens[-1]:,} tokens: " + "; ".join(said)


def along(
    curves: dict[str, Sequence[float]], marks: dict[int, str], title: str, first: int, ylabel: str
) -> Drawn:
    """Ratios of perplexities along a text; marks: {tokens read: what happens there}.

    first: tokens read at the first value; of a mean over the last four it is 4.
    """
    fig, (ax,) = figure(width=8.0, height=3.0)
    for i, (name, curve) in enumerate(curves.items()):
        look = {"color": COLOURS[i % 6], "linestyle": LINES[i % 4]}
        ax.plot(range(first, first + len(curve)), curve, label=name, **look)
    ax.axhline(1, color=GREY, linewidth=0.6)
    top = 1.1 * max(max(curve) for curve in curves.values())
    for at, text in marks.items():
        ax.axvline(at, color=GREY, linestyle="--")
        ax.annotate(text, (at, top), (4, -4), textcoords="offset points", va="top", fontsize=10)
    ax.set(xlabel="tokens read", ylabel=ylabel, ylim=(0, top))
    ax.legend(frameon=False, fontsize=9, loc="upper right")
    style.title(fig, title)
    said = []
    for name, curve in curves.items():
        cuts = [0, *(max(0, at + 1 - first) for at in marks), len(curve)]
        parts = [curve[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if b > a]
        said.append(f"{name} {', then '.join(f'{mean(part):.1f}' for part in parts)}")
    places = ", ".join(f"{text} at token {at}" for at, text in marks.items())
    return fig, f"{title} ({places}): {ylabel}, means between these places: {'; '.join(said)}"
