"""Masks, and what lanes hold that a load masked off without saying what they are (`other=`).

A GPU promises nothing about them, while the interpreter gives 0, which hides the mistake in every
test.  A value that ruins each result it enters shows it.
"""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, _get_np_dtype

NAN_BITS = {tl.bfloat16: 0x7FC0, tl.float8e4nv: 0x7F, tl.float8e5: 0x7F}


def element_width(pointers: TensorHandle) -> int:
    """Bytes of the elements that a tile of pointers points to."""
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def boolean(mask: TensorHandle) -> TensorHandle:
    """A mask as the interpreter takes it: `on & (n > 0)` with a number n is int32, 0 or 1."""
    return TensorHandle(np.asarray(mask.data).astype(bool), tl.int1)


def poison(pointers: TensorHandle) -> TensorHandle:
    """A tile of NaN, of large integers or of True, as a load through these pointers gives."""
    element = pointers.get_element_ty()
    dtype = _get_np_dtype(element)
    if dtype.kind == "f":
        value = np.nan
    elif dtype.kind == "b":
        value = True
    else:  # a third of the largest: sums of two do not overflow back to small numbers
        value = NAN_BITS.get(element, np.iinfo(dtype).max // 3)
    return TensorHandle(np.full(pointers.data.shape, value, dtype), element)
