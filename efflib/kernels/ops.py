"""The inference kernels as PyTorch operators, so that torch.compile keeps them in one graph.

To the compiler a Triton launch with a grid computed in Python is code it would have to trace, or
break its graph at.  An operator is a name, a schema (from the annotations of the function) and a
shape function that says what comes out without computing it:

    torch.ops.efflib.flash_decoding(q, k, v)        the function of `flash_decoding`, opaque
    register_fake                                   shapes and types of its results

Importing this module registers them.  They have no gradients (inference only): calling backward
through one is an error that says so.  On the CPU they run only where kernels are interpreted,
elsewhere they say so (`flash_attention.check_device`).
Source: PyTorch documentation, "Python custom operators".
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.library import custom_op

from efflib.kernels import flash_decoding, nf4, paged_attention, w4a16, w8a8

# the schemas come from these functions' signatures
_decoding = custom_op("efflib::flash_decoding", flash_decoding.flash_decoding, mutates_args=())
_paged = custom_op("efflib::paged_attention", paged_attention.paged_attention, mutates_args=())
_w4a16 = custom_op("efflib::w4a16_matmul", w4a16.w4a16_matmul, mutates_args=())
_int8 = custom_op("efflib::int8_matmul", w8a8.int8_matmul, mutates_args=())
_w8a8 = custom_op("efflib::w8a8_matmul", w8a8.w8a8_matmul, mutates_args=())
_nf4 = custom_op("efflib::nf4_values", nf4.nf4_values, mutates_args=())


@_decoding.register_fake
def _(q: Tensor, k, v, scale=None, splits=None, block_n=64):
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)


@_paged.register_fake
def _(q: Tensor, k, v, block_table, lengths, scale=None, splits=None, block_n=64):
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=torch.float32)


@_w4a16.register_fake
def _(x: Tensor, words: Tensor, scale, zeros, group_size):
    return x.new_empty(x.shape[0], words.shape[0])


@_int8.register_fake
def _(x: Tensor, w: Tensor):
    return x.new_empty(x.shape[0], w.shape[0], dtype=torch.int32)


@_w8a8.register_fake
def _(x: Tensor, w: Tensor, x_scale, w_scale, dtype):
    return x.new_empty(x.shape[0], w.shape[0], dtype=dtype)


@_nf4.register_fake
def _(packed: Tensor, a, second, mean, shape, dtype):
    return packed.new_empty(shape, dtype=dtype)
