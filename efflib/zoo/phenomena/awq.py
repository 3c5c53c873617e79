"""AWQ: which few channels matter, how much scaling protects them, and what the search gains.

The model has outlier channels that vary from token to token (`zoo.with_outliers`, GAINS: the same
function); groups of 32. Compared at 4 and 3 bits is the loss that is added to that of the float
model, by rounding to nearest (RTN) and by what AWQ's argument goes through:

- keep 3 % of the input channels of every linear in floating point, chosen by mean|X|;
- multiply the same channels by 1, 2, 3, 4, 8, 16 before rounding instead: an optimum in between;
- search the scales (`awq_model`), without clipping, which is a separate idea, and with it.

Controls: the same number of channels chosen by mean|W| and at random; the model as trained; and
bias correction, b += (W - W_hat) mean(x) (Nagel et al. 2019, arXiv:1906.04721, section 4.2), which
takes off the mean of the error and leaves what varies with the token.

Not claimed: that the search by itself gains much on the model as trained. Its channels are even,
and at 4 bits RTN costs so little there that not much is left to gain. Nor that the search
without clipping beats the best single factor, which is chosen with hindsight on the held-out text.
Where two equal channels share a group, scaling at 3 bits leaves several times as much: see APART.
"""

import copy

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.plots.style import COLOURS, MARKERS
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
from efflib.zoo.phenomena.story import Claim, Scale, bands, losses, windows, with_outliers

GROUP = 32
MODELS = {
    "outliers 4": "4 bits, with outliers",
    "plain 4": "4 bits, as trained",
    "outliers 3": "3 bits, with outliers",
    "plain 3": "3 bits, as trained",
}
FRACTION = 0.03
GAINS = {3: 20.0, 5: 20.0}  # of zoo.with_outliers: two components that vary in every layer
BITS = (4, 3)
# Placements whose twins stand in different groups. In one group they make its range symmetric to
# 0, which with the 7 steps of 3 bits is a tie: that is an artefact, which no real model has.
APART = (0, 2, 3, 4, 7)
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


def bias_corrected(model: nn.Module, quantized: nn.Module, calibration: Calibration) -> nn.Module:
    """A copy of `quantized` whose linears have b + (W - W_hat) mean(x), W and x of `model`."""
    corrected = copy.deepcopy(quantized)
    with torch.no_grad():
        for name, linear in quantizable_linears(model).items():
            mean = calibration.inputs[name].flatten(0, -2).mean(0)  # [K]
            layer = corrected.get_submodule(name)
            shift = (linear.weight - layer.weight) @ mean  # [N]
            layer.bias = nn.Parameter(shift if layer.bias is None else layer.bias + shift)
    return corrected


def searched(model: nn.Module, calibration: Calibration, bits: int) -> dict[str, nn.Module]:
    """RTN, RTN with corrected biases, and AWQ without and with clipping."""
    searches = search_model(model, calibration, bits, GROUP)
    folded = fold(model, searches)
    rtn = quantize_model(model, bits, GROUP)[0]
    out = {"RTN": rtn, "RTN + bias": bias_corrected(model, rtn, calibration)}
    for name, clip in (("search", False), ("search + clip", True)):
        codes = quantized_weights(folded, calibration, searches, bits, GROUP, clip)
        out[name] = with_values(folded, codes)
    return out


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """Losses on held-out text above the float model's: "<model> <bits> <variant>".

    Also "float", the loss itself.  The model is "outliers" or "plain".
    """
    plain = zoo.load("target")
    # parts of both: there are 4 searches of 24 inputs each, and 29 models to measure
    held_out = windows("code", True, scale, seed)[::2]
    sample = windows("code", False, scale, seed)
    figures = {"float": losses(plain, held_out).mean().item()}
    for kind in ("outliers", "plain"):
        place = APART[seed % len(APART)]
        model = with_outliers(plain, sample, GAINS, place) if kind == "outliers" else plain
        calibration = record(model, sample[::4, :-1])
        for bits in BITS:
            models = searched(model, calibration, bits)
            if kind == "outliers":
                models |= by_hand(model, calibration, bits, seed)
            for name, quantized in models.items():
                loss = losses(quantized, held_out).mean().item()
                figures[f"{kind} {bits} {name}"] = loss - figures["float"]
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    """Ratios of added losses, in the order of AWQ's argument."""
    out = []
    for bits in BITS:
        f = {k.removeprefix(f"outliers {bits} "): v for k, v in figures.items()}
        best = min(f[f"x{factor}"] for factor in FACTORS)
        out += [
            Claim(f"{bits} bits: RTN / 3 % by |X| in float", f["RTN"] / f["keep |X|"], 10),
            Claim(f"{bits} bits, control: 3 % by |W| / RTN", f["keep |W|"] / f["RTN"], 0.8),
            Claim(f"{bits} bits, control: 3 % at random / RTN", f["keep random"] / f["RTN"], 0.8),
            Claim(f"{bits} bits: RTN / the best factor", f["RTN"] / best, 1.1),
            Claim(f"{bits} bits: x16 / the best factor", f["x16"] / best, 1.1),
            Claim(f"{bits} bits: RTN / search", f["RTN"] / f["search"], 1.2),
            Claim(f"{bits} bits: best factor / search with clipping", best / f["search + clip"], 1),
            Claim(
                f"{bits} bits: search with clipping / 3 % by |X|",
                f["search + clip"] / f["keep |X|"],
                1,
            ),
            Claim(
                f"{bits} bits, control: biases corrected / search with clipping",
                f["RTN + bias"] / f["search + clip"],
                1,
            ),
            Claim(
                f"{bits} bits, as trained: RTN / search with clipping",
                figures[f"plain {bits} RTN"] / figures[f"plain {bits} search + clip"],
                1,
            ),
        ]
    return out


def plot(figures: dict[str, float], axes: list) -> None:
    """Left: added loss of each way to treat salient channels. Right: of the factor, by bits."""
    ways = ["RTN", *(f"keep {by}" for by in SCORES), "RTN + bias", "search", "search + clip"]
    for i, bits in enumerate(BITS):
        heights = [figures[f"outliers {bits} {way}"] for way in ways]
        places = [j + 0.4 * i - 0.2 for j in range(len(ways))]
        axes[0].bar(places, heights, width=0.4, color=COLOURS[i], label=f"{bits} bits")
        curve = [figures[f"outliers {bits} RTN"]]
        curve += [figures[f"outliers {bits} x{f}"] for f in FACTORS]
        line = {"color": COLOURS[i], "marker": MARKERS[i], "label": f"{bits} bits"}
        bands(axes[1], (1, *FACTORS), curve, **line)
        search = figures[f"outliers {bits} search"]
        axes[1].axhline(search, color=COLOURS[i], linestyle=":")
    axes[0].set_xticks(range(len(ways)), ways, rotation=35, ha="right", fontsize=8)
    axes[0].set(yscale="log", ylabel="added loss (nats per token)")
    axes[0].set_title("ways to treat salient channels")
    axes[1].set(xlabel="factor on the channels with large X", yscale="log")
    axes[1].set_title("scaling (dotted: search)")
    for ax in axes:
        ax.legend(frameon=False, fontsize=8)
