"""Pictures of a key-value cache: its time, its bytes, what is in it, what rounding it costs.

Every function returns (figure, alt text).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from efflib.plots import style
from efflib.plots.style import BLUE, COLOURS, GREY, MARKERS, ORANGE, figure

if TYPE_CHECKING:
    from fractions import Fraction

    from matplotlib.figure import Figure
    from torch import Tensor

GiB = 2**30
LINES = ["-", "--", "-.", ":"]


def growth(
    tokens: Sequence[int], seconds: dict[str, Sequence[float]], held: Sequence[float] | None = None
) -> tuple[Figure, str]:
    """Seconds for one more token after so many; beside it the bytes `held`, where they are given.

    seconds: {how: one for each of tokens}.  With `held` it opens a lab that asks for the ratios:
    its title names none.
    """
    fig, axes = figure(columns=1 if held is None else 2, width=7.0 if held is None else 8.4)
    for i, (name, row) in enumerate(seconds.items()):
        milliseconds = [1e3 * s for s in row]
        axes[0].plot(
            tokens,
            milliseconds,
            color=COLOURS[i],
            marker=MARKERS[i],
            linestyle=LINES[i],
            label=name,
        )
    axes[0].set(xlabel="tokens before it", ylabel="ms for one more token", ylim=(0, None))
    axes[0].legend(frameon=False, fontsize=9)
    if held is not None:
        axes[1].plot(tokens, [b / 2**20 for b in held], color=GREY, marker="o")
        axes[1].set(xlabel="tokens", ylabel="MiB of keys and values", ylim=(0, None))
    ratios = {name: row[-1] / row[0] for name, row in seconds.items()}
    grown = "; ".join(f"{name} {ratio:.1f} times" for name, ratio in ratios.items())
    text = f"Time of one more token, from {tokens[0]} to {tokens[-1]} tokens before it"
    if held is None:
        style.title(fig, f"Token {tokens[-1]} against token {tokens[0]}: {grown}")
        return fig, f"{text}: {grown}."
    style.title(fig, "The time of one more token, and what is kept for it")
    return fig, f"{text}: {', '.join(seconds)}. The bytes held grow in proportion."


def planner(
    batch: int, weights: float, per_sequence: Fraction | float, memory: int
) -> tuple[Figure, str]:
    """One bar: what a memory of so many bytes holds, weights and `batch` caches."""
    fig, (ax,) = figure(height=1.9)
    caches = batch * float(per_sequence)
    left = 0.0
    held = "1 cache" if batch == 1 else f"{batch} caches"
    parts = (("weights", float(weights), BLUE, "//"), (held, caches, ORANGE, ".."))
    for name, size, colour, hatch in parts:
        label = f"{name}: {size / GiB:.1f} GiB"
        ax.barh([0], [size / GiB], left=left / GiB, color=colour, hatch=hatch, label=label)
        left += size
    ax.axvline(memory / GiB, color=style.BLACK)
    ax.set_yticks([])
    ax.set_xlabel(f"GiB (line: the memory, {memory / GiB:g})")
    ax.set_xlim(0, 1.15 * max(left, memory) / GiB)
    ax.legend(frameon=False, fontsize=9, loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.4))
    if weights > memory:
        title = "The weights alone do not fit"
    else:
        fit = "1 sequence fits" if batch == 1 else f"{batch} sequences fit"
        title = f"{fit}, {float(per_sequence) / GiB:.3g} GiB each"
    style.title(fig, title)
    return fig, (
        f"{title}: weights {weights / GiB:.1f} GiB, caches {caches / GiB:.1f} GiB, "
        f"memory {memory / GiB:g} GiB."
    )


def states(k: Tensor, v: Tensor) -> tuple[Figure, str]:
    """|k| and |v| of one head [S, d] as maps: time downwards, channels to the right.

    The keys have one large pair of channels, which the rotary embedding turns into each other.
    """
    fig, axes = figure(columns=2, height=3.6)
    for ax, x, name in zip(axes, (k, v), ("keys", "values"), strict=True):
        shown = ax.imshow(x.abs().numpy(), aspect="auto", cmap="cividis", interpolation="nearest")
        fig.colorbar(shown, ax=ax, label=f"|{name}|")
        ax.set(xlabel="channel", ylabel="token", title=name)
    largest = k.abs().mean(0).topk(2).indices.sort().values.tolist()
    text = f"The pair of channels {largest[0]} and {largest[1]} of the keys is large in every token"
    style.title(fig, text)
    return fig, f"Maps of one head. {text}, vertical stripes; the values have no such channels."


def against_bits(points: dict[tuple[str, str], list[tuple[float, float]]]) -> tuple[Figure, str]:
    """Added loss against bits a value; {(model, direction): [(bits, nats)]}, fewest bits last."""
    fig, (ax,) = figure(height=3.6)
    for i, ((model, direction), row) in enumerate(points.items()):
        bits, added = zip(*row, strict=True)
        shown = [max(a, SMALLEST) for a in added]
        ax.plot(
            bits, shown, color=COLOURS[i], marker=MARKERS[i], linestyle=LINES[i],
            linewidth=4 - 0.8 * i, markersize=10 - 1.5 * i,  # lines that coincide are both seen
            label=f"{model}, keys per {direction}",
        )  # fmt: skip
    ax.set(xlabel="bits a value", ylabel=f"added loss, nats (at least {SMALLEST})", yscale="log")
    fig.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    least = {name: row[-1][1] for name, row in points.items()}
    worst = max(least, key=least.get)
    others = max((a for name, a in least.items() if name != worst), default=0.0)
    text = (
        f"At the fewest bits keys per {worst[1]} with {worst[0]} add {least[worst]:.2f} nats, "
        f"all others at most {others:.2f}"
    )
    style.title(fig, text)
    return fig, f"Added loss against the bits of a value. {text}."


SMALLEST = 1e-4  # nats: less is noise, and has no logarithm where rounding helped by chance
