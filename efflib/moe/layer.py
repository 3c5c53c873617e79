"""A feed-forward layer made of E experts, of which a token passes through k.

    y = sum over the k experts e of the token:  gate_e Expert_e(x)

`mixture_by_loop` is the definition; `dispatch_combine` computes it by index: the T k assignments
are sorted by expert, each expert multiplies its tokens at once, and the rows are added up where
they came from.  `by_index` puts that into a `efflib.models.mixture.MixtureMLP`, in which every
expert otherwise computes every token.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from efflib.moe.router import Routing, route


def sorted_by_expert(experts: Tensor, count: int) -> tuple[Tensor, list[int]]:
    """The order of the flat assignments [T k] by expert, and how many each expert has. [T k], E

    Assignment a is choice a % k of token a // k; within an expert, the order is kept.
    """
    flat = experts.flatten()
    return flat.argsort(stable=True), torch.bincount(flat, minlength=count).tolist()


def dispatch_combine(
    x: Tensor, routing: Routing, experts: Sequence[nn.Module], kept: Tensor | None = None
) -> Tensor:
    """sum_e gate_e Expert_e(x) of tokens x [T, D], each expert called once at most. [T, D]

    kept: [T, k] bool, False for assignments that are dropped (`capacity.admitted`); they add
    nothing, and the gates of the others stay as they are.
    """
    k = routing.experts.shape[1]
    order, counts = sorted_by_expert(routing.experts, len(experts))
    if kept is not None:
        dropped = routing.experts[~kept]
        lost = torch.bincount(dropped, minlength=len(experts)).tolist()
        counts = [n - m for n, m in zip(counts, lost, strict=True)]
        order = order[kept.flatten()[order]]
    token = order // k  # [A], A assignments that are kept
    parts = [
        expert(rows)
        for expert, rows in zip(experts, x[token].split(counts), strict=True)
        if len(rows)
    ]
    y = torch.zeros_like(x)
    if not parts:
        return y
    weighted = torch.cat(parts) * routing.gates.flatten()[order, None].to(x.dtype)  # [A, D]
    return y.index_add(0, token, weighted.to(x.dtype))


def mixture_by_loop(x: Tensor, routing: Routing, experts: Sequence[nn.Module]) -> Tensor:
    """The same, one token and one choice after the other. [T, D]"""
    rows = []
    for t in range(len(x)):
        pairs = zip(routing.experts[t].tolist(), routing.gates[t], strict=True)
        rows.append(sum(gate * experts[e](x[t : t + 1])[0] for e, gate in pairs))
    return torch.stack(rows)


def by_index(x: Tensor, logits: Tensor, k: int, experts: Sequence[nn.Module]) -> Tensor:
    """The `mix` of a MixtureMLP in Mixtral's convention: tokens [T, D], logits [T, E]. [T, D]"""
    return dispatch_combine(x, route(logits, k), experts)
