"""A feed-forward layer made of E experts, of which a token passes through k.

    y = sum over the k experts e of the token:  gate_e Expert_e(x)

`mixture_by_loop` is the definition; `MixtureMLP` computes it by index: the T k assignments are
sorted by expert, each expert multiplies its tokens at once, and the rows are added up where they
came from.
"""

import torch
from torch import Tensor, nn

from efflib.models.config import MixtureConfig
from efflib.models.llama import LlamaMLP
from efflib.moe.router import Routing, route


def sorted_by_expert(experts: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """The order of the flat assignments [T k] by expert, and how many each expert has. [T k], E

    Assignment a is choice a % k of token a // k; within an expert, the order is kept.
    """
    flat = experts.flatten()
    return flat.argsort(stable=True), torch.bincount(flat, minlength=count).tolist()


def dispatch_combine(x: Tensor, routing: Routing, experts: list[nn.Module]) -> Tensor:
    """sum_e gate_e Expert_e(x) of tokens x [T, D], each expert called once at most. [T, D]"""
    k = routing.experts.shape[1]
    order, counts = sorted_by_expert(routing.experts, len(experts))
    token = order // k  # [T k]
    parts = [
        expert(rows)
        for expert, rows in zip(experts, x[token].split(counts), strict=True)
        if len(rows)
    ]
    weighted = torch.cat(parts) * routing.gates.flatten()[order, None].to(x.dtype)  # [T k, D]
    return torch.zeros_like(x).index_add(0, token, weighted.to(x.dtype))


def mixture_by_loop(x: Tensor, routing: Routing, experts: list[nn.Module]) -> Tensor:
    """The same, one token and one choice after the other. [T, D]"""
    rows = []
    for t in range(len(x)):
        pairs = zip(routing.experts[t].tolist(), routing.gates[t], strict=True)
        rows.append(sum(gate * experts[e](x[t : t + 1])[0] for e, gate in pairs))
    return torch.stack(rows)


class MixtureMLP(nn.Module):
    """In the place of a Llama's MLP.  `logits` holds what the router said last, [B T, E]."""

    def __init__(self, c: MixtureConfig) -> None:
        super().__init__()
        self.k = c.num_experts_per_tok
        self.gate = nn.Linear(c.hidden_size, c.num_local_experts, bias=False)
        self.experts = nn.ModuleList(LlamaMLP(c) for _ in range(c.num_local_experts))
        self.logits: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, -2)  # [B T, D]
        self.logits = self.gate(tokens)  # [B T, E]
        return dispatch_combine(tokens, route(self.logits, self.k), self.experts).view_as(x)
