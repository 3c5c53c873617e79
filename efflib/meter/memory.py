"""The tensors a kernel was given, and which element every address of a kernel belongs to.

A pointer in the interpreter is a number, and arithmetic on it goes wherever it goes: a row too far
in K reads V.  So kernels get virtual addresses instead, which say what they point into:

    bits 48..62: number of the argument (from 1)      bits 0..47: 2^47 + offset in bytes

Pointer arithmetic does not touch the upper bits, and an offset tells exactly which element is
meant, or that there is none, before any memory is touched.  Offsets keep their remainder modulo
4096 of an allocation that starts at a multiple of 4096, so that alignment looks as on a GPU.

What this cannot see: in a compact tensor the element after the end of a row is the first of the
next row.  It exists, so reading it is no fault here.  `guarded` makes tensors where it is one.
"""

from __future__ import annotations

import linecache
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ARGUMENT_SHIFT = 48  # addresses of a process are below 2^47
ZERO_OFFSET = 1 << 47
PAGE = 4096
_TRITON = find_spec("triton")  # found, not imported
# frames of these folders are not the kernel's
SKIPPED = tuple(str(Path(file).parent) for file in (__file__, _TRITON and _TRITON.origin) if file)


class KernelFault(Exception):
    """A kernel did what would be undefined on a GPU."""


class OutOfBounds(KernelFault, IndexError):
    """An access outside of the tensor that the pointer was made from."""


class UnknownAddress(KernelFault, IndexError):
    """An access through an address that belongs to no argument of the kernel."""


def kernel_line() -> str:
    """The line of the kernel that is being run, as "file.py:12: k = tl.load(...)"."""
    frame = sys._getframe()
    while frame and frame.f_code.co_filename.startswith(SKIPPED):
        frame = frame.f_back
    if frame is None:
        return "unknown line"
    name, line = frame.f_code.co_filename, frame.f_lineno
    return f"{Path(name).name}:{line}: {linecache.getline(name, line).strip()}"


