"""What a story of the table is made of: figures that are measured, and claims about them.

A story is a module of this package with three functions:

    measure(scale, seed) -> dict[str, float]     the figures; `seed` picks the slices of text
    claims(figures)      -> list[Claim]          what the course says about them
    plot(figures, axes)                          the chapter's figure, on two axes side by side

and, if it compares models, `MODELS`: {how the names of their figures begin: what a reader calls the
model}.  Claims are made for each seed, and the worst is judged.  What is plotted is the `Mean`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.models.llama import Llama
from efflib.zoo import outliers
from efflib.zoo.evaluation import logits_of
from efflib.zoo.windows import FULL as FULL
from efflib.zoo.windows import QUICK as QUICK
from efflib.zoo.windows import Scale as Scale
from efflib.zoo.windows import windows as windows


class Mean(float):
    """The mean over the seeds, which also says how far they lie apart."""

    low: float
    high: float

    def __new__(cls, values: Sequence[float]) -> "Mean":
        mean = super().__new__(cls, sum(values) / len(values))
        mean.low, mean.high = min(values), max(values)
        return mean

    @staticmethod
    def of(runs: Sequence[dict[str, float]]) -> dict[str, "Mean"]:
        """{name: mean of the figures that the runs have under this name}."""
        return {name: Mean([run[name] for run in runs]) for name in runs[0]}


class Claim(NamedTuple):
    """`value` (a ratio, a share, a difference) is at least `bar`, or the claim does not hold."""

    text: str
    value: float
    bar: float

    @property
    def holds(self) -> bool:
        return self.value >= self.bar


def with_outliers(model: Llama, ids: Tensor, gains: dict[int, float], seed: int) -> Llama:
    """The model with outliers that vary; ids [n, 1 + T] of `windows`: what they are found on."""
    return outliers.with_outliers(model, ids[:, :-1], gains, seed=seed)


def bands(ax, x: Sequence[float], row: Sequence[float], **line) -> None:
    """A line through the means `row`, and a band from the lowest to the highest seed."""
    ax.plot(x, row, **line)
    ends = [(getattr(v, "low", v), getattr(v, "high", v)) for v in row]
    ax.fill_between(x, *zip(*ends, strict=True), color=line["color"], alpha=0.2, linewidth=0)


@torch.no_grad()
def losses(model: nn.Module, ids: Tensor, batch: int = 16) -> Tensor:
    """-ln p of every token of ids [n, 1 + T] given those before it. [n, T] float32"""
    parts = []
    for piece in ids.split(batch):
        logits = logits_of(model, piece[:, :-1]).float()  # [b, T, V]
        loss = F.cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten(), reduction="none")
        parts.append(loss.view(len(piece), -1))
    return torch.cat(parts)


def perplexity(model: nn.Module, ids: Tensor) -> float:
    """exp of the mean loss over the windows ids [n, 1 + T]."""
    return losses(model, ids).mean().exp().item()
