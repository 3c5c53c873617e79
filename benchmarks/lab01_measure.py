"""What the chapter on quantization measures on the shipped model: perplexities, layers, steps.

`lab01_tables.py` writes it down; the lab measures the same way, on the same slices of text.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.plots import pareto
from efflib.quantization.kmeans import dequantize_kmeans_weight, kmeans_quantize_weight
from efflib.quantization.linear import (
    affine_parameters,
    dequantize,
    dequantize_weight,
    fake_quantize,
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
STEPS, LEARN = 150, 8  # of training through the rounding, and texts of 128 tokens: see train_layer
DAMPING = 0.01  # of GPTQ, in means of the diagonal


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


def inputs_of(model: nn.Module, layer: nn.Linear, ids: Tensor) -> Tensor:
    """Inputs [tokens, K] of a layer while the model reads ids [B, T]."""
    seen: list[Tensor] = []
    hook = layer.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    with torch.no_grad():
        model(ids)
    hook.remove()
    return seen[0].flatten(0, -2)


def repaired(y_hat: Tensor, y: Tensor, other: Tensor) -> Tensor:
    """Outputs `other` [tokens, N], moved and scaled by what brings y_hat closest to y. [tokens, N]

    For each output a number to add and one to multiply with, by least squares over the tokens.
    """
    off_hat, off = y_hat - y_hat.mean(dim=0), y - y.mean(dim=0)
    scale = (off * off_hat).sum(dim=0) / off_hat.square().sum(dim=0)
    return scale * (other - y_hat.mean(dim=0)) + y.mean(dim=0)


def share_of_mean(model: nn.Module, layer: nn.Linear) -> float:
    """How much of the squared size of a layer's inputs is that of their mean over the tokens."""
    x = inputs_of(model, layer, held_out_segments("code", TOKENS))
    return (x.mean(dim=0).square().sum() / x.square().sum(dim=1).mean()).item()


def grids_of(w: Tensor, clipped: bool) -> tuple[Tensor, Tensor]:
    """Scale and zero point [N, 1] of each row at 2 bits, on a clipped range or from min to max."""
    ends = w.aminmax(dim=1, keepdim=True)
    return clipped_grid(w, 2) if clipped else affine_parameters(*ends, 2, symmetric=False)


def descend(w: Tensor, x: Tensor, grid: tuple, steps: int, rate: float = 1.0) -> Tensor:
    """w after gradient descent through its 2-bit grid towards the outputs x w^T. [N, K]

    rate: at the start, in 1 / the largest curvature of the loss; it falls to 0.  (That is what the
    gradient of a quadratic form bears, without any search: twice as much and it would diverge.)
    """
    gram, v = x.T @ x, w.clone().requires_grad_(True)
    step = rate / (2 * torch.linalg.matrix_norm(gram, 2).item())
    for i in range(steps):
        off = fake_quantize(v, *grid, 2, symmetric=False) - w
        (slope,) = torch.autograd.grad(((off @ gram) * off).sum(), [v])  # of |x off^T|^2
        v.data -= step * (1 - i / steps) * slope
    return v.detach()


def by_adam(w: Tensor, x: Tensor, grid: tuple, steps: int, rate: float = 0.003) -> Tensor:
    """As `descend`, by Adam.  rate: in standard deviations of the weight."""
    gram, v = x.T @ x, w.clone().requires_grad_(True)
    size = ((w @ gram) * w).sum()
    optimizer = torch.optim.Adam([v], lr=rate * w.std().item())
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for _ in range(steps):
        off = fake_quantize(v, *grid, 2, symmetric=False) - w
        optimizer.zero_grad()
        (((off @ gram) * off).sum() / size).backward()
        optimizer.step()
        schedule.step()
    return v.detach()


def by_gptq(w: Tensor, x: Tensor, grid: tuple) -> Tensor:
    """w_hat of GPTQ (Frantar et al., 2023) on the same grid and text: column by column, the error
    of a column is made up for in those behind it."""
    gram = x.T @ x
    gram = gram + DAMPING * gram.diagonal().mean() * torch.eye(len(gram))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    factor, v, w_hat = torch.linalg.cholesky(inverse, upper=True), w.clone(), torch.zeros_like(w)
    for j in range(w.shape[1]):
        column = v[:, j : j + 1]
        w_hat[:, j : j + 1] = fake_quantize(column, *grid, 2, symmetric=False)
        off = (column - w_hat[:, j : j + 1]) / factor[j, j]
        v[:, j + 1 :] -= off * factor[j, j + 1 :]
    return w_hat


def relative_errors(outputs: list[Tensor], right: Tensor) -> list[float]:
    size = right.square().mean()
    return [((y - right).square().mean() / size).item() for y in outputs]


def train_layer(
    model: nn.Module, layer: nn.Linear, rate: float, clipped: bool = False
) -> list[float]:
    """Relative output error of a layer at 2 bits per channel: rounded, repaired, trained, GPTQ.

    It learns on training text and is measured on held-out text.  rate: of `descend`; clipped: on
    clipped grids, else from min to max.
    """
    w = layer.weight.detach()
    x = inputs_of(model, layer, zoo.calibration("code", n=LEARN, length=128))
    other = inputs_of(model, layer, held_out_segments("code", TOKENS)[:4])
    grid = grids_of(w, clipped)
    w_hat = fake_quantize(w, *grid, 2, symmetric=False)
    trained = fake_quantize(descend(w, x, grid, STEPS, rate), *grid, 2, symmetric=False)
    outputs = [other @ w_hat.T, repaired(x @ w_hat.T, x @ w.T, other @ w_hat.T)]
    outputs += [other @ trained.T, other @ by_gptq(w, x, grid).T]
    return relative_errors(outputs, other @ w.T)


def more_training(model: nn.Module, layer: nn.Linear, texts: int, optimizer) -> list[list[float]]:
    """[held-out, training] output error after 150 and 600 steps, from min..max and clipped; all
    relative to plain rounding from min to max."""
    w = layer.weight.detach()
    read = inputs_of(model, layer, zoo.calibration("code", n=texts, length=128))
    other = inputs_of(model, layer, held_out_segments("code", TOKENS)[:4])
    plain = fake_quantize(w, *grids_of(w, False), 2, symmetric=False)
    errors = []
    for clipped in (False, True):
        grid = grids_of(w, clipped)
        for steps in (STEPS, 4 * STEPS):
            made = fake_quantize(optimizer(w, read, grid, steps), *grid, 2, symmetric=False)
            pairs = [relative_errors([x @ made.T, x @ plain.T], x @ w.T) for x in (other, read)]
            errors.append([a / b for a, b in pairs])
    return errors
