"""A ring all-reduce from messages between neighbours, and what each collective sends.

x is cut into p chunks.  p - 1 times every rank passes a chunk to the right and adds what comes from
the left: then rank r has the whole sum of chunk r + 1 (the reduce-scatter).  p - 1 times more they
pass on finished chunks (the all-gather).  Each message is n / p, so a rank sends

    2 (p - 1) / p  n        bytes, and no algorithm sends less (Patarasuk and Yuan, 2009)

Each chunk's sum is made once, in one order, and copied: all ranks have the same bits.

`send` waits for the receiver, so not everybody can send first: even ranks send, odd ones receive.
"""

import torch
from torch import Tensor

from efflib.parallel.communicator import Communicator


def ring_all_reduce(x: Tensor, comm: Communicator) -> Tensor:
    """The sum of everybody's x, of any shape, by send and recv alone."""
    p, r = comm.size, comm.rank
    chunks = list(torch.tensor_split(x.flatten(), p))
    right, left = (r + 1) % p, (r - 1) % p

    def shift(chunk: Tensor, like: Tensor) -> Tensor:
        if r % 2:
            got = comm.recv(like, left)
            comm.send(chunk, right)
        else:
            comm.send(chunk, right)
            got = comm.recv(like, left)
        return got

    for step in range(p - 1):
        gone, come = (r - step) % p, (r - step - 1) % p
        chunks[come] = chunks[come] + shift(chunks[gone], chunks[come])
    for step in range(p - 1):
        gone, come = (r + 1 - step) % p, (r - step) % p
        chunks[come] = shift(chunks[gone], chunks[come])
    return torch.cat(chunks).view(x.shape)


def sent_bytes(kind: str, n: int, p: int) -> float:
    """Bytes that a rank of p sends at least, on average, when n bytes are handed over by each.

    n: of x; for reduce_scatter and all_to_all of all parts together; for all_gather of a rank's
    own x.  Raises ValueError for another kind.
    """
    others = {
        "all_reduce": 2 * (p - 1) / p,
        "reduce_scatter": (p - 1) / p,
        "all_to_all": (p - 1) / p,
        "all_gather": p - 1,
        "send": 1,
    }
    if kind not in others:
        raise ValueError(f"kind={kind!r} must be one of {', '.join(others)}")
    return others[kind] * n
