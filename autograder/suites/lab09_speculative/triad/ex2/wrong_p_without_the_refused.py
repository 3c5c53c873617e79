"""A rejection draws from p without the refused token: right for a certain draft only."""

import torch
from torch import Tensor

FAILS = ["test_a_round_loses_nothing", "test_rounds_of_all_drafts"]


def verify(proposed: Tensor, q: Tensor, p: Tensor, coin, pick) -> Tensor:
    out = []
    for i, x in enumerate(proposed.tolist()):
        if coin(min(1.0, float(p[i, x] / q[i, x]))):
            out.append(x)
        else:
            rest = p[i].clone()
            rest[x] = 0
            out.append(pick(rest / rest.sum() if rest.sum() > 0 else p[i]))
            return torch.tensor(out)
    out.append(pick(p[-1]))
    return torch.tensor(out)
