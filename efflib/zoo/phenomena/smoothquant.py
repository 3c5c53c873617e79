"""SmoothQuant: a few large activation channels ruin W8A8; moving them into the weights repairs it.

The outliers are emulated (`zoo.with_offset`): CHANNELS channels of every norm's output get an
offset of OFFSET, and what follows takes it off again, as in OPT-6.7B and larger models. Weights
have a scale per tensor, activations one per token (O1) if not said otherwise. With OFFSET 100 and
4 channels the best alpha stays 30 % above fp: the outlier columns of the weights are rounded too,
and a large constant multiplies that error. O2 and O3 are within about 1 % of each other, and which
is lower depends on the slice of text: a calibrated maximum clips rare peaks, which costs them
and serves the rest.

Control: the same sweep of alpha on the model as it was trained, which has no outliers.
"""

from efflib import zoo
from efflib.plots import style
from efflib.quantization.smoothquant import channel_maxima, smooth, w8a8
from efflib.zoo.phenomena.story import Claim, Scale, perplexity, windows

GAINS = {1: 20.0, 2: 20.0}  # of zoo.with_outliers: two components, four channels
CHANNELS, OFFSET = 2, 75.0
ALPHAS = (0.0, 0.25, 0.5, 0.75, 1.0)
LEVELS = {"O1": "token", "O2": "tensor", "O3": "static"}


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """{"outliers fp", "outliers plain", "outliers alpha 0.5", ..., "control ...", "O1", ...}"""
    plain = zoo.load("target")
    models = {"outliers": zoo.with_offset(plain, CHANNELS, OFFSET), "control": plain}
    ids = windows("code", True, scale, seed)
    sample = windows("code", False, scale, seed)
    figures = {}
    for name, model in models.items():
        maxima = channel_maxima(model, sample)
        figures[f"{name} fp"] = perplexity(model, ids)
        figures[f"{name} plain"] = perplexity(w8a8(model, "token"), ids)
        for alpha in ALPHAS:
            smoothed = smooth(model, maxima, alpha)
            figures[f"{name} alpha {alpha}"] = perplexity(w8a8(smoothed, "token"), ids)
    smoothed = smooth(models["outliers"], channel_maxima(models["outliers"], sample), 0.5)
    maxima = channel_maxima(smoothed, sample)
    for level, activations in LEVELS.items():
        figures[level] = perplexity(w8a8(smoothed, activations, maxima), ids)
    return figures


def sweep(figures: dict[str, float], model: str) -> list[float]:
    return [figures[f"{model} alpha {alpha}"] for alpha in ALPHAS]


def claims(figures: dict[str, float]) -> list[Claim]:
    row, control = sweep(figures, "outliers"), sweep(figures, "control")
    best, fp = min(row), figures["outliers fp"]
    flat = max(control) / min(control)
    return [
        Claim("outliers: plain W8A8 / fp", figures["outliers plain"] / fp, 1.5),
        Claim("best alpha within 10 % of fp", fp / best, 1 / 1.1),
        Claim("best alpha 20 % better than alpha 0", row[0] / best, 1.2),
        Claim("best alpha 20 % better than alpha 1", row[-1] / best, 1.2),
        Claim("control: flat within 2 %", 1.02 / flat, 1.0),
        Claim("O1 <= O2", figures["O2"] / figures["O1"], 1.0),
        Claim("O2 <= O3", figures["O3"] / figures["O2"], 1.0),
    ]


def plot(figures: dict[str, float], axes) -> None:
    left, right = axes
    names = {"outliers": "with outliers", "control": "without (control)"}
    for (name, label), colour in zip(names.items(), style.COLOURS, strict=False):
        left.plot(ALPHAS, sweep(figures, name), color=colour, marker="o", label=label)
    left.axhline(figures["outliers fp"], color=style.GREY, linestyle=":", label="fp32")
    left.set(xlabel="migration strength alpha", ylabel="perplexity", title="W8A8")
    left.legend()
    bars = {"fp32": "outliers fp", "plain": "outliers plain"} | {level: level for level in LEVELS}
    right.bar(list(bars), [figures[key] for key in bars.values()], color=style.BLUE)
    right.set(ylabel="perplexity", title="Plain, and smoothed with alpha 0.5")
