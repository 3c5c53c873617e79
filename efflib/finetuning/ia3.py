"""(IA)^3: train a factor for each key, value and hidden channel of the MLP.

    k = l_k * (W_k x)    v = l_v * (W_v x)    down(l_ff * h)            factors begin at 1

Two kinds: factors on what a layer puts out (k_proj, v_proj) or on what it reads (down_proj).  Both
merge exactly: rows of W, or columns of it, times the factors.
Source: Liu et al. 2022 (arXiv:2205.05638), section 3.3.

Where implementations differ: a factor on the keys before the rotary embedding turns pairs, as here
and in peft, is not one after it (the paper's model has no rotary embedding).
"""

import copy

import torch
from torch import Tensor, nn

from efflib.checks import is_named
from efflib.finetuning.biases import linears

OUTPUTS, INPUTS = ("k_proj", "v_proj"), ("down_proj",)


class ScaledLinear(nn.Module):
    """A frozen linear with trained factors on its inputs [K] or its outputs [N]."""

    def __init__(self, base: nn.Linear, on_input: bool) -> None:
        super().__init__()
        self.base, self.on_input = base.requires_grad_(False), on_input
        size = base.in_features if on_input else base.out_features
        ones = torch.ones(size, dtype=base.weight.dtype, device=base.weight.device)
        self.factors = nn.Parameter(ones)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x * self.factors) if self.on_input else self.base(x) * self.factors


def add_ia3(
    model: nn.Module, outputs: tuple[str, ...] = OUTPUTS, inputs: tuple[str, ...] = INPUTS
) -> nn.Module:
    """A frozen copy of the model with trained factors, all 1, on these layers' outputs and inputs.

    Raises ValueError for a name that matches nothing, or a layer that is in both.
    """
    model = copy.deepcopy(model).requires_grad_(False)
    for name, layer in linears(model, outputs + inputs).items():
        on_input = is_named(name, inputs)
        if on_input and is_named(name, outputs):
            raise ValueError(f"{name} is in outputs and in inputs")
        model.set_submodule(name, ScaledLinear(layer, on_input).train(layer.training))
    return model


def merge_ia3(model: nn.Module) -> nn.Module:
    """A copy with plain linears, whose rows or columns have taken the factors."""
    model = copy.deepcopy(model)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, ScaledLinear):
            made, own = copy.deepcopy(layer.base), layer.factors.detach().double()
            factors = own[None, :] if layer.on_input else own[:, None]
            made.weight.data = (made.weight.double() * factors).to(made.weight.dtype)
            if made.bias is not None and not layer.on_input:
                made.bias.data = (made.bias.double() * own).to(made.bias.dtype)
            model.set_submodule(name, made)
    return model
