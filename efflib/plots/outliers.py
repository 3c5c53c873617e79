"""Outlier channels of activations: figures of what was measured, each with its text for readers who
see none.  Every function returns (figure, alt text); titles state what the numbers show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from efflib.plots import channels, style
from efflib.plots.style import BLUE, GREY, ORANGE, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
DARKEST = 0.02  # of |X|: smaller values have the colour of this one
# Channels of OPT-66B as printed by Wei et al. 2023 (arXiv:2304.09145), sections 1 and 4.1.1
OPT_66B = {"OPT-66B, channel 8725": (-97.0, -58.0), "OPT-66B, another one": (5.7, 43.0)}


def hot_channels(x: Tensor) -> list[int]:
    """Channels of x [T, K] that reach six times what the median channel reaches."""
    tops = x.abs().amax(0)
    return (tops >= 6 * tops.median()).nonzero().flatten().tolist()


def draw_tokens(ax, x: Tensor, title: str, top: float, marked: Sequence[int] = ()):
    """|x| [T, K] as a map, a row per token, on a log scale up to `top`; marked channels have a
    triangle above them.  Returns the image, for a colour bar."""
    from matplotlib.colors import LogNorm

    values = x.detach().float().abs().clamp(min=DARKEST).numpy()
    norm = LogNorm(vmin=DARKEST, vmax=top)
    image = ax.imshow(values, cmap="cividis", norm=norm, aspect="auto", interpolation="nearest")
    for j in marked:
        ax.plot(j, -0.02 * len(x) - 1, marker="v", color=ORANGE, markersize=6, clip_on=False)
    ax.set_xlabel("channel j")
    ax.set_title(title, fontsize=10, pad=10)
    return image


def token_maps(x: Tensor, control: Tensor) -> Drawn:
    """|X| [T, K] of a model with outliers and of its control, in one scale of colours."""
    fig, axes = figure(columns=2, width=9.5, height=3.6)
    panels = {"with outliers": x, "control": control}
    highest = max(values.abs().max().item() for values in panels.values())
    for ax, (name, values) in zip(axes, panels.items(), strict=True):
        image = draw_tokens(ax, values, name, highest, hot_channels(values))
    axes[0].set_ylabel("token t")
    fig.colorbar(image, ax=axes, label="|X| (log scale)", shrink=0.9)
    hot, rest = hot_channels(x), x.abs().amax(0)
    tops = rest[hot]
    rest[hot] = 0
    style.title(
        fig,
        f"Outliers are columns: {len(hot)} of {len(rest)} channels reach {tops.min():.0f} to "
        f"{tops.max():.0f} in one token or another, all others at most {rest.max():.1f}",
    )
    alt = "Map of |X|, a row per token and a column per channel. " + "; ".join(
        f"{name}: largest value {values.abs().max():.1f}, the median channel reaches "
        f"{values.abs().amax(0).median():.2f}"
        for name, values in panels.items()
    )
    return fig, alt


def opening(x: Tensor, marked: Sequence[int], perplexities: dict[str, float]) -> Drawn:
    """What opens the lab: |X| [T, K] of one layer, and what rounding each side to 8 bits costs."""
    from matplotlib.figure import Figure as New

    fig = New(figsize=(9.5, 3.4), layout="constrained", facecolor="white")
    left, right = fig.subplots(1, 2, width_ratios=[2.2, 1])
    image = draw_tokens(left, x, "what one layer reads: |X|", x.abs().max().item(), marked)
    left.set_ylabel("token t")
    fig.colorbar(image, ax=left, label="|X| (log scale)")
    right.spines[["top", "right"]].set_visible(False)
    drawn = right.bar(list(perplexities), list(perplexities.values()), color=BLUE, width=0.6)
    right.bar_label(drawn, labels=[f"{v:.1f}" for v in perplexities.values()], fontsize=10)
    right.set_title("perplexity, rounded to 8 bits:", fontsize=10)
    right.margins(y=0.15)
    alt = f"Left: a map of |X|, tokens by channels, in which {len(marked)} columns stand out. "
    alt += "Right: perplexity of the model " + ", ".join(
        f"{name} {value:.1f}".replace("\n", " ") for name, value in perplexities.items()
    )
    return fig, alt


def range_of(x: Tensor, j: int) -> tuple[float, float]:
    """Smallest and largest value of channel j of x [T, K]."""
    return x[:, j].min().item(), x[:, j].max().item()


def intervals(inputs: dict[str, Tensor], hot: Sequence[int]) -> Drawn:
    """From where to where channels reach: two of OPT-66B as published; below them ours, of the
    inputs [T, K] of layers: the outliers `hot`, equal ones once, and the median channel.
    """
    rows = dict(OPT_66B)
    for label, x in inputs.items():
        pairs: dict[str, list[int]] = {}
        for j in hot:
            pairs.setdefault("{:.3g} {:.3g}".format(*range_of(x, j)), []).append(j)
        for pair in pairs.values():
            rows[f"{label}: {' and '.join(map(str, pair))}"] = range_of(x, pair[0])
    tops = x.abs().amax(0)
    rows[f"{label}: median"] = range_of(x, int((tops - tops.median()).abs().argmin()))
    fig, (ax,) = figure(width=8.0, height=1.0 + 0.34 * len(rows))
    for i, (name, (lo, hi)) in enumerate(rows.items()):
        colour, marker = (ORANGE, "s") if name in OPT_66B else (BLUE, "o")
        ax.plot([lo, hi], [i, i], color=colour, marker=marker, linewidth=4, markersize=6)
        place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        ax.annotate(f"{lo:.3g} to {hi:.3g}", (hi, i), **place)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.margins(x=0.16, y=0.08)
    ax.set_xlabel("values of the channel over all tokens")
    style.title(fig, "Outlier channels of a large model as published, and those of ours")
    text = "; ".join(f"{name}: {lo:.3g} to {hi:.3g}" for name, (lo, hi) in rows.items())
    return fig, f"Smallest and largest value of channels. {text}"


def largest(maxima: dict[str, Tensor], hot: Sequence[int]) -> tuple[Figure, str, int]:
    """Channel maxima [K] of models; the first has the outliers `hot`.  Also returns how many of
    the 255 codes its median channel can have."""
    first = next(iter(maxima.values()))
    codes = 2 * round((first.median() / (first.max() / 127)).item()) + 1
    title = f"{len(hot)} of {len(first)} channels are outliers; the median channel is left with "
    fig = channels.magnitudes(
        maxima, title + f"{codes} of 255 codes", "max |X_j|", hot, list(maxima)[1:]
    )
    parts = [f"{n}: largest {m.max():.1f}, median {m.median():.2f}" for n, m in maxima.items()]
    return fig, "Channel maxima on a log scale, a bar per channel. " + "; ".join(parts), codes


def smoothed(before: Tensor, after: Tensor, hot: Sequence[int]) -> Drawn:
    """Channel maxima [K] before and after smoothing with alpha = 1/2."""
    spread = [(m.max() / m.median()).item() for m in (before, after)]
    title = f"The largest channel was {spread[0]:.0f} times the median, now {spread[1]:.1f} times"
    panels = {"before": before, "after, alpha = 0.5": after}
    return channels.magnitudes(panels, title, "max |X_j|", hot), f"Channel maxima. {title}"
