"""Can a small model be trained to bear the large channels that large models have by themselves?

    python benchmarks/trained_outliers.py [TRIAL ...] [--steps 1500] [--threads 1]

`target` is trained on, to predict what it predicted, while n channels of every norm's output are R
times as large as the rest and the columns that read them keep an ordinary size.  A trial is n, R
and whether the channels have to differ from one another.  Nothing else is arranged:

- at the start the residual stream is turned so that n of its principal components are channels, the
  norm's gain makes those R times as large, and the columns that read them are R times smaller:
  the same function;
- in the first part of the training a floor under those columns rises from 1/R to FLOOR of the
  median column's mean |w|, and no entry passes WIDEST standard deviations, so that the size is in
  all rows and not in a few that nothing reads;
- the loss asks each channel for its deviation, and for correlations below LIKE.

A run is resumable, its state in build/trained_outliers/.  Printed: perplexities on held-out code of
the model, of W8A8 (plain, smoothed with the best alpha, shifted), of rounding to 4 and 3 bits in
groups of 32, with the n channels kept and with n others; then what was asked for, as it came out.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import os
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib import zoo
from efflib.models.gains import with_unit_gains
from efflib.models.groups import norm_groups
from efflib.models.shifting import channel_means, shift
from efflib.quantization.awq import keep_channels
from efflib.quantization.ptq import quantize_model
from efflib.quantization.smoothquant import channel_maxima, smooth, w8a8
from efflib.zoo.distillation import distillation_loss
from efflib.zoo.outliers import second_moment
from efflib.zoo.training import Recipe, causal_attention, sample

GROUP, COMPONENTS = 32, (3, 5, 7, 9)  # principal components that vary in all layers
FLOOR, WIDEST, LIKE = 0.9, 3.0, 0.3
RISE = 0.5  # share of the steps in which the floor rises
RATE, BATCH, CONTEXT = 1.5e-3, 12, 256
FOLDER = Path("build/trained_outliers")


class Trial(NamedTuple):
    channels: int
    times: float  # deviation / median deviation
    differ: bool  # whether correlations cost


TRIALS = {
    "4x40": Trial(4, 40, True),
    "4x40-alike": Trial(4, 40, False),
    "4x25": Trial(4, 25, True),
    "2x40": Trial(2, 40, True),
    "2x15": Trial(2, 15, True),
    "1x40": Trial(1, 40, True),
}


def turned(model: nn.Module, ids: Tensor, channels: int) -> nn.Module:
    """The same function; principal components of the norms' outputs are channels 0, 1, ..."""
    model = with_unit_gains(model)
    components = torch.linalg.eigh(second_moment(model, ids))[1].flip(1)  # [d, d], largest first
    chosen = list(COMPONENTS[:channels])
    rest = [i for i in range(len(components)) if i not in chosen]
    # the others are mixed at random, or each would be a channel of its own size
    mix = torch.linalg.qr(torch.randn(len(rest), len(rest), dtype=torch.float64))[0]
    turn = torch.cat([components[:, chosen], components[:, rest] @ mix], 1).T  # [d, d]
    readers = [f"{name}.weight" for g in norm_groups(model) for name in g.linears]
    state = model.state_dict()
    for name, value in state.items():
        if name in readers or name in ("model.embed_tokens.weight", "lm_head.weight"):
            state[name] = value.double() @ turn.T
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            state[name] = turn @ value.double()
    model.load_state_dict(state)
    return model


def columns(model: nn.Module) -> list[Tensor]:
    return [linear.weight for g in norm_groups(model) for linear in g.linears.values()]


def hold(weights: list[Tensor], floor: float, n: int) -> None:
    """Columns 0..n-1 get a mean |w| of at least floor x the median, without a far entry."""
    for w in weights:  # [N, K]
        size = w[:, n:].abs().mean(0).median()
        w[:, :n] *= (floor * size / w[:, :n].abs().mean(0)).clamp(min=1)
        end = WIDEST * w[:, :n].square().mean(0).sqrt()
        w[:, :n] = w[:, :n].clamp(-end, end)


