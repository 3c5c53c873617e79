"""The log of a server on one device: every request gets its tokens, and passes alone take time."""

import pytest

from efflib.traffic.one_card import arrivals, serve


def constant(new, cached, batch):
    return 0.5 if new > 1 else 0.25


def test_every_request_gets_its_tokens_in_order():
    came, wanted = arrivals(3.0, 40)
    log = serve(constant, 3.0, most=4, requests=40)
    assert [r["arrival"] for r in log] == came and came == sorted(came)
    assert [len(r["times"]) for r in log] == wanted and all(r["finished"] for r in log)
    for request in log:
        assert request["times"][0] >= request["arrival"] + 0.5 - 1e-9
        gaps = [b - a for a, b in zip(request["times"], request["times"][1:], strict=False)]
        assert min(gaps) >= 0.25 - 1e-9


def test_alone_a_request_takes_its_passes():
    (request,) = serve(constant, 1.0, requests=1)
    first = request["arrival"] + 0.5
    right = [first + 0.25 * i for i in range(len(request["times"]))]
    assert request["times"] == pytest.approx(right)


def test_passes_are_asked_with_what_is_cached_and_no_more_than_most_run():
    asked = []

    def passes(new, cached, batch):
        asked.append((new, cached, batch))
        return 1.0

    serve(passes, 100.0, most=3, requests=9, prompt=7)
    assert [a for a in asked if a[0] == 7] == [(7, 0, 1)] * 9
    steps = [a for a in asked if a[0] == 1]
    assert steps[0][1] >= 7 and max(batch for *_, batch in steps) == 3
    assert len(asked) == 9 + len(steps)


def test_a_rate_changes_the_pace_and_nothing_else():
    slow, fast = arrivals(1.0, 20), arrivals(4.0, 20)
    assert slow[1] == fast[1]
    assert slow[0] == pytest.approx([4 * t for t in fast[0]])
    assert arrivals(1.0, 20, seed=1) != slow


def test_what_is_refused():
    for arguments in ({"rate": 0}, {"rate": 1, "most": 0}, {"rate": 1, "requests": 0}):
        with pytest.raises(ValueError):
            serve(constant, **arguments)
