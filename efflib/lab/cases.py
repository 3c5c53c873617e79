"""Cases in which any two corners meet, for tests that draw all over what a card admits."""

import itertools
import random
from collections.abc import Sequence

import torch


def every_pair(rng: torch.Generator, *dimensions: Sequence) -> list[list]:
    """Cases, one value of each dimension, so that any two values of two dimensions meet in one.

    Of seven dimensions of four values that takes some 28 cases, of the 16,384 that there are.
    Which others a pair meets, and in which order cases come, is drawn.  Greedy: a case begins with
    a pair that has not met, and every further value is one that makes most new pairs (D. Cohen et
    al., The AETG system, 1997).
    """
    lot = random.Random(int(torch.randint(2**31, (), generator=rng)))
    values = [(d, i) for d, own in enumerate(dimensions) for i in range(len(own))]
    unmet = [pair for pair in itertools.combinations(values, 2) if pair[0][0] != pair[1][0]]
    lot.shuffle(unmet)
    unmet, cases = dict.fromkeys(unmet), []
    while unmet:
        case = list(next(iter(unmet)))
        taken = {d for d, _ in case}
        for d in lot.sample(range(len(dimensions)), len(dimensions)):
            if d not in taken:
                free = lot.sample([value for value in values if value[0] == d], len(dimensions[d]))
                case.append(max(free, key=lambda value: news(value, case, unmet)))
        for pair in itertools.combinations(sorted(case), 2):
            unmet.pop(pair, None)
        cases.append([dimensions[d][i] for d, i in sorted(case)])
    lot.shuffle(cases)
    return cases


def news(value: tuple[int, int], case: list[tuple[int, int]], unmet: dict) -> int:
    """How many pairs that have not met would meet, were the value part of the case."""
    return sum(tuple(sorted((value, other))) in unmet for other in case)
