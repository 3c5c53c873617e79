"""Kernels in Triton, each with a twin in PyTorch and a count of what it has to move and compute.

Without a GPU they run in Triton's interpreter: see `efflib.meter`.
"""

import torch

if not torch.cuda.is_available():
    import efflib.meter.interpreter  # noqa: F401  in time, before a kernel is decorated
