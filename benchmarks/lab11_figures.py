"""Figures of the chapter on GPTQ and rotation; `lab11_tables.py` measures what they show."""

from statistics import mean

from matplotlib.figure import Figure
from torch import Tensor

from efflib.plots.style import BLUE, COLOURS, GREY, MARKERS, ORANGE, figure

Drawn = tuple[Figure, str]  # and what it shows, in words


def opening(far: dict[str, float], lost: dict[str, float], exact: float) -> Drawn:
    """Two roundings A and B of one model: how far the weights moved, and what the model lost."""
    fig, (left, right) = figure(2, width=8.0, height=3.0)
    for ax, values in ((left, far), (right, lost)):
        ax.bar(list(values), list(values.values()), color=[ORANGE, BLUE], width=0.55)
    left.set(ylabel="error of the weights / weights", title="distance from the float weights")
    right.axhline(exact, color=GREY, linestyle="--", label="float weights")
    right.set(ylabel="perplexity, held-out code", title="what the model makes of it")
    right.legend(frameon=False, fontsize=8)
    alt = (
        f"Two roundings of one model to 2 bits. The weights of B are farther from the float "
        f"weights than those of A, {far['B']:.2f} to {far['A']:.2f}, and its perplexity is lower, "
        f"{lost['B']:.1f} to {lost['A']:.1f}; with float weights it is {exact:.1f}."
    )
    return fig, alt


def against_bits(found: dict[tuple[str, int], list[float]], sizes: dict) -> Drawn:
    """Added loss against all bits a weight takes."""
    fig, (ax,) = figure(1, width=7.0, height=3.8)
    skipped = "RTN, biases corrected"
    names = [way for way in dict.fromkeys(way for way, _ in found) if way != skipped]
    for way, colour, marker in zip(names, COLOURS, MARKERS, strict=False):
        at = [sizes[way, b] for b in (2, 3, 4)]
        rows = [found[way, b] for b in (2, 3, 4)]
        ax.plot(at, [mean(r) for r in rows], color=colour, marker=marker, label=way)
        ends = [[min(r) for r in rows], [max(r) for r in rows]]
        ax.fill_between(at, *ends, color=colour, alpha=0.15, linewidth=0)
    ax.set(yscale="log", xlabel="bits a weight, with scales, zeros and g_idx")
    ax.set_ylabel("added loss (nats per token)")
    ax.legend(frameon=False, fontsize=8)
    alt = (
        "Added loss against bits a weight on a logarithmic axis: rounding to nearest is highest at "
        "2, 3 and 4 bits. GPTQ with an index of groups stands to the right of the others by what "
        "the index takes."
    )
    return fig, alt


def rotated(found: dict[tuple[str, str, str], list[float]], kinds: list[str]) -> Drawn:
    """Perplexity of two formats by way, for some kinds of channels."""
    fig, axes = figure(2, width=9.0, height=3.6)
    ways = ("plain", "smoothed", "rotated", "and online")
    for ax, label in zip(axes, ("W16A6", "W4A4"), strict=True):
        for i, way in enumerate(ways):
            at = [j + 0.2 * (i - 1.5) for j in range(len(kinds))]
            ax.bar(
                at, [mean(found[k, label, way]) for k in kinds], 0.2, color=COLOURS[i], label=way
            )
        exact = mean(mean(found[k, "float", ""]) for k in kinds)
        ax.axhline(exact, color=GREY, linestyle="--", label="float")
        ax.set_xticks(range(len(kinds)), kinds)
        ax.set(yscale="log", title=label)
    axes[0].set_ylabel("perplexity, held-out code")
    axes[1].legend(frameon=False, fontsize=8)
    alt = (
        "Perplexity with inputs in 6 bits, and with weights and inputs in 4, on a logarithmic "
        "axis: plain is far above the others where channels are large, smoothed and rotated are "
        "near the float model in 6 bits."
    )
    return fig, alt


def channels(before: Tensor, after: Tensor) -> Drawn:
    """Largest |x| of every channel of one input [..., K], as it is and turned."""
    fig, axes = figure(2, width=9.0, height=3.0)
    for ax, x, title in zip(axes, (before, after), ("as it is", "turned"), strict=True):
        rows = x.flatten(0, -2).abs()
        ax.bar(
            range(rows.shape[1]), rows.amax(0).tolist(), width=1.0, color=ORANGE, label="largest"
        )
        ax.bar(range(rows.shape[1]), rows.mean(0).tolist(), width=1.0, color=BLUE, label="mean")
        ax.set(xlabel="channel", title=title)
    axes[0].set_ylabel("|x| over the tokens of a text")
    axes[1].sharey(axes[0])
    axes[1].legend(frameon=False, fontsize=8)
    alt = (
        "Magnitudes of every channel of the input of one attention: as it is six channels tower "
        "over the rest, turned all channels are about alike, at the same scale."
    )
    return fig, alt
