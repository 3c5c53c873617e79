"""The grader's side of the protocol against a worker that says anything at all."""

import os
import threading

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peers import frame, nonce_of, peer, says

from autograder.sandbox import wire
from autograder.sandbox.clock import Meter
from autograder.sandbox.conversation import reported
from autograder.sandbox.wire import Channel, WireError
from efflib.lab.codec import pack
from efflib.lab.student import KEPT, StudentError


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
        exchange.ask({"op": "call"}, -1.99)
    assert caught.value.kind == "late"


def test_a_slow_drip_does_not_extend_the_deadline():
    stopped = threading.Event()

    def answers(data):
        yield (1000).to_bytes(4, "big")
        while not stopped.wait(0.02):
            yield b"x"

    with peer(answers) as exchange:
        with pytest.raises(WireError) as caught:
            exchange.ask({"op": "call"}, -1.97)  # 0.3 s with the grace, for 20 s of bytes
        stopped.set()
    assert caught.value.kind == "late"


def test_a_worker_that_does_not_read_is_late():
    here, there = os.pipe()
    channel = Channel(here, there)
    with pytest.raises(WireError) as caught:
        channel.send(b"x" * wire.MAX_FRAME, Meter(0.02))
    channel.close()
    channel.close()
    assert caught.value.kind == "late"
    for use in (
        channel.check_quiet,
        lambda: channel.receive(Meter(9)),
        lambda: channel.send(b"", Meter(9)),
    ):
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
