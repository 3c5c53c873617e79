"""What the chapter on quantization measures on the shipped model: perplexities, layers, steps.

`lab01_tables.py` writes it down; the lab measures the same way, on the same slices of text.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from efflib.plots import pareto
from efflib.quantization.kmeans import dequantize_kmeans_weight, kmeans_quantize_weight
from efflib.quantization.linear import (
    affine_parameters,
    dequantize,
    dequantize_weight,
    from_groups,
    quantize,
    quantize_weight,
    to_groups,
)
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import codebook_bits, quantizable_linears, weight_bits
from efflib.zoo.evaluation import held_out_segments, token_losses

TOKENS, CONTEXT = 4096, 256  # held-out tokens in 16 slices, disjoint windows: as in the lab
WIDTHS = (8, 6, 5, 4, 3, 2)
GRANULARITIES = {"tensor": "tensor", "channel": "channel", "G = 64": 64, "G = 32": 32, "G = 16": 16}
METHODS = {
    "linear": tuple(GRANULARITIES),
    "clipped": tuple(GRANULARITIES),
    "k-means": ("tensor", "channel", "G = 32"),
}
DEAR = ("k-means", "G = 32", (6, 5))  # not measured: the table of a group is longer than its codes
FRACTIONS = torch.linspace(0.2, 1, 9)  # of min..max, that a clipped grid may span
WRITERS = (16, 4, 3, 2)  # bits of the models that write, per channel


def losses(model: nn.Module, split: str = "code") -> Tensor:
    """Mean of -ln p on each of the slices. [16]"""
    text = held_out_segments(split, TOKENS)
    return token_losses(model, text, CONTEXT, CONTEXT).mean(dim=1)


def error_of_mean(x: Tensor) -> float:
    return x.std().item() / math.sqrt(len(x))


def clipped_grid(groups: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point [R, 1] of each row, on the range with least squared error."""
    lo, hi = groups.aminmax(dim=1, keepdim=True)
    tried = [affine_parameters(f * lo, f * hi, bits, symmetric=False) for f in FRACTIONS]
    made = (dequantize(quantize(groups, s, z, bits, False), s, z) for s, z in tried)
    best = torch.stack([(each - groups).square().sum(dim=1) for each in made]).argmin(dim=0)  # [R]
    scale, zero = (torch.stack(parts) for parts in zip(*tried, strict=True))  # [FRACTIONS, R, 1]
    return scale[best, torch.arange(len(best))], zero[best, torch.arange(len(best))]


def clipped_weight(w: Tensor, bits: int, granularity: str | int) -> Tensor:
    """w [N, K] on clipped grids, one for each group of the granularity."""
    groups = to_groups(w, granularity)  # [R, n_groups, G]
    rows = groups.flatten(0, 1)
    scale, zero = clipped_grid(rows, bits)
    w_hat = dequantize(quantize(rows, scale, zero, bits, symmetric=False), scale, zero)
    return from_groups(w_hat.view_as(groups), w.shape)


def made_by(
    method: str, model: nn.Module, bits: int, granularity: str | int
) -> tuple[nn.Module, int]:
    """(quantized copy of the model, its size in bits); clipping costs none."""
    if method != "clipped":
        return quantize_model(model, bits, granularity, method=method.replace("-", ""))
    quantized, total = quantize_model(model, bits, granularity)
    copies = quantizable_linears(quantized)
    for name, layer in quantizable_linears(model).items():
        made = clipped_weight(layer.weight.detach(), bits, granularity)
        copies[name].weight.data.copy_(made)
    return quantized, total


def sweep(model: nn.Module) -> list[pareto.Point]:
    """Total bits per parameter and perplexity of every setting; prints a line for each.

    The spread is that of the difference from fp16, slice by slice.
    """
    parameters, before, points = sum(p.numel() for p in model.parameters()), losses(model), []
    for method, names in METHODS.items():
        for bits in WIDTHS:
            for name in names:
                if (method, name) == DEAR[:2] and bits in DEAR[2]:
                    continue
                quantized, total = made_by(method, model, bits, GRANULARITIES[name])
                after, size = losses(quantized), total / parameters
                cost, spread = after.mean().exp().item(), error_of_mean(after - before)
                points.append(pareto.Point(method, name, bits, size, cost, cost * spread))
                print(f"{method:8s} {bits} bits {name:9s} {size:7.2f} {cost:9.2f}", flush=True)
    return points


def one_at_a_time(model: nn.Module) -> tuple[dict[str, float], dict[str, float]]:
    """What each layer alone at 2 bits per channel adds to the loss, and the spread of that."""
    before, rise, spread = losses(model), {}, {}
    for name, layer in quantizable_linears(model).items():
        kept = layer.weight.detach().clone()
        layer.weight.data.copy_(dequantize_weight(quantize_weight(kept, 2, "channel")))
        off = losses(model) - before
        layer.weight.data.copy_(kept)
        rise[name], spread[name] = off.mean().item(), error_of_mean(off)
    return rise, spread


def writers(model: nn.Module) -> dict[int, nn.Module]:
    """The model, and its copies per channel, by the bits of a weight."""
    rounded = {b: quantize_model(model, b, "channel")[0] for b in WRITERS if b < 16}
    return {16: model} | rounded


def steps_of(w: Tensor, bits: int) -> dict[tuple[str, str], tuple[float, float]]:
    """What a step from one setting of a weight to the next is worth and costs, in bits."""

    def linear(bits: int, g: str | int) -> tuple[float, float]:
        w_hat = dequantize_weight(quantize_weight(w, bits, g))
        return (w_hat - w).square().mean().item(), weight_bits(w.shape, bits, g, False)

    made = {name: linear(bits, g) for name, g in GRANULARITIES.items()}
    for of in ("channel", "tensor"):
        error = (clipped_weight(w, bits, of) - w).square().mean().item()
        made[f"{of}, clipped"] = error, made[of][1]
    w_hat = dequantize_kmeans_weight(kmeans_quantize_weight(w, bits, "tensor"))
    error = (w_hat - w).square().mean().item()
    made["k-means"] = error, codebook_bits(w.shape, bits, "tensor")
    made["+ 1 bit"] = linear(bits + 1, "channel")
    pairs = [*pairwise(GRANULARITIES), ("channel", "+ 1 bit"), ("channel", "channel, clipped")]
    pairs += [("tensor", "tensor, clipped"), ("tensor, clipped", "k-means")]
    return {
        (a.split(", ")[-1], b.split(", ")[-1]): (
            math.log(made[a][0] / made[b][0], 4),
            (made[b][1] - made[a][1]) / w.numel(),
        )
        for a, b in pairs
    }


def all_steps(model: nn.Module) -> tuple[dict, dict]:
    """(worth, prices) of all weights at 2 and 4 bits, for `granularity.worth`."""
    worth, prices = {}, {}
    for bits in (2, 4):
        every = [
            steps_of(layer.weight.detach(), bits) for layer in quantizable_linears(model).values()
        ]
        worth[bits] = {step: [found[step][0] for found in every] for step in every[0]}
        prices[bits] = {step: [found[step][1] for found in every] for step in every[0]}
    return worth, prices