def penalty(outputs: list[Tensor], trial: Trial) -> Tensor:
    """5 x the mean square of what deviations lack, 3 x that of correlations above LIKE.

    The model in training has gains of 1, and R times larger columns: deviations are asked to be the
    median's, and become R times it when R moves from the columns into the gains.
    """
    n, total = trial.channels, torch.zeros(())
    for y in outputs:
        y = y.float().flatten(0, 1)  # [B T, d]
        deviation = y.std(0)
        total = total + 5 * F.relu(1 - deviation[:n] / deviation.median().detach()).square().mean()
        if trial.differ and n > 1:
            pairs = torch.corrcoef(y[:, :n].T)[*torch.triu_indices(n, n, 1)]
            total = total + 3 * F.relu(pairs.abs() - LIKE).square().mean()
    return total / len(outputs)


class Run:
    """A trial's model and optimizer, and where they are kept."""

    def __init__(self, name: str, steps: int, seed: int = 0) -> None:
        self.trial, self.steps, self.step = TRIALS[name], steps, 0
        self.file = FOLDER / f"{name}-{steps}-{seed}.pt"
        torch.manual_seed(seed)
        self.recipe = Recipe(zoo.load("target").config, steps, BATCH, CONTEXT, seed=seed)
        ids = zoo.calibration("code", n=16, length=CONTEXT)
        self.model = turned(zoo.load("target"), ids, self.trial.channels).train()
        self.outputs: list[Tensor] = []
        for group in norm_groups(self.model):
            group.norm.register_forward_hook(lambda module, x, y: self.outputs.append(y))
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), RATE, betas=(0.9, 0.95), weight_decay=0.0
        )
        if self.file.exists():
            state = torch.load(self.file, weights_only=True)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]

    def save(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        parts = {"model": self.model, "optimizer": self.optimizer}
        state = {name: part.state_dict() for name, part in parts.items()} | {"step": self.step}
        torch.save(state, self.file.with_suffix(".partial"))
        os.replace(self.file.with_suffix(".partial"), self.file)

    def floor(self) -> float:
        """In the training model, where columns are R times larger: from 1 to R FLOOR."""
        return (FLOOR * self.trial.times) ** min(1.0, (self.step + 1) / (RISE * self.steps))

    def update(self, text: Tensor, divergence) -> tuple[float, float]:
        part, n = self.step / self.steps, self.trial.channels
        self.optimizer.param_groups[0]["lr"] = RATE * min(
            1, (self.step + 1) / 50, 2 * (1 - part) + 0.01
        )
        self.outputs.clear()
        ids = sample(text, self.step, self.recipe)
        loss = divergence(ids)
        lacking = penalty(self.outputs, self.trial)
        self.optimizer.zero_grad()
        (loss + lacking).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        weights = columns(self.model)
        before = [w.detach()[:, :n].clone() for w in weights]
        self.optimizer.step()
        with torch.no_grad():
            for w, old in zip(weights, before, strict=True):  # steps in proportion to the entries
                w[:, :n] = old + (1 + self.floor() / 8) * (w[:, :n] - old)
            hold([w.data for w in weights], self.floor(), n)
        self.step += 1
        return loss.item(), lacking.item()

    def result(self) -> nn.Module:
        """The trained model, with R in the gains of its norms and off their columns."""
        model = copy.deepcopy(self.model).eval()
        for group in norm_groups(model):
            group.norm._forward_hooks.clear()
            group.norm.weight.data[: self.trial.channels] *= self.trial.times
            for linear in group.linears.values():
                linear.weight.data[:, : self.trial.channels] /= self.trial.times
        return model


def train(run: Run, text: Tensor) -> None:
    teacher = zoo.load("target")
    for model in (teacher, run.model):
        model.set_attention(causal_attention(CONTEXT, "cpu"))
    divergence = distillation_loss(run.model, teacher, "cpu")
    while run.step < run.steps:
        found = run.update(text, divergence)
        if run.step % 50 == 0 or run.step == run.steps:
            run.save()
            print(
                f"  {run.step:5} columns {run.floor() / run.trial.times:.2f} "
                f"KL {found[0]:.3f} lacking {found[1]:.3f}",
                flush=True,
            )
    run.model.set_attention(zoo.load("target").model.layers[0].self_attn.attention)


@torch.no_grad()
def kept(model: nn.Module, bits: int, channels: Tensor) -> nn.Module:
    """Rounded weights, but for these columns of what reads the norms."""
    rounded = quantize_model(model, bits, GROUP)[0]
    for old, new in zip(norm_groups(model), norm_groups(rounded), strict=True):
        for name, linear in old.linears.items():
            whole = keep_channels(linear.weight, channels, bits, GROUP)
            new.linears[name].weight[:, channels] = whole[:, channels]
    return rounded


def effects(model: nn.Module, n: int) -> dict[str, float]:
    ids = zoo.calibration("code", n=16, length=CONTEXT)
    hot, others = torch.arange(n), n + torch.randperm(model.config.hidden_size - n)[:n]
    maxima = channel_maxima(model, ids)
    smoothed = [w8a8(smooth(model, maxima, a), "tensor") for a in (0, 0.25, 0.5, 0.75, 1)]
    moved = w8a8(shift(model, channel_means(model, ids)), "tensor")
    ways = {"fp": [model], "W8A8": [w8a8(model, "tensor")], "smoothed": smoothed}
    ways["shifted"] = [moved]
    for bits in (4, 3):
        ways[f"{bits} bits"] = [quantize_model(model, bits, GROUP)[0]]
        ways[f"{bits}, kept"] = [kept(model, bits, hot)]
        ways[f"{bits}, others"] = [kept(model, bits, others)]
    return {
        way: min(zoo.perplexity(m, "code", tokens=8192) for m in made) for way, made in ways.items()
    }


@torch.no_grad()
def shape(model: nn.Module, n: int) -> dict[str, float]:
    """Smallest and largest deviation over the layers, largest correlation, share of the energy that
    the n channels have, how rarely they are large, the columns' mean |w| over the median."""
    seen: list[Tensor] = []
    hooks = [
        g.norm.register_forward_hook(lambda m, x, y: seen.append(y.flatten(0, 1)))
        for g in norm_groups(model)
    ]
    model(zoo.calibration("code", n=16, length=CONTEXT))
    for hook in hooks:
        hook.remove()
    times = torch.stack([y.std(0)[:n] / y.std(0).median() for y in seen])
    pairs = [torch.corrcoef(y[:, [i, j]].T)[0, 1].abs().item() for y in seen
             for i, j in itertools.combinations(range(n), 2)]  # fmt: skip
    share = torch.stack([y[:, :n].square().sum() / y.square().sum() for y in seen])
    rare = torch.stack(
        [y[:, :n].std(0) / (y[:, :n] - y[:, :n].mean(0)).abs().mean(0) for y in seen]
    )
    size = torch.stack([w[:, :n].abs().mean(0) / w.abs().mean(0).median() for w in columns(model)])
    return {
        "times": times.min().item(),
        "to": times.max().item(),
        "alike": max(pairs, default=math.nan),
        "energy": share.mean().item(),
        "std / mean dev": rare.mean().item(),
        "columns": size.mean().item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trial", nargs="*", choices=[[], *TRIALS])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    from efflib.zoo.train import training_text

    text = training_text()
    for name in args.trial or TRIALS:
        print(f"{name}, {args.steps} steps", flush=True)
        run = Run(name, args.steps)
        train(run, text)
        made = run.result()
        found = effects(made, run.trial.channels) | shape(made, run.trial.channels)
        print("  " + "  ".join(f"{key} {value:.2f}" for key, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
