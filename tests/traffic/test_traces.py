"""Traces: what is stated is what is drawn; a file comes back as it was."""

import math
from statistics import mean, median

import pytest

from efflib.traffic.traces import CHAT, Lengths, Request, draw_trace, read_trace, write_trace


def test_lengths_follow_the_stated_distribution():
    prompts, outputs = Lengths(100, 0.5, 10**6), Lengths(50, 0.0, 99)
    trace = draw_trace(4000, prompts, outputs, per_step=2.0, seed=1)
    logs = [math.log(r.prompt) for r in trace]
    # the mean of 4000 has a spread of 0.5 / sqrt(4000) = 0.008
    assert abs(mean(logs) - math.log(100)) < 0.04
    assert abs(median(r.prompt for r in trace) - 100) < 5
    assert {r.output for r in trace} == {50}
    assert abs(trace[-1].arrival - 2000) < 5 * math.sqrt(4000) / 2
    assert [r.arrival for r in trace] == sorted(r.arrival for r in trace)


def test_a_seed_is_a_trace_and_lengths_are_cut():
    one, two = (draw_trace(300, *CHAT, per_step=1.0, seed=seed) for seed in (0, 1))
    assert one == draw_trace(300, *CHAT, per_step=1.0, seed=0) != two
    for request in one + two:
        assert 1 <= request.prompt <= 1024 and 1 <= request.output <= 1024
    at_once = draw_trace(5, *CHAT, per_step=0, seed=0)
    assert [r.arrival for r in at_once] == [0] * 5


def test_a_file_comes_back(tmp_path):
    trace = draw_trace(20, *CHAT, per_step=1.0, seed=0)
    write_trace(tmp_path / "a.csv", list(reversed(trace)))
    assert sorted(read_trace(tmp_path / "a.csv")) == sorted(trace)
    assert [r.arrival for r in read_trace(tmp_path / "a.csv")] == [r.arrival for r in trace]


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "first line"),
        ("prompt,output\n1,2\n", "first line"),
        ("arrival,prompt,output\n", "no request"),
        ("arrival,prompt,output\n0,1,1\n0,1,x\n", "line 3"),
        ("arrival,prompt,output\n0,1\n", "line 2"),
        ("arrival,prompt,output\n0,0,1\n", "line 2"),
        ("arrival,prompt,output\n-1,1,1\n", "line 2"),
        ("arrival,prompt,output\n0,1.5,1\n", "line 2"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, said):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        read_trace(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "prompts, requests, rate",
    [
        (Lengths(0, 1, 9), 3, 1),
        (Lengths(9, -1, 9), 3, 1),
        (Lengths(9, 1, 0), 3, 1),
        (Lengths(9, 1, 9), 0, 1),
        (Lengths(9, 1, 9), 3, -1),
        (Lengths(9, 1, 9), 3, math.nan),
    ],
)
def test_impossible_distributions(prompts, requests, rate):
    with pytest.raises(ValueError, match=r"\w"):
        draw_trace(requests, prompts, Lengths(5, 0, 9), rate, 0)
    assert draw_trace(1, Lengths(5, 0, 9), Lengths(5, 0, 9), 1, 0) == [Request(0, 5, 5)]
