"""Expert parallel: a mixture's experts dealt to the ranks, tokens sent to them and back.

Every rank has its own tokens x [T, D] (data parallel) and a share of the E experts.  The router is
in every rank.  Three all-to-alls: the experts' numbers, the tokens, and the results on the way
back; each rank gets as many tokens as the router sends to its experts, so ranks wait for the one
with the most.

Source: Lepikhin et al. 2020, "GShard" (arXiv:2006.16668), section 3.2; there an expert takes no
more than its capacity, here it takes all.
"""

import torch
from torch import Tensor, nn

from efflib.moe.router import Routing
from efflib.parallel.communicator import Communicator, share


def expert_parallel(
    x: Tensor, routing: Routing, experts: list[nn.Module], count: int, comm: Communicator
) -> Tensor:
    """sum over the chosen experts e of gate_e Expert_e(x), for this rank's tokens x [T, D].

    experts: this rank's share of all `count` of them, in order.  [T, D]
    """
    k = routing.experts.shape[1]
    flat = routing.experts.flatten()  # [T k]
    order = flat.argsort(stable=True)  # by expert, and so by rank
    stops = torch.tensor([share(count, r, comm.size)[1] for r in range(comm.size)])
    owner = torch.bucketize(flat[order], stops, right=True)
    sizes = torch.bincount(owner, minlength=comm.size).tolist()
    token = order // k
    asked = comm.all_to_all(list(flat[order].split(sizes)))  # [rows from each rank]
    came = comm.all_to_all(list(x[token].split(sizes)))
    done = [
        _pass(rows, which, experts, count, comm) for rows, which in zip(came, asked, strict=True)
    ]
    back = torch.cat(comm.all_to_all(done))  # [T k, D], in `order`
    weighted = back * routing.gates.flatten()[order, None].to(x.dtype)
    return torch.zeros_like(x).index_add(0, token, weighted)


def _pass(rows: Tensor, which: Tensor, experts: list, count: int, comm: Communicator) -> Tensor:
    """Each row [n, D] through its expert, whose number stands in which [n]."""
    first = share(count, comm.rank, comm.size)[0]
    out = torch.zeros_like(rows)
    for i, expert in enumerate(experts):
        chosen = which == first + i
        if chosen.any():
            out[chosen] = expert(rows[chosen])
    return out
