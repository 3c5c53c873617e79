"""A server with a clock: by hand, and what holds for every trace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efflib.serving.metrics import served, span, times
from efflib.traffic.timed import Wanted, arrivals, serve

traces = st.lists(
    st.builds(Wanted, st.integers(0, 30).map(float), st.integers(1, 9), st.integers(1, 6)),
    min_size=1,
    max_size=8,
)


def slow(tokens):
    return 10.0 * tokens


def step(cached):
    return 1.0 + sum(cached) / 64


def test_by_hand():
    """The second prompt comes between the first one's tokens; the third waits for a place."""
    trace = [Wanted(1.0, 2, 3), Wanted(2.0, 1, 2), Wanted(3.0, 1, 1)]
    log = serve(trace, slow, lambda cached: 1.0, most=2)
    assert [r["times"] for r in log] == [[21.0, 32.0, 43.0], [31.0, 32.0], [42.0]]
    assert all(r["finished"] for r in log)


def test_a_step_is_asked_for_what_is_cached():
    seen = []
    serve([Wanted(0.0, 5, 3), Wanted(0.0, 2, 2)], slow, lambda c: seen.append(c) or 1.0, 2)
    assert seen == [[5, 2], [6]]


@given(traces, st.integers(1, 4))
def test_every_request_gets_its_tokens_in_order_and_none_runs_beside_too_many(trace, most):
    log = serve(trace, slow, step, most)
    for wanted, request in zip(trace, log, strict=True):
        assert len(request["times"]) == wanted.output and request["finished"]
        assert request["arrival"] == wanted.arrival
    requests = served(log)
    assert all(t.ttft >= slow(w.prompt) for t, w in zip(map(times, requests), trace, strict=True))
    for moment in {t for r in requests for t in r.tokens}:
        running = [r for r in requests if r.tokens[0] < moment <= r.tokens[-1]]
        assert len(running) <= most
    first = min(w.arrival for w in trace)
    assert span(requests) == max(r.tokens[-1] for r in requests) - first


def test_other_rates_are_the_same_arrivals():
    slow_ones, fast = arrivals(50, 2.0, seed=3), arrivals(50, 4.0, seed=3)
    assert slow_ones == pytest.approx([2 * t for t in fast])
    assert all(a < b for a, b in zip(fast, fast[1:], strict=False))
    assert arrivals(5, 1.0, seed=1) != arrivals(5, 1.0, seed=2)
    assert arrivals(4000, 2.0)[-1] == pytest.approx(2000, rel=0.1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: arrivals(0, 1.0), "requests=0"),
        (lambda: arrivals(3, 0), "per_second=0"),
        (lambda: serve([Wanted(0.0, 1, 1)], slow, step, 0), "most=0"),
        (lambda: serve([Wanted(0.0, 0, 1)], slow, step, 1), "prompt=0"),
        (lambda: serve([Wanted(0.0, 1, 0)], slow, step, 1), "output=0"),
    ],
)
def test_bad_arguments_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
