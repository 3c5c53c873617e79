"""Pictures of an engine's passes: who is in which, and what one of them reads.

log: of every pass ([(request, cached, new)], logits); news: {request: its new tokens} of every pass
(`efflib.traffic.joined`).  Every function returns (figure, alt text).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLUE, GREY, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
Log = Sequence[tuple[Sequence[tuple[int, int, int]], int]]


def opening(logs: Mapping[str, Log], title: str) -> Drawn:
    """A row for each request, a mark for each pass that it is in; a panel for each program."""
    fig, axes = figure(len(logs), width=9.0, height=3.2)
    last = max(len(log) for log in logs.values())
    for ax, (name, log) in zip(axes, logs.items(), strict=True):
        marks = [(t, request) for t, (pieces, _) in enumerate(log) for request, _, _ in pieces]
        ax.scatter(*zip(*marks, strict=True), marker="|", s=30, color=BLUE, linewidth=0.8)
        ax.axvline(len(log), color=GREY, linestyle=":")
        rows = 1 + max(request for _, request in marks)
        ax.set(xlim=(-0.01 * last, 1.03 * last), ylim=(rows - 0.5, -0.5), title=name)
        ax.set(xlabel="passes", ylabel="request")
    style.title(fig, title)
    said = "; ".join(f"{name} takes {len(log)} passes" for name, log in logs.items())
    return fig, f"{title}: {said}."


def one_pass(log: Log, news: Sequence[Mapping[int, Sequence[int]]], at: int) -> Drawn:
    """Left, what each request of a pass has and reads; right, tokens read and made so far."""
    pieces, _ = log[at]
    fig, (left, right) = figure(2, width=9.0, height=3.4)
    rows = range(len(pieces))
    cached, new = [c for _, c, _ in pieces], [n for _, _, n in pieces]
    made = [len(news[at].get(name, ())) for name, _, _ in pieces]
    left.barh(rows, cached, color=BLUE, alpha=0.5, label="in the cache")
    left.barh(rows, new, left=cached, color=ORANGE, hatch="//", label="read in this pass")
    for y, (c, n, m) in enumerate(zip(cached, new, made, strict=True)):
        left.text(c + n + 1, y, f"{n} read, {m} made", va="center", fontsize=7)
    left.set_yticks(rows, [f"S{name + 1}" for name, _, _ in pieces], fontsize=7)
    left.set(xlabel="tokens", ylim=(len(pieces) - 0.5, -0.5))
    left.set_xlim(0, 1.35 * max(c + n for c, n in zip(cached, new, strict=True)))
    left.legend(frameon=False, fontsize=7, loc="upper right")
    reads = [sum(n for _, _, n in some) for some, _ in log[: at + 1]]
    gives = [sum(map(len, some.values())) for some in news[: at + 1]]
    right.step(range(at + 1), reads, color=ORANGE, where="post", label="tokens read")
    right.step(range(at + 1), gives, color=BLUE, where="post", linestyle="--", label="tokens made")
    right.set(xlabel="pass", xlim=(0, len(log)), yscale="symlog", ylim=(0, 400))
    right.legend(frameon=False, fontsize=8, loc="upper right")
    text = (
        f"Pass {at + 1} of {len(log)}: {sum(new)} tokens of {len(pieces)} requests are read, "
        f"{sum(made)} are made"
    )
    style.title(fig, text)
    return fig, text + "."
