"""BitFit, and the control beside it: as many weights, drawn at random.

    BitFit    y = x W^T + b               only b is trained
    control   y = x (W + S)^T + b         S is zero but for n random places, which are trained

A Llama has no biases.  They are added as zeros first, which leaves its function as it is; so where
BitFit on BERT trains what is there, here a layer gets a vector more.  Norms have gains (no biases),
and those stay frozen.
Source: Ben Zaken et al. 2022 (arXiv:2106.10199); the control is their section 4, "rand uniform".
Trained sparse changes of weights are a method as well (SHiRA, arXiv:2406.13175).

The values of S are a parameter of their own, so that AdamW keeps states for n numbers.  (A mask on
the gradient of W would train the same numbers and keep states for all of W.)
"""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_names, expect_whole, is_named

BLOCKS = ("layers",)  # every linear of the blocks


def linears(model: nn.Module, targets: tuple[str, ...]) -> dict[str, nn.Linear]:
    """{name: linear} under the targets.  Raises ValueError if there is none."""
    expect_names(model, targets=targets)
    found = {
        name: layer
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and is_named(name, targets)
    }
    if not found:
        raise ValueError(f"no linear of {type(model).__name__} is named by targets={targets}")
    return found


def add_biases(model: nn.Module, targets: tuple[str, ...] = BLOCKS) -> nn.Module:
    """A copy of the same function, frozen but for a bias in every linear of the targets."""
    model = copy.deepcopy(model).requires_grad_(False)
    for layer in linears(model, targets).values():
        old = layer.bias if layer.bias is not None else layer.weight.new_zeros(layer.out_features)
        layer.bias = nn.Parameter(old.detach().clone())
    return model


def draw(sizes: Sequence[int], n: int, seed: int = 0) -> list[Tensor]:
    """n of all places, each as likely as any other; for each layer of so many its own, ascending.

    Raises ValueError unless 0 <= n <= sum(sizes).
    """
    total = sum(sizes)
    expect_whole(n=n)
    if n > total:
        raise ValueError(f"{n=} of {total} weights")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(total, generator=generator)[:n].sort().values
    ends = torch.tensor(list(sizes)).cumsum(0)
    layer = torch.searchsorted(ends, chosen, right=True)
    starts = ends - torch.tensor(list(sizes))
    return [chosen[layer == i] - starts[i] for i in range(len(sizes))]


class SparseLinear(nn.Module):
    """A frozen linear of which some weights, at flat places, have a trained change `delta`."""

    def __init__(self, base: nn.Linear, places: Tensor) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.register_buffer("places", places.to(base.weight.device))
        self.delta = nn.Parameter(torch.zeros(len(places), device=base.weight.device))

    def weight(self) -> Tensor:
        """W + S, summed in at least float32. [N, K]"""
        w = self.base.weight
        wide = w.to(torch.promote_types(w.dtype, torch.float32)).flatten()
        return wide.index_add(0, self.places, self.delta.to(wide)).view_as(w).to(w.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight(), self.base.bias)


def add_random(
    model: nn.Module, n: int, targets: tuple[str, ...] = BLOCKS, seed: int = 0
) -> nn.Module:
    """A frozen copy of the model with n trained weights, anywhere in the linears of the targets."""
    model = copy.deepcopy(model).requires_grad_(False)
    found = linears(model, targets)
    places = draw([layer.weight.numel() for layer in found.values()], n, seed)
    for (name, layer), own in zip(found.items(), places, strict=True):
        if len(own):
            model.set_submodule(name, SparseLinear(layer, own).train(layer.training))
    return model


def merge_random(model: nn.Module) -> nn.Module:
    """A copy with plain linears in place of every `SparseLinear`: the same sums, bit by bit."""
    model = copy.deepcopy(model)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, SparseLinear):
            made = copy.deepcopy(layer.base)
            made.weight = nn.Parameter(layer.weight().detach(), requires_grad=False)
            model.set_submodule(name, made)
    return model
