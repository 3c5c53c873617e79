"""The log of a server on one device, whose passes take as long as somebody says.

Prompts first: while a request waits and there is room, its prompt is read in a pass of its own,
which gives its first token.  Otherwise one pass gives every running request a token.  Nothing but
passes takes time, and requests come at random (a Poisson process).

This is the oldest schedule of continuous batching (Yu et al. 2022, "Orca", OSDI, section 3.2, with
prompts kept apart).  Newer ones mix pieces of prompts into the steps.
"""

from collections.abc import Callable

import torch

from efflib.checks import expect_whole

Passes = Callable[[int, int, int], float]  # seconds of a pass, by (new, cached, batch)


def arrivals(rate: float, requests: int, seed: int = 0) -> tuple[list[float], list[int]]:
    """(seconds of arrival, tokens wanted, 20 to 200): of one seed the same, only faster or slower.

    Raises ValueError unless rate is above 0.
    """
    if not rate > 0:
        raise ValueError(f"rate={rate} must be above 0")
    rng = torch.Generator().manual_seed(seed)
    gaps = -(1 - torch.rand(requests, generator=rng, dtype=torch.float64)).log() / rate
    wanted = torch.randint(20, 201, (requests,), generator=rng)
    return gaps.cumsum(0).tolist(), wanted.tolist()


def serve(
    passes: Passes,
    rate: float,
    most: int = 64,
    requests: int = 300,
    prompt: int = 2048,
    seed: int = 0,
) -> list[dict]:
    """The log: {"arrival", "times" of the tokens, "finished"} of each request, in seconds.

    most: requests that may run at once.  Raises ValueError for most, requests or prompt below 1.
    """
    expect_whole(1, most=most, requests=requests, prompt=prompt)
    came, wanted = arrivals(rate, requests, seed)
    log = [{"arrival": time, "times": [], "finished": False} for time in came]
    waiting, running, now = list(zip(log, wanted, strict=True)), [], 0.0
    while waiting or running:
        if not running:
            now = max(now, waiting[0][0]["arrival"])
        if waiting and waiting[0][0]["arrival"] <= now and len(running) < most:
            running.append(waiting.pop(0))
            now += passes(prompt, 0, 1)
            running[-1][0]["times"].append(now)
        else:
            made = sum(len(request["times"]) for request, _ in running) // len(running)
            now += passes(1, prompt + made - 1, len(running))  # the last one is not cached yet
            for request, _ in running:
                request["times"].append(now)
        for request, n in running:
            request["finished"] = len(request["times"]) >= n
        running = [(request, n) for request, n in running if not request["finished"]]
    return log
