"""A vocabulary in parts: embedding, cross-entropy and next token without anybody's whole logits.

    loss_t = log sum_v exp(l_tv - m_t) - (l_ty - m_t),      m_t = max_v l_tv

Rank r has rows start ... of the table [V, D], and with them a part of each token's logits.  The
maximum and the sum are made of the parts' maxima and sums, and exactly one rank knows the target's
logit: three numbers a token travel in place of V.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.models.rotary import at_least_fp32
from efflib.parallel.communicator import Communicator


def _own(ids: Tensor, start: int, rows: int) -> tuple[Tensor, Tensor]:
    """(whether each id is in this rank's rows, its row there or 0)."""
    here = (ids >= start) & (ids < start + rows)
    return here, torch.where(here, ids - start, 0)


def embed(ids: Tensor, table: Tensor, start: int, comm: Communicator) -> Tensor:
    """Rows of the whole table for ids [...], from this rank's rows table [v, D].  [..., D]"""
    here, row = _own(ids, start, len(table))
    found = F.embedding(row, table) if len(table) else table.new_zeros(*ids.shape, table.shape[1])
    return comm.all_reduce(found.masked_fill(~here[..., None], 0))


def cross_entropy(
    hidden: Tensor, head: Tensor, targets: Tensor, start: int, comm: Communicator
) -> Tensor:
    """-log softmax(hidden W^T)[target] [T] for hidden [T, D], head [v, D] a part of W; float32."""
    logits = F.linear(hidden, head).to(at_least_fp32(hidden.dtype))  # [T, v]
    padded = F.pad(logits, (0, 1), value=-torch.inf)  # a rank without rows knows nothing
    top = comm.all_reduce(padded.amax(-1), "max")  # [T]
    here, row = _own(targets, start, len(head))
    known = padded.gather(1, row[:, None])[:, 0] - top
    both = torch.stack([(logits - top[:, None]).exp().sum(-1), torch.where(here, known, 0)])
    total, target = comm.all_reduce(both)
    return total.log() - target


def next_token(hidden: Tensor, head: Tensor, start: int, comm: Communicator) -> Tensor:
    """The id [T] with the largest logit, of equal ones the smallest, for hidden [T, D]."""
    logits = F.pad(F.linear(hidden, head), (0, 1), value=-torch.inf).double()
    value, at = logits.max(-1)
    pairs = torch.stack(comm.all_gather(torch.stack([value, (start + at).double()])))  # [p, 2, T]
    best = pairs[:, 0].amax(0)
    return torch.where(pairs[:, 0] == best, pairs[:, 1], torch.inf).amin(0).long()