class Argument:
    """One tensor argument of one launch: where it lies, and how often each element was touched."""

    def __init__(self, name: str, tensor: Tensor, itemsize: int, number: int, apart: int = 0):
        self.name, self.itemsize = name, itemsize
        self.apart = apart  # elements between rows as the kernel sees it; 0: as they lie
        self.tensor = tensor  # keeps the memory alive, and its address taken
        self.shape, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        self.address = tensor.data_ptr()
        self.storage = tensor.untyped_storage().data_ptr()
        self.in_storage = self.address - self.storage  # bytes
        self.virtual = (number << ARGUMENT_SHIFT) + ZERO_OFFSET + self.in_storage % PAGE
        steps = ((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        self.span = 1 + sum(steps) if tensor.numel() else 0  # elements from the first to the last
        self.inside = np.zeros(self.span, bool)
        if self.span:
            self.in_shape(self.inside)[...] = True
        self.reads = np.zeros(self.span, np.int32)
        self.writes = np.zeros(self.span, np.int32)

    def in_shape(self, per_element: np.ndarray) -> np.ndarray:
        """A view in the tensor's shape of an array with one entry per element of the span."""
        strides = [s * per_element.itemsize for s in self.strides]
        return np.lib.stride_tricks.as_strided(per_element, self.shape, strides)

    def elements(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Elements that accesses of `width` bytes at byte offsets [n] touch: [n, elements each]."""
        each = max(1, width // self.itemsize)
        return offsets[:, None] // self.itemsize + np.arange(each)

    def nearer(self, offsets: np.ndarray) -> np.ndarray:
        """Byte offsets [n] of a kernel that sees rows `apart`, as they lie; -1: in no row."""
        if not self.apart:
            return offsets
        row, rest = np.divmod(offsets, self.apart * self.itemsize)
        step = self.strides[0] * self.itemsize
        return np.where((row >= 0) & (rest < step), row * step + rest, -1)

    def missing(self, offsets: np.ndarray, width: int) -> np.ndarray:
        """Which accesses of `width` bytes at byte offsets [n] touch what is no element."""
        elements = self.elements(offsets, width)
        outside = (elements < 0) | (elements >= self.span)
        if self.span:
            outside |= ~self.inside[np.where(outside, 0, elements)]
        return outside.any(1) | (offsets % min(width, self.itemsize) != 0)

    def index(self, element: int) -> tuple[list[int], int]:
        """(index in each dimension, elements left over) of an element >= 0 of the span."""
        index = [0] * len(self.shape)
        for dim in sorted(range(len(self.shape)), key=lambda i: -self.strides[i]):
            if self.strides[dim] > 0 and self.shape[dim] > 1:
                index[dim], element = divmod(element, self.strides[dim])
        return index, element

    def describe(self, offset: int) -> str:
        """Where a byte offset that belongs to no element lies, in coordinates of the tensor."""
        if offset % self.itemsize:
            return f"byte {offset} is inside of an element of {self.itemsize} bytes"
        element = offset // self.itemsize
        if not self.span:
            return f"element {element} of an empty tensor"
        if element < 0:
            return f"{-element} before the first element"
        index, rest = self.index(element)
        wrong = [i for i in range(len(index)) if index[i] >= self.shape[i]]
        if rest or not wrong:
            return f"index {index} and {rest} elements more, between elements of the tensor"
        sizes = ", ".join(f"dimension {i} has size {self.shape[i]}" for i in wrong)
        return f"index {index}, but {sizes}"


class Access(NamedTuple):
    """The part of one load or store that touches one argument, by n active lanes."""

    argument: Argument
    width: int  # bytes that each lane touches
    lanes: np.ndarray  # [n] which of the active lanes
    offsets: np.ndarray  # [n] bytes from the tensor's first element
    elements: np.ndarray  # [n, elements each]

    def addresses(self) -> np.ndarray:
        """Real addresses [n]."""
        return (self.offsets + self.argument.address).astype(np.uint64)

    def element_name(self, lane: int) -> str:
        index, _ = self.argument.index(int(self.elements[lane, 0]))
        return f"element {index}"


class Launch:
    """The arguments of one kernel launch, found by address."""

    def __init__(self, kernel: str, apart: dict[str, int]):
        self.kernel = kernel
        self.apart = apart
        self.program = (0, 0, 0)  # the one that runs
        self.arguments: list[Argument] = []

    def add(self, name: str, tensor: Tensor, itemsize: int) -> Argument:
        """Register a tensor argument; its `virtual` is the address to give to the kernel."""
        apart = self.apart.get(name, 0)
        argument = Argument(name, tensor, itemsize, len(self.arguments) + 1, apart)
        self.arguments.append(argument)
        return argument

    def where(self) -> str:
        return f"in program {self.program} of {self.kernel}, {kernel_line()}"

    def locate(self, pointers: np.ndarray, width: int, doing: str) -> list[Access]:
        """What accesses of `width` bytes at virtual addresses [n] touch: one part per argument.

        doing: "load from" or "store to", for the message.  Raises UnknownAddress for an address
        that was not made from a pointer argument, OutOfBounds for one that is no element.
        """
        numbers = pointers >> np.uint64(ARGUMENT_SHIFT)
        parts = []
        for number in np.unique(numbers).tolist():
            if not 1 <= number <= len(self.arguments):
                address = hex(int(pointers[numbers == number][0]))
                raise UnknownAddress(
                    f"{doing} address {address}, which was not made from a tensor argument: pass "
                    f"the tensor itself, so that its bounds are known; {self.where()}"
                )
            argument = self.arguments[number - 1]
            lanes = np.flatnonzero(numbers == number)
            asked = pointers[lanes].astype(np.int64) - argument.virtual
            offsets = argument.nearer(asked)
            missing = argument.missing(offsets, width)
            if missing.any():
                first = int(asked[missing.argmax()])
                raise OutOfBounds(
                    f"{doing} {argument.name} {list(argument.shape)} out of bounds: "
                    f"{argument.describe(first)}; {int(missing.sum())} of {len(pointers)} active "
                    f"lanes, {self.where()}"
                )
            elements = argument.elements(offsets, width)
            parts.append(Access(argument, width, lanes, offsets, elements))
        return parts


def guarded(tensor: Tensor, gap: int = 32) -> Tensor:
    """The same values as a view with NaN after every row (gap of them) and every matrix (gap rows).

    In the view no dimension ends where the next begins: an index that runs over the end of a row
    or a matrix meets a gap, which the meter reports, and a kernel that takes strides for granted
    meets one or reads NaN.  Integers get their largest value instead of NaN.  The last dimension
    stays contiguous, and a gap of a multiple of 16 keeps rows aligned as TMA asks.
    """
    if gap < 1:
        raise ValueError(f"gap must be at least 1, got {gap}")
    if tensor.is_floating_point():
        filler = torch.nan
    else:
        filler = True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max
    ndim = tensor.ndim
    sizes = [n + (gap if i >= ndim - 2 else 1) for i, n in enumerate(tensor.shape)]
    around = torch.full(sizes, filler, dtype=tensor.dtype)
    view = around[tuple(slice(0, n) for n in tensor.shape)]
    view.copy_(tensor)
    return view
