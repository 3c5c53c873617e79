"""Kernels in Triton, each with a twin in PyTorch and a count of what it has to move and compute.

Modules are loaded when they are named: `from efflib.kernels.flash_decoding import flash_decoding`.

    flash_attention     exact attention that never stores the scores; windowed_, tma_attention: with
                        a window and sinks, with Hopper's tensor memory accelerator
    attention_backward  its gradients; attention_autograd: both as one function with a gradient
    flash_decoding      one query against a long cache, split; paged_attention: a cache in pages
    w4a16, nf4, w8a8    products with codes; w4a16_packed: two codes at a time, for few rows
    ops                 the inference kernels as PyTorch operators
    tiled_, split_      twins in PyTorch; ..._cost: bytes and FLOPs

Without a GPU they run in Triton's interpreter: see `efflib.meter`.
"""

import torch

if not torch.cuda.is_available():
    import efflib.meter.interpreter  # noqa: F401  in time, before a kernel is decorated
