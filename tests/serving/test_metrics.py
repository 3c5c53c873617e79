"""Metrics of a log: by hand, against numpy, and what a log that is cut short gives."""

import math
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efflib.serving import metrics as m
from efflib.serving.metrics import Served

SLOW = Served(0.0, (2.0, 2.1, 2.2))
PAUSED = Served(1.0, (1.5, 4.5, 4.6, 4.7, 4.8))
ONE = Served(2.0, (2.25,))
CUT = Served(3.0, (3.5, 3.6), finished=False)
WAITING = Served(4.0, (), finished=False)
LOG = [SLOW, PAUSED, ONE, CUT, WAITING]

delays = st.lists(st.integers(0, 50), min_size=0, max_size=8)  # quarters of a second: exact sums


def request_of(arrival, first, rest, done):
    tokens = accumulate(rest, initial=arrival + first) if rest else ()
    return Served(arrival / 4, tuple(t / 4 for t in tokens), done)


requests = st.builds(request_of, st.integers(0, 100), st.integers(1, 50), delays, st.booleans())


def test_by_hand():
    found = m.summarize(LOG, ttft_limit=1.0, tpot_limit=0.5)
    assert m.times(SLOW) == pytest.approx((2.0, 0.1, 2.2))
    assert found.ttft == pytest.approx((2.0 + 0.5 + 0.25 + 0.5) / 4)
    assert found.tpot == pytest.approx((0.1 + 3.3 / 4 + 0.1) / 3)
    assert found.itl == pytest.approx((0.2 + 3.3 + 0.1) / 7)
    assert found.throughput == pytest.approx(11 / 4.8)
    assert found.goodput == pytest.approx(1 / 4.8)  # SLOW is late, PAUSED slow, CUT unfinished


def test_a_pause_shows_in_the_percentile_alone():
    tokens = [0.02 * i for i in range(1, 101)]
    paused = Served(0.0, tuple(t + (t > 1.0) for t in tokens))
    found = m.summarize([paused])
    assert found.tpot == pytest.approx(0.02 + 1 / 99)
    assert found.itl == pytest.approx(found.tpot)
    assert m.percentile(m.gaps([paused]), 100) == pytest.approx(1.02)
    assert found.itl_p99 is not None and found.itl_p99 < 0.1  # one of 99 gaps: it starts to show


@given(requests)
def test_latency_is_ttft_and_n_minus_1_tpot(request):
    t, n = m.times(request), len(request.tokens)
    if t.latency is not None:
        assert t.latency == pytest.approx(t.ttft + (n - 1) * (t.tpot or 0))
    assert (t.latency is None) == (not request.finished or n == 0)
    assert (t.tpot is None) == (n < 2)


@given(st.lists(requests, max_size=6), st.integers(0, 200))
def test_a_log_later_by_some_seconds_says_the_same(log, later):
    moved = [Served(a + later, tuple(t + later for t in tokens), f) for a, tokens, f in log]
    one, other = m.summarize(log, 3.0, 2.0), m.summarize(moved, 3.0, 2.0)
    assert one == pytest.approx(other)
    assert one == pytest.approx(m.summarize(log[::-1], 3.0, 2.0))


@given(st.lists(requests, min_size=1, max_size=6))
def test_limits_only_take_away(log):
    loose, strict = m.goodput(log, math.inf, math.inf), m.goodput(log, 1.0, 0.5)
    finished = sum(r.finished and bool(r.tokens) for r in log)
    assert 0 <= strict <= loose == pytest.approx(finished / m.span(log))
    assert (
        m.throughput(log) * m.span(log) == pytest.approx(sum(len(r.tokens) for r in log))
        or m.span(log) == math.inf
    )


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0, 100))
def test_percentiles_are_numpys(values, q):
    assert m.percentile(values, q) == pytest.approx(np.percentile(values, q), rel=1e-9, abs=1e-6)


def test_on_the_limit_is_within():
    request = Served(0.0, (1.0, 1.5, 2.0))
    assert m.keeps(request, 1.0, 0.5)
    assert not m.keeps(request, 0.999, 0.5) and not m.keeps(request, 1.0, 0.499)
    assert m.keeps(ONE, 0.25, 0.0)


def test_a_log_without_tokens():
    for log in ([], [WAITING]):
        assert m.summarize(log) == (None, None, None, None, 0.0, 0.0)
    assert m.summarize([ONE]).tpot is None and m.summarize([ONE]).itl_p99 is None


def test_a_log_of_dicts():
    raw = [{"arrival": 0.0, "times": [2.0, 2.1, 2.2]}]
    raw += [{"arrival": 4.0, "times": [], "finished": False}]
    assert m.served(raw) == [SLOW, WAITING]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: m.times(Served(1.0, (1.0, 2.0))), "must come after arrival=1.0"),
        (lambda: m.times(Served(0.0, (2.0, 1.0))), "must be in order"),
        (lambda: m.percentile([], 50), "no values"),
        (lambda: m.percentile([1.0], 101), "q=101"),
        (lambda: m.percentile([1.0], math.nan), "q=nan"),
    ],
)
def test_bad_logs_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
