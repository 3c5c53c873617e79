"""The picture that opens lab 3: what the model writes in 3 bits, without and with a few columns.

It shows the effect, and not which columns they are.  Written by lab03_tables.py.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import lab03_story as story
from torch import Tensor, nn

from efflib import zoo
from efflib.models.recorded import record
from efflib.plots import style
from efflib.quantization.awq import keep_channels, rtn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMPT = zoo.PROMPTS[1]  # def load_json(path):
LINES, COLUMNS, BITS = 8, 34, 3


def written(model: nn.Module) -> str:
    """The first lines of what the model continues the prompt with, long ones broken."""
    lines = []
    for line in zoo.sample(model, PROMPT, tokens=64)[len(PROMPT) :].strip("\n").split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        how = {"initial_indent": indent, "subsequent_indent": indent}
        lines += textwrap.wrap(line.strip(), COLUMNS, **how) or [""]
    return "\n".join(lines[:LINES]).replace(" ", "\u00a0")  # an SVG collapses plain spaces


def figure(control: nn.Module, ids: Tensor) -> Figure:
    """Three texts side by side, each with the perplexity of the model that wrote it."""
    model = story.placements(control, ids)[0]
    kept = story.chosen(model, record(model, ids[:4]), "|X|")
    width = model.config.hidden_size
    share = f"{len(kept['model.layers.0.self_attn.q_proj'])} of {width} columns left as they were"
    versions = {
        "floating point": model,
        f"every weight in {BITS} bits": story.with_weights(
            model, lambda n, w: rtn(w, BITS, story.GROUP)
        ),
        f"{BITS} bits, but {share}": story.with_weights(
            model, lambda n, w: keep_channels(w, kept[n], BITS, story.GROUP)
        ),
    }
    fig, axes = style.figure(columns=3, width=10.0, height=2.6)
    for ax, (name, version) in zip(axes, versions.items(), strict=True):
        perplexity = zoo.perplexity(version, "code", tokens=4096, context=128, stride=128)
        ax.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(0, 1))
        ax.spines[:].set_visible(True)
        ax.spines[:].set_color(style.GREY)
        ax.set_title(f"{name}\nperplexity {style.number(perplexity)}", fontsize=10)
        text = f"def load_json(path):\n{written(version)}"
        ax.text(0.03, 0.95, text, family="monospace", fontsize=9.5, va="top", parse_math=False)
    style.title(
        fig, "One model, one prompt: which columns are these, and must they stay in floating point?"
    )
    return fig


ALT = (
    "Three texts that one small model writes, with its perplexity. In floating point; with every "
    "weight in 3 bits, where the perplexity is many times as large; with all but 3 % of the "
    "columns in 3 bits, where it is nearly that of floating point."
)
