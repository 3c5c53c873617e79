"""What the code of one device, a rank, can ask of the others.

All ranks run the same function; `rank` says who one is, `size` how many there are.  A call is a
meeting: it returns when everybody whom it concerns has made theirs.

    all_reduce(x)            every rank gets the sum (or the maximum) of everybody's x
    all_gather(x)            every rank gets the list of everybody's x
    reduce_scatter(parts)    rank r gets the sum of everybody's parts[r]
    all_to_all(parts)        rank r gets the list of everybody's parts[r]
    send(x, to), recv(like, source)    a message between two

`send` returns when the other rank has received: two ranks that both send first to each other wait
for ever.  So it is with NCCL, and with MPI and gloo when a message is large.  What comes back is
memory of its own, and x stays as it was.  `together.Together` and `distributed.Distributed` have
these calls.
"""

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

REDUCTIONS = ("sum", "max")


class Call(NamedTuple):
    """One call of a rank, as it is counted."""

    kind: str
    peer: int | None  # whom it sends to or receives from; None: all
    shape: tuple[int, ...]  # of what is handed over (recv: of what comes)
    dtype: torch.dtype
    sent: int  # bytes that are handed over
    op: str | None = None  # of an all_reduce or reduce_scatter

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "1"
        way = {"send": f" to {self.peer}", "recv": f" from {self.peer}"}.get(self.kind, "")
        return f"{self.kind}{'' if self.op in (None, 'sum') else ' ' + self.op}{way} [{shape}]"


class Communicator(Protocol):
    """See the module's text.  Shapes of x are the same in all ranks, unless said otherwise."""

    rank: int
    size: int

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        """The sum, or with op "max" the largest, over ranks of x, of its shape and dtype."""
        ...

    def all_gather(self, x: Tensor) -> list[Tensor]:
        """Everybody's x, in the order of ranks."""
        ...

    def reduce_scatter(self, parts: list[Tensor]) -> Tensor:
        """The sum over ranks of their parts[own rank]; parts: one for each rank, of one shape."""
        ...

    def all_to_all(self, parts: list[Tensor]) -> list[Tensor]:
        """What each rank had for this one; parts may differ in their first dimension."""
        ...

    def send(self, x: Tensor, to: int) -> None:
        """Returns when rank `to` has received x."""
        ...

    def recv(self, like: Tensor, source: int) -> Tensor:
        """The tensor that rank `source` sends, of the shape and dtype of `like`."""
        ...


def share(n: int, rank: int, size: int) -> tuple[int, int]:
    """(start, stop) of a rank's part of n things: neighbours, the first n % size get one more."""
    least, more = divmod(n, size)
    start = rank * least + min(rank, more)
    return start, start + least + (rank < more)


def described(kind: str, value: Tensor | list[Tensor], peer: int | None, op: str | None) -> Call:
    """The Call for what is handed over.  Raises TypeError unless it is a tensor, or tensors."""
    parts = value if isinstance(value, list | tuple) else [value]
    if not parts or not all(isinstance(part, Tensor) for part in parts):
        kinds = type(value).__name__
        raise TypeError(
            f"{kind} takes a tensor{'s in a list' if peer is None else ''}, not {kinds}"
        )
    sent = 0 if kind == "recv" else sum(p.numel() * p.element_size() for p in parts)
    shape = tuple(parts[0].shape) if len(parts) == 1 else (len(parts), *parts[0].shape)
    return Call(kind, peer, shape, parts[0].dtype, sent, op)


def check(rank: int, size: int, kind: str, value, peer: int | None, op: str | None) -> Call:
    """The Call, after what can be refused at once.

    Raises ValueError for a peer that is none, another op than sum and max, or parts that are not
    one for each rank; TypeError for what is no tensor.
    """
    if peer is not None and (isinstance(peer, bool) or not isinstance(peer, int)):
        raise TypeError(f"rank {rank}: the other rank must be an int, not {peer!r}")
    if peer is not None and (peer == rank or not 0 <= peer < size):
        raise ValueError(f"rank {rank} of {size} cannot {kind} with rank {peer}")
    if op is not None and op not in REDUCTIONS:
        raise ValueError(f"op={op!r} must be one of {', '.join(REDUCTIONS)}")
    if kind in ("reduce_scatter", "all_to_all") and len(value) != size:
        raise ValueError(f"{kind} takes a list of {size} tensors, one for each rank")
    if kind in ("all_reduce", "all_gather", "send", "recv") and not isinstance(value, Tensor):
        raise TypeError(f"{kind} takes a tensor, not {type(value).__name__}")
    return described(kind, value, peer, op)


def total(calls: list[Call], kind: str | None = None) -> tuple[int, int]:
    """(calls, bytes handed over) of a rank's calls, of one kind or of all."""
    chosen = [c for c in calls if kind in (None, c.kind)]
    return len(chosen), math.floor(sum(c.sent for c in chosen))
