"""Rounds of greedy speculation, counted on a text that the target has already written.

Greedily the text does not depend on the draft, and so neither do the places where a round may
begin: what a draft would have guessed there says how many passes its rounds take, for every draft
length, lookup and tree at once, and without a pass of the target. Nothing here verifies, rolls back
or samples; a loop that does takes as many passes (tests/decoding/test_replay.py).
"""

from collections.abc import Callable, Sequence
from statistics import mean

import torch
from torch import Tensor

from efflib.models.cache import KVCache
from efflib.models.llama import Llama


@torch.no_grad()
def same_choice(target: Llama, draft: Llama, ids: Tensor, start: int) -> Tensor:
    """Whether both find the same token most likely at each position from `start` on. [n, T-start]

    The token at position t is predicted from ids[:, :t]; ids [n, T], start >= 1.
    """
    chosen = [m(ids[:, :-1]).argmax(-1)[:, start - 1 :] for m in (target, draft)]
    return chosen[0] == chosen[1]


def rounds(row: Sequence[bool], gamma: int) -> tuple[int, int]:
    """(passes of the target, proposals) of the greedy loop on a continuation (True: agreement)."""
    done = passes = proposed = 0
    while done < len(row):
        g = min(gamma, len(row) - done - 1)  # the pass itself adds one
        kept = [*row[done : done + g], False].index(False)
        done, passes, proposed = done + kept + 1, passes + 1, proposed + g
    return passes, proposed


def constants(rows: Sequence[Sequence[bool]], each: float, most: int = 8) -> dict[int, float]:
    """{gamma: times plain} of the greedy loop on all rows, where a proposal costs `each` passes."""
    found = {}
    for gamma in range(1, most + 1):
        passes, proposed = map(sum, zip(*(rounds(row, gamma) for row in rows), strict=True))
        found[gamma] = sum(map(len, rows)) / (passes + proposed * each)
    return found


def replay(same: Tensor, gamma: int) -> float:
    """Tokens per target pass of the greedy loop on continuations same [n, N] (True: agreement)."""
    return same.numel() / sum(rounds(row, gamma)[0] for row in same.tolist())


def shuffled(same: Sequence[Tensor], gamma: int, times: int = 400, seed: int = 0) -> list[float]:
    """`replay`, mean over same (each [n, N]), each row in another order: `times` values, sorted.

    CONTROL for runs: the rates and the lengths of all texts stay, only the order is luck.
    """
    generator = torch.Generator().manual_seed(seed)
    values = []
    for _ in range(times):
        orders = [torch.rand(s.shape, generator=generator).argsort(1) for s in same]
        values.append(
            mean(replay(s.gather(1, o), gamma) for s, o in zip(same, orders, strict=True))
        )
    return sorted(values)


def replayed(
    text: Sequence[int], start: int, propose: Callable[[int, int], Sequence[int]]
) -> tuple[int, int]:
    """(passes, proposals) of the loop that writes text[start:].

    propose(done, room): what is guessed behind text[:done]; at most `room` of it is of use.
    """
    done, passes, proposed = start, 0, 0
    while done < len(text):
        room = len(text) - done - 1
        guesses = list(propose(done, room))[:room]
        pairs = zip(guesses, text[done:], strict=False)
        kept = [*(guess == token for guess, token in pairs), False].index(False)
        done, passes, proposed = done + kept + 1, passes + 1, proposed + len(guesses)
    return passes, proposed


@torch.no_grad()
def ranks(draft: Llama, ids: Tensor, start: int) -> list[int]:
    """How many tokens the draft finds likelier than the one that stands there, from `start` on.

    ids [1, T]. Of a tree in which each node has the w most likely tokens as children, the target
    finds its own token among them where the rank is below w.
    """
    logits = draft(ids[:, :-1])[0, start - 1 :]  # [T - start, V]
    own = logits.gather(1, ids[0, start:, None])  # [T - start, 1]
    return (logits > own).sum(-1).tolist()


def tree_rounds(row: Sequence[int], widths: Sequence[int]) -> int:
    """Passes of the loop over `ranks`, where nodes of depth i - 1 have widths[i] children each."""
    done = passes = 0
    while done < len(row):
        inside = [rank < width for rank, width in zip(row[done:], widths, strict=False)]
        done, passes = done + [*inside, False].index(False) + 1, passes + 1
    return passes


@torch.no_grad()
def drafted(draft: Llama, ids: Tensor, start: int, most: int) -> list[list[tuple[int, float]]]:
    """For each position from `start` on: `most` tokens that the draft would write there by itself.

    Greedily, each with its probability: [(token, chance), ...]. ids [1, T].
    """
    cache, found = KVCache(), []
    for t in range(start, ids.shape[1]):
        cache.truncate(min(cache.length, t - 1))
        fed, run = ids[:, cache.length : t], []
        for _ in range(most):
            chance, token = draft(fed, cache=cache)[0, -1].softmax(-1).max(-1)
            run.append((int(token), float(chance)))
            fed = token.view(1, 1)
        found.append(run)
    return found


def adaptive(
    text: Sequence[int],
    start: int,
    guesses: Sequence[Sequence[tuple[int, float]]],
    length: Callable[[list[float], list[tuple[int, int]]], int],
) -> tuple[int, int]:
    """(passes, proposals) where length(chances, history) says how many guesses a round proposes.

    guesses: as of `drafted`; chances: theirs, as many as are of use; history: (proposed, kept) of
    the rounds before.
    """
    history, begun = [], []

    def propose(done: int, room: int) -> list[int]:
        if begun:
            history[-1] = history[-1][0], done - begun[-1] - 1
        row = guesses[done - start][:room]
        g = max(0, min(len(row), length([chance for _, chance in row], list(history))))
        begun.append(done)
        history.append((g, 0))
        return [token for token, _ in row[:g]]

    return replayed(text, start, propose)
