"""What repairs W8A8 on a model with outliers: figures of perplexities, each with its text for
readers who see none.  Every function returns (figure, alt text); titles state what numbers show.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

from efflib.plots import grid, style
from efflib.plots.style import BLACK, BLUE, COLOURS, GREEN, GREY, MARKERS, PURPLE, SKY, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]
FORM = "{:.2f}"  # of a perplexity on its bar
DASHES = ("--", (0, (8, 2, 1, 2)), (0, (3, 1)))  # of what differs in colour as well
LEVELS = ((BLACK, ":"), *zip((PURPLE, GREY, GREEN), DASHES, strict=True), (BLACK, "-."))  # lines


def bars(values: dict[str, float], title: str, each: dict[str, list[float]] | None = None) -> Drawn:
    """Perplexities as labelled bars; a line over a bar spans what `each` holds under its name."""
    fig = grid.bars(values, title, "perplexity on held-out code", form=FORM.format)
    parts = [f"{name} {value:.2f}" for name, value in values.items()]
    for i, name in enumerate(values):
        if each and name in each:
            low, high = min(each[name]), max(each[name])
            fig.axes[0].plot([i, i], [low, high], color=BLACK, linewidth=3)
            fig.axes[0].texts[i].xy = (i, high)  # its number stands above the line
            parts[i] += f" ({low:.2f} to {high:.2f})"
    return fig, "Bars of perplexity: " + ", ".join(parts).replace("\n", " ")


def points(values: dict[str, list[float]], title: str) -> Drawn:
    """A row for each entry {name: perplexity on every placement}: the mean as a point with its
    number, and a line from the least to the most.  The axis need not start at 0."""
    fig, (ax,) = figure(width=8.0, height=1.0 + 0.33 * len(values))
    most = max(max(row) for row in values.values())
    parts = []
    for i, (name, row) in enumerate(values.items()):
        ax.plot([min(row), max(row)], [i, i], color=SKY, linewidth=5, solid_capstyle="butt")
        ax.plot(mean(row), i, color=BLUE, marker="o")
        text = f"{mean(row):.2f}" + (f" ({min(row):.2f} to {max(row):.2f})" if row[1:] else "")
        place = {"xytext": (8, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
        ax.annotate(text, (max(row), i), **place)
        parts.append(f"{name} {text}")
    ax.axvline(mean(next(iter(values.values()))), color=GREY, linestyle=":")
    ax.set_yticks(range(len(values)), list(values), fontsize=9)
    ax.set_ylim(len(values) - 0.5, -0.5)  # the first row on top
    least = min(min(row) for row in values.values())
    ax.set_xlim(least - 0.05 * (most - least), most + 0.45 * (most - least))  # room for numbers
    ax.set_xlabel("perplexity on held-out code: mean and range of the placements")
    style.title(fig, title)
    return fig, f"Perplexity, a row for each. {'; '.join(parts)}"


def draw_placements(ax, alphas: Sequence[float], label: str, rows: list[list[float]], i: int):
    """The mean over placements (rows) as a line, and the range of the placements as a band."""
    columns = list(zip(*rows, strict=True))
    centre = [mean(column) for column in columns]
    colour = COLOURS[i]
    ax.plot(alphas, centre, color=colour, marker=MARKERS[i], label=label)
    if len(rows) > 1:
        lows, highs = [min(c) for c in columns], [max(c) for c in columns]
        ax.fill_between(alphas, lows, highs, color=colour, alpha=0.25, linewidth=0)


def sweep(
    alphas: Sequence[float],
    curves: dict[str, list[list[float]]],
    levels: dict[str, float],
    title: str,
    ylabel: str = "perplexity on held-out code",
) -> Drawn:
    """Quality against alpha.  curves: {label: a row for each placement}, drawn as mean and range;
    levels: {label: value} without alpha, as horizontal lines, with a second panel of the valley."""
    from matplotlib.ticker import LogFormatter

    fig, axes = figure(columns=1 + bool(levels), width=10.5 if levels else 7.0, height=4.6)
    looks = dict(zip(levels, LEVELS, strict=False))
    for ax in axes:
        for i, (label, rows) in enumerate(curves.items()):
            draw_placements(ax, alphas, label, rows, i)
        for label, (colour, line) in looks.items():
            text = f"{label}: {levels[label]:.3g}"
            ax.axhline(levels[label], color=colour, linestyle=line, label=text)
        ax.set_xticks(list(alphas), [f"{alpha:g}" for alpha in alphas])
        ax.set_xlabel("migration strength alpha")
    axes[0].set(yscale="log", ylabel=f"{ylabel} (log scale)")
    axes[0].yaxis.set_major_formatter(LogFormatter())
    axes[0].yaxis.set_minor_formatter(LogFormatter())
    if levels:
        axes[1].set_ylim(*enlarged(list(curves.values()), list(levels.values())))
        axes[1].set_title("the valley, enlarged", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, fontsize=9, loc="outside lower center", ncols=4, frameon=False)
    style.title(fig, title)
    means = {k: [mean(c) for c in zip(*rows, strict=True)] for k, rows in curves.items()}
    alt = f"{ylabel} against alpha, mean over placements. " + "; ".join(
        f"{label}: " + ", ".join(f"{v:.3g}" for v in row) for label, row in means.items()
    )
    return fig, alt + "".join(f"; {label} {value:.3g}" for label, value in levels.items())


def enlarged(curves: list[list[list[float]]], levels: list[float]) -> tuple[float, float]:
    """Limits that show the inside of all sweeps, and the levels that are less than 15 % above."""
    inside = [value for rows in curves for row in rows for value in row[1:-1]]
    inside += [level for level in levels if level <= 1.15 * max(inside)]
    room = 0.1 * (max(inside) - min(inside))
    return min(inside) - room, max(inside) + room


def layer_errors(alphas: Sequence[float], errors: dict[str, list[list[float]]]) -> Drawn:
    """Errors of one layer against alpha, a row for each placement of the outliers."""
    times = {k: mean(max(row) / min(row) for row in rows) for k, rows in errors.items()}
    title = "q, k and v of one layer: alpha changes the error by up to "
    title += ", ".join(f"{style.number(value)} times ({label})" for label, value in times.items())
    return sweep(alphas, errors, {}, title, "relative squared error")


def migration(
    alphas: Sequence[float], curves: dict[str, list[list[float]]], found: dict[str, float]
) -> Drawn:
    """The sweep of the whole model and its controls; found: "fp", "tensor", "left out", "shifted",
    "clipped" and "flat".
    """
    names = {"W8A8, not smoothed": "tensor", "shifted instead": "shifted"}
    names |= {"left out instead": "left out", "clipped instead": "clipped", "fp32": "fp"}
    middle = [mean(column) for column in zip(*next(iter(curves.values())), strict=True)]
    title = f"Mean of the placements (band: their range): {min(middle):.1f} at the lowest, "
    title += f"{middle[0]:.0f} and {middle[-1]:.0f} at the ends; without outliers alpha moves "
    title += f"{found['flat']:.1f} %"
    return sweep(alphas, curves, {k: found[v] for k, v in names.items()}, title)


def alone(costs: dict[str, float], whole: float) -> Drawn:
    """What each norm costs if only the layers that read it go to W8A8, and all of them together.

    costs: {name of a norm of a Llama: perplexity beyond fp32}; whole: of all layers that read one.
    """
    short = {"input_layernorm": "attention", "post_attention_layernorm": "MLP"}
    values = {}
    for name, cost in costs.items():
        _, _, layer, norm = name.split(".")
        values[f"{layer}\n{short[norm]}"] = cost
    values["all of\nthese"] = whole
    text = ", ".join(f"{name} {value:.2f}".replace("\n", " ") for name, value in values.items())
    title = (
        f"W8A8 behind one norm costs up to {max(costs.values()):.2f}, {sum(costs.values()):.1f} "
    )
    title += f"in sum; behind all of them at once {whole:.1f}"
    fig = grid.bars(values, title, "perplexity beyond fp32", form=FORM.format, width=9.5)
    return fig, f"Bars of perplexity beyond fp32, a layer's norm each: {text}"


def repaired(found: dict[str, float], each: dict[str, list[float]]) -> tuple[Figure, str, float]:
    """W8A8 with a scale per tensor and per token, beside the control; also returns how many percent
    of what the outliers cost per tensor a scale per token repairs.

    found: perplexities "fp", "tensor", "token", "control tensor", "control token"; each: "tensor"
    and "token" of every placement, whose means `found` holds.
    """
    cost = {kind: found[kind] - found[f"control {kind}"] for kind in ("tensor", "token")}
    part = 100 * (1 - cost["token"] / cost["tensor"])
    values = {"fp32": found["fp"]} | {f"W8A8 {kind}": found[kind] for kind in cost}
    values |= {f"control, {kind}": found[f"control {kind}"] for kind in cost}
    title = f"Outliers cost {cost['tensor']:.1f} per tensor, {cost['token']:.1f} per token: "
    title += f"{part:.0f} % repaired"
    return *bars(values, title, {f"W8A8 {kind}": each[kind] for kind in cost}), part


def levels(measured: dict[str, list[float]], found: dict[str, float]) -> Drawn:
    """The levels of SmoothQuant and the grids of LLM.int8: {name: perplexity on every placement};
    found: "fp", "control tensor"."""
    values = {"fp32": [found["fp"]], "control, W8A8 per tensor": [found["control tensor"]]}
    levels = {name: mean(row) for name, row in measured.items() if name.startswith("O")}
    title = ", ".join(f"{name} {value:.2f}" for name, value in levels.items())
    return points(values | measured, f"Smoothed: {title}; below: grids of LLM.int8")
