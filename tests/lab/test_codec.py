"""Values survive the round trip exactly; hostile bytes give CodecError and nothing else."""

import collections
import math

import msgpack
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.lab.codec import MAX_DEPTH, CodecError, pack, unpack

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=20,
)
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.float8_e4m3fn,
]


def same(a, b) -> bool:
    """Equal values of equal types, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


@given(VALUES)
def test_plain_values_survive_with_their_types(value):
    assert same(unpack(pack(value)), value)


def test_nan_and_infinity_survive():
    back = unpack(pack([math.nan, math.inf, -math.inf]))
    assert math.isnan(back[0]) and back[1:] == [math.inf, -math.inf]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 5)])
def test_tensors_survive_bit_by_bit(dtype, shape):
    x = torch.randint(0, 2, shape).to(dtype)
    back = unpack(pack({"x": (x,)}))["x"][0]
    assert type(back) is torch.Tensor and back.dtype == dtype and back.shape == x.shape
    assert torch.equal(back.to(torch.float64), x.to(torch.float64))


def test_views_parameters_and_gradients_arrive_plain():
    base = torch.arange(12.0).reshape(3, 4)
    for x in (base.T, base[:, ::2], base.expand(2, 3, 4), torch.nn.Parameter(base)):
        back = unpack(pack(x))
        assert type(back) is torch.Tensor and torch.equal(back, x.detach())
        assert back.is_contiguous() and not back.requires_grad


def test_the_copy_does_not_share_memory():
    x = torch.zeros(3)
    unpack(pack(x)).fill_(1)
    assert torch.equal(x, torch.zeros(3))


def test_functions_are_called_back():
    functions = []
    data = pack([1, {"f": lambda x: x + 1}], functions)
    back = unpack(data, lambda index, args, kwargs: functions[index](*args, **kwargs))
    assert back[1]["f"](41) == 42


class AlwaysEqual:
    def __eq__(self, other):
        return True


class Int(int):
    pass


class MyTensor(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "value",
    [
        AlwaysEqual(),
        Int(3),
        torch.zeros(2).as_subclass(MyTensor),
        torch.zeros(2).to_sparse(),
        torch.zeros(2, device="meta"),
        2**64,
        object,
        {(1, 2): 3},
        "\ud800",
        len,
    ],
    ids=lambda v: type(v).__name__,
)
def test_other_types_are_refused(value):
    with pytest.raises(CodecError):
        pack([value])


def test_a_namedtuple_arrives_as_a_tuple():
    Pair = collections.namedtuple("Pair", "a b")
    assert same(unpack(pack(Pair(1, 2))), (1, 2))


@pytest.mark.parametrize("shell", [lambda v: [v], lambda v: (v,), lambda v: {"k": v}])
def test_depth_is_limited_in_both_directions(shell):
    value = 0
    for _ in range(MAX_DEPTH + 2):
        value = shell(value)
    with pytest.raises(CodecError, match="levels deep"):
        pack(value)


@pytest.mark.parametrize("depth", [100, 5000, 200_000])
def test_deep_bytes_are_refused(depth):
    with pytest.raises(CodecError):
        unpack(b"\x91" * depth + b"\xc0")


def test_deep_tuples_in_bytes_are_refused():
    data = msgpack.packb([])
    for _ in range(200):
        data = msgpack.packb([msgpack.ExtType(3, data)])
    with pytest.raises(CodecError):
        unpack(data)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_never_raise_anything_else(data):
    try:
        unpack(data)
    except CodecError:
        pass


@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 10**6))
@settings(max_examples=300)
def test_damaged_messages_never_raise_anything_else(position, byte, cut):
    data = bytearray(pack({"x": torch.arange(6.0).reshape(2, 3), "y": (1, [2.0, "three"])}))
    data[position % len(data)] = byte
    for damaged in (bytes(data), bytes(data[: cut % len(data)])):
        try:
            unpack(damaged)
        except CodecError:
            pass


def test_a_function_index_without_a_callback_is_refused():
    with pytest.raises(CodecError):
        unpack(pack(len, []))
