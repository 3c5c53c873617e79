"""What a model writes, beside the levels that its weights still have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from efflib.plots import style
from efflib.plots.style import GREY, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS, ROW_HEIGHT = 36, 1.5
HARD_SPACE = "\u00a0"  # an SVG in a page drops leading spaces: the indentation of code
LINES, WIDTH = 8, 62  # of the text in a row: what fits beside a histogram


class Written(NamedTuple):
    """One row: its name, the levels of the weights (None: as they were) and the text."""

    name: str
    levels: Tensor | None
    text: str


def cut(text: str, lines: int = LINES, width: int = WIDTH) -> str:
    """The first lines of a text; a line that is too long ends in three dots."""
    kept = [line.rstrip() for line in text.strip("\n").split("\n")[:lines]]
    return "\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in kept)


def levels_and_text(values: Tensor, rows: Sequence[Written], title: str) -> Figure:
    """A row for each model: a histogram of values with its levels, and what it writes.

    values: some weights before quantization, any shape.
    """
    fig, _ = figure(columns=1, width=9.0, height=ROW_HEIGHT * len(rows) + 0.5)
    fig.clear()
    axes = fig.subplots(len(rows), 2, width_ratios=[1, 2.2], squeeze=False)
    most = max(v.abs().max().item() for v in (values, *(r.levels for r in rows)) if v is not None)
    for (left, right), row in zip(axes, rows, strict=True):
        left.hist(values.detach().flatten().numpy(), bins=BINS, color=GREY, alpha=0.75)
        if row.levels is not None:
            left.vlines(row.levels.unique().numpy(), 0, left.get_ylim()[1], color=ORANGE)
        left.spines[["top", "right", "left"]].set_visible(False)
        left.set_yticks([])
        left.set_xlim(-1.05 * most, 1.05 * most)
        left.tick_params(labelsize=8)
        left.set_title(row.name, fontsize=10, loc="left")
        right.axis("off")
        place = {"va": "top", "family": "monospace", "fontsize": 8.5}
        text = cut(row.text).replace(" ", HARD_SPACE)
        right.text(0.0, 1.05, text, transform=right.transAxes, parse_math=False, **place)
    axes[-1][0].set_xlabel("weights of one row, and their levels", fontsize=8)
    style.title(fig, title)
    return fig
