"""What smaller groups, finer codes and codebooks are worth, and what they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLUE, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEXT_TO = "\u00a0"  # a space at which no line is broken
Steps = dict[tuple[str, str], list[float]]  # (from, to): a number for each weight matrix


def _draw(ax, worth: Steps, prices: Steps) -> None:
    """A column for each step: a dot for each weight, and their mean price as a line."""
    for x, (step, dots) in enumerate(worth.items()):
        # side by side in order of size, so that no dot hides another one
        spots = [x - 0.25 + 0.5 * i / max(len(dots) - 1, 1) for i in range(len(dots))]
        label = "worth, a dot for each weight matrix" if x == 0 else None
        ax.plot(spots, sorted(dots), "o", color=BLUE, markersize=3, label=label)
        price = sum(prices[step]) / len(prices[step])
        label = "price, their mean" if x == 0 else None
        ax.hlines(price, x - 0.4, x + 0.4, color=ORANGE, linewidth=2.5, label=label)
    ax.set_xticks(range(len(worth)), [f"{a}\n\u2193\n{b}" for a, b in worth], fontsize=8)
    ax.set_ylim(bottom=min(0, 1.2 * min(map(min, worth.values()))))


def paying(worth: Steps, prices: Steps, step: tuple[str, str]) -> int:
    """For how many weights a step is worth more than it costs."""
    return sum(w > price for w, price in zip(worth[step], prices[step], strict=True))


def worth(worth: dict[int, Steps], prices: dict[int, Steps]) -> tuple[Figure, str]:
    """(figure, alt text), a panel for each width of the codes at the start.

    worth: {bits: {(from, to): [bits a weight, for each weight matrix]}}; prices: likewise.
    A dot above the line is a weight matrix for which that step pays.
    """
    fig, axes = figure(columns=len(worth), width=5.2 * len(worth), height=3.8)
    always, alt = None, []
    for ax, (bits, steps) in zip(axes, worth.items(), strict=True):
        _draw(ax, steps, prices[bits])
        ax.set_title(f"codes of {bits} bits", fontsize=10)
        counts = {step: paying(steps, prices[bits], step) for step in steps}
        alt += [f"{bits} bits, {a} to {b}: pays for {n} weights" for (a, b), n in counts.items()]
        full = {step for step, n in counts.items() if n == len(steps[step])}
        always = full if always is None else always & full
    axes[0].set_ylabel("bits a weight")
    axes[0].legend(frameon=False, fontsize=8, loc="upper left")
    names = ", ".join(
        f"{a} \u2192 {b}".replace(" ", NEXT_TO) for a, b in worth[bits] if (a, b) in always
    )
    style.title(fig, f"Worth its price for every weight: {names or 'nothing'}")
    return fig, "Bits that each step is worth, against its price. " + "; ".join(alt)
