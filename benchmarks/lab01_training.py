"""What training one layer through the rounding is worth, beside what trains nothing.

`lab01_tables.py` writes it down.  A layer at 2 bits per channel learns its own outputs on training
text and is measured on held-out text.
"""

import torch
from lab01_measure import TOKENS, clipped_grid
from torch import Tensor, nn

from efflib import zoo
from efflib.quantization.linear import affine_parameters, fake_quantize
from efflib.zoo.evaluation import held_out_segments

STEPS, LEARN = 150, 8  # of training, and texts of 128 tokens
RATES = (1.0, 4.0)  # of `descend`, in 1 / the largest curvature
DAMPING = 0.01  # of GPTQ, in means of the diagonal


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


# ---- tables ----------------------------------------------------------------------------------


def training(model: nn.Module) -> str:
    """Output errors of layers at 2 bits per channel, in percent of plain rounding."""
    ways = ("repaired", "trained", "GPTQ")
    heads = ("layer", *ways, "clipped", *(f"clipped, {way}" for way in ways))
    lines = [f"| {' | '.join(heads)} | mean of the inputs |", "|---" * 9 + "|"]
    depth = model.config.num_hidden_layers
    for place in (0, depth // 2, depth - 1):
        for kind in ("self_attn.o_proj", "mlp.down_proj"):
            layer = model.get_submodule(f"model.layers.{place}.{kind}")
            rounded, *left = train_layer(model, layer, RATES[0])
            left += train_layer(model, layer, RATES[0], clipped=True)
            cells = " | ".join(f"{error / rounded:.0%}" for error in left)
            lines.append(f"| {place}.{kind} | {cells} | {share_of_mean(model, layer):.0%} |")
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def training_steps(model: nn.Module) -> str:
    """What more steps and more text do to two layers, by gradient descent and by Adam."""
    cells = [f"{grid}, {n} steps" for grid in ("min..max", "clipped") for n in (STEPS, 4 * STEPS)]
    lines = [f"| layer | by | texts | {' | '.join(cells)} |", "|---" * 7 + "|"]
    middle = model.config.num_hidden_layers // 2
    for kind in ("self_attn.o_proj", "mlp.down_proj"):
        layer = model.get_submodule(f"model.layers.{middle}.{kind}")
        for name, optimizer in (("gradient descent", descend), ("Adam", by_adam)):
            for texts in (LEARN, 4 * LEARN):
                found = more_training(model, layer, texts, optimizer)
                shown = " | ".join(f"{out:.0%} ({learnt:.0%})" for out, learnt in found)
                lines.append(f"| {middle}.{kind} | {name} | {texts} | {shown} |")
                print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"
