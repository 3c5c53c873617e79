"""Speculative decoding in pictures.  Every function returns (figure, alt text)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from efflib.plots.style import (
    AMBER,
    BLACK,
    BLUE,
    GREY,
    LIGHT_TEXT,
    MARKERS,
    ORANGE,
    figure,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
WIDTH = 88  # characters of a line of text
GAP = 4  # characters between two columns of lines
FRAME = {"facecolor": "none", "edgecolor": GREY}


def text_of_two(words: Sequence[str], guessed: Sequence[bool], heading: str) -> Drawn:
    """A text token by token: on blue what the draft guessed, framed what the target wrote itself.

    A blank is a dot and the end of a line an arrow, so that each token can be seen and counted.
    """
    from matplotlib.patches import Rectangle

    places, lines = _columns(*_places(words, guessed))
    wide = max([40, *(x + len(part) for x, _, part, _ in places)])
    fig, (ax,) = figure(width=9.0 * wide / WIDTH, height=0.3 * lines + 0.9)
    for x, line, part, boxed in places:
        face = {"facecolor": BLUE, "edgecolor": "white"} if boxed else FRAME
        ax.add_patch(Rectangle((x, -line - 0.4), len(part), 0.8, linewidth=0.5, **face))
        for i, letter in enumerate(part):
            ink = {"color": LIGHT_TEXT} if boxed else {"weight": "bold"}
            spot = (x + i + 0.5, -line)
            ax.text(*spot, letter, family="monospace", fontsize=8, ha="center", va="center", **ink)
    ax.set(xlim=(-0.5, wide + 0.5), ylim=(-lines + 0.2, 0.8))
    ax.axis("off")
    share = 100 * sum(guessed) / max(1, len(guessed))
    title(fig, heading)
    return fig, (
        f"A text of {len(words)} tokens. {share:.0f} percent of them are on blue: a small model "
        "guessed them, and the large one only agreed. The others, in bold, it wrote itself."
    )


Place = tuple[int, int, str, bool]  # of a part of a token: column, line, letters, whether guessed


def _places(words: Sequence[str], guessed: Sequence[bool]) -> tuple[list[Place], int]:
    """Where each part of a token stands, and the number of lines."""
    places, x, y = [], 0, 0
    for word, boxed in zip(words, guessed, strict=True):
        shown = word.replace("\t", "    ").replace(" ", "·").replace("\n", "↵\n")
        for i, part in enumerate(shown.split("\n")):
            if i or x + len(part) > WIDTH:
                x, y = 0, y + 1
            if part:
                places.append((x, y, part, boxed))
            x += len(part)
    return places, 1 + max((line for _, line, _, _ in places), default=0)


def _columns(places: list[Place], lines: int) -> tuple[list[Place], int]:
    """Short lines side by side, as many columns as fit."""
    longest = GAP + max((x + len(part) for x, _, part, _ in places), default=0)
    columns = max(1, (WIDTH + GAP) // longest)
    height = -(-lines // columns)
    moved = [(x + y // height * longest, y % height, part, boxed) for x, y, part, boxed in places]
    return moved, height


def overlap(
    names: Sequence[str], p: Sequence[float], q: Sequence[float], rest: Sequence[float], head: str
) -> Drawn:
    """Bars of p, q and what a rejection draws from, for a few tokens."""
    fig, (left, right) = figure(columns=2, width=9.0, height=3.0)
    x = range(len(names))
    left.bar([i - 0.2 for i in x], p, 0.4, color=BLUE, label="target p")
    left.bar([i + 0.2 for i in x], q, 0.4, color=ORANGE, hatch="//", label="draft q")
    shared = [min(a, b) for a, b in zip(p, q, strict=True)]
    left.step(
        [i + d for i in x for d in (-0.4, 0.4)],
        [s for s in shared for _ in (0, 1)],
        color=BLACK,
        linestyle="--",
        label=f"the smaller one, in all {sum(shared):.2f}",
    )
    right.bar(list(x), rest, 0.5, color=GREY)
    for ax, label in ((left, "probability"), (right, "after a rejection")):
        ax.set_xticks(list(x), names)
        ax.set(ylabel=label, ylim=(0, 1))
    left.legend(fontsize=8)
    title(fig, head)
    pairs = "; ".join(f"{n}: p {a:.2f}, q {b:.2f}" for n, a, b in zip(names, p, q, strict=True))
    return fig, f"Bars for {len(names)} tokens. {pairs}. Shared {sum(shared):.2f}."


def curves(
    gammas: Sequence[int],
    measured: Mapping[str, Sequence[float]],
    models: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
    head: str,
    level: float | None = None,
    bands: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> Drawn:
    """Points that were measured and lines that a formula gives, against the draft length.

    labels: of both axes; level: a horizontal line, such as 1 for plain decoding; bands: (low, high)
    of what chance alone would give.
    """
    bands = bands or {}
    fig, (ax,) = figure(width=7.0, height=3.4)
    for name, row in bands.items():
        low, high = zip(*row, strict=True)
        ax.fill_between(gammas, low, high, color=GREY, alpha=0.35, linewidth=0, label=name)
    for i, (name, row) in enumerate(measured.items()):
        colour = (BLUE, ORANGE, GREY, AMBER)[i % 4]
        ax.plot(gammas, row, color=colour, marker=MARKERS[i % 6], label=name)
    for i, (name, row) in enumerate(models.items()):
        colour = (BLUE, ORANGE, GREY, AMBER)[i % 4]
        ax.plot(gammas, row, color=colour, linestyle="--", label=name)
    if level is not None:
        ax.axhline(level, color=BLACK, linewidth=0.8, linestyle=":")
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(gammas), list(map(str, gammas)))
    ax.set(xlabel=labels[0], ylabel=labels[1], ylim=(0, None))
    ax.legend(fontsize=8)
    title(fig, head)
    rows = {**measured, **models}
    said = "; ".join(
        f"{name}: {', '.join(f'{value:.2f}' for value in row)}" for name, row in rows.items()
    )
    ranges = "".join(
        f"; {name}: {', '.join(f'{low:.2f} to {high:.2f}' for low, high in row)}"
        for name, row in bands.items()
    )
    return fig, f"{labels[1]} at {labels[0]} {', '.join(map(str, gammas))}. {said}{ranges}."
