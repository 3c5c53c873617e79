"""Experts of transformers' Mixtral as linears, and back.

There all experts of a layer are two tensors, [E, 2 F, D] and [E, D, F].  Techniques look for
nn.Linear, and would pass them by: `linear_experts` makes a linear of every slice, under the names
of efflib's `Mixture` ("mlp.experts.3.up_proj"), and `stored_experts` puts them together again, for
`save_pretrained`.
"""

import torch
from torch import Tensor, nn


def is_stored_experts(module: nn.Module) -> bool:
    """Whether a module holds experts as tensors [E, 2 F, D] and [E, D, F], without biases."""
    parts = dict(module.named_parameters(recurse=False))
    return parts.keys() == {"gate_up_proj", "down_proj"} and all(
        p.ndim == 3 for p in parts.values()
    )


class Expert(nn.Module):
    """W_down (act(W_gate x) * W_up x), of one slice."""

    def __init__(self, gate_up: Tensor, down: Tensor, act: nn.Module) -> None:
        super().__init__()
        gate, up = gate_up.chunk(2)  # [F, D] each
        self.gate_proj, self.up_proj, self.down_proj = _linear(gate), _linear(up), _linear(down)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class LinearExperts(nn.ModuleList):
    """In the place of transformers' experts; called with what the router says."""

    def __init__(self, stored: nn.Module) -> None:
        pairs = zip(stored.gate_up_proj.detach(), stored.down_proj.detach(), strict=True)
        super().__init__(Expert(gate_up, down, stored.act_fn) for gate_up, down in pairs)
        self.train(stored.training)

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """x [T, D], chosen and shares [T, k] -> [T, D]."""
        y = torch.zeros_like(x)
        for e, expert in enumerate(self):
            token, choice = (chosen == e).nonzero(as_tuple=True)
            if len(token):
                part = expert(x[token]) * shares[token, choice, None]
                y.index_add_(0, token, part.to(y.dtype))
        return y


def _linear(weight: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight.clone(), requires_grad=weight.requires_grad)
    return linear


def linear_experts(model: nn.Module) -> None:
    """Replace, in the model that is given, all experts that are tensors by linears."""
    for name, module in list(model.named_modules()):
        if is_stored_experts(module):
            model.set_submodule(name, LinearExperts(module))


def stored_experts(model: nn.Module) -> None:
    """Undo `linear_experts` in the model that is given, whose experts' linears are nn.Linear."""
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    for name, module in list(model.named_modules()):
        if isinstance(module, LinearExperts):
            gate_up = [torch.cat([e.gate_proj.weight, e.up_proj.weight]) for e in module]
            with torch.device("meta"):
                stored = MixtralExperts(model.config)
            stored.gate_up_proj = nn.Parameter(torch.stack(gate_up).detach())
            stored.down_proj = nn.Parameter(
                torch.stack([e.down_proj.weight for e in module]).detach()
            )
            model.set_submodule(name, stored.train(module.training))
