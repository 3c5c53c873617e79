"""All ranks in one process, for tests: calls are counted, and who waits for ever is named.

Each rank has a thread, and exactly one of them runs at any time: the lowest rank that can go on,
until it waits for others.  So a run is the same every time, whatever the machine does, and when no
rank can go on, that is a deadlock and no slow network.

    results, calls = run_together(function, [(x0,), (x1,)])      function(x, comm) in two ranks

Time is counted in ticks: a message takes one, and begins when both sides are there.
"""

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from efflib.parallel.communicator import Call, check
from efflib.parallel.waiting import sequences, why

LIMIT = 20_000  # calls of one rank: beyond that it goes round in a circle
STUBBORN = 2.0  # seconds for a rank to end that catches everything, or is stopped in the middle
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


class Deadlock(RuntimeError):
    """No rank can go on.  The first line says who waits for whom, the rest what each has called."""


class Ended(BaseException):
    """Raised in a rank that waits when the run is over: another one has failed."""


class Together:
    """A rank's communicator; `run_together` makes them.  calls: its calls so far."""

    def __init__(self, world: "_World", rank: int, size: int) -> None:
        self.rank, self.size, self._world = rank, size, world
        self.calls: list[Call] = []
        self.ticks = 0

    def all_reduce(self, x: Tensor, op: str = "sum") -> Tensor:
        return self._meet("all_reduce", x, None, op)

    def all_gather(self, x: Tensor) -> list[Tensor]:
        return self._meet("all_gather", x, None, None)

    def reduce_scatter(self, parts: list[Tensor]) -> Tensor:
        return self._meet("reduce_scatter", list(parts), None, "sum")

    def all_to_all(self, parts: list[Tensor]) -> list[Tensor]:
        return self._meet("all_to_all", list(parts), None, None)

    def send(self, x: Tensor, to: int) -> None:
        self._meet("send", x, to, None)

    def recv(self, like: Tensor, source: int) -> Tensor:
        return self._meet("recv", like, source, None)

    def _meet(self, kind: str, value, peer: int | None, op: str | None):
        call = check(self.rank, self.size, kind, value, peer, op)
        self.calls.append(call)
        if len(self.calls) > LIMIT:
            raise Deadlock(f"rank {self.rank} has made {LIMIT} calls and does not end")
        kept = [v.detach().clone() for v in value] if isinstance(value, list) else value.detach()
        return self._world.wait(self.rank, call, kept)


class _World:
    """Who waits for what; the thread that made it hands the turn around."""

    def __init__(self, size: int) -> None:
        self.comms = [Together(self, rank, size) for rank in range(size)]
        self.turns = [threading.Semaphore(0) for _ in range(size)]
        self.back = threading.Semaphore(0)
        self.waiting: dict[int, tuple[Call, object]] = {}  # rank: what it asked for
        self.answers: dict[int, object] = {}
        self.ended: dict[int, object] = {}  # rank: its result
        self.fault: BaseException | None = None
        self.over = False

    # in a rank's thread
    def wait(self, rank: int, call: Call, value):
        self.waiting[rank] = call, value
        self.back.release()
        self.turns[rank].acquire()
        if self.over:
            raise Ended
        return self.answers.pop(rank)

    def live(self, rank: int, function: Callable, args: tuple, gradients: bool) -> None:
        self.turns[rank].acquire()
        try:
            if not self.over:
                with torch.set_grad_enabled(gradients):
                    self.ended[rank] = function(*args, self.comms[rank])
        except Ended:
            return
        except BaseException as fault:
            self.fault = self.fault or fault
        if not self.over:
            self.back.release()

    # in the thread that hands the turn around
    def run(self) -> None:
        able = list(range(len(self.comms)))
        while able and self.fault is None:
            rank = able.pop(0)
            self.turns[rank].release()
            while not self.back.acquire(timeout=0.5):  # a stop from the keyboard comes through
                pass
            able = sorted([*able, *self.meetings()])
        if self.fault is None and self.waiting:
            asked = {rank: call for rank, (call, _) in self.waiting.items()}
            history = [comm.calls for comm in self.comms]
            text = why(asked, set(self.ended), len(self.comms))
            raise Deadlock(f"{text}\n{sequences(history, set(asked))}")

    def meetings(self) -> list[int]:
        """The ranks that can go on after all calls were answered that can be."""
        free = []
        for rank, (call, value) in sorted(self.waiting.items()):
            other, like = self.waiting.get(call.peer, (None, None))
            if call.kind == "send" and other and (other.kind, other.peer) == ("recv", rank):
                self.pass_on(rank, call.peer, value, like)
                free += [rank, call.peer]
        asked = [call for call, _ in self.waiting.values()]
        if len(asked) == len(self.comms) and asked[0].kind in COLLECTIVES:
            if len({(call.kind, call.op) for call in asked}) == 1:
                free += self.gather(asked[0])
        for rank in free:
            del self.waiting[rank]
        return free

    def pass_on(self, source: int, to: int, value: Tensor, like: Tensor) -> None:
        if (value.shape, value.dtype) != (like.shape, like.dtype):
            raise ValueError(
                f"rank {source} sends {tuple(value.shape)} {value.dtype} to rank {to}, "
                f"which receives {tuple(like.shape)} {like.dtype}"
            )
        self.answers[source], self.answers[to] = None, value.clone()
        a, b = self.comms[source], self.comms[to]
        a.ticks = b.ticks = max(a.ticks, b.ticks) + 1

    def gather(self, call: Call) -> list[int]:
        ranks = range(len(self.comms))
        values = [self.waiting[rank][1] for rank in ranks]
        if call.kind != "all_to_all":
            shapes = {(c.shape, c.dtype) for c, _ in self.waiting.values()}
            if len(shapes) > 1:
                said = "; ".join(f"rank {r}: {self.waiting[r][0]}" for r in ranks)
                raise ValueError(f"{call.kind} of unlike tensors: {said}")
        for rank in ranks:
            self.answers[rank] = _result(call, values, rank)
        now = max(comm.ticks for comm in self.comms) + 1
        for comm in self.comms:
            comm.ticks = now
        return list(ranks)


def _result(call: Call, values: list, rank: int):
    """What a rank gets; sums in the order of ranks, in the dtype of what is added."""
    if call.kind == "all_gather":
        return [value.clone() for value in values]
    if call.kind == "all_to_all":
        return [parts[rank].clone() for parts in values]
    terms = [parts[rank] for parts in values] if call.kind == "reduce_scatter" else values
    result = terms[0].clone()
    for term in terms[1:]:
        result = torch.maximum(result, term) if call.op == "max" else result + term
    return result


def run_together(
    function: Callable, args: Sequence[tuple]
) -> tuple[list[object], list[list[Call]], list[int]]:
    """function(*args[r], comm) in every rank r; (results, calls, ticks), each by rank.

    Raises what a rank raises; Deadlock if no rank can go on; ValueError for tensors that do not
    fit each other.
    """
    world = _World(len(args))
    gradients = torch.is_grad_enabled()
    threads = [
        threading.Thread(target=world.live, args=(r, function, own, gradients), daemon=True)
        for r, own in enumerate(args)
    ]
    for thread in threads:
        thread.start()
    try:
        world.run()
    finally:
        world.over = True
        for turn in world.turns:
            turn.release()
        for thread in threads:
            thread.join(timeout=STUBBORN)
    if world.fault is not None:
        raise world.fault
    results = [world.ended[rank] for rank in range(len(args))]
    return results, [comm.calls for comm in world.comms], [comm.ticks for comm in world.comms]
