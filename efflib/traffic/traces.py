"""Requests as they arrive at a server: how long their prompts and their answers are.

What a request will become is known to the trace and to an oracle, not to the server.  Lengths come
from a distribution that is stated, or from a file of one's own; chance comes from a seed, so a
trace is the same every time.

Lengths of real traffic have a long tail, which a log-normal distribution gives: few numbers, the
median and the spread (the standard deviation of the logarithm), and most lengths far below the
longest.  The median of `CHAT` is not measured on anything: it is an example.  Published means, to
choose others by: ShareGPT 161 tokens of prompt and 338 of answer, Alpaca 19 and 58 (Kwon et al.
2023, figure 11).  Times between arrivals are exponential: arrivals are independent of each other.
"""

import csv
import math
from pathlib import Path
from random import Random
from typing import NamedTuple

from efflib.checks import expect_whole

COLUMNS = ("arrival", "prompt", "output")


class Request(NamedTuple):
    """One request: the step at which it arrives, and tokens of prompt and answer."""

    arrival: int
    prompt: int
    output: int

    @property
    def total(self) -> int:
        """Tokens in the cache when it is done."""
        return self.prompt + self.output


class Lengths(NamedTuple):
    """A log-normal distribution of whole numbers from 1 to `longest`; what is longer is cut."""

    median: float
    spread: float  # standard deviation of the logarithm; 0: all are the median
    longest: int

    def draw(self, random: Random) -> int:
        length = round(self.median * math.exp(self.spread * random.gauss(0, 1)))
        return min(max(length, 1), self.longest)


CHAT = (Lengths(100, 1.0, 1024), Lengths(200, 0.9, 1024))  # prompts and answers: an example


def draw_trace(
    requests: int, prompts: Lengths, outputs: Lengths, per_step: float, seed: int
) -> list[Request]:
    """So many requests, on average `per_step` of them in a step of the server; 0: all at once.

    Raises ValueError for distributions without a length, or a negative rate.
    """
    expect_whole(1, requests=requests)
    for name, lengths in (("prompts", prompts), ("outputs", outputs)):
        if not (lengths.median > 0 and lengths.spread >= 0 and lengths.longest >= 1):
            raise ValueError(f"{name}={lengths}: need median > 0, spread >= 0, longest >= 1")
    if not 0 <= per_step < math.inf:
        raise ValueError(f"per_step={per_step!r} must be a number of at least 0")
    random, now, trace = Random(seed), 0.0, []
    for _ in range(requests):
        trace.append(Request(int(now), prompts.draw(random), outputs.draw(random)))
        now += random.expovariate(per_step) if per_step else 0
    return trace


def read_trace(path: str | Path) -> list[Request]:
    """A trace from a CSV file with the columns arrival, prompt, output, in order of arrival.

    Raises ValueError, which names the line, for a file that is none.
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: the first line must be {','.join(COLUMNS)}")
        trace = [_request(row, f"{path}, line {rows.line_num}") for row in rows]
    if not trace:
        raise ValueError(f"{path} holds no request")
    return sorted(trace, key=lambda request: request.arrival)


def _request(row: dict, where: str) -> Request:
    try:
        request = Request(*(int(row[name]) for name in COLUMNS))
    except (TypeError, ValueError):
        raise ValueError(f"{where}: need three whole numbers, got {list(row.values())}") from None
    if min(request.arrival, request.prompt - 1, request.output - 1) < 0:
        raise ValueError(f"{where}: need arrival >= 0, prompt and output >= 1, got {request}")
    return request


def write_trace(path: str | Path, trace: list[Request]) -> None:
    """Writes what `read_trace` reads."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *trace])
