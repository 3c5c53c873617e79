"""The grader's side of the protocol against a worker that says anything at all."""

import os
import threading
import time
from contextlib import contextmanager

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder import wire
from autograder.exchange import MAX_CALLBACKS, Exchange, reported
from autograder.wire import Channel, WireError
from efflib.lab.codec import pack, unpack
from efflib.lab.student import KEPT, StudentError


class Peer:
    """A worker made of one function: bytes of a request in, bytes to write out, or None to end."""

    def __init__(self, answers) -> None:
        self.read_fd, there = os.pipe()
        here, self.write_fd = os.pipe()
        self.channel = Channel(here, there)
        self.thread = threading.Thread(target=self.work, args=(answers,))
        self.thread.start()

    def work(self, answers) -> None:
        while header := os.read(self.read_fd, 4):
            data = b""
            while len(data) < int.from_bytes(header, "big"):
                data += os.read(self.read_fd, int.from_bytes(header, "big") - len(data))
            for part in answers(data):
                if part is None:
                    os.close(self.write_fd)
                    self.write_fd = -1
                    break
                os.write(self.write_fd, part)

    def close(self) -> None:
        self.channel.close()
        self.thread.join(10)
        for fd in (self.read_fd, self.write_fd):
            if fd >= 0:
                os.close(fd)


@contextmanager
def peer(answers):
    made = Peer(answers)
    try:
        yield Exchange(made.channel)
    finally:
        made.close()


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def nonce_of(data: bytes) -> bytes:
    return unpack(data, lambda *_: None)["nonce"]


def says(make):
    """A peer that answers each request with the dict that `make` makes from its nonce."""
    return lambda data: [frame(pack(make(nonce_of(data))))]


def test_values_pass():
    with peer(says(lambda n: {"nonce": n, "ok": (torch.ones(3), [1, "a"])})) as exchange:
        tensor, rest = exchange.ask({"op": "call"}, 10)
    assert torch.equal(tensor, torch.ones(3)) and rest == [1, "a"]


