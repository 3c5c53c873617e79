"""The experiment of the chapter on AWQ: what each way to treat salient channels adds to the loss.

As in the lab, on the same text: outlier channels that vary (`zoo.with_outliers`), three placements
of them, groups of 32.  The model as it was trained is the control.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.models.recorded import Calibration, record
from efflib.quantization.awq import (
    corrected_bias,
    keep_channels,
    mean_magnitude,
    rtn,
    scale_channels,
    top_channels,
)
from efflib.quantization.awq_model import awq
from efflib.quantization.size import quantizable_linears
from efflib.zoo import corpus, outliers
from efflib.zoo.phenomena.awq import GAINS

GROUP, FRACTION, BITS = 32, 0.03, (4, 3)
# Twins stand in different groups of 32.  Where they share one (seeds 1, 5, 6 of the first eight) it
# is symmetric to 0, which with 7 steps is a tie: the search at 3 bits then leaves several times as
# much.  That says nothing about real models.
PLACEMENTS = (0, 2, 3)
FACTORS = (2, 3, 4, 6, 8, 16)
SCORES = ("random", "|W|", "|X|")

Figures = dict[tuple[str, int, str], list[float]]  # (model, bits, way) -> a number per placement


def loss(model: nn.Module) -> float:
    return math.log(zoo.perplexity(model, "code", tokens=4096, context=128, stride=128))


def text() -> Tensor:
    """Training text, that of the lab: ids [T, 128], of which the first four rows calibrate."""
    documents = list(corpus.documents("code", held_out=False).values())[::13]
    rows = [zoo.load_tokenizer().encode(d[:4000]).ids[:127] for d in documents if len(d) > 4000]
    return torch.tensor([[zoo.BEGIN_ID, *row] for row in rows])


def placements(control: nn.Module, ids: Tensor) -> list[nn.Module]:
    return [zoo.with_outliers(control, ids, GAINS, seed=seed) for seed in PLACEMENTS]


def with_weights(model: nn.Module, change: Callable[[str, Tensor], Tensor]) -> nn.Module:
    """A copy of the model whose linears hold change(name, w)."""
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for name, linear in quantizable_linears(changed).items():
            linear.weight.copy_(change(name, linear.weight.detach()))
    return changed


def with_biases(model: nn.Module, rounded: nn.Module, calibration: Calibration) -> nn.Module:
    """The rounded model, with biases that keep the mean outputs of `model`."""
    changed = copy.deepcopy(rounded)
    for name, linear in quantizable_linears(changed).items():
        w, x = model.get_submodule(name).weight.detach(), calibration.inputs[name]
        bias = corrected_bias(x, w, linear.weight.detach(), linear.bias)
        linear.bias = nn.Parameter(bias, requires_grad=False)
    return changed


def chosen(model: nn.Module, calibration: Calibration, by: str) -> dict[str, Tensor]:
    """{linear: the channels that a score chooses}."""
    generator, found = torch.Generator().manual_seed(0), {}
    for name, linear in quantizable_linears(model).items():
        w, x = linear.weight.detach(), calibration.inputs[name]
        noise = torch.rand(w.shape[1], generator=generator)
        scores = {"|X|": mean_magnitude(x), "|W|": mean_magnitude(w), "random": noise}
        found[name] = top_channels(scores[by], FRACTION)
    return found


def by_hand(model: nn.Module, calibration: Calibration, bits: int) -> dict[str, nn.Module]:
    """RTN, RTN with corrected biases, kept channels by each score, and one factor for them."""
    rounded = with_weights(model, lambda n, w: rtn(w, bits, GROUP))
    made = {"RTN": rounded, "RTN + bias": with_biases(model, rounded, calibration)}
    made["RTN, twins merged"] = with_weights(
        outliers.merged_twins(model), lambda n, w: rtn(w, bits, GROUP)
    )
    made["RTN, G = 16"] = with_weights(model, lambda n, w: rtn(w, bits, GROUP // 2))
    for by in SCORES:
        kept = chosen(model, calibration, by)
        made[f"keep {by}"] = with_weights(
            model, lambda n, w, c=kept: keep_channels(w, c[n], bits, GROUP)
        )
    for factor in FACTORS:  # of the channels chosen by |X|, the last score
        made[f"x{factor}"] = with_weights(
            model, lambda n, w, f=float(factor), c=kept: scale_channels(w, c[n], f, bits, GROUP)
        )
    return made


def searched(model: nn.Module, ids: Tensor, bits: int) -> dict[str, nn.Module]:
    clips = {"search": False, "search + clip": True}
    return {way: awq(model, ids, bits, GROUP, clip=clip) for way, clip in clips.items()}


def bits_a_weight(model: nn.Module, bits: int, way: str) -> float:
    """Bits of codes, scales and zero points, and of what else a way stores in 16 bits."""
    shapes = [linear.weight.shape for linear in quantizable_linears(model).values()]
    weights = sum(n * k for n, k in shapes)
    total = bits + (16 + bits) / (GROUP // 2 if way == "RTN, G = 16" else GROUP)
    if way.startswith("keep"):  # kept columns need no codes
        kept = sum(n * max(1, round(FRACTION * k)) for n, k in shapes)
        total += kept * (16 - bits) / weights
    return total + (16 * sum(n for n, _ in shapes) / weights if way == "RTN + bias" else 0)


def measure(control: nn.Module, ids: Tensor) -> Figures:
    """Added losses of every way, on the placements, and of some on the control."""
    figures: Figures = {("control", 16, "float"): [loss(control)]}
    before, few = figures["control", 16, "float"][0], ids[:4]
    for kind, models in (("outliers", placements(control, ids)), ("control", [control])):
        for bits in BITS:
            for model in models:
                made = searched(model, few, bits)
                if kind == "outliers":
                    made |= by_hand(model, record(model, few), bits)
                else:
                    made["RTN"] = with_weights(model, lambda n, w, b=bits: rtn(w, b, GROUP))
                for way, changed in made.items():
                    added = loss(changed) - before
                    figures.setdefault((kind, bits, way), []).append(added)
    return figures
