"""Requests as they come, in seconds: at random, in bursts, or from a file of one's own.

    poisson   gaps are exponential with mean 1 / rate: requests know nothing of each other
    bursts    the same number in all, but `size` of them at a time
    evenly    one every 1 / rate seconds: chance taken away

Lengths are log-normal (`efflib.traffic.traces.Lengths`: median, spread of the logarithm, longest)
or all equal.  They are drawn apart from the gaps: another rate or kind of arrival has the same
requests in the same order, only sooner or later, so that two points of a curve differ in the rate
alone.  Real traffic is burstier than Poisson (BurstGPT, Wang et al. 2024, arXiv:2401.17644).
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random

from efflib.checks import expect_whole
from efflib.traffic.simulate import Arrival
from efflib.traffic.traces import Lengths

PROMPTS = Lengths(400, 0.8, 2048)  # an example, not measured on anything
OUTPUTS = Lengths(100, 0.8, 1024)
COLUMNS = ("arrival", "prompt", "output")


def draw_lengths(
    requests: int, prompts: Lengths = PROMPTS, outputs: Lengths = OUTPUTS, seed: int = 0
) -> list[tuple[int, int]]:
    """(prompt, output) tokens of so many requests; a spread of 0 makes all of them equal."""
    expect_whole(1, requests=requests)
    random = Random(seed)
    return [(prompts.draw(random), outputs.draw(random)) for _ in range(requests)]


def poisson(rate: float, lengths: Sequence[tuple[int, int]], seed: int = 0) -> list[Arrival]:
    """Requests that come at `rate` per second on average, independent of each other."""
    _expect_rate(rate)
    random, now, trace = Random(f"gaps {seed}"), 0.0, []
    for prompt, output in lengths:
        now += random.expovariate(1.0) / rate
        trace.append(Arrival(now, prompt, output))
    return trace


def bursts(
    rate: float, lengths: Sequence[tuple[int, int]], size: int, seed: int = 0
) -> list[Arrival]:
    """The same rate, but `size` requests come at one moment, and the moments are independent.

    Few bursts are far from their rate by luck (125 of them by 9 %), which would look like what
    bursts do.  So their times are stretched: the last one comes at requests / rate seconds.
    """
    expect_whole(1, size=size)
    moments = poisson(rate / size, lengths[::size], seed)
    stretch = len(lengths) / rate / moments[-1].at
    return [Arrival(stretch * moments[i // size].at, *lengths[i]) for i in range(len(lengths))]


def evenly(rate: float, lengths: Sequence[tuple[int, int]]) -> list[Arrival]:
    """One request every 1 / rate seconds."""
    _expect_rate(rate)
    return [Arrival(i / rate, *pair) for i, pair in enumerate(lengths)]


def read_arrivals(path: str | Path) -> list[Arrival]:
    """A trace from a CSV file with the columns arrival (seconds), prompt, output.

    Raises ValueError, which names the line, for a file that is none.
    """
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: the first line must be {','.join(COLUMNS)}")
        trace = [_arrival(row, f"{path}, line {rows.line_num}") for row in rows]
    if not trace:
        raise ValueError(f"{path} holds no request")
    return sorted(trace, key=lambda arrival: arrival.at)


def _arrival(row: dict, where: str) -> Arrival:
    try:
        arrival = Arrival(float(row["arrival"]), int(row["prompt"]), int(row["output"]))
    except (TypeError, ValueError):
        raise ValueError(f"{where}: need a number and two whole ones, got {row}") from None
    if not 0 <= arrival.at < math.inf or min(arrival.prompt, arrival.output) < 1:
        raise ValueError(f"{where}: need arrival >= 0, prompt and output >= 1, got {arrival}")
    return arrival


def write_arrivals(path: str | Path, trace: Sequence[Arrival]) -> None:
    """Writes what `read_arrivals` reads."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *trace])


def _expect_rate(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"rate={rate!r} must be above 0 and finite")
