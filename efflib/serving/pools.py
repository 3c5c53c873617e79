"""Prefill and decoding on machines of their own, with the cache carried from one to the other.

    arrival -> [ line, prefill ] -> first token -> [ link: bytes of the cache / bandwidth ]
            -> [ line, decoding in one batch ] -> the other tokens

Prompts do not hold up answers any more, and each pool can have as many machines, and machines of a
kind, as it needs.  The price: the cache of every prompt crosses a link, weights lie on both sides,
and a pool that waits cannot help the other.
Sources: DistServe (Zhong et al. 2024, arXiv:2401.09670), Splitwise (Patel et al. 2023,
arXiv:2311.18677).
"""

import heapq
from collections.abc import Callable, Sequence


def prefill_pool(arrivals: Sequence[float], seconds: Sequence[float], workers: int) -> list[float]:
    """When each prompt is read: one at a time on each of `workers` machines, first come first.

    arrivals rise; seconds: of each prompt alone.
    """
    free_at, ends = [0.0] * workers, []
    for arrival, takes in zip(arrivals, seconds, strict=True):
        end = max(arrival, heapq.heappop(free_at)) + takes
        heapq.heappush(free_at, end)
        ends.append(end)
    return ends


def hand_over(ends: Sequence[float], sizes: Sequence[float], bandwidth: float) -> list[float]:
    """When each cache has crossed the link, one after the other in the order of `ends`."""
    ready, link = [0.0] * len(ends), 0.0
    for i in sorted(range(len(ends)), key=lambda i: ends[i]):
        link = max(link, ends[i]) + sizes[i] / bandwidth
        ready[i] = link
    return ready


def decode_pool(
    ready: Sequence[float],
    cached: Sequence[int],
    left: Sequence[int],
    most: int,
    step: Callable[[list[int]], float],
) -> list[list[float]]:
    """When each further token of each request is there, decoded in one batch of at most `most`.

    cached: tokens in the cache that came; left: tokens still to make, perhaps 0;
    step(tokens in the cache of each that runs, in the order in which they joined): its seconds.
    """
    line = sorted((i for i in range(len(ready)) if left[i]), key=lambda i: ready[i])
    times: list[list[float]] = [[] for _ in ready]
    running, now = [], 0.0
    while line or running:
        if not running:
            now = max(now, ready[line[0]])
        while line and len(running) < most and ready[line[0]] <= now:
            running.append(line.pop(0))
        now += step([cached[i] + len(times[i]) for i in running])
        for i in running:
            times[i].append(now)
        running = [i for i in running if len(times[i]) < left[i]]
    return times
