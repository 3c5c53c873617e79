"""Plain values to bytes and back: what may pass between a test and a student's function.

    None, bool, int (64 bits), float, str, bytes, list, tuple, dict, torch.Tensor, torch.dtype

msgpack, with four extension types: 1 a tensor as a safetensors file of one entry, 2 a dtype's name,
3 a tuple as a packed list, 4 the number of a function (grader to student only).  Nothing is ever
unpickled: bytes that come from student code are hostile, and a pickle is a program.

What arrives has exact types, so an object whose `__eq__` always says True cannot reach a test.
`pack` brings near relatives into that form: a Parameter or a tensor on a GPU becomes a plain dense
CPU tensor, a NamedTuple or torch.Size a tuple, an OrderedDict a dict, a number of numpy one of
Python, a member of a StrEnum or IntEnum its str or int.  Everything else is refused.
"""

from collections.abc import Callable

import msgpack
import numpy
import safetensors.torch
import torch
from safetensors import TensorSpec

MAX_BYTES = 64 * 2**20  # of one message, tensors included
MAX_UNWRAPPED = 4 * MAX_BYTES  # bytes of tuples inside tuples, each of which is copied once
MAX_DEPTH = 32  # containers inside each other
MAX_ITEMS = 1_000_000  # elements of all lists, tuples and dicts
MAX_NUMEL = 2**26  # elements of a tensor, dimensions of size 0 counted as 1
MAX_DIMS = 32
MAX_HEADER = 1024  # bytes of a tensor file's header

TENSOR, DTYPE, TUPLE, FUNCTION = 1, 2, 3, 4
ENTRY = "t"
DTYPES = {str(d): d for d in vars(torch).values() if isinstance(d, torch.dtype)}
PLAIN = (type(None), bool, int, float, str, bytes)
KEYS = (str, int, bool)
BASES = {str: str.__str__, int: int.__int__, float: float.__float__, list: list.copy}
REFUSED = "is not a plain value"  # in the message for a value of another type


class CodecError(Exception):
    """A value that may not travel, or bytes that are not a value."""


# ---- values to bytes ----------------------------------------------------------------------------


def pack(value, functions: list[Callable] | None = None) -> bytes:
    """Bytes of a plain value.

    Callables are appended to `functions`, where that list is given, and travel as their index.
    Raises CodecError for every other type and beyond the limits of this module.
    """
    try:
        data = msgpack.packb(_outgoing(value, functions, 0), use_bin_type=True)
    except CodecError:
        raise
    except OverflowError:
        raise CodecError("an int of more than 64 bits cannot travel") from None
    except Exception as fault:  # lone surrogates, a dict that changes meanwhile, no memory
        raise CodecError(f"it cannot travel ({type(fault).__name__})") from None
    if len(data) > MAX_BYTES:
        raise CodecError(f"{len(data)} bytes are too many: at most {MAX_BYTES} can travel")
    return data


