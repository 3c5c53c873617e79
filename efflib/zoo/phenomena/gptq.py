"""GPTQ and rotation: columns that repair those before them, and large channels turned away.

Weights in groups of 64, at 2 and 3 bits: the loss that is added to that of the float model by
rounding to nearest (RTN), by GPTQ, and with act-order on the grids of the float weights. Inputs in
6 bits, a grid per token, in a model with large channels (`zoo.with_outliers`, GAINS): plain,
smoothed (alpha 0.5), and turned by a random Hadamard matrix that is folded into the weights.

Controls: the diagonal of H alone, which has to give RTN, code for code; H of inputs whose channels
are shuffled, each among the tokens, which leaves every mean and every size and takes away what goes
together in a token; RTN with corrected biases, which takes off the mean of the error; calibration
on prose, as the update fits its text. For rotation the model as trained, and the one whose twins
are merged: emulated channels come in pairs, and a real model has none.

Not claimed: that all of GPTQ's gain is correlation within tokens. Channels have means, these lie
beside the diagonal of H too, and at 2 bits corrected biases repair a good part of the same damage.
Nor that rotation beats smoothing, which depends on the channels and on the weights' bits. Nor that
turning is what repairs inputs in 6 bits: the emulation enlarges channels by the norms' gains, and
to turn a model these have to be absorbed (`benchmarks/lab11_tables.py absorbed` has each alone).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.hessian import gram
from efflib.models.recorded import record
from efflib.plots.style import COLOURS
from efflib.quantization.gptq import dequantize_gptq, gptq, gptq_model
from efflib.quantization.low_bit import with_low_bits
from efflib.quantization.ptq import quantize_model
from efflib.quantization.rotation import random_hadamard, rotate
from efflib.quantization.smoothquant import channel_maxima, smooth
from efflib.sequential import change_sequentially
from efflib.zoo import outliers
from efflib.zoo.phenomena.awq import bias_corrected
from efflib.zoo.phenomena.story import Claim, Scale, losses, perplexity, windows

GROUP = 64
GAINS = {0: 10.0, 1: 10.0, 2: 10.0}  # of zoo.with_outliers: three components, six channels
EXTRA = 64  # channels more: 256 in all, an order of Hadamard matrices
ALPHA = 0.5
MODELS = {
    "2 bits": "weights in 2 bits",
    "3 bits": "in 3 bits",
    "large": "inputs in 6 bits, large channels",
    "merged": "twins merged",
    "trained": "as trained",
}


def shuffled(seed: int) -> Callable[[Tensor], Tensor]:
    """X^T X of inputs x [T, K] each of whose channels is shuffled by itself; for all calls."""
    generator = torch.Generator().manual_seed(seed)

    def statistic(x: Tensor) -> Tensor:
        places = torch.rand(x.shape, generator=generator).argsort(0)
        return gram(x.gather(0, places))

    return statistic


def diagonal(x: Tensor) -> Tensor:
    """What is left of X^T X if no channel has anything to do with another."""
    return torch.diag(gram(x).diagonal())


def with_statistic(
    model: nn.Module, ids: Tensor, bits: int, statistic: Callable[[Tensor], Tensor]
) -> nn.Module:
    """GPTQ with another Hessian."""

    def rounded(w: Tensor, h: Tensor) -> Tensor:
        return dequantize_gptq(gptq(w, h, bits, GROUP)).to(w)

    return change_sequentially(model, ids, statistic, rounded)


def in_few_bits(model: nn.Module, code: Tensor, prose: Tensor, seed: int) -> dict[str, nn.Module]:
    """{"2 bits GPTQ": model, ...}; code, prose [n, T]: calibration texts."""
    static = {"act_order": True, "grids": "static"}
    rtn = quantize_model(model, 2, GROUP)[0]
    return {
        "2 bits RTN": rtn,
        "2 bits RTN + bias": bias_corrected(model, rtn, record(model, code)),
        "2 bits GPTQ": gptq_model(model, code, 2, GROUP)[0],
        "2 bits act-order": gptq_model(model, code, 2, GROUP, **static)[0],
        "2 bits diagonal": with_statistic(model, code, 2, diagonal),
        "2 bits shuffled": with_statistic(model, code, 2, shuffled(seed)),
        "2 bits on prose": gptq_model(model, prose, 2, GROUP)[0],
        "3 bits RTN": quantize_model(model, 3, GROUP)[0],
        "3 bits GPTQ": gptq_model(model, code, 3, GROUP)[0],
    }


def measure(scale: Scale, seed: int) -> dict[str, float]:
    """Added losses "<2 or 3> bits <way>", "float" the loss itself, and perplexities with inputs in
    6 bits "<large, merged or trained> <float, plain, smoothed or rotated>"."""
    plain = zoo.load("target")
    text, sample = windows("code", True, scale, seed), windows("code", False, scale, seed)
    code, prose = sample[:, :-1], windows("prose", False, scale, seed)[:, :-1]
    figures = {"float": losses(plain, text).mean().item()}
    for name, model in in_few_bits(plain, code, prose, seed).items():
        figures[name] = losses(model, text).mean().item() - figures["float"]
    large = outliers.with_outliers(plain, code, GAINS, extra=EXTRA, seed=seed)
    models = {"large": large, "merged": outliers.merged_twins(large), "trained": plain}
    for kind, model in models.items():
        turned = rotate(model, random_hadamard(model.config.hidden_size, seed))
        found = {
            "plain": model,
            "smoothed": smooth(model, channel_maxima(model, code), ALPHA),
            "rotated": turned,
        }
        figures[f"{kind} float, rotated"] = perplexity(turned, text)
        for way, made in found.items():
            figures[f"{kind} {way}"] = perplexity(with_low_bits(made, None, 6), text)
    return figures


def claims(figures: dict[str, float]) -> list[Claim]:
    f = figures
    two, kept = f["2 bits GPTQ"], torch.tensor(f["float"]).exp().item()
    same = [kept / f[f"{kind} float, rotated"] for kind in ("large", "merged", "trained")]
    return [
        Claim("2 bits: RTN / GPTQ", f["2 bits RTN"] / two, 1.5),
        Claim("3 bits: RTN / GPTQ", f["3 bits RTN"] / f["3 bits GPTQ"], 1.3),
        Claim("2 bits: GPTQ / with act-order", two / f["2 bits act-order"], 1.03),
        Claim("control: diagonal of H / RTN", f["2 bits diagonal"] / f["2 bits RTN"], 1.0),
        Claim("control: H of shuffled inputs / GPTQ", f["2 bits shuffled"] / two, 1.15),
        Claim("control: RTN with corrected biases / GPTQ", f["2 bits RTN + bias"] / two, 1.1),
        Claim("control: calibrated on prose / on code", f["2 bits on prose"] / two, 1.2),
        Claim("inputs in 6 bits: plain / rotated", f["large plain"] / f["large rotated"], 10),
        Claim("twins merged: plain / rotated", f["merged plain"] / f["merged rotated"], 10),
        Claim(
            "control, as trained: rotation gains at most 2 %",
            1.02 * f["trained rotated"] / f["trained plain"],
            1.0,
        ),
        Claim("rotated, the same function", min(*same, *(1 / s for s in same)), 0.9999),
    ]


def plot(figures: dict[str, float], axes: list) -> None:
    left, right = axes
    ways = [k.removeprefix("2 bits ") for k in figures if k.startswith("2 bits ")]
    left.bar(range(len(ways)), [figures[f"2 bits {way}"] for way in ways], color=COLOURS[0])
    left.set_xticks(range(len(ways)), ways, rotation=35, ha="right", fontsize=8)
    left.set(ylabel="added loss (nats per token)", title="weights in 2 bits")
    kinds = ("large", "merged", "trained")
    for i, way in enumerate(("plain", "smoothed", "rotated")):
        at = [j + 0.27 * (i - 1) for j in range(len(kinds))]
        heights = [figures[f"{kind} {way}"] for kind in kinds]
        right.bar(at, heights, width=0.27, color=COLOURS[i], label=way)
    right.set_xticks(range(len(kinds)), ["large channels", "twins merged", "as trained"])
    right.set(yscale="log", ylabel="perplexity", title="inputs in 6 bits")
    right.legend(frameon=False, fontsize=8)
