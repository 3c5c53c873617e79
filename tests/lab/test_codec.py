"""Values survive the round trip exactly; hostile bytes give CodecError and nothing else."""

import collections
import enum
import json
import math

import msgpack
import numpy
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
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.complex64,
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
@settings(deadline=None)
def test_plain_values_survive_with_their_types(value):
    assert same(unpack(pack(value)), value)


def test_nan_and_infinity_survive():
    back = unpack(pack([math.nan, math.inf, -math.inf]))
    assert math.isnan(back[0]) and back[1:] == [math.inf, -math.inf]


def test_numbers_of_numpy_arrive_as_those_of_python():
    numbers = [numpy.float64(0.1), numpy.float32(0.5), numpy.int64(2**62), numpy.uint8(7)]
    back = unpack(pack([*numbers, numpy.bool_(True), numpy.float64(numpy.inf)]))
    assert same(back, [0.1, 0.5, 2**62, 7, True, math.inf])
    for other in (numpy.datetime64("2020-01-01"), numpy.longdouble(1), numpy.zeros(())):
        with pytest.raises(CodecError, match="is not a plain value"):
            pack(other)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 5)])
def test_tensors_survive_bit_by_bit(dtype, shape):
    x = torch.randint(0, 2, shape).to(dtype)
    back = unpack(pack({"x": (x,)}))["x"][0]
    assert type(back) is torch.Tensor and back.dtype == dtype and back.shape == x.shape
    assert torch.equal(back.to(torch.complex128), x.to(torch.complex128))


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
        torch.zeros(2).as_subclass(MyTensor),
        torch.zeros(2).to_sparse(),
        torch.zeros(2, device="meta"),
        torch.zeros(2, dtype=torch.complex128),
        torch.zeros(3).expand(10**12, 3),
        torch.zeros(0, 2**40),
        torch.zeros([1] * 40),
        torch.zeros(2).numpy(),
        bytearray(b"x"),
        {1, 2},
        2**64,
        -(2**63) - 1,
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


def test_near_relatives_arrive_as_plain_values():
    Pair = collections.namedtuple("Pair", "a b")
    assert same(unpack(pack(Pair(1, 2))), (1, 2))
    assert same(unpack(pack(torch.zeros(2, 3).shape)), (2, 3))
    assert same(unpack(pack(collections.OrderedDict(a=1))), {"a": 1})
    limit, level = enum.StrEnum("Limit", "memory"), enum.IntEnum("Level", "low")
    assert same(unpack(pack([limit.memory, level.low])), ["memory", 1])
    assert same(unpack(pack(Int(3))), 3)
    own = type("Own", (list,), {"__iter__": lambda self: iter("other")})
    assert same(unpack(pack(own([1, "a"]))), [1, "a"])
    values, indices = unpack(pack(torch.max(torch.eye(2), dim=0)))
    assert values.tolist() == [1, 1] and indices.tolist() == [0, 1]


def test_conjugate_and_negative_views_arrive_as_values():
    x = torch.tensor([1 + 2j, 3 - 1j])
    for view in (x.conj(), x.conj().imag):
        back = unpack(pack(view))
        assert torch.equal(back, view) and not back.is_conj() and not back.is_neg()


def test_dtypes_survive():
    assert unpack(pack([torch.bfloat16, torch.int4])) == [torch.bfloat16, torch.int4]


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (torch.zeros(2).numpy(), "numpy.ndarray is not a plain value: return a torch.Tensor"),
        (torch.nn.Linear(1, 1), "Linear is not a plain value: return tensors, numbers"),
        (torch.zeros(2).to_sparse(), "sparse_coo tensor is not a plain value: make it dense"),
        ({1.5: 2}, "float keys is not a plain value: use str or int keys"),
        (2**64, "an int of more than 64 bits"),
    ],
    ids=["array", "module", "sparse", "keys", "int"],
)
def test_a_refusal_says_what_to_return_instead(value, advice):
    with pytest.raises(CodecError, match=advice):
        pack(value)


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


def extension(code: int, data: bytes) -> bytes:
    return msgpack.packb(msgpack.ExtType(code, data))


def test_levels_of_tuples_and_lists_add_up():
    value = 0
    for _ in range(8):
        value = ([[[value]]],)
    assert same(unpack(pack(value)), value)  # 32 levels
    data = msgpack.packb(0)
    for _ in range(9):
        data = extension(3, msgpack.packb([[[["#"]]]]).replace(b"\xa1#", data))
    with pytest.raises(CodecError, match="levels deep"):
        unpack(data)


