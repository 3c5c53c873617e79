"""Rounding weights: perplexity against bits, granularity and kind of grid.

Control: the same bits with a coarser granularity, so that nothing but who shares a scale differs.

k-means and linear are compared at equal total bits. With one codebook or grid for a tensor the
metadata is nearly nothing in both. With one for a channel, a codebook of 2^b entries of 16 bits
is much larger than a scale and a zero point; the linear grid that pays as much has smaller groups.
"""

from efflib import zoo
from efflib.plots import style
from efflib.quantization.ptq import quantize_model
from efflib.zoo.phenomena.story import Claim, Scale, perplexity, windows

GROUP = 32
WIDTHS = (8, 4, 3, 2)
GRANULARITIES = {"tensor": "tensor", "channel": "channel", "group": GROUP}


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """{"fp": perplexity, "linear 4 group": ..., "kmeans 3 tensor": ...}"""
    model = zoo.load("target")
    ids = windows("code", True, scale, seed)
    figures = {"fp": perplexity(model, ids)}
    for bits in WIDTHS:
        for name, granularity in GRANULARITIES.items():
            quantized, _ = quantize_model(model, bits, granularity)
            figures[f"linear {bits} {name}"] = perplexity(quantized, ids)
    for bits in (3, 2):
        quantized, _ = quantize_model(model, bits, "tensor", method="kmeans")
        figures[f"kmeans {bits} tensor"] = perplexity(quantized, ids)
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    found = []
    for name in GRANULARITIES:
        row = [figures[f"linear {bits} {name}"] for bits in WIDTHS]
        steps = [worse / better for better, worse in zip(row, row[1:], strict=False)]
        found.append(Claim(f"per {name}: perplexity rises 8, 4, 3, 2 bits", min(steps), 1.0))
    for bits in (4, 3, 2):
        tensor, channel, group = (figures[f"linear {bits} {name}"] for name in GRANULARITIES)
        found.append(Claim(f"{bits} bits: group < channel", channel / group, 1.0))
        found.append(Claim(f"{bits} bits: channel < tensor", tensor / channel, 1.0))
    for bits in (3, 2):
        ratio = figures[f"linear {bits} tensor"] / figures[f"kmeans {bits} tensor"]
        found.append(Claim(f"{bits} bits: k-means <= linear at equal bits", ratio, 1.0))
    return found


def plot(figures: dict[str, float], axes) -> None:
    left, right = axes
    for name, colour, marker in zip(GRANULARITIES, style.COLOURS, style.MARKERS, strict=False):
        row = [figures[f"linear {bits} {name}"] for bits in WIDTHS]
        left.plot(WIDTHS, row, color=colour, marker=marker, label=f"per {name}")
    left.axhline(figures["fp"], color=style.GREY, linestyle=":", label="fp32")
    left.set(yscale="log", xlabel="bits of a weight", ylabel="perplexity", title="Granularity")
    left.set_xticks(WIDTHS)
    left.invert_xaxis()
    left.legend()
    for kind, shift, colour in (("linear", -0.2, style.BLUE), ("kmeans", 0.2, style.ORANGE)):
        row = [figures[f"{kind} {bits} tensor"] for bits in (3, 2)]
        label = "k-means" if kind == "kmeans" else kind
        right.bar([0 + shift, 1 + shift], row, width=0.4, color=colour, label=label)
    right.set(yscale="log", ylabel="perplexity", title="Per tensor, equal bits")
    right.set_xticks([0, 1], ["3 bits", "2 bits"])
    right.legend()
