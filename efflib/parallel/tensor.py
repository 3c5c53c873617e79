"""Linear layers in parts: a column parallel one, a row parallel one, and one all-reduce.

    column parallel   rank r has rows r of W [N, K]:      y_r = x W_r^T + b_r        a part of y
    row parallel      rank r has columns r of W:          y   = sum_r x_r W_r^T  + b

The outputs of the first are the inputs that the second wants, so an MLP needs nothing from the
others until its end: one all-reduce of [T, D], whatever its inner size.  What stands between the
two (an activation, a product of gate and up) must work on each number by itself.

The bias of the row parallel layer counts once.  Where implementations differ: Megatron adds it
after the all-reduce, nano-vllm on rank 0 before it; adding it in every rank gives p b.

Sequence parallel (Korthikanti et al. 2022, arXiv:2205.05198): an all-reduce is a reduce-scatter and
an all-gather.  Between the two each rank has 1/p of the tokens, and norms and residuals are
computed once and not p times; as many bytes travel.

Source: Shoeybi et al. 2019, "Megatron-LM" (arXiv:1909.08053), section 3.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.parallel.communicator import Communicator, share

Linear = tuple[Tensor, Tensor | None]  # weight [N, K], bias [N]


def column_part(w: Tensor, b: Tensor | None, rank: int, size: int) -> Linear:
    """This rank's outputs: rows of w [N, K] and entries of b [N].  Memory of their own."""
    start, stop = share(w.shape[0], rank, size)
    return w[start:stop].clone(), None if b is None else b[start:stop].clone()


def row_part(w: Tensor, rank: int, size: int) -> Tensor:
    """The columns of w [N, K] for this rank's inputs.  Memory of its own."""
    start, stop = share(w.shape[1], rank, size)
    return w[:, start:stop].clone()


def row_linear(x: Tensor, w: Tensor, b: Tensor | None, comm: Communicator) -> Tensor:
    """x [..., k] w^T [k, N] summed over ranks, and the whole bias [N] once.  [..., N]"""
    y = comm.all_reduce(F.linear(x, w))
    return y if b is None else y + b


def parallel_mlp(x: Tensor, gate: Linear, up: Linear, down: Linear, comm: Communicator) -> Tensor:
    """W_down (silu(W_gate x) * W_up x) of x [..., D], weights in parts, down's bias whole."""
    inner = F.silu(F.linear(x, *gate)) * F.linear(x, *up)  # [..., part of I]
    return row_linear(inner, *down, comm)


def sequence_parallel_mlp(
    x: Tensor, gate: Linear, up: Linear, down: Linear, comm: Communicator
) -> Tensor:
    """The same for x [T / p, D], this rank's tokens; T must be a multiple of p."""
    tokens = torch.cat(comm.all_gather(x))  # [T, D]
    inner = F.silu(F.linear(tokens, *gate)) * F.linear(tokens, *up)
    y = comm.reduce_scatter(list(F.linear(inner, down[0]).chunk(comm.size)))
    return y if down[1] is None else y + down[1]
