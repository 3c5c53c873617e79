"""The calls of a rank over torch.distributed: gloo between processes, nccl between GPUs.

    comm = Distributed(rank, size, store)           in every process; then comm.all_reduce(x), ...
    comm.close()

`send` is made to wait for the other side with any backend and size, as `communicator` says: a
message is followed by an answer of one byte.  Without it gloo would keep small messages and let
code pass that stands still with large ones.  `calls` counts as in `together`.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from efflib.parallel.communicator import Call, check

LOOPBACK = {"linux": "lo", "darwin": "lo0"}  # the interface that needs no network


class Distributed:
    """A rank's communicator; one at a time in a process.

    store: a torch.distributed.Store that all ranks share; limit: seconds after which a call that
    still waits is an error.
    """

    def __init__(
        self, rank: int, size: int, store: dist.Store, backend: str = "gloo", limit: float = 60.0
    ) -> None:
        self.rank, self.size, self.calls = rank, size, []
        self._device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=limit)
        )

    def close(self) -> None:
        dist.destroy_process_group()

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        self._note("all_reduce", x, None, op)
        out = self._own(x)
        self._run(dist.all_reduce, out, dist.ReduceOp.MAX if op == "max" else dist.ReduceOp.SUM)
        return out

    def all_gather(self, x: Tensor) -> list[Tensor]:
        self._note("all_gather", x)
        own = self._own(x)
        out = [torch.empty_like(own) for _ in range(self.size)]
        self._run(dist.all_gather, out, own)
        return out

    def reduce_scatter(self, parts: list[Tensor]) -> Tensor:
        """gloo has none of its own: there an all_reduce of all parts, which sends twice as much."""
        self._note("reduce_scatter", parts, None, "sum")
        own = self._own(torch.stack(list(parts)))
        if dist.get_backend() == "gloo":
            self._run(dist.all_reduce, own)
            return own[self.rank].clone()
        out = torch.empty_like(own[0])
        self._run(dist.reduce_scatter_tensor, out, own)
        return out

    def all_to_all(self, parts: list[Tensor]) -> list[Tensor]:
        self._note("all_to_all", parts)
        rows = torch.tensor([len(part) for part in parts], device=self._device)
        table = [torch.empty_like(rows) for _ in parts]
        self._run(dist.all_gather, table, rows)  # how much will come from whom
        own = [self._own(part) for part in parts]
        out = [own[self.rank].new_empty(int(t[self.rank]), *own[0].shape[1:]) for t in table]
        out[self.rank] = own[self.rank]
        others = [r for r in range(self.size) if r != self.rank]
        waits = [dist.isend(own[r], r) for r in others] + [dist.irecv(out[r], r) for r in others]
        for wait in waits:
            self._run(wait.wait)
        return out

    def send(self, x: Tensor, to: int) -> None:
        self._note("send", x, to)
        self._run(dist.send, self._own(x), to)
        self._run(dist.recv, self._byte(), to)

    def recv(self, like: Tensor, source: int) -> Tensor:
        self._note("recv", like, source)
        out = torch.empty(like.shape, dtype=like.dtype, device=self._device)
        self._run(dist.recv, out, source)
        self._run(dist.send, self._byte(), source)
        return out

    def _note(self, kind: str, value, peer: int | None = None, op: str | None = None) -> None:
        self.calls.append(check(self.rank, self.size, kind, value, peer, op))

    def _own(self, x: Tensor) -> Tensor:
        """A contiguous copy on the device of this rank: the collectives write in place."""
        return x.detach().to(self._device, copy=True).contiguous()

    def _byte(self) -> Tensor:
        return torch.zeros(1, dtype=torch.uint8, device=self._device)

    def _run(self, function, *args) -> None:
        try:
            function(*args)
        except RuntimeError as fault:
            call: Call = self.calls[-1]
            text = f"rank {self.rank} in call {len(self.calls)}, {call}: {str(fault)[:200]}"
            raise RuntimeError(text) from None


def loopback_environment() -> dict[str, str]:
    """The variable that keeps gloo on this machine, so that no network is needed or seen."""
    name = LOOPBACK.get(sys.platform)
    return {"GLOO_SOCKET_IFNAME": name} if name else {}
