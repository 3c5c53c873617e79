"""bfloat16 and float8 in Triton's interpreter, made right.

NumPy has neither type, so the interpreter keeps their bits in uint16 and uint8 arrays.  Up to
Triton 3.9 it forgets this in many places and computes with the bits as if they were integers
(triton-lang/triton issues 4972, 11584), and some of its roundings are wrong:

    what                         stock interpreter                   here and on an NVIDIA GPU
    bf16 + - * / exp sum dot     on the bits: errors of 1e9 and up   in float32, rounded once
    fp32 -> bf16                 cut off, biased towards zero        to nearest, ties to even
    fp32 -> fp8                  loses the carry: 1.96 -> 1.0        to nearest even, saturating
    fp8 NaN -> fp32              a number (480 for e4m3)             NaN

The fix is one idea: widen to float32, let the interpreter do the operation, narrow the result.
float32 holds all these types exactly.  Rounding is that of torch.  A conversion to fp8 saturates
(inf -> largest number) because that is what Triton compiles it to: cvt.rn.satfinite (PTX ISA 9.7).

One difference to a GPU is left: a sum of bf16 numbers is rounded once at its end, not at each step.
"""

import functools

import numpy as np
import torch
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle

# Triton's type -> (torch's type, type of the array that holds the bits)
FORMATS = {
    tl.bfloat16: (torch.bfloat16, np.uint16),
    tl.float8e4nv: (torch.float8_e4m3fn, np.uint8),
    tl.float8e5: (torch.float8_e5m2, np.uint8),
}
ELEMENTWISE = ("unary_op", "binary_op", "create_clampf", "create_fma")
RANGE_REPAIRED = (3, 7)  # triton-lang/triton pull request 9172
INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.uint16}


def is_bf16(value) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16


def widen(handle: TensorHandle) -> TensorHandle:
    """A bf16 or fp8 tile as float32, exactly; every other value as it is."""
    if not isinstance(handle, TensorHandle) or handle.dtype.scalar not in FORMATS:
        return handle
    dtype, _ = FORMATS[handle.dtype.scalar]
    bits = torch.from_numpy(np.ascontiguousarray(handle.data))
    wide = bits.view(dtype).float().numpy().reshape(handle.data.shape)
    return TensorHandle(wide, tl.float32)


def narrow(data: np.ndarray, ty: tl.dtype) -> TensorHandle:
    """float32 -> bf16 or fp8, to nearest even; fp8 saturates, NaN stays NaN."""
    dtype, bits = FORMATS[ty]
    x = torch.from_numpy(np.array(data, dtype=np.float32))  # a copy: data may be a broadcast view
    if dtype.itemsize == 1:
        largest = torch.finfo(dtype).max
        x = x.clamp(-largest, largest)
    narrowed = x.to(dtype).view(INTEGER_OF_SIZE[dtype.itemsize]).numpy().astype(bits, copy=False)
    return TensorHandle(narrowed.reshape(np.shape(data)), ty)


def _elementwise(method):
    """bf16 operands go in as float32; a result that is no comparison is rounded to bf16."""

    @functools.wraps(method)
    def fixed(self, *args):
        if not any(is_bf16(a) for a in args):
            return method(self, *args)
        out = method(self, *(widen(a) if is_bf16(a) else a for a in args))
        if out.data.dtype == np.bool_:
            return TensorHandle(out.data, tl.int1)
        return narrow(out.data, tl.bfloat16)

    return fixed


def _dot(method):
    """a [M, K] b [K, N] + d [M, N], the products and the sum in float32."""

    @functools.wraps(method)
    def fixed(self, a, b, d, *rest):
        out = method(self, widen(a), widen(b), widen(d), *rest)
        return narrow(out.data, tl.bfloat16) if is_bf16(d) else out

    return fixed


def _cast(method):
    @functools.wraps(method)
    def fixed(self, src, dst_type):
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target or (source not in FORMATS and target not in FORMATS):
            return method(self, src, dst_type)
        wide = widen(src)
        if target in FORMATS:
            return narrow(wide.data.astype(np.float32), target)
        return method(self, wide, dst_type)

    return fixed


def _convert(method):
    """float -> float with a rounding mode.  Rounding towards zero is right in the interpreter."""

    @functools.wraps(method)
    def fixed(self, src, dst_type, rounding_mode):
        source, target = src.dtype.scalar, dst_type.scalar
        if source not in FORMATS and target not in FORMATS:
            return method(self, src, dst_type, rounding_mode)
        if rounding_mode == ir.ROUNDING_MODE.RTZ and target in FORMATS:
            return method(self, self.cast_impl(src, tl.float32), dst_type, rounding_mode)
        return self.cast_impl(src, dst_type)

    return fixed


def _retyped(tensor: tl.tensor, handle: TensorHandle) -> tl.tensor:
    scalar, shape = handle.dtype.scalar, list(tensor.shape)
    return tl.core.tensor(handle, tl.block_type(scalar, shape) if shape else scalar)


def _along_axis(method):
    """A reduction or scan over a tuple of tiles, of which some may be bf16."""

    @functools.wraps(method)
    def fixed(self, inputs):
        if not any(is_bf16(x.handle) for x in inputs):
            return method(self, inputs)
        wide = [_retyped(x, widen(x.handle)) if is_bf16(x.handle) else x for x in inputs]
        out = method(self, tuple(wide))
        outputs = out if isinstance(out, (list, tuple)) else [out]
        # argmax over (values, indices) returns both: output k has the type of input k
        return [
            _retyped(y, narrow(y.handle.data, tl.bfloat16)) if is_bf16(x.handle) else y
            for x, y in zip(inputs, outputs, strict=True)
        ]

    return fixed


def _index(method):
    """`for i in range(n)` with a number n of the kernel: NumPy 2.4 refuses int(array([3]))."""

    @functools.wraps(method)
    def fixed(tensor, scope):
        method(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    return fixed


@functools.cache
def install() -> None:
    """Put the fixes into Triton's interpreter, for this process; the second call does nothing."""
    fixes = {name: _elementwise for name in ELEMENTWISE}
    fixes |= {"create_dot": _dot, "cast_impl": _cast, "create_fp_to_fp": _convert}
    silent = np.errstate(all="ignore")  # log2(0) is -inf on a GPU as well, and without a warning
    for name, fix in fixes.items():
        setattr(InterpreterBuilder, name, silent(fix(getattr(InterpreterBuilder, name))))
    for operation in (ReduceOps, ScanOps):
        operation.apply_impl = _along_axis(operation.apply_impl)
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if version < RANGE_REPAIRED:
        interpreter._patch_lang_tensor = _index(interpreter._patch_lang_tensor)
