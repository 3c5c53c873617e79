"""The counting communicator: results, counts, ticks, and ranks that wait for ever."""

import threading

import pytest
import torch

from efflib.parallel.communicator import total
from efflib.parallel.together import Deadlock, run_together


def test_every_call_by_hand():
    def rank(comm):
        r, p = comm.rank, comm.size
        x = torch.tensor([1.0, 10.0 * r])
        return (
            comm.all_reduce(x),
            comm.all_reduce(x, "max"),
            comm.all_gather(x[1:]),
            comm.reduce_scatter([x + i for i in range(p)]),
            comm.all_to_all([torch.full((i + 1,), float(r)) for i in range(p)]),
        )

    results, calls, ticks = run_together(rank, [()] * 3)
    for r, (added, largest, gathered, scattered, swapped) in enumerate(results):
        assert added.tolist() == [3, 30] and largest.tolist() == [1, 20]
        assert [g.item() for g in gathered] == [0, 10, 20]
        assert scattered.tolist() == [3 + 3 * r, 30 + 3 * r]
        assert [s.tolist() for s in swapped] == [[float(i)] * (r + 1) for i in range(3)]
    assert [c.sent for c in calls[0]] == [8, 8, 4, 24, 24]
    assert ticks == [5] * 3


def test_messages_are_copies_and_counted():
    def rank(comm):
        x = torch.ones(3)
        if comm.rank == 0:
            comm.send(x, 1)
            x += 1
            return x
        got = comm.recv(x, 0)
        got += 5
        return got

    (a, b), calls, ticks = run_together(rank, [(), ()])
    assert a.tolist() == [2] * 3 and b.tolist() == [6] * 3
    assert [total(c) for c in calls] == [(1, 12), (1, 0)] and ticks == [1, 1]


def waits(function, size, *texts):
    before = threading.active_count()
    said = []
    for _ in range(2):
        with pytest.raises(Deadlock) as fault:
            run_together(function, [()] * size)
        said.append(str(fault.value))
        assert all(text in said[-1] for text in texts), said[-1]
    assert said[0] == said[1]
    assert threading.active_count() == before
    return said[0]


def test_who_waits_for_ever_is_named():
    def no_sender(comm):
        if comm.rank == 1:
            comm.recv(torch.ones(1), 0)

    waits(no_sender, 2, "rank 1 waits for a message from rank 0 that nobody sends", "has returned")

    def all_send(comm):
        comm.send(torch.ones(1), 1 - comm.rank)
        comm.recv(torch.ones(1), 1 - comm.rank)

    waits(all_send, 2, "rank 0 sends to rank 1, which does not receive: rank 1 itself sends")

    def left_out(comm):
        if comm.rank:
            comm.all_reduce(torch.ones(1))

    waits(left_out, 3, "rank 1 waits in all_reduce for all ranks: rank 0 has returned")

    def other_order(comm):
        for kind in ("all_reduce", "all_gather")[:: 1 if comm.rank else -1]:
            getattr(comm, kind)(torch.ones(2))

    text = waits(other_order, 2, "different orders: rank 0 in all_gather, rank 1 in all_reduce")
    assert "all_gather [2] <- waits     | all_reduce [2] <- waits" in text

    def other_reduction(comm):
        comm.all_reduce(torch.ones(2), "max" if comm.rank else "sum")

    waits(other_reduction, 2, "rank 1 in all_reduce (max)")


def test_the_others_end_when_one_raises():
    before = threading.active_count()

    def rank(comm):
        if comm.rank == 2:
            raise KeyError("mine")
        comm.all_reduce(torch.ones(1))

    with pytest.raises(KeyError, match="mine"):
        run_together(rank, [()] * 3)
    assert threading.active_count() == before


def test_an_interrupt_ends_the_ranks():
    before = threading.active_count()

    def rank(comm):
        if comm.rank == 0:
            raise KeyboardInterrupt
        comm.all_reduce(torch.ones(1))

    with pytest.raises(KeyboardInterrupt):
        run_together(rank, [()] * 2)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "call, kind",
    [
        (lambda c: c.all_reduce(torch.ones(1 + c.rank)), ValueError),
        (lambda c: c.all_reduce(torch.ones(1), "mean"), ValueError),
        (lambda c: c.all_reduce(1.0), TypeError),
        (lambda c: c.send(torch.ones(1), c.rank), ValueError),
        (lambda c: c.send(torch.ones(1), 7), ValueError),
        (lambda c: c.reduce_scatter([torch.ones(1)]), ValueError),
        (
            lambda c: c.send(torch.ones(2), 1) if c.rank == 0 else c.recv(torch.ones(3), 0),
            ValueError,
        ),
        (lambda c: [c.all_reduce(torch.ones(1)) for _ in range(30_000)], Deadlock),
    ],
)
def test_what_cannot_be_is_refused(call, kind):
    with pytest.raises(kind):
        run_together(call, [()] * 2)


def test_gradients_are_as_in_the_caller():
    with torch.no_grad():
        seen, _, _ = run_together(lambda comm: torch.is_grad_enabled(), [()] * 2)
    assert seen == [False, False]
    assert run_together(lambda comm: torch.is_grad_enabled(), [()])[0] == [True]
