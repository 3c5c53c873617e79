"""Adapters: a small bottleneck behind a frozen layer, in series with it.

    y = base(x)
    z = y + gelu(y D^T + c) U^T + u            D [m, N], c [m], U [N, m], u [N], m << N

With U and u at zero an adapter begins as the identity, bit by bit.  D is random: were it zero as
well, gelu(0) = 0 would keep the gradient of U, and U = 0 that of D, at zero for ever.
The function between D and U is not linear, so no weight of the base can take an adapter in
(without it W + U D W would): every token pays for it, and rows of a batch may have their own.
Source: Houlsby et al. 2019 (arXiv:1902.00751), section 2.

Where implementations differ
- Place: the authors put one behind attention and one behind the MLP of every block, before the
  residual sum; that is behind o_proj and down_proj here (`BEHIND`).  Pfeiffer et al. 2021
  (arXiv:2005.00247) keep the second alone.
- Start: the authors draw both matrices with a deviation of 1e-3, nearly the identity; here it is.
- The authors train the norms besides; here everything else is frozen.
"""

import copy
import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_names, expect_whole, is_named
from efflib.finetuning.batched import Choice

BEHIND = ("o_proj", "down_proj")


class Adapter(nn.Module):
    """y [..., N] -> y + gelu(y down^T + down_bias) up^T + up_bias, the identity at the start."""

    def __init__(self, size: int, m: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        expect_whole(1, size=size, m=m)
        bound = 1 / math.sqrt(size)
        self.down = nn.Parameter(torch.empty(m, size).uniform_(-bound, bound, generator=generator))
        self.down_bias = nn.Parameter(torch.zeros(m))
        self.up = nn.Parameter(torch.zeros(size, m))
        self.up_bias = nn.Parameter(torch.zeros(size))

    def forward(self, y: Tensor) -> Tensor:
        wide = torch.promote_types(y.dtype, torch.float32)
        down, b, up, u = (p.to(wide) for p in (self.down, self.down_bias, self.up, self.up_bias))
        low = F.gelu(F.linear(y.to(wide), down, b))  # [..., m]
        return y + F.linear(low, up, u).to(y.dtype)


class Behind(nn.Module):
    """A frozen layer and the adapter behind it."""

    def __init__(self, base: nn.Module, adapter: nn.Module) -> None:
        super().__init__()
        self.base, self.adapter = base, adapter

    def forward(self, x: Tensor) -> Tensor:
        return self.adapter(self.base(x))


def add_adapters(
    model: nn.Module, m: int, targets: tuple[str, ...] = BEHIND, seed: int = 0
) -> nn.Module:
    """A frozen copy of the model with a trainable adapter behind every linear of the targets.

    targets: whole components of names.  Raises ValueError for a name that matches nothing, a model
    that has adapters already, or m < 1.
    """
    expect_names(model, targets=targets)
    if any(isinstance(layer, Behind) for layer in model.modules()):
        raise ValueError(f"{type(model).__name__} has adapters already")
    model = copy.deepcopy(model).requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    found = [
        (name, layer)
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and is_named(name, targets)
    ]
    if not found:
        raise ValueError(f"no linear of {type(model).__name__} is named by targets={targets}")
    for name, layer in found:
        made = Behind(layer, Adapter(layer.out_features, m, generator))
        model.set_submodule(name, made.to(layer.weight.device).train(layer.training))
    return model


class BatchedAdapter(nn.Module):
    """n adapters, of which every row of the batch has chosen one; 0 is none."""

    def __init__(self, adapters: Sequence[Adapter], choice: Choice) -> None:
        super().__init__()
        self.choice = choice
        m = max(len(a.down) for a in adapters)
        for name in ("down", "down_bias", "up", "up_bias"):
            parts = [_widened(getattr(a, name).detach(), name, m) for a in adapters]
            stacked = torch.stack([torch.zeros_like(parts[0]), *parts])
            self.register_buffer(name, stacked)  # [1 + n, ...]

    def forward(self, y: Tensor) -> Tensor:
        """[B, T, N] -> [B, T, N]"""
        i = self.choice.index
        if i is None:
            return y
        if y.ndim != 3 or len(y) != len(i):
            raise ValueError(f"{len(i)} adapters were chosen for y {tuple(y.shape)}: one a row")
        wide = torch.promote_types(y.dtype, torch.float32)
        down, b, up, u = (p[i].to(wide) for p in (self.down, self.down_bias, self.up, self.up_bias))
        low = F.gelu(y.to(wide) @ down.mT + b[:, None])  # [B, T, m]
        return y + (low @ up.mT + u[:, None]).to(y.dtype)


def _widened(part: Tensor, name: str, m: int) -> Tensor:
    """Zeros up to m: gelu(0) = 0, and zeros of `up` take nothing from it."""
    if name == "up_bias":
        return part
    if name == "up":
        return F.pad(part, (0, m - part.shape[1]))
    return torch.cat([part, part.new_zeros(m - len(part), *part.shape[1:])])


def together(model: nn.Module, adapted: Mapping[str, nn.Module]) -> nn.Module:
    """A frozen copy of the model with all adapters behind its layers; choose by `batched.use`.

    adapted: {name: the model after add_adapters and training}, all with the same targets; m may
    differ.  Raises ValueError if there is none, or they differ in targets.
    """
    places = {
        name: {n: layer.adapter for n, layer in other.named_modules() if isinstance(layer, Behind)}
        for name, other in adapted.items()
    }
    first = next(iter(places.values()), {})
    if not first or "" in places or any(own.keys() != first.keys() for own in places.values()):
        raise ValueError("need adapters with names, behind the same layers of all models")
    model = copy.deepcopy(model).requires_grad_(False).eval()
    model.adapters, model.choice = ("", *places), Choice()
    for layer in first:
        own = [adapters[layer] for adapters in places.values()]
        behind = Behind(model.get_submodule(layer), BatchedAdapter(own, model.choice))
        model.set_submodule(layer, behind)
    return model
