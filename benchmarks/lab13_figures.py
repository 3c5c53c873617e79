"""Figures of the chapter on mixtures of experts; `lab13_tables.py` measures what they show."""

from matplotlib.figure import Figure

from efflib.plots import mixtures
from efflib.plots.style import BLACK, BLUE, COLOURS, MARKERS, ORANGE, figure

Drawn = tuple[Figure, str]  # and what it shows, in words
LINES = ["-", "--", "-.", ":"]


def opening(batches: list[int], read: dict[str, list[float]]) -> Drawn:
    """Weights of the feed-forward layers that a step reads for each token, models A and B."""
    fig, (ax,) = figure(1, width=7.0, height=3.2)
    for (label, values), colour, marker in zip(read.items(), (ORANGE, BLUE), MARKERS, strict=False):
        each = [v / b for v, b in zip(values, batches, strict=True)]
        ax.plot(batches, each, color=colour, marker=marker, markersize=4, label=label)
    ax.set(xscale="log", yscale="log", xlabel="tokens in the batch")
    ax.set_ylabel("kB of weights read, for each token")
    ax.set_title("As many products for a token, not as many bytes", fontsize=10)
    ax.legend(frameon=False)
    alt = (
        "Bytes of one feed-forward layer that a step reads for each token, over the batch, both "
        "axes logarithmic. Models A and B begin at one point; B falls more slowly and is up to "
        "four times as high as A."
    )
    return fig, alt


def busiest(steps: list[int], shares: dict[str, list[list[float]]]) -> Drawn:
    last = {name: max(rows[-1]) for name, rows in shares.items()}
    told = ", ".join(f"{v:.2f} {name}" for name, v in last.items())
    title = f"Busiest expert of the worst layer, at the end: {told}"
    alt = f"Share of the busiest expert of each layer over the training. At the end {told}."
    return mixtures.busiest(steps, shares, title), alt


def drops(factors: list[float], found: dict[str, list[list[float]]]) -> Drawn:
    """{model: [seed][factor]} shares of choices without a place."""
    fig, (ax,) = figure(1, width=6.5, height=3.2)
    for i, (label, runs) in enumerate(found.items()):
        columns = list(zip(*runs, strict=True))
        means = [sum(c) / len(c) for c in columns]
        look = {"color": COLOURS[i], "linestyle": LINES[i], "marker": MARKERS[i]}
        ax.plot(factors, means, label=label, **look)
        ends = [[min(c) for c in columns], [max(c) for c in columns]]
        ax.fill_between(factors, *ends, color=COLOURS[i], alpha=0.2, linewidth=0)
    ax.set(xlabel="capacity factor", ylabel="share of choices dropped", ylim=(0, None))
    ax.legend(frameon=False, fontsize=8)
    at_one = [sum(run[factors.index(1.0)] for run in runs) / len(runs) for runs in found.values()]
    told = ", ".join(f"{v:.0%} {label}" for v, label in zip(at_one, found, strict=True))
    ax.set_title(f"Dropped at factor 1: {told}", fontsize=10)
    alt = "Share of dropped choices against the capacity factor: " + "; ".join(
        f"{label}: " + ", ".join(f"{sum(r[i] for r in runs) / len(runs):.2f} at {f:g}"
                                 for i, f in enumerate(factors))
        for label, runs in found.items()
    )  # fmt: skip
    return fig, alt


def woken(sizes: list[int], found: dict[str, list[float]], formula: list[float]) -> Drawn:
    fig, (ax,) = figure(1, width=6.5, height=3.2)
    ax.plot(sizes, formula, color=BLACK, linestyle=":", label="formula, by lot")
    for i, (label, values) in enumerate(found.items()):
        look = {"color": COLOURS[i], "linestyle": LINES[i % 4], "marker": MARKERS[i]}
        ax.plot(sizes, values, markersize=4, label=label, **look)
    ax.set(xscale="log", xlabel="tokens in the batch", ylabel="experts woken, of 8", ylim=(0, 8.4))
    ax.set_xticks(sizes, [str(s) for s in sizes])
    ax.legend(frameon=False, fontsize=8)
    told = "; ".join(f"{label} {values[3]:.1f}" for label, values in found.items())
    least, most = min(v[3] for v in found.values()), max(v[3] for v in found.values())
    ax.set_title(f"{sizes[3]} tokens wake {least:.1f} to {most:.1f} of 8 experts", fontsize=10)
    return fig, f"Experts woken against the batch; by {sizes[3]} tokens: {told}."


def bill(batches: list[int], seconds: dict[str, list[float]]) -> Drawn:
    mixture, twin, _ = seconds.values()
    ratio = [m / t for m, t in zip(mixture, twin, strict=True)]
    title = f"Equal at one token, {max(ratio):.1f} times the dense twin in the middle, equal again"
    alt = "Time of a layer for each token over the batch; mixture by dense layer of equal work: "
    alt += ", ".join(f"{r:.2f} at {b}" for b, r in zip(batches, ratio, strict=True))
    return mixtures.bill(batches, seconds, ratio, title), alt


def skipped(curves: dict[str, list[tuple[float, float]]]) -> Drawn:
    at = {way: min(size for size, lost in points if lost < 0.05) for way, points in curves.items()
          if min(lost for _, lost in points) < 0.05}  # fmt: skip
    told = ", ".join(f"{way} {size:.0%}" for way, size in at.items())
    title = f"Share of the bytes at which less than 0.05 nats are lost: {told}"
    alt = "Loss added against the share of the MLPs' bytes: " + "; ".join(
        f"{way}: " + ", ".join(f"{lost:.2f} at {size:.0%}" for size, lost in points)
        for way, points in curves.items()
    )
    return mixtures.skipped(curves, title), alt
