"""Kernels of students are metered where nothing else of theirs has run: counts cannot be forged.

A kernel that the interpreter runs is Python.  Every attack here would change a count, or the result
of another launch, if the kernel ran in the student's own process or if its text were not read.
"""

import pytest
import torch

from autograder.labs.manifest import Budget
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.remote import RemoteStudent
from efflib.kernel_lab.student_kernel import StudentKernel
from efflib.lab.student import StudentError

pytest.importorskip("triton")
HEAD = "import efflib.meter.interpreter\nimport triton\nimport triton.language as tl\n"
SIGNATURE = {"X": "*fp32", "Y": "*fp32", "N": "i32", "BLOCK": "constexpr"}
PARAMETERS = "X, Y, N, BLOCK: tl.constexpr"
LINES = [  # reads X twice, writes twice the sum of both
    "j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    "x = tl.load(X + j, mask=j < N, other=0.0)",
    "again = tl.load(X + j, mask=j < N, other=0.0)",
    "tl.store(Y + j, x + again, mask=j < N)",
]


def kernel_cell(first: str = "pass", before: str = "", after: str = "") -> str:
    body = "".join(f"    {line}\n" for line in [*first.splitlines(), *LINES])
    return f"{HEAD}{before}\n@triton.jit\ndef double({PARAMETERS}):\n{body}{after}"


@pytest.fixture
def handed_in():
    """A function: cells -> the student of the tests."""
    made = []

    def student(*cells: str, seconds: float = 30) -> RemoteStudent:
        made.append(RemoteStudent(SandboxSpec(), cells, Budget(call_seconds=seconds)))
        return made[-1]

    yield student
    for remote in made:
        remote.close()


def launch(x):
    return {
        "args": {"X": x, "Y": torch.full_like(x, torch.nan), "N": len(x), "BLOCK": 16},
        "strides": {},
        "grid": (-(-len(x) // 16),),
        "outputs": ["Y"],
    }


def expect_honest(kernel: StudentKernel) -> None:
    """The right result, and both reads of every element counted."""
    x = torch.arange(20.0)
    for run in kernel.metered([launch(x), launch(x)]):
        assert torch.equal(run["outputs"]["Y"], 2 * x)
        assert run["reads"] == {"X": [160, 80]} and run["writes"] == {"Y": [80, 80]}


def test_an_honest_kernel(handed_in):
    kernel = StudentKernel(handed_in(kernel_cell()), "double", SIGNATURE)
    assert kernel.compiled({"BLOCK": 16})["registers"] > 0
    expect_honest(kernel)


FORGED = {
    "the meter of its own process is patched": (
        "from efflib.meter.meter import Meter\n"
        "Meter.access = lambda self, kind, tile, mask, width, atomic: tile\n"
        "Meter.__exit__ = lambda *_: None\n"
    ),
    "loads of its own process are patched": "tl.load = lambda *a, **k: 0\n",
    "what runs drivers is patched": (
        "import efflib.meter.kernel_text as kernel_text\n"
        "kernel_text.metered = lambda *_: [{'fault': None, 'outputs': {}, 'reads': {}}] * 2\n"
    ),
}


@pytest.mark.parametrize("after", FORGED.values(), ids=FORGED.keys())
def test_what_a_notebook_does_to_its_own_process_changes_no_count(handed_in, after):
    expect_honest(StudentKernel(handed_in(kernel_cell(), after), "double", SIGNATURE))


def test_nothing_stays_from_one_launch_or_run_to_the_next(handed_in):
    kernel = StudentKernel(handed_in(kernel_cell()), "double", SIGNATURE)
    expect_honest(kernel)
    expect_honest(kernel)


def test_a_kernel_that_does_not_end_is_stopped(handed_in):
    endless = kernel_cell("n = 1\nwhile n > 0:\n    n = 1")
    student = handed_in(endless + "\ndef add(x):\n    return x + 1\n", seconds=2)
    with pytest.raises(StudentError, match="Timeout"):
        StudentKernel(student, "double", SIGNATURE).metered([launch(torch.ones(4))])
    assert student.add(2) == 3  # the notebook's own process lives on
