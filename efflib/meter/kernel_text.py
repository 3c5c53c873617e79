"""A kernel that came as text: compiled for a GPU that is not there, and run under the meter.

For kernels of others.  `check_kernel` reads the text first (see `kernel_rules`).  Then the compiler
must accept it, in a process that does nothing else; what it accepts is a kernel and no Python.
Then `metered` runs that same text in a process where nothing of its author's has run.

A launch is a dict of plain values, so that it can travel to another process:

    args      {parameter: tensor or number}
    strides   {parameter: (tensor's parameter, dimension)}: filled in from the tensor as it lies
    there grid      (programs, ...)
    outputs   parameters that come back, as they are afterwards
    guard     whether tensors get gaps of NaN behind rows and matrices (`guarded`); default: yes
    gaps      {parameter: elements} of other gaps than 32
    apart     {parameter: elements} between rows of the first dimension, which lie there for the
              kernel only (`Meter`)
"""

from __future__ import annotations

import tempfile
import traceback

from efflib.meter.kernel_rules import check_kernel

FAULT_LENGTH = 600


def compiled_text(text: str, kernel: str, job: dict) -> dict:
    """What the compiler made of it: registers, shared_bytes, ..., or {"error": {kind, message}}.

    job: signature {parameter: type, "constexpr" for constants}, constants, aligned, capability
    (80), options, as `compile_worker` takes it.  Raises KernelRefused for a text that is no kernel.
    """
    from efflib.meter.compiling import _run_worker

    check_kernel(text)
    request = {"source": text, "kernel": kernel, "jobs": [job], "sass": False}
    [answer] = _run_worker(request)
    return {key: value for key, value in answer.items() if key not in ("ptx", "sass")}


def metered(text: str, kernel: str, launches: list[dict]) -> list[dict]:
    """One dict for each launch: {"fault": {kind, message, line}} or outputs and counts.

    Every launch has a meter and a module of its own: nothing stays from one to the next.
    Raises KernelRefused for a text that is no kernel.
    """
    check_kernel(text)
    return [_run(text, kernel, launch) for launch in launches]


def _run(text: str, kernel: str, launch: dict) -> dict:
    from efflib.meter.compile_worker import load_kernel
    from efflib.meter.meter import Meter

    arguments = _placed(launch)
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(apart=launch.get("apart"))
        try:
            function = load_kernel(text, kernel, folder)
            with meter:
                function[tuple(launch["grid"])](**arguments)
        except Exception as error:  # whatever the kernel did wrong goes back to who asked
            return {"fault": _described(error, folder)}
    outputs = {name: arguments[name].clone() for name in launch["outputs"]}
    return {"fault": None, "outputs": outputs} | counted(meter)


def _placed(launch: dict) -> dict:
    """The arguments, tensors with gaps around their rows, and strides as they are then."""
    from efflib.meter.memory import guarded

    tensors = {}
    for name, value in launch["args"].items():
        gaps = launch.get("guard", True) and hasattr(value, "data_ptr")
        size = launch.get("gaps", {}).get(name, 32)
        tensors[name] = guarded(value, size) if gaps else value
    strides = {name: tensors[of].stride(dim) for name, (of, dim) in launch["strides"].items()}
    apart = launch.get("apart", {})
    strides |= {n: apart[of] for n, (of, d) in launch["strides"].items() if d == 0 and of in apart}
    return tensors | strides


def counted(meter) -> dict:
    """The counts of a meter as plain values; of each tensor [bytes, bytes that are different]."""
    both = {"reads": meter.reads, "writes": meter.writes}
    sums = {
        kind: {name: [t.bytes, t.unique_bytes] for name, t in traffic.items()}
        for kind, traffic in both.items()
    }
    return sums | {
        "flops": meter.flops,
        "exponentials": meter.exponentials,
        "largest_tile": meter.largest_tile,
        "peak_live_bytes": meter.peak_live_bytes,
        "programs": meter.programs,
        "unfilled": sorted(meter.unfilled),
        "products": sorted(meter.products),
    }


def _described(error: BaseException, folder: str) -> dict:
    """Kind and message of what was at the bottom of it, and the kernel's line."""
    line, seen = "", set()
    while id(error) not in seen:  # a fault that the meter raises again is its own context
        seen.add(id(error))
        line = _line(error, folder) or line
        before = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or before or error
    kind, message = type(error).__name__, str(error).replace(folder, "")
    return {"kind": kind, "message": message[:FAULT_LENGTH], "line": line}


def _line(error: BaseException, folder: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f.line or "" for f in frames if f.filename.startswith(folder)]
    return own[-1].strip() if own else ""
