"""A student's Triton kernel in a test: its text, whether it compiles, what it computes and moves.

    kernel = StudentKernel(student, "row_softmax", SIGNATURE)
    kernel.compiled(constants={"BLOCK": 32})
    [run] = kernel.metered([launch])
    run["outputs"]["Y"], run["reads"]["X"]

In grading the student's own process gives nothing but a text.  The test reads it and takes only
what is a kernel (efflib.meter.kernel_rules); the compiler must accept it; and it runs under the
meter in a sandbox in which nothing else of the student's has run.  So counts cannot be forged.  In
a notebook the same happens without sandboxes.

Where there is no Triton (macOS, Windows) tests that need it are not verified, and say so.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from efflib.kernel_lab.words import compiler_words, fault_words
from efflib.lab.codec import pack, unpack
from efflib.meter.kernel_rules import KernelRefused, check_kernel, kernel_parameters

MISSING = "Triton is not installed here (it exists for Linux only), so kernels cannot be run"
# what the compiler said, for this process and those forked from it: a kernel that is tested under
# many seeds is compiled once.  A folder that KEPT_IN names lasts longer: `make test` names one
KEPT_IN = "EFFLIB_COMPILED"  # an environment variable
RUNS_IN = "EFFLIB_RUNS"  # one that names an existing folder for what the meter said (run_once)
COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")


def kernel_text(student, name: str):
    """Driver: (text of a module with the kernel and all it needs, its name there)."""
    import efflib.meter.interpreter  # noqa: F401  decides for the process, before triton
    from efflib.lab.calls import find
    from efflib.meter.kernel_source import module_source

    kernel = find(student._namespace, name)
    if not hasattr(kernel, "fn"):
        raise TypeError(f"{name} is no kernel: write @triton.jit above it")
    text, inside = module_source(kernel)
    if "raise NotImplementedError" in text:
        raise NotImplementedError(name)
    return text, inside


def compile_kernel(nobody, text: str, name: str, job: dict):
    """Driver: what the compiler says."""
    from efflib.meter.kernel_text import compiled_text

    return compiled_text(text, name, job)


def meter_kernel(nobody, text: str, name: str, launches: list):
    """Driver: outputs and counts of each launch."""
    import efflib.meter.interpreter  # noqa: F401  decides for the process, before triton
    from efflib.meter.kernel_text import metered

    return metered(text, name, launches)


def remembered(request: tuple, ask) -> dict:
    """ask(), or what it gave for the same request before: it depends on nothing else but on the
    compiler and on how it is asked."""
    name = hashlib.sha256(json.dumps([request, *asked_by()]).encode()).hexdigest()
    path = Path(os.environ.get(KEPT_IN, COMPILED.name)) / name
    if path.exists():
        return json.loads(path.read_text())
    answer = ask()
    if answer.get("error", {}).get("kind") == "missing":
        return answer  # the next one may find a compiler
    path.parent.mkdir(parents=True, exist_ok=True)  # some systems clear old temporary folders
    half = path.with_suffix(f".{os.getpid()}")
    half.write_text(json.dumps(answer))
    half.replace(path)  # others see all of it or nothing
    return answer


def run_once(request: tuple, ask) -> list[dict]:
    """ask(), or what it gave before, if RUNS_IN names a folder: runs depend on nothing else.

    For the triad, where hundreds of variants of something else run the same kernel on the same
    numbers.  Between students nothing is kept: each has numbers of his own.
    """
    if not os.environ.get(RUNS_IN):
        return ask()
    data = pack(list(request))
    path = Path(os.environ[RUNS_IN]) / hashlib.sha256(data).hexdigest()
    if path.exists():
        return unpack(path.read_bytes())
    runs = ask()
    half = path.with_suffix(f".{os.getpid()}")
    half.write_bytes(pack(runs))
    half.replace(path)
    return runs


@functools.cache
def asked_by() -> tuple[str, str]:
    """(Triton's version, a hash of the modules that ask it)."""
    import efflib.meter

    texts = (path.read_bytes() for path in sorted(Path(efflib.meter.__path__[0]).glob("*.py")))
    triton = version("triton") if find_spec("triton") else ""
    return triton, hashlib.sha256(b"\0".join(texts)).hexdigest()


class StudentKernel:
    """signature: {parameter: Triton's type, "constexpr" for constants}, in the stub's order.

    Raises AssertionError for what is no kernel, with words for the student.
    """

    def __init__(self, student, name: str, signature: dict[str, str]) -> None:
        if find_spec("triton") is None:
            pytest.skip(MISSING)
        self._student, self.name, self.signature = student, name, signature
        text, self._inside = student.drive(kernel_text, name)
        assert isinstance(text, str) and isinstance(self._inside, str), f"{name} is no kernel"
        try:
            check_kernel(text)
        except KernelRefused as refused:
            raise AssertionError(f"{name}: {refused}") from None
        wanted = {p: kind == "constexpr" for p, kind in signature.items()}
        own = kernel_parameters(text, self._inside)
        assert own == wanted, (
            f"{name} must keep the parameters of the template, and tl.constexpr where it stands "
            f"there: ({', '.join(signature)})"
        )
        self.text = text

    def compiled(self, constants: dict, target: int = 80, types: dict | None = None) -> dict:
        """registers, stack_bytes, shared_bytes, mma, ... for a GPU.

        types: of some parameters, others than in the signature.  Fails, in words, if it does not
        compile.
        """
        signature = self.signature | (types or {})
        job = {
            "signature": signature,
            "constants": constants,
            "aligned": [name for name, kind in signature.items() if kind.startswith("*")],
            "capability": target,
            "options": {"num_warps": 4, "num_stages": 2},
        }
        call = compile_kernel, self.text, self._inside, job
        answer = remembered(call[1:], lambda: self._student.apart("compiler", *call))
        if "error" in answer:
            if answer["error"].get("kind") == "missing":
                pytest.skip(answer["error"]["message"])
            raise AssertionError(compiler_words(self.name, answer["error"]["message"]))
        return answer

    def metered(self, launches: list[dict]) -> list[dict]:
        """Outputs and counts of each launch (see kernel_text). Fails at the first fault."""
        call = meter_kernel, self.text, self._inside, launches
        runs = run_once(call[1:], lambda: self._student.apart(self.text, *call))
        for run in runs:
            if run["fault"] is not None:
                raise AssertionError(fault_words(self.name, run["fault"]))
        return runs
