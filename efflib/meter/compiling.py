"""What a GPU's compiler makes of a Triton kernel, without a GPU.

Triton's wheel holds NVIDIA's assembler (ptxas), so a kernel can be compiled for a GPU that is not
there.  It happens in a process of its own, because this one may interpret; for the same reason
nothing here imports triton before a kernel does.  That finds what the interpreter lets
pass: tl.dot smaller than the tensor cores, variables whose type changes in a loop or that exist on
one branch only, more shared memory than an SM has, registers that spill to memory.

    sm_80   A100      mma.sync, cp.async
    sm_90   H100      wgmma (tensor cores fed from shared memory), TMA
    sm_100  B200      tcgen05 (with tensor memory), TMA
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import NamedTuple

import torch

from efflib.meter.kernel_source import module_source, parameters

# shared memory that one program may have, bytes: CUDA C++ Programming Guide, table of compute
# capabilities (163 and 227 KiB)
SHARED_LIMIT = {"sm_80": 163 * 1024, "sm_90": 227 * 1024, "sm_100": 227 * 1024}
WORKER = [sys.executable, "-m", "efflib.meter.compile_worker"]


class CompilerMissing(RuntimeError):
    """The tools that Triton's wheel should hold are not there."""


class CompileFailed(ValueError):
    """The kernel does not compile for this target."""


class CompileReport(NamedTuple):
    """What the compiler made of a kernel.  Counts are of instructions in the PTX text.

    What the GPU executes is SASS: `compiled_loop.main_loop(report.sass)` counts its main loop.
    """

    target: str
    warps: int
    registers: int  # per thread; 255 is the most there are
    stack_bytes: int  # per thread: registers that were spilled to memory; should be 0
    shared_bytes: int  # per program
    wgmma: int
    tcgen05: int
    mma: int
    tma: int
    cp_async: int
    ptx: str
    sass: str = ""  # where it was asked for

    @property
    def problems(self) -> list[str]:
        """What keeps the kernel from running, or from running well."""
        found = []
        if self.shared_bytes > SHARED_LIMIT[self.target]:
            limit = SHARED_LIMIT[self.target]
            found.append(f"needs {self.shared_bytes:,} bytes of shared memory, has {limit:,}")
        if self.stack_bytes:
            found.append(f"spills registers: {self.stack_bytes} bytes per thread")
        return found


class Case(NamedTuple):
    """A kernel to compile: arguments of a launch, and options such as num_warps."""

    name: str
    kernel: object
    arguments: dict
    options: dict = {}
    targets: tuple[str, ...] = tuple(SHARED_LIMIT)  # what it is written for


def _describe(name: str, value) -> tuple[str, bool]:
    """(Triton's type of a run-time argument, whether it is a multiple of 16), as a launch does."""
    from triton.runtime.jit import mangle_type

    if isinstance(value, str):
        return value, value.startswith("*")
    if isinstance(value, torch.Tensor):
        # a tensor on "meta" has no address: taken to be aligned, as allocations are
        return mangle_type(value), value.is_meta or value.data_ptr() % 16 == 0
    if isinstance(value, bool | int | float):
        return mangle_type(value), type(value) is int and value % 16 == 0
    raise TypeError(f"argument {name} must be a tensor, a number or a type name, got {value!r}")


def _job(kernel, arguments: dict, target: str, options: dict) -> dict:
    """The request for one target, as `compile_worker` takes it."""
    if target not in SHARED_LIMIT:
        raise ValueError(f"target must be one of {sorted(SHARED_LIMIT)}, got {target!r}")
    from triton.language import dtype

    known = parameters(kernel)
    if set(known) != set(arguments):
        missing, unknown = sorted(set(known) - set(arguments)), sorted(set(arguments) - set(known))
        raise ValueError(f"the kernel takes {list(known)}; missing {missing}, unknown {unknown}")
    signature, constants, aligned = {}, {}, []
    for name, is_constant in known.items():
        value = arguments[name]
        if is_constant or value is None or (type(value) is int and value == 1):
            signature[name] = "constexpr"  # a launch also takes None and 1 for constants
            constants[name] = {"dtype": value.name} if isinstance(value, dtype) else value
        else:
            signature[name], divisible = _describe(name, value)
            aligned += [name] if divisible else []
    return {
        "signature": signature,
        "constants": constants,
        "aligned": aligned,
        "capability": int(target.removeprefix("sm_")),
        "options": options,
    }


def _run_worker(request: dict) -> list[dict]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)  # as here: in a sandbox
    done = subprocess.run(
        WORKER, input=json.dumps(request), capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"the compiling process ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)


def compile_for_targets(
    case: Case, targets: list[str], sass: bool = False
) -> list[CompileReport | Exception]:
    """One CompileReport, CompileFailed or CompilerMissing per target; see `compile_report`."""
    source, name = module_source(case.kernel)
    jobs = [_job(case.kernel, case.arguments, target, case.options) for target in targets]
    results = []
    answers = _run_worker({"source": source, "kernel": name, "jobs": jobs, "sass": sass})
    for target, answer in zip(targets, answers, strict=True):
        error = answer.get("error")
        if error is None:
            results.append(CompileReport(target=target, **answer))
        elif error["kind"] == "missing":
            text = f"{error['message']}: Triton's wheel for Linux holds it; reinstall triton"
            results.append(CompilerMissing(text))
        else:
            results.append(CompileFailed(f"{name} for {target}: {error['message']}"))
    return results


def compile_report(
    kernel, arguments: dict, target: str = "sm_90", sass: bool = False, **options
) -> CompileReport:
    """Compile a @triton.jit kernel for a GPU that need not be there.

    arguments: {parameter: value} of a launch.  Tensors count by type and alignment (make large ones
    with device="meta"), numbers by type; a name of a Triton type ("*fp16", "i32") will do as well.
    sass: disassemble the result too, which takes about a second.
    options: num_warps, num_stages, maxnreg, ...

    Raises CompileFailed with the compiler's message, CompilerMissing without ptxas, ValueError for
    an unknown target or wrong arguments, TypeError for what is no kernel.
    """
    [result] = compile_for_targets(Case("", kernel, arguments, options), [target], sass)
    if isinstance(result, Exception):
        raise result
    return result