def _outgoing(value, functions, depth: int):
    """The value with tensors, dtypes, tuples and functions as msgpack extension types."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, numpy.generic) and type(value.item()) in PLAIN:
        return value.item()
    if isinstance(value, torch.Tensor):
        return msgpack.ExtType(TENSOR, _tensor_bytes(value))
    if kind is torch.dtype:
        return msgpack.ExtType(DTYPE, str(value).encode())
    if depth > MAX_DEPTH:
        raise CodecError(f"it is nested more than {MAX_DEPTH} levels deep")
    if kind is list:
        return [_outgoing(v, functions, depth + 1) for v in value]
    if isinstance(value, tuple):
        parts = [_outgoing(v, functions, depth + 1) for v in value]
        return msgpack.ExtType(TUPLE, msgpack.packb(parts, use_bin_type=True))
    if isinstance(value, dict):
        return {_key(k): _outgoing(v, functions, depth + 1) for k, v in value.items()}
    for base, plain in BASES.items():
        if isinstance(value, base) and kind is not base:
            return _outgoing(plain(value), functions, depth)
    if functions is not None and callable(value):
        functions.append(value)
        return msgpack.ExtType(FUNCTION, (len(functions) - 1).to_bytes(4, "big"))
    raise CodecError(f"{_name(kind)} {REFUSED}: {_advice(kind)}")


def _key(key):
    if type(key) not in KEYS:
        raise CodecError(f"a dict with {_name(type(key))} keys {REFUSED}: use str or int keys")
    return key


def _name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _advice(kind: type) -> str:
    if kind.__module__ == "numpy":
        return "return a torch.Tensor or a Python number"
    return "return tensors, numbers, strings, or lists, tuples and dicts of them"


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise CodecError(f"{_name(type(tensor))} {REFUSED}: return a torch.Tensor")
    if tensor.is_quantized or tensor.is_nested:
        raise CodecError(f"a quantized or nested tensor {REFUSED}: make it dense")
    if tensor.layout is not torch.strided:
        raise CodecError(f"a {tensor.layout} tensor {REFUSED}: make it dense")
    if tensor.device.type == "meta":
        raise CodecError(f"a tensor on the meta device {REFUSED}: it has no values")
    _check_shape(tensor.shape)
    if tensor.numel() * tensor.element_size() > MAX_BYTES:
        raise CodecError(f"a tensor of shape {list(tensor.shape)} is too large to travel")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().clone()
    spec = TensorSpec(  # safetensors.torch.save takes ten times as long for a small tensor
        dtype=str(plain.dtype).removeprefix("torch."),
        shape=plain.shape,
        data_ptr=plain.data_ptr(),
        data_len=plain.nbytes,
    )
    try:
        return safetensors.serialize({ENTRY: spec})
    except safetensors.SafetensorError:
        raise CodecError(f"a {tensor.dtype} tensor {REFUSED}: use another dtype") from None


def _check_shape(shape) -> None:
    """Also for an empty tensor: one reduction of a [0, 2^40] would fill the memory."""
    numel = 1
    for size in shape:
        numel *= max(size, 1)
    if len(shape) > MAX_DIMS or numel > MAX_NUMEL:
        raise CodecError(f"a tensor of shape {list(shape)[:MAX_DIMS]} is too large to travel")


# ---- bytes to values ----------------------------------------------------------------------------


def unpack(
    data: bytes,
    callback: Callable | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    max_items: int = MAX_ITEMS,
):
    """The value that `pack` wrote.

    callback: turns a function's index n into a callable that calls callback(n, args, kwargs).
    Raises CodecError, and nothing else, whatever the bytes.
    """
    if len(data) > max_bytes:
        raise CodecError(f"{len(data)} bytes are too many: at most {max_bytes} can travel")
    try:
        return _Reader(callback, max_items).read(data, 0)
    except CodecError:
        raise
    except Exception as fault:
        raise CodecError(f"bytes that are no value ({type(fault).__name__})") from None


class _Reader:
    """Reads one message, and counts what it turns into.

    msgpack leaves extension types as they are, and they are opened from the outside to the inside,
    so that the depth of each is known before it is read.
    """

    def __init__(self, callback: Callable | None, max_items: int) -> None:
        self.callback, self.items, self.bytes = callback, max_items, MAX_UNWRAPPED

    def read(self, data: bytes, depth: int):
        self.bytes -= len(data)
        if self.bytes < 0:
            raise CodecError("tuples inside tuples hold too many bytes")
        limit = max(self.items, 0)
        raw = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=False,
            list_hook=self.count,
            object_hook=self.count,
            max_array_len=limit,
            max_map_len=limit,
        )
        return self.value(raw, depth)

    def count(self, container):
        """Called by msgpack for each list and dict that it read; an empty one takes room too."""
        self.items -= len(container) + 1
        if self.items < 0:
            raise CodecError("it holds too many elements")
        return container

    def value(self, raw, depth: int):
        kind = type(raw)
        if kind in PLAIN:
            return raw
        if kind is msgpack.ExtType:
            return self.extension(raw.code, raw.data, depth)
        if depth > MAX_DEPTH:
            raise CodecError(f"it is nested more than {MAX_DEPTH} levels deep")
        if kind is list:
            return [self.value(v, depth + 1) for v in raw]
        if kind is dict:
            return {_key(k): self.value(v, depth + 1) for k, v in raw.items()}
        raise CodecError(f"bytes that are no value ({kind.__name__})")  # a msgpack Timestamp

    def extension(self, code: int, data: bytes, depth: int):
        if code == TENSOR:
            return _tensor(data)
        if code == DTYPE:
            return DTYPES[data.decode()]
        if code == TUPLE:
            parts = self.read(data, depth)
            if type(parts) is list:
                return tuple(parts)
        if code == FUNCTION and self.callback is not None and len(data) == 4:
            callback, index = self.callback, int.from_bytes(data, "big")
            return lambda *args, **kwargs: callback(index, args, kwargs)
        raise CodecError(f"bytes that are no value (extension type {code})")


def _tensor(data: bytes) -> torch.Tensor:
    if int.from_bytes(data[:8], "little") > MAX_HEADER:
        raise CodecError("a tensor with a header that is too long")
    entries = safetensors.torch.load(data)
    if set(entries) != {ENTRY}:
        raise CodecError("a tensor's file must hold one entry")
    tensor = entries[ENTRY]
    _check_shape(tensor.shape)
    if tensor.dtype is torch.bool and (tensor.view(torch.uint8) > 1).any():
        raise CodecError("a bool tensor with bytes other than 0 and 1")
    return tensor
