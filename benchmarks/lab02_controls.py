"""Controls of the chapter on outliers and SmoothQuant, for benchmarks/lab02_tables.py: repairs that
are simpler than smoothing, and the model without the equal channels of the emulation.
"""

import copy
import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from efflib.models.groups import norm_groups
from efflib.models.shifting import channel_middles, shift
from efflib.quantization.smoothquant import channel_maxima, smooth, smoothing_scales, w8a8
from efflib.zoo.phenomena.smoothquant import ENDS
from efflib.zoo.phenomena.story import perplexity as on_windows

RATIO = 6  # an outlier channel reaches this many times what the median channel reaches
FACTORS = (2, 4, 8, 16, 32)  # one for the outlier channels of all norms
EQUAL = 1e-3  # relative difference of channels that are copies of one another


def outlier_channels(model: nn.Module, sample: Tensor) -> dict[str, Tensor]:
    """{norm: indices of its outlier channels}."""
    maxima = channel_maxima(model, sample)
    found = {}
    for group in norm_groups(model):
        tops = maxima[next(iter(group.linears))]
        found[group.name] = (tops >= RATIO * tops.median()).nonzero().flatten()
    return found


def divided(model: nn.Module, channels: dict[str, Tensor], by: float) -> nn.Module:
    """A copy whose norms give the channels / by, with the columns that read them * by: the same
    function.  by = inf leaves the channels out: they are 0, and nothing gives them back.
    """
    model = copy.deepcopy(model)
    with torch.no_grad():
        for group in norm_groups(model):
            group.norm.weight[channels[group.name]] /= by
            for linear in group.linears.values():
                linear.weight[:, channels[group.name]] *= 1 if math.isinf(by) else by
    return model


def merged(model: nn.Module, channels: dict[str, Tensor], sample: Tensor) -> nn.Module:
    """A copy in which one of two equal outlier channels reads for both, and the other is 0."""
    inputs: dict[str, Tensor] = {}
    hooks = [
        group.norm.register_forward_hook(
            lambda module, args, x, name=group.name: inputs.update({name: x.flatten(0, -2)})
        )
        for group in norm_groups(model)
    ]
    with torch.no_grad():
        model(sample)
    for hook in hooks:
        hook.remove()
    model = copy.deepcopy(model)
    with torch.no_grad():
        for group in norm_groups(model):
            for a, b in equal_pairs(inputs[group.name], channels[group.name].tolist()):
                group.norm.weight[b] = 0
                for linear in group.linears.values():
                    linear.weight[:, a] += linear.weight[:, b]
                    linear.weight[:, b] = 0
    return model


def equal_pairs(x: Tensor, channels: list[int]) -> Iterable[tuple[int, int]]:
    """Pairs of these channels of x [T, K] that hold the same values."""
    for i, a in enumerate(channels):
        for b in channels[i + 1 :]:
            if (x[:, a] - x[:, b]).abs().max() <= EQUAL * x[:, a].abs().max():
                yield a, b


def best_end(model: nn.Module, maxima: dict[str, Tensor], sample: Tensor) -> float:
    """The end of static grids, in calibrated maxima, that suits the calibration text best."""

    def loss(end: float) -> float:
        return on_windows(clipped(model, maxima, end), sample)

    return min(ENDS, key=loss)


def clipped(model: nn.Module, maxima: dict[str, Tensor], end: float) -> nn.Module:
    """W8A8 with static scales that end at `end` times the calibrated maximum."""
    return w8a8(model, "static", {name: end * top for name, top in maxima.items()})


def formula(model: nn.Module, maxima: dict[str, Tensor], channels: dict[str, Tensor]) -> float:
    """By how much the formula divides these channels at alpha = 1/2, relative to the median one:
    the mean over norms.  0 if there are none.
    """
    ratios = []
    for group in norm_groups(model):
        x_max = maxima[next(iter(group.linears))]
        s = smoothing_scales(x_max, [linear.weight for linear in group.linears.values()], 0.5)
        ratios += (s[channels[group.name]] / s.median()).tolist()
    return sum(ratios) / len(ratios) if ratios else 0.0


def controls(
    model: nn.Module, sample: Tensor, perplexity: Callable[[nn.Module], float]
) -> dict[str, float]:
    """Perplexity with every simpler repair; "end" is where the clipped grids end."""
    channels, maxima = outlier_channels(model, sample), channel_maxima(model, sample)
    without = divided(model, channels, math.inf)
    found = {"left out, fp32": perplexity(without)}
    found["left out"] = perplexity(w8a8(without, "tensor"))
    found["end"] = best_end(model, maxima, sample)
    found["clipped"] = perplexity(clipped(model, maxima, found["end"]))
    found["formula"] = formula(model, maxima, channels)
    for by in FACTORS:
        found[f"divided by {by}"] = perplexity(w8a8(divided(model, channels, by), "tensor"))
    single = merged(model, channels, sample)
    found["merged, fp32"] = perplexity(single)
    found["merged"] = perplexity(w8a8(single, "tensor"))
    for alpha in (0.0, 0.5, 1.0):
        smoothed = smooth(single, channel_maxima(single, sample), alpha)
        found[f"merged, alpha {alpha}"] = perplexity(w8a8(smoothed, "tensor"))
    centred = shift(model, channel_middles(model, sample))
    found["shifted"] = perplexity(w8a8(centred, "tensor"))
    both = smooth(centred, channel_maxima(centred, sample), 0.5)
    found["shifted, smoothed"] = perplexity(w8a8(both, "tensor"))
    return found
