"""The tokens that a pass yields for a request: one, and one more for every proposal that holds.

Greedy: proposals that are the largest logit's token, and the next one.  Drawn: proposals are
certain, so a proposal x is accepted with probability p(x), and a refusal draws from p without x
(`efflib.decoding.speculative`): what comes out has the request's distribution.  Every request draws
from its own generator, so its text does not depend on who else is in the batch, but for rounding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from efflib.decoding.sampling import filtered_probabilities
from efflib.decoding.speculative import verify_sampled
from efflib.engine.requests import State


def chosen(states: Sequence[State], proposed: Sequence[list[int]], logits: Tensor) -> list:
    """Of each state its new tokens, 1 .. g + 1 of them.

    proposed: g ids of each; logits [W, V]: g + 1 rows of each, one state after the other.
    """
    best, found, here = logits.argmax(-1).tolist(), [], 0
    for state, ids in zip(states, proposed, strict=True):
        rows = slice(here, here := here + len(ids) + 1)
        if state.request.sampling.temperature == 0:
            found.append(agreed(ids, best[rows]))
        else:
            p = filtered_probabilities(logits[rows], state.request.sampling)
            tokens = torch.tensor(ids, dtype=torch.int64)
            found.append(verify_sampled(tokens, None, p, state.generator).tolist())
    return found


def agreed(proposed: Sequence[int], own: Sequence[int]) -> list[int]:
    """The model's own tokens [g + 1] up to the first that was not proposed, it included."""
    n = 0
    while n < len(proposed) and proposed[n] == own[n]:
        n += 1
    return list(own[: n + 1])
