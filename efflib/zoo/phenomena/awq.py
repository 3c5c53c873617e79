"""AWQ: which few channels matter, how much scaling protects them, and what the search gains.

The model has 4 outlier channels of size 30 (`zoo.with_offset`, the same function); groups of 32.
Compared at 4 and 3 bits is the loss that is added to that of the float model, by rounding to
nearest (RTN) and by what AWQ's argument goes through:

- keep 3 % of the input channels of every linear in floating point, chosen by mean|X|;
- multiply the same channels by 1, 2, 3, 4, 8, 16 before rounding instead: an optimum in between;
- search the scales (`awq_model`), here without clipping, which is a separate idea, and with it.

CONTROL: the same number of channels chosen by mean|W| and at random; and the search on the model
without outliers.

What does not come out, over three reduced slices of text and one full one:
- At 3 bits no factor is good: about 4.5 of RTN's 6.6 nats stay.
- Without outliers RTN costs so little at 4 bits (0.02 nats) that the search by itself is within the
  noise of it: RTN's added loss over its own is 0.76, 1.27, 0.69 (full: 0.80), at 3 bits 1.15, 0.88,
  0.99 (full: 1.17). With clipping it is 1.08 to 1.87 at 4 bits and 1.28 to 2.14 at 3.
- Between x2 and x8 the loss at 4 bits is uneven and which is best depends on the slice; x16 is
  clearly worse.
"""

import copy

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.plots.style import COLOURS
from efflib.quantization.awq import keep_channels, mean_magnitude, scale_channels, top_channels
from efflib.quantization.awq_model import (
    Calibration,
    fold,
    quantized_weights,
    record,
    search_model,
    with_values,
)
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import quantizable_linears
from efflib.zoo.phenomena.story import Claim, Scale, losses, windows

GROUP = 32
FRACTION = 0.03
GAINS = {1: 10.0, 2: 10.0}  # of zoo.with_outliers: two components, four channels
CHANNELS, OFFSET = 4, 30.0
BITS = (4, 3)
FACTORS = (2, 3, 4, 8, 16)  # and 1, which is RTN
SCORES = ("|X|", "|W|", "random")


def score(name: str, w: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
    """What the kept channels are chosen by. [K]"""
    if name == "|X|":
        return mean_magnitude(x)
    if name == "|W|":
        return mean_magnitude(w)
    return torch.rand(w.shape[1], generator=generator)


def with_weights(model: nn.Module, weights: dict[str, Tensor]) -> nn.Module:
    """A copy of the model with these weights in the linears of these names."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, w in weights.items():
            model.get_submodule(name).weight.copy_(w)
    return model


def by_hand(
    model: nn.Module, calibration: Calibration, bits: int, seed: int
) -> dict[str, nn.Module]:
    """Mixed precision by each score, and each factor on the channels with large X."""
    generator = torch.Generator().manual_seed(seed)
    linears, out = quantizable_linears(model), {}
    for by in SCORES:
        chosen = {
            name: top_channels(score(by, m.weight, calibration.inputs[name], generator), FRACTION)
            for name, m in linears.items()
        }
        keep = {n: keep_channels(m.weight, chosen[n], bits, GROUP) for n, m in linears.items()}
        out[f"keep {by}"] = with_weights(model, keep)
        for factor in FACTORS if by == "|X|" else ():
            scaled = {
                n: scale_channels(m.weight, chosen[n], float(factor), bits, GROUP)
                for n, m in linears.items()
            }
            out[f"x{factor}"] = with_weights(model, scaled)
    return out


def searched(model: nn.Module, calibration: Calibration, bits: int) -> dict[str, nn.Module]:
    """RTN, and AWQ without and with clipping."""
    searches = search_model(model, calibration, bits, GROUP)
    folded = fold(model, searches)
    out = {"RTN": quantize_model(model, bits, GROUP)[0]}
    for name, clip in (("search", False), ("search + clip", True)):
        codes = quantized_weights(folded, calibration, searches, bits, GROUP, clip)
        out[name] = with_values(folded, codes)
    return out


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """Losses on held-out text above the float model's: "<model> <bits> <variant>".

    Also "float", the loss itself.  The model is "outliers" or "plain".
    """
    plain = zoo.load("target")
    # parts of both: there are 4 searches of 24 inputs each, and 27 models to measure
    held_out = windows("code", True, scale, seed)[::2]
    ids = windows("code", False, scale, seed)[::4, :-1]
    figures = {"float": losses(plain, held_out).mean().item()}
    for kind in ("outliers", "plain"):
        model = zoo.with_offset(plain, CHANNELS, OFFSET) if kind == "outliers" else plain
        calibration = record(model, ids)
        for bits in BITS:
            models = searched(model, calibration, bits)
            if kind == "outliers":
                models |= by_hand(model, calibration, bits, seed)
            for name, quantized in models.items():
                loss = losses(quantized, held_out).mean().item()
                figures[f"{kind} {bits} {name}"] = loss - figures["float"]
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    """Shares of RTN's added loss that are removed, and ratios of added losses."""
    out = []
    for bits in BITS:
        rtn = figures[f"outliers {bits} RTN"]
        removed = {by: 1 - figures[f"outliers {bits} keep {by}"] / rtn for by in SCORES}
        factor = {f: figures[f"outliers {bits} x{f}"] for f in FACTORS}
        best = min(factor[f] for f in FACTORS[:-1])
        plain = figures[f"plain {bits} RTN"]
        out += [
            Claim(f"{bits} bits: 3 % by |X| in float remove the damage", removed["|X|"], 0.8),
            Claim(f"{bits} bits: 3 % by |W| leave it", 1 - removed["|W|"], 0.8),
            Claim(f"{bits} bits: 3 % at random leave it", 1 - removed["random"], 0.8),
            Claim(f"{bits} bits: RTN / the best of x2 to x8", rtn / best, 1.1),
            Claim(f"{bits} bits: x16 / the best of x2 to x8", factor[16] / best, 1.0),
            Claim(f"{bits} bits: RTN / search", rtn / figures[f"outliers {bits} search"], 1.1),
            Claim(
                f"{bits} bits, no outliers: RTN / search",
                plain / figures[f"plain {bits} search"],
                1,
            ),
            Claim(
                f"{bits} bits, no outliers: RTN / search + clip",
                plain / figures[f"plain {bits} search + clip"],
                1,
            ),
        ]
    return out


def plot(figures: dict[str, float], axes: list) -> None:
    """Left: added loss of each way to treat salient channels. Right: of the factor, by bits."""
    ways = ["RTN", *(f"keep {by}" for by in SCORES), "search", "search + clip"]
    for i, bits in enumerate(BITS):
        heights = [figures[f"outliers {bits} {way}"] for way in ways]
        places = [j + 0.4 * i - 0.2 for j in range(len(ways))]
        axes[0].bar(places, heights, width=0.4, color=COLOURS[i], label=f"{bits} bits")
        curve = [figures[f"outliers {bits} RTN"]]
        curve += [figures[f"outliers {bits} x{f}"] for f in FACTORS]
        axes[1].plot((1, *FACTORS), curve, color=COLOURS[i], marker="o", label=f"{bits} bits")
        search = figures[f"outliers {bits} search"]
        axes[1].axhline(search, color=COLOURS[i], linestyle=":")
    axes[0].set_xticks(range(len(ways)), ways, rotation=35, ha="right", fontsize=8)
    axes[0].set(ylabel="added loss (nats per token)", title="ways to treat salient channels")
    axes[1].set(xlabel="factor on the channels with large X", title="scaling (dotted: search)")
    for ax in axes:
        ax.legend(frameon=False, fontsize=8)
