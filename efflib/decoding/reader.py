"""A model as one function of positions and tokens: what a loop of speculation needs of it."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from efflib.decoding.sampling import GREEDY, Sampling, filtered_probabilities
from efflib.models.cache import KVCache
from efflib.models.llama import Llama


def reader(model: Llama, sampling: Sampling = GREEDY) -> Callable[[int, list[int]], Tensor]:
    """read(start, tokens) -> probabilities [len(tokens), V] of a model with a cache of its own.

    It forgets everything from position `start` on, then reads the tokens. Row i stands behind
    token i.
    """
    cache = KVCache()

    @torch.no_grad()
    def read(start: int, tokens: list[int]) -> Tensor:
        cache.truncate(start)
        return filtered_probabilities(model(torch.tensor([tokens]), cache=cache)[0], sampling)

    return read


def spent(read: Callable[[int, list[int]], Tensor], at: int, tokens: int) -> float:
    """Seconds of this thread for a call that reads so many tokens; they stand while others run."""
    start = time.thread_time()
    read(at, [1] * tokens)
    return time.thread_time() - start
