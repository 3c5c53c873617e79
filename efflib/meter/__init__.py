"""Triton kernels on a CPU: run in the interpreter, checked, metered, and compiled without a GPU.

    from efflib.meter import Meter  # before anything imports triton, also transformers

    with Meter() as m:
        kernel[grid](...)
    print(m.report("H100"))

    interpreter    switch the interpreter on in time
    numerics       repair its bf16 and fp8 arithmetic
    meter          bytes, FLOPs, exponentials, tiles of a kernel, for each named argument
    hooks          where the meter taps the interpreter
    memory         which element an address belongs to; out of bounds before memory is touched
    races          programs of one launch that depend on each other's order
    poison         what masked lanes hold
    traffic        bytes, reuse and coalescing
    cache          what an L2 cache leaves of the traffic
    roofline       GPUs of a table of datasheets, and the least time a kernel needs there
    this_machine   the peak and the bandwidth of this computer, measured; times of a model's passes
    report         all of it as a table
    figures        reads per element; traffic against on-chip memory
    compiling      registers, spills, shared memory, tensor-core instructions, without a GPU
    kernel_source  a kernel with all it needs, as text for another process
    kernel_rules   what a text may hold that is to run beside a meter: kernels and nothing else
    kernel_text    a kernel that came as text: compiled, and run under a meter
    sample_kernel  a matrix product to try all this on

`python -m efflib.meter compile` compiles the kernels of the course.

Importing the package loads nothing; its names are loaded when they are used, because `Meter`
decides for the whole process that kernels are interpreted.
"""

from importlib import import_module

_HOME = {
    "Meter": "meter",
    "KernelFault": "memory",
    "OutOfBounds": "memory",
    "UnknownAddress": "memory",
    "guarded": "memory",
    "DataRace": "races",
    "replay": "cache",
    "metered_roofline": "roofline",
    "heat_maps": "figures",
    "block_sweep": "figures",
    "compile_report": "compiling",
}
__all__ = list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"efflib.meter.{_HOME[name]}"), name)
