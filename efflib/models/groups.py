"""Which linears read the output of which norm.

Techniques that move a factor or an offset from activations into weights (SmoothQuant, AWQ, the
outlier emulation of the zoo) need to know every linear that shares one norm: what is done to the
norm's output must be undone in all of them.  The names are those of `hub.describe`.

GPT-2 has no nn.Linear in its layers but Conv1D of transformers, whose weight is [in, out]. What
works on weights [out, in] would read it the wrong way round, silently where it is square. So
`norm_groups` refuses such a layer, and `with_linears` gives a copy of the model, with the same
function, that has an nn.Linear in place of every Conv1D, and of every expert that is a slice of a
tensor.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from efflib.models.experts import linear_experts
from efflib.models.hub import describe


class NormGroup(NamedTuple):
    """A norm and the linears that read its output; the names are full dotted names."""

    name: str
    norm: nn.Module
    linears: dict[str, nn.Linear]
    routers: dict[str, nn.Module] = {}  # they read it too, and have a weight [E, D] of their own
    one_plus: bool = False  # the norm multiplies by 1 + weight

    @property
    def readers(self) -> dict[str, nn.Module]:
        """All that a change of the norm's output has to be undone in."""
        return {**self.linears, **self.routers}

    def gain(self) -> Tensor:
        """What the norm multiplies with. [D]"""
        return 1 + self.norm.weight if self.one_plus else self.norm.weight


def norm_groups(model: nn.Module) -> list[NormGroup]:
    """Every norm of the model's layers with its linears, in the order of the layers.

    Raises ValueError as `hub.describe`, for a reader that is no nn.Linear, and for a family whose
    norms nothing can be folded into.
    """
    decoder = describe(model)
    if decoder.no_folds:
        raise ValueError(f"{type(model).__name__}: {decoder.no_folds}")
    modules = dict(model.named_modules())
    found = []
    for block in decoder.blocks:
        for name, readers in block.norms.items():
            linears = {reader: modules[reader] for reader in sorted(readers)}
            _expect_linears(linears)
            routers = {router: modules[router] for router in block.routers.get(name, ())}
            one_plus = decoder.family.one_plus
            found.append(NormGroup(name, modules[name], linears, routers, one_plus))
    return found


def _expect_linears(readers: dict[str, nn.Module]) -> None:
    for name, module in readers.items():
        if not isinstance(module, nn.Linear):
            kind = type(module).__name__
            hint = ": call with_linears(model) first" if kind == "Conv1D" else ""
            raise ValueError(f"{name} is a {kind}, not an nn.Linear{hint}")


def with_linears(model: nn.Module) -> nn.Module:
    """A copy of the model with an nn.Linear [out, in] for every Conv1D [in, out] of transformers,
    and for every slice of Mixtral's experts.

    The function is the same; the names of layers and parameters stay, but of experts
    (`experts.linear_experts`), weights of Conv1D are transposed.
    """
    model = copy.deepcopy(model)
    linear_experts(model)
    for name, module in list(model.named_modules()):
        if type(module).__name__ != "Conv1D":
            continue
        weight = module.weight.detach()  # [in, out]
        linear = nn.Linear(*weight.shape, device=weight.device, dtype=weight.dtype)
        with torch.no_grad():
            linear.weight.copy_(weight.T)
            linear.bias.copy_(module.bias)
        model.set_submodule(name, linear.train(module.training))
    return model
