"""Plain values to bytes and back: what may pass between a test and a student's function.

    None, bool, int (64 bits), float, str, bytes, list, tuple, dict, torch.Tensor, torch.dtype

msgpack with four extension types. Nothing is ever unpickled: bytes that come from student code are
hostile, and a pickle is a program. Types are exact (a subclass of int or Tensor is refused), so an
object whose `__eq__` always says True cannot reach a test. A tensor travels as a safetensors file
with one entry; only dense CPU tensors travel, detached and contiguous.
"""

from collections.abc import Callable

import msgpack
import safetensors.torch
import torch

MAX_BYTES = 256 * 2**20
MAX_DEPTH = 32

TENSOR, DTYPE, TUPLE, FUNCTION = 1, 2, 3, 4
ENTRY = "t"
DTYPES = {str(d): d for d in vars(torch).values() if isinstance(d, torch.dtype)}
PLAIN = (type(None), bool, int, float, str, bytes)


class CodecError(Exception):
    """A value that may not travel, or bytes that are not a value."""


def pack(value, functions: list[Callable] | None = None) -> bytes:
    """Bytes of a plain value.

    Callables are appended to `functions`, where that list is given, and travel as their index.
    Raises CodecError for every other type, beyond 32 levels, and beyond 256 MiB.
    """
    try:
        data = msgpack.packb(_outgoing(value, functions, 0), use_bin_type=True)
    except CodecError:
        raise
    except Exception as fault:  # integers beyond 64 bits, lone surrogates, a dict changed meanwhile
        raise CodecError(f"cannot be sent: {fault}") from None
    if len(data) > MAX_BYTES:
        raise CodecError(f"{len(data)} bytes are too many: at most {MAX_BYTES}")
    return data


def _outgoing(value, functions, depth: int):
    """The value with tensors, dtypes, tuples and functions as msgpack extension types."""
    if depth > MAX_DEPTH:
        raise CodecError(f"nested more than {MAX_DEPTH} levels deep")
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is list:
        return [_outgoing(v, functions, depth + 1) for v in value]
    if kind is tuple:
        parts = [_outgoing(v, functions, depth + 1) for v in value]
        return msgpack.ExtType(TUPLE, msgpack.packb(parts, use_bin_type=True))
    if kind is dict:
        return {_key(k): _outgoing(v, functions, depth + 1) for k, v in value.items()}
    if kind in (torch.Tensor, torch.nn.Parameter):
        return msgpack.ExtType(TENSOR, _tensor_bytes(value))
    if kind is torch.Size:
        return _outgoing(tuple(value), functions, depth)
    if kind is torch.dtype:
        return msgpack.ExtType(DTYPE, str(value).encode())
    if functions is not None and callable(value):
        functions.append(value)
        return msgpack.ExtType(FUNCTION, (len(functions) - 1).to_bytes(4, "big"))
    if isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple):
        return _outgoing(tuple(value), functions, depth)  # a NamedTuple is its values
    raise CodecError(f"a {kind.__module__}.{kind.__qualname__} {_advice(kind)}")


def _key(key):
    if type(key) not in (str, int, bool):
        raise CodecError(f"a dict may have str and int keys, not {type(key).__name__}")
    return key


def _advice(kind: type) -> str:
    if kind.__module__ == "numpy":
        return "cannot be returned: return a torch.Tensor or a Python number"
    return "cannot be returned: return tensors, numbers, strings, or lists, tuples, dicts of them"


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
        raise CodecError(
            f"a {tensor.layout} tensor on {tensor.device} cannot be sent: make it dense, on the CPU"
        )
    if tensor.numel() * tensor.element_size() > MAX_BYTES:
        raise CodecError(f"a tensor of shape {list(tensor.shape)} is too large to be sent")
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().clone()
    return safetensors.torch.save({ENTRY: plain})


def unpack(data: bytes, callback: Callable | None = None):
    """The value that `pack` wrote.

    callback: turns a function's index n into a callable that calls callback(n, args, kwargs).
    Raises CodecError, and nothing else, whatever the bytes.
    """
    if len(data) > MAX_BYTES:
        raise CodecError(f"{len(data)} bytes are too many: at most {MAX_BYTES}")
    try:
        return _Reader(callback).read(data, 0)
    except CodecError:
        raise
    except Exception as fault:
        raise CodecError(f"not a value: {type(fault).__name__}") from None


class _Reader:
    """Holds the callback and the depth of tuples while msgpack calls back for extension types."""

    def __init__(self, callback: Callable | None) -> None:
        self.callback, self.depth = callback, 0

    def read(self, data: bytes, depth: int):
        value = msgpack.unpackb(data, ext_hook=self.extension, raw=False, strict_map_key=False)
        _check(value, depth)
        return value

    def extension(self, code: int, data: bytes):
        if code == TENSOR:
            return _tensor(data)
        if code == DTYPE:
            return DTYPES[data.decode()]
        if code == TUPLE:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise CodecError(f"nested more than {MAX_DEPTH} levels deep")
            parts = self.read(data, self.depth)
            self.depth -= 1
            if type(parts) is not list:
                raise CodecError("a tuple that is no list of values")
            return tuple(parts)
        if code == FUNCTION and self.callback is not None:
            callback, index = self.callback, int.from_bytes(data, "big")
            return lambda *args, **kwargs: callback(index, args, kwargs)
        raise CodecError(f"unknown extension type {code}")


def _check(value, depth: int) -> None:
    """Depth, and keys that Python would accept but `pack` would not write."""
    if depth > MAX_DEPTH:
        raise CodecError(f"nested more than {MAX_DEPTH} levels deep")
    if type(value) is list:
        for v in value:
            _check(v, depth + 1)
    elif type(value) is dict:
        for k, v in value.items():
            _key(k)
            _check(v, depth + 1)


def _tensor(data: bytes) -> torch.Tensor:
    entries = safetensors.torch.load(data)
    if set(entries) != {ENTRY}:
        raise CodecError("a tensor's file must hold one entry")
    return entries[ENTRY]