EXT = msgpack.ExtType
MALFORMED = {
    "four-gigabytes": lambda n: b"\xff" * 4,
    "just-too-long": lambda n: (wire.MAX_FRAME + 1).to_bytes(4, "big"),
    "empty": lambda n: frame(b""),
    "not-msgpack": lambda n: frame(b"\xc1" * 100),
    "half-a-value": lambda n: frame(pack({"nonce": n, "ok": 1})[:-1]),
    "trailing-bytes": lambda n: frame(pack({"nonce": n, "ok": 1}) + b"\0"),
    "no-dict": lambda n: frame(pack([n, 1])),
    "no-nonce": lambda n: frame(pack({"ok": 1})),
    "wrong-nonce": lambda n: frame(pack({"nonce": b"0" * 16, "ok": 1})),
    "nonce-is-a-list": lambda n: frame(pack({"nonce": [n], "ok": 1})),
    "nonce-is-text": lambda n: frame(pack({"nonce": "x" * 16, "ok": 1})),
    "no-value": lambda n: frame(pack({"nonce": n})),
    "deep": lambda n: frame(b"\x91" * 200_000 + b"\xc0"),
    "not-unicode": lambda n: frame(b"\x82\xa5nonce\xc4\x10" + n + b"\xa2ok\xa2\xff\xff"),
    "error-is-text": lambda n: frame(pack({"nonce": n, "error": "x"})),
    "unknown-extension": lambda n: frame(msgpack.packb({"nonce": n, "ok": EXT(9, b"")})),
    "tensor-of-garbage": lambda n: frame(
        msgpack.packb({"nonce": n, "ok": EXT(1, b"\x08" + b"\0" * 30)})
    ),
    "function": lambda n: frame(msgpack.packb({"nonce": n, "ok": EXT(4, b"\0\0\0\0")})),
    "callback-not-lent": lambda n: frame(
        pack({"nonce": n, "callback": 3, "args": (), "kwargs": {}})
    ),
    "callback-negative": lambda n: frame(
        pack({"nonce": n, "callback": -1, "args": (), "kwargs": {}})
    ),
    "callback-without-arguments": lambda n: frame(pack({"nonce": n, "callback": 0})),
    "callback-with-odd-names": lambda n: frame(
        pack({"nonce": n, "callback": 0, "args": (), "kwargs": {1: 2}})
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_answers_are_protocol_faults(name):
    with peer(lambda data: [MALFORMED[name](nonce_of(data))]) as exchange:
        with pytest.raises(WireError) as caught:
            exchange.ask({"op": "call", "args": (lambda: 1,)}, 10)
    assert caught.value.kind == "protocol"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_faults_and_nothing_else(body):
    with peer(lambda data: [frame(body), None]) as exchange, pytest.raises(WireError):
        exchange.ask({"op": "call"}, 10)


@settings(max_examples=60, deadline=None)
@given(st.integers(0))
def test_a_bit_flipped_in_an_answer_is_a_value_or_a_fault(place):
    def answers(data):
        whole = {"nonce": nonce_of(data), "ok": {"t": torch.ones(4), "v": (1.5, ["a"])}}
        broken = bytearray(pack(whole))
        broken[place // 8 % len(broken)] ^= 1 << place % 8
        return [frame(bytes(broken)), None]

    with peer(answers) as exchange:
        try:
            value = exchange.ask({"op": "call", "args": (lambda *_: 1,)}, 10)
        except (WireError, StudentError):
            return
    assert set(map(type, value.values())) <= {torch.Tensor, tuple}


@pytest.mark.parametrize("sent", [[], [b"\0\0"], [frame(b"12345")[:-1]]])
def test_silence_and_half_frames_are_late(sent):
    with peer(lambda data: sent) as exchange, pytest.raises(WireError) as caught:
        exchange.ask({"op": "call"}, -1.9)
    assert caught.value.kind == "late"


def test_a_slow_drip_does_not_extend_the_deadline():
    stopped = threading.Event()

    def answers(data):
        yield (1000).to_bytes(4, "big")
        while not stopped.wait(0.02):
            yield b"x"

    with peer(answers) as exchange:
        with pytest.raises(WireError) as caught:
            exchange.ask({"op": "call"}, -1.7)  # 0.3 s with the grace, for 20 s of bytes
        stopped.set()
    assert caught.value.kind == "late"


def test_a_worker_that_does_not_read_is_late():
    here, there = os.pipe()
    channel = Channel(here, there)
    with pytest.raises(WireError) as caught:
        channel.send(b"x" * wire.MAX_FRAME, time.monotonic() + 0.2)
    channel.close()
    channel.close()
    assert caught.value.kind == "late"
    for use in (channel.check_quiet, lambda: channel.receive(1e9), lambda: channel.send(b"", 1e9)):
        with pytest.raises(WireError) as caught:
            use()
        assert caught.value.kind == "closed"


def test_the_end_of_the_worker_is_told_apart():
    with peer(lambda data: [None]) as exchange, pytest.raises(WireError) as caught:
        exchange.ask({"op": "call"}, 10)
    assert caught.value.kind == "closed"


def test_bytes_nobody_asked_for_are_a_fault():
    def answers(data):
        good = frame(pack({"nonce": nonce_of(data), "ok": 1}))
        return [good + good]

    with peer(answers) as exchange:
        assert exchange.ask({"op": "call"}, 10) == 1
        with pytest.raises(WireError, match="nobody asked for"):
            exchange.ask({"op": "call"}, 10)


def test_the_sum_of_bytes_is_limited(monkeypatch):
    monkeypatch.setattr(wire, "MAX_RECEIVED", 100)
    with peer(says(lambda n: {"nonce": n, "ok": b"x" * 40})) as exchange:
        assert exchange.ask({"op": "call"}, 10) == b"x" * 40
        with pytest.raises(WireError, match="in all"):
            exchange.ask({"op": "call"}, 10)


# ---- callbacks ----------------------------------------------------------------------------------


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
    monkeypatch.setattr("autograder.exchange.MAX_CALLBACKS", 5)
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


# ---- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KEPT))
def test_builtin_kinds_become_that_kind_or_plain(kind):
    fault = reported({"kind": kind, "message": "m", "line": "l"})
    assert isinstance(fault, StudentError) and fault.kind == kind and fault.message == "m"


@given(
    st.dictionaries(st.sampled_from(["kind", "message", "line", "x"]), st.text() | st.integers())
)
def test_any_description_becomes_a_short_student_error(info):
    fault = reported(info)
    assert (
        isinstance(fault, StudentError) and fault.kind.isidentifier() or fault.kind == "Exception"
    )
    assert len(str(fault)) < 1000
