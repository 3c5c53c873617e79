"""Functions of the test, called by student code: where they run, and what the student learns."""

import time
import traceback

import pytest
from peers import frame, peer

from autograder.sandbox.conversation import MAX_CALLBACKS
from autograder.sandbox.wire import WireError
from efflib.lab.codec import pack, unpack
from efflib.lab.student import StudentError


def calls_back(times):
    """A peer that calls function 0 with its running number `times` times, then returns the sum."""
    state = {"left": times, "sum": 0, "nonce": b""}

    def answers(data):
        request = unpack(data, lambda *_: None)
        state["nonce"] = request["nonce"]
        state["sum"] += request.get("ok", 0) if "error" not in request else 1000
        if state["left"] == 0:
            return [frame(pack({"nonce": request["nonce"], "ok": state["sum"]}))]
        state["left"] -= 1
        call = {"nonce": request["nonce"], "callback": 0, "args": (state["left"],), "kwargs": {}}
        return [frame(pack(call))]

    return answers


def test_callbacks_run_here():
    seen = []
    with peer(calls_back(3)) as exchange:
        assert exchange.ask({"op": "call", "args": (lambda n: seen.append(n) or n,)}, 10) == 3
    assert seen == [2, 1, 0]


def test_callbacks_are_counted(monkeypatch):
    monkeypatch.setattr("autograder.sandbox.conversation.MAX_CALLBACKS", 5)
    assert MAX_CALLBACKS > 5
    with peer(calls_back(6)) as exchange, pytest.raises(WireError, match="more than 5 times"):
        exchange.ask({"op": "call", "args": (lambda n: n,)}, 10)


def test_what_a_callback_raises_is_sent_as_its_kind_only():
    texts = []

    def answers(data):
        texts.append(data)
        return inner(data)

    def function(n):
        raise ValueError("the expected value is 42")

    inner = calls_back(1)
    with peer(answers) as exchange:
        assert exchange.ask({"op": "call", "args": (function,)}, 10) == 1000
    assert b"ValueError" in texts[-1] and not any(b"expected value" in text for text in texts)


def test_a_failed_assertion_in_a_callback_fails_the_request():
    def function(n):
        assert n > 5, "called with too small a number"

    with peer(calls_back(1)) as exchange, pytest.raises(AssertionError, match="too small"):
        exchange.ask({"op": "call", "args": (function,)}, 10)


@pytest.mark.parametrize("kind", ["Killed", "Exit", "MemoryLimit", "Protocol"])
def test_an_exception_of_the_student_s_is_not_the_end_of_a_sandbox(kind):
    """A class of one's own of that name would have a test repeated, and a submission graded twice.

    That a process was killed is known here, and told by nobody.
    """

    def answers(data):
        error = {"kind": kind, "message": "I am well", "line": ""}
        return [frame(pack({"nonce": unpack(data)["nonce"], "error": error}))]

    with peer(answers) as exchange, pytest.raises(StudentError, match="I am well") as caught:
        exchange.ask({"op": "call"}, 10)
    assert caught.value.kind == "Exception"


def test_what_functions_are_given_is_bounded_in_all(monkeypatch):
    monkeypatch.setattr("autograder.sandbox.conversation.MAX_GIVEN", 400)
    kept = []
    with peer(calls_back(20)) as exchange, pytest.raises(WireError, match="over 400 bytes"):
        exchange.ask({"op": "call", "args": (lambda n: kept.append(n) or n,)}, 10)
    assert 0 < len(kept) < 10


def test_a_failed_assertion_keeps_nothing_that_the_student_gave():
    """Twenty of them would keep twenty tensors; and the first is the one that is told."""

    def function(n):
        assert n > 5, f"called with {n}"

    with peer(calls_back(3)) as exchange, pytest.raises(AssertionError) as caught:
        exchange.ask({"op": "call", "args": (function,)}, 10)
    assert str(caught.value).startswith("called with 2")
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert [frame.f_locals for frame in frames if frame.f_code is function.__code__] == [{}]
    assert all(frame.f_code.co_name != "_called_back" for frame in frames)


# ---- in a real sandbox --------------------------------------------------------------------------


@pytest.mark.slow
def test_calls_nest(victim):
    """A function of the test may call the student, whose function calls the test, and so on."""
    victim.cell("def attack(f, n): return f(n) + 1\ndef down(n): return n - 1")

    def function(n):
        return 0 if n == 0 else victim.attack(function, victim.down(n))

    assert victim.attack(function, 4) == 5
    with pytest.raises(StudentError, match="RecursionError"):
        victim.attack(function, 40)
    assert victim.attack(lambda n: n, 1) == 2


@pytest.mark.slow
@pytest.mark.parametrize("x", ["1", "torch.zeros(2)", "[[[[[1]]]]]"])
def test_too_deep_a_recursion_is_told_as_such(victim, x):
    """Also where it is a call of a function of the test that finds no room any more."""
    victim.cell(f"import torch\ndef attack(f):\n    f({x})\n    return attack(f)")
    with pytest.raises(RecursionError):
        victim.attack(lambda x: x)
    victim.cell("def attack(f, n): return f(n) if n == 0 else attack(f, n - 1)")
    assert victim.attack(lambda n: n + 1, 800) == 1


@pytest.mark.slow
def test_a_kept_function_cannot_be_called_later(victim):
    victim.cell("kept = []\ndef attack(f=None):\n    kept.append(f)\n    return kept[0](1)")
    assert victim.attack(lambda x: x) == 1
    with pytest.raises(StudentError, match="during its test"):
        victim.attack()


@pytest.mark.slow
def test_a_function_cannot_be_called_from_a_thread(victim):
    cell = """
import threading
def attack(f):
    said = []
    def call():
        try: f(1)
        except RuntimeError as fault: said.append(str(fault))
    thread = threading.Thread(target=call); thread.start(); thread.join()
    return said[0]
"""
    assert "main thread" in victim.run(cell, lambda x: x)


@pytest.mark.slow
def test_an_assertion_in_a_function_of_the_test_counts(victim):
    def function(x):
        assert x == 1, "called with the wrong number"

    cell = "def attack(f):\n try: f(2)\n except AssertionError: pass\n return 1"
    with pytest.raises(AssertionError, match="wrong number"):
        victim.run(cell, function)


@pytest.mark.slow
def test_the_time_of_functions_of_the_test_counts_but_does_not_break_frames(victim):
    cell = "def attack(f):\n for _ in range(50): f(1)"
    with pytest.raises(StudentError) as caught:
        victim.run(cell, lambda x: time.sleep(0.05), seconds=0.2)
    assert caught.value.kind == "Timeout"
    assert victim.run("def attack(f): return f(3)", lambda x: x) == 3
