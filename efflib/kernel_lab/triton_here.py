"""Triton for a notebook: interpreted and metered; where there is none, something that says so.

    from efflib.kernel_lab.triton_here import Meter, tl, triton

Triton's packages exist for Linux only.  Elsewhere `@triton.jit` still takes a kernel, so that a
notebook can be read and its other exercises done; launching one raises TritonMissing.
"""

from importlib.util import find_spec

HERE = find_spec("triton") is not None
MISSING = (
    "Triton is not installed here: its packages exist for Linux only (on Windows use WSL, on a Mac "
    "a container or a hosted notebook). The PyTorch exercises work; kernels are not verified."
)


class TritonMissing(RuntimeError):
    """A kernel was launched where Triton is not installed."""


class _Missing:
    """Stands for triton, tl and whatever is taken from them."""

    __name__ = "missing"

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return _MISSING

    def __call__(self, *args, **kwargs):
        return _MISSING

    def __getitem__(self, grid):
        raise TritonMissing(MISSING)

    def __enter__(self):
        raise TritonMissing(MISSING)

    def __exit__(self, *_):
        return None


_MISSING = _Missing()
if HERE:
    from efflib.meter import Meter  # first: it decides that kernels are interpreted

    import triton  # isort: skip
    import triton.language as tl  # isort: skip
else:
    Meter = triton = tl = _MISSING

__all__ = ["HERE", "Meter", "TritonMissing", "tl", "triton"]
