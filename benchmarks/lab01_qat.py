"""Quantization-aware training of the small model, beside rounding and beside training in float.

    python benchmarks/lab01_qat.py       writes course/chapters/_generated/lab01_qat.md and
                                         course/figures/lab01/qat.svg; some minutes on one core

All three start from the shipped checkpoint `draft`.  The 2-bit model computes with
W_hat = fake_quantize(W) in every step, on grids per channel that stay what they were at the start;
the float model takes the same steps on the same text, and tells what training alone would give.
"""

import copy
import time

import torch
import torch.nn.functional as F
from lab01_measure import losses
from lab01_tables import FIGURES, GENERATED, write
from matplotlib.ticker import LogFormatter
from torch import Tensor, nn
from torch.nn.utils import parametrize

from efflib import zoo
from efflib.plots import grid, style
from efflib.quantization.linear import affine_parameters, fake_quantize
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import quantizable_linears

BITS, STEPS, BATCH, LENGTH, RATE, EVERY = 2, 400, 16, 128, 1e-3, 25


class Rounded(nn.Module):
    """A weight [N, K] on the grid of its rows, which stays what it was for the weight given."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        lo, hi = w.detach().aminmax(dim=1, keepdim=True)
        self.scale, self.zero = affine_parameters(lo, hi, BITS, symmetric=False)

    def forward(self, w: Tensor) -> Tensor:
        return fake_quantize(w, self.scale, self.zero, BITS, symmetric=False)


def perplexity(model: nn.Module) -> float:
    return losses(model).mean().exp().item()


def rounded(model: nn.Module) -> nn.Module:
    """A copy that computes with rounded weights and trains the float ones behind them."""
    model = copy.deepcopy(model)
    for layer in quantizable_linears(model).values():
        parametrize.register_parametrization(layer, "weight", Rounded(layer.weight))
    return model


def train(model: nn.Module, text: Tensor) -> list[float]:
    """Perplexity of the model after every EVERY steps of training on text [STEPS * BATCH, T]."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=STEPS)
    path = [perplexity(model)]
    for step, ids in enumerate(text.split(BATCH), start=1):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % EVERY == 0:
            path.append(perplexity(model))
            print(f"step {step:4d}: {path[-1]:8.2f}", flush=True)
    return path


def main() -> None:
    torch.manual_seed(0)
    start, model = time.perf_counter(), zoo.load("draft")
    text = zoo.calibration("code", STEPS * BATCH, LENGTH, seed=1)
    before = perplexity(model)
    ptq = perplexity(quantize_model(model, BITS, "channel")[0])
    print(f"draft {before:.2f}; {BITS} bits per channel, rounded {ptq:.2f}; trained so:")
    qat = train(rounded(model), text)
    print("in float, the same steps:")
    control = train(copy.deepcopy(model), text)
    seconds = time.perf_counter() - start
    steps = torch.arange(0, STEPS + 1, EVERY)
    curves = {
        f"{BITS} bits, trained through the rounding": torch.tensor(qat),
        "float, the same steps": torch.tensor(control),
    }
    title = f"Training through the rounding brings perplexity from {ptq:.0f} to {qat[-1]:.1f}"
    fig = grid.lines(steps, [curves], title, "steps of training", ["perplexity"])
    fig.axes[0].set_yscale("log")
    fig.axes[0].yaxis.set_major_formatter(LogFormatter())
    fig.axes[0].yaxis.set_minor_formatter(LogFormatter())
    alt = "Perplexity against training steps: the 2-bit model falls towards the float model"
    style.save(fig, FIGURES / "qat.svg", alt)
    million = STEPS * BATCH * LENGTH / 1e6
    line = (
        f"- The model `draft` at {BITS} bits per channel: perplexity {ptq:.1f} rounded, "
        f"{qat[-1]:.2f} after {STEPS} steps of training through the rounding ({million:.2f} "
        f"million tokens of training text, batches of {BATCH} x {LENGTH}, Adam, rate {RATE:g} "
        f"falling to 0). In float: {before:.2f} as shipped, {control[-1]:.2f} after the same "
        "steps.\n"
    )
    write(GENERATED / "lab01_qat.md", line)
    print(f"{line}{seconds / 60:.1f} minutes on {torch.get_num_threads()} thread(s)")


if __name__ == "__main__":
    main()