def test_tuples_in_tuples_cannot_multiply_bytes():
    inner = msgpack.packb([bytes(10 * 2**20)])
    for _ in range(28):
        inner = msgpack.packb([msgpack.ExtType(3, inner)])
    with pytest.raises(CodecError, match="too many bytes"):
        unpack(extension(3, inner))


def array(count: int, element: bytes) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big") + element * count


@pytest.mark.parametrize(
    "data",
    [
        array(10_001, b"\xc0"),
        array(5_001, b"\x90"),
        array(5_001, b"\x80"),
        array(100, array(100, b"\xc0")),
        extension(3, array(100, array(100, b"\xc0"))),
        array(100, extension(3, array(100, b"\xc0"))),
    ],
    ids=["flat", "empty lists", "empty dicts", "nested", "in a tuple", "tuples"],
)
def test_few_bytes_cannot_become_many_objects(data):
    unpack(data)
    with pytest.raises(CodecError):
        unpack(data, max_items=10_000)


@pytest.mark.parametrize("data", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
def test_announced_lengths_are_not_believed(data):
    with pytest.raises(CodecError):
        unpack(data)


def test_limits_can_be_lowered():
    data = pack([1, 2, 3])
    assert unpack(data, max_bytes=len(data), max_items=4) == [1, 2, 3]
    with pytest.raises(CodecError, match="too many"):
        unpack(data, max_bytes=len(data) - 1)
    with pytest.raises(CodecError):
        unpack(data, max_items=3)


def tensor_file(dtype: str, shape: list, data: bytes, padding: str = "", name: str = "t") -> bytes:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}
    header = (json.dumps({name: entry}) + padding).encode()
    return len(header).to_bytes(8, "little") + header + data


def test_a_file_written_by_hand_is_read():
    back = unpack(extension(1, tensor_file("I8", [2], b"\x01\xff")))
    assert back.tolist() == [1, -1]


@pytest.mark.parametrize(
    "file",
    [
        tensor_file("BOOL", [2], b"\x01\xff"),
        tensor_file("F32", [0, 2**40], b""),
        tensor_file("F32", [0, 2**62, 2**62], b""),
        tensor_file("F32", [1] * 50, bytes(4)),
        tensor_file("F32", [1], bytes(4), padding=" " * 5000),
        tensor_file("F32", [2], bytes(4)),
        tensor_file("F32", [-1], bytes(4)),
        tensor_file("F4", [2], bytes(1)),
        tensor_file("F99", [2], bytes(1)),
        tensor_file("F32", [1], bytes(4), name="other"),
        b"\xff" * 8,
        b"",
    ],
    ids=range(12),
)
def test_hostile_tensor_files_are_refused(file):
    with pytest.raises(CodecError):
        unpack(extension(1, file))


@pytest.mark.parametrize(
    "data",
    [
        b"\xd6\xff\x00\x00\x00\x01",  # msgpack's own timestamp
        extension(2, b"torch.load"),
        extension(2, b"\xff"),
        extension(3, msgpack.packb({"a": 1})),
        extension(4, bytes(4)),
        extension(9, b""),
        b"\x81\x90\x01",
        b"\x81" + extension(3, b"\x90") + b"\x01",
        b"\x81\xc0\x01",
        b"\xa1\xff",
        msgpack.packb(1) + b"\x01",
        b"",
    ],
    ids=range(12),
)
def test_bytes_that_pack_would_not_write_are_refused(data):
    with pytest.raises(CodecError):
        unpack(data)


@given(st.binary(max_size=200))
@settings(max_examples=300, deadline=None)
def test_random_bytes_give_plain_values_or_codec_errors(data):
    for hostile in (data, extension(1, data), extension(3, data), extension(2, data)):
        try:
            value = unpack(hostile)
        except CodecError:
            continue
        pack(value)  # what gets through has the exact types


MESSAGE = pack(
    {
        "x": torch.arange(6.0).reshape(2, 3),
        "y": (1, [2.0, "three", torch.int8, torch.tensor([True])]),
    }
)


@given(st.integers(0, 8 * len(MESSAGE) - 1), st.integers(0, len(MESSAGE)))
@settings(max_examples=500, deadline=None)
def test_damaged_messages_never_raise_anything_else(bit, cut):
    flipped = bytearray(MESSAGE)
    flipped[bit // 8] ^= 1 << bit % 8
    for damaged in (bytes(flipped), MESSAGE[:cut], bytes(flipped[:cut])):
        try:
            pack(unpack(damaged))
        except CodecError:
            pass


def test_functions_travel_only_where_they_are_expected():
    with pytest.raises(CodecError):
        unpack(pack(len, []))
    with pytest.raises(CodecError):
        unpack(extension(4, bytes(3)), lambda *_: None)
