"""Which tokens the next step computes: schedulers as functions of plain values.

    running   [(name, tokens, cached)]   in the order of admission
              tokens: known, of prompt and answer; cached: how many of them have a key and a value
    waiting   [(name, tokens)]           in the order of the line
    free      blocks of the cache that belong to nobody
    budget    tokens that a step may compute
    most      requests that may run at once
    block     tokens of a block
    work      [(name, n)]                the answer: so many tokens of these requests, n >= 1

A request holds ceil(cached / block) blocks.  It lacks tokens - cached >= 1 of its tokens: one while
it answers, more while its prompt is read.  When it lacks none the model gives it a token more.  So
there is one kind of work, and a policy is an order of it:

    prefill_first   whole prompts if one may come, and then nobody answers in this step; else
                    answers.  nano-vllm, and vLLM before its version 1.
    mixed_chunks    who runs first, with as much as budget and blocks allow; then who waits, with a
                    piece of the prompt in what is left.  Sarathi-Serve (Agrawal et al. 2024,
                    arXiv:2403.02310), and vLLM's version 1.
    preempting      the same, and where memory is out the last one that runs is put back in line,
                    to be computed again: vLLM (Kwon et al. 2023, arXiv:2309.06180, section 4.5).

All are first come, first served: nobody overtakes in the line, and who came last is put back first.
Static and dynamic batches are a gate before any of them: see `efflib.traffic.simulate`.
Not here: priorities, swapping to the CPU, several answers of a prompt, a limit of prompts a step.
"""

from collections.abc import Sequence
from typing import NamedTuple

Running = Sequence[tuple[str | int, int, int]]  # name, tokens, cached
Waiting = Sequence[tuple[str | int, int]]  # name, tokens
Work = list[tuple[str | int, int]]  # name, how many


class Plan(NamedTuple):
    """What a step computes, and who is put back in line before it, in this order."""

    work: Work
    put_back: list[str | int]


def blocks_for(tokens: int, block: int) -> int:
    """ceil(tokens / block); unlike `efflib.serving.blocks` it checks nothing: millions of calls."""
    return -(-tokens // block)


def prefill_first(
    running: Running, waiting: Waiting, free: int, budget: int, most: int, block: int
) -> Work:
    """Whole prompts in their order while budget, blocks and `most` allow; if none, one token each.

    Who needs a block that is not there is left out of the step; others go on.
    """
    work, left, spare = [], budget, free
    for name, tokens in waiting[: max(most - len(running), 0)]:
        if tokens > left or blocks_for(tokens, block) > spare:
            break
        work.append((name, tokens))
        left, spare = left - tokens, spare - blocks_for(tokens, block)
    if work:
        return work
    for name, _, cached in running:
        needs = cached % block == 0  # the last block is full
        if left and needs <= spare:
            work.append((name, 1))
            left, spare = left - 1, spare - needs
    return work


def admitted(waiting: Waiting, room: int, spare: int, left: int, block: int) -> Work:
    """Pieces of prompts: of whom all tokens fit into the spare blocks, at most `room` requests."""
    work = []
    for name, tokens in waiting[: max(room, 0)]:
        if left == 0 or blocks_for(tokens, block) > spare:
            break
        n = min(tokens, left)
        work.append((name, n))
        left, spare = left - n, spare - blocks_for(n, block)
    return work


def mixed_chunks(
    running: Running, waiting: Waiting, free: int, budget: int, most: int, block: int
) -> Work:
    """Who runs: as many as it lacks, budget and blocks allow, in order; then `admitted`."""
    work, left, spare = [], budget, free
    for name, tokens, cached in running:
        slack = -cached % block  # rows of its last block that are empty
        n = min(tokens - cached, left, slack + spare * block)
        if n > 0:
            work.append((name, n))
            left -= n
            spare -= -((slack - n) // block)
    return work + admitted(waiting, most - len(running), spare, left, block)


def preempting(
    running: Running, waiting: Waiting, free: int, budget: int, most: int, block: int
) -> Plan:
    """`mixed_chunks`, but who lacks room takes the blocks of the last one that runs.

    That may be itself.  In a step in which somebody is put back nobody is admitted.
    """
    stay, work, put_back, left, spare = list(running), [], [], budget, free
    i = 0
    while i < len(stay) and left:
        name, tokens, cached = stay[i]
        slack = -cached % block
        n = min(tokens - cached, left, slack + spare * block)
        if n > 0:
            work.append((name, n))
            left -= n
            spare -= -((slack - n) // block)
            i += 1
        else:
            last, _, held = stay.pop()
            put_back.append(last)
            spare += blocks_for(held, block)
    if not put_back:
        work += admitted(waiting, most - len(running), spare, left, block)
    return Plan(work, put_back)


def line_after(
    running: Running, waiting: Waiting, put_back: Sequence[str | int]
) -> list[tuple[str | int, int]]:
    """The line when these are put back: before all others, in the order in which they ran.

    They keep every token that they have, also of the answer: users have seen it.
    """
    again = [(name, tokens) for name, tokens, _ in running if name in put_back]
    return again + list(waiting)
