"""The server with functions of the caller gives what it gives with the reference's bookkeeping."""

import pytest

from efflib.serving import contiguous, waste
from efflib.serving.blocks import BlockPool, blocks_for
from efflib.traffic.server import Blocks, Pieces, mean_share, replay
from efflib.traffic.traces import CHAT, Request, draw_trace

TRACE = draw_trace(40, *CHAT, per_step=0.3, seed=5)
LONGEST, ROWS = 2048, 6000


class Pool:
    """The reference's, as the lab calls it."""

    def __init__(self, size):
        self.pool = BlockPool(size)
        self.take, self.release = self.pool.take, self.pool.release

    def free(self):
        return self.pool.free


def piece(policy, prompt, output, longest):
    return contiguous.piece(Request(0, prompt, output), policy, longest)


def by_rows(pieces, size, wanted):
    """The five kinds with every row labelled."""
    rows = ["."] * size
    for start, stop, tokens, total in pieces:
        kinds = "u" * tokens + "r" * (total - tokens) + "i" * (stop - start - total)
        rows[start:stop] = kinds
    text = "".join(rows)
    free, longest = text.count("."), max(map(len, "".join(rows).translate(OWNED).split("x")))
    external = free if longest < wanted <= free else 0
    return *(text.count(kind) for kind in "uri"), external, free - external


OWNED = str.maketrans("uri", "xxx")


def in_blocks(requests, size, blocks):
    used = sum(n for n, _ in requests)
    own = sum(blocks_for(n, size) * size for n, _ in requests)
    later = sum(min(blocks_for(n, size) * size, total) for n, total in requests)
    return used, later - used, own - later, 0, blocks * size - own


@pytest.mark.parametrize("policy", contiguous.POLICIES)
def test_pieces(policy):
    mine = replay(TRACE, Pieces(ROWS, policy, LONGEST, piece, by_rows))
    assert mine == replay(TRACE, waste.ContiguousMemory(ROWS, policy, LONGEST))


@pytest.mark.parametrize("size", [1, 16, 100])
def test_blocks(size):
    mine = replay(TRACE, Blocks(ROWS, size, Pool, blocks_for, in_blocks))
    assert mine == replay(TRACE, waste.PagedMemory(ROWS, size)) and mine.preempted


def test_blocks_all_at_once_need_nobody_put_back():
    memory = Blocks(ROWS, 16, Pool, blocks_for, in_blocks, at_once=True)
    run = replay(TRACE, memory)
    assert run.preempted == 0 and memory.pool.free() == memory.blocks
    for usage in run.usage:
        assert sum(usage[:5]) == memory.size and usage.internal < 16 * usage.running
    late = replay(TRACE, Blocks(ROWS, 16, Pool, blocks_for, in_blocks))
    oracle = replay(TRACE, Pieces(ROWS, "oracle", LONGEST, piece, by_rows))
    shares = [mean_share(r.loaded, ROWS // 16 * 16)["used"] for r in (oracle, run, late)]
    assert shares == sorted(shares)


def test_a_watermark_puts_fewer_back():
    again = [
        replay(TRACE, Blocks(ROWS, 16, Pool, blocks_for, in_blocks, keep=keep)).computed_again
        for keep in (0, 20, 40)
    ]
    assert again[0] > again[1] >= again[2]


def test_a_request_that_needs_all_is_admitted_alone_in_spite_of_a_watermark():
    run = replay([Request(0, 40, 24)], Blocks(64, 16, Pool, blocks_for, in_blocks, keep=3))
    assert run.steps == 24 and run.preempted == 0


def test_overtaking():
    trace = [Request(0, 2, 6), Request(0, 8, 2), Request(0, 2, 2)]
    first, free = (
        replay(trace, Pieces(12, "oracle", 12, piece, by_rows), overtaking=over)
        for over in (False, True)
    )
    assert [u.running for u in first.usage] == [1] * 10
    assert [u.running for u in free.usage] == [2, 2] + [1] * 6
