"""Triton's interpreter, switched on safely: kernels run on a CPU, program by program, in NumPy.

Triton decides when a function is decorated whether @triton.jit compiles or interprets it, and
decorates its own library (tl.sum, tl.max, ...) when it is imported.  So TRITON_INTERPRET=1 must
be set before the first `import triton` of the process, also the hidden ones: the models of
transformers import triton.  Set later, kernels fail with "Cannot call @triton.jit'd outside of
the scope of a kernel".  Importing this module sets the variable, or says clearly that it is too
late; it also repairs the interpreter's arithmetic (see `numerics`).

A kernel that runs here need not compile for a GPU, where tl.dot has smallest sizes, a variable
must exist on all branches, and registers and shared memory end: `efflib.meter.compiling` asks the
compiler.  And float32 tl.dot is exact here, while a GPU rounds its inputs to TF32 unless
input_precision="ieee" is given.
"""

import os
import sys

VARIABLE = "TRITON_INTERPRET"
TOO_LATE = (
    "triton was imported without TRITON_INTERPRET=1 before efflib.meter, so kernels would be "
    "compiled for a GPU and could not be metered. Restart Python (the notebook's kernel) and "
    "import efflib.meter first, before transformers and before any module with kernels, or set "
    "TRITON_INTERPRET=1 in the environment of the process."
)


class InterpreterTooLate(ImportError):
    """Triton was imported for compiling, and cannot be turned into an interpreter any more."""


def use_interpreter() -> None:
    """Make this process interpret Triton kernels.  Raises InterpreterTooLate if it cannot."""
    if "triton" not in sys.modules:
        os.environ[VARIABLE] = "1"
    try:
        import triton
    except ImportError as error:
        raise ImportError(
            "triton is not installed, so kernels are not verified here: on Linux, pip install "
            "triton; elsewhere it has no packages (use WSL, a container or a hosted notebook)"
        ) from error
    from triton.runtime.interpreter import InterpretedFunction

    # what the library was made into at import time is what counts, not the variable's value now
    if not isinstance(triton.language.standard.max, InterpretedFunction):
        raise InterpreterTooLate(TOO_LATE)
    os.environ[VARIABLE] = "1"  # kernels still to be decorated
    from efflib.meter import numerics

    numerics.install()


use_interpreter()
