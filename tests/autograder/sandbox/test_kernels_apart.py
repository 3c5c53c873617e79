"""Kernels of students are metered where nothing else of theirs has run: counts cannot be forged.

A kernel that the interpreter runs is Python.  Every attack here would change a count, or the result
of another launch, if the kernel ran in the student's own process or if its text were not read.
"""

import pytest
import torch

from autograder.labs.manifest import Budget
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.remote import RemoteStudent
from autograder.sandbox.session import SandboxDied
from efflib.lab.kernels import StudentKernel
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


# what the kernel does first; what stands before it
KERNELS = {
    "imports": ("import os", ""),
    "imports by __import__": ("x = __import__('os')", ""),
    "calls a function of Python's": ("spy()", "def spy():\n    pass\n"),
    "keeps state in a list": ("found.append(1)", "found = []\n"),
    "keeps state in an object": ("state.n += 1", "class State:\n    n = 0\nstate = State()\n"),
    "keeps state by global": ("global count\ncount += 1", "count = 0\n"),
    "reads a tensor of the notebook": ("x = answers", "import torch\nanswers = torch.ones(3)\n"),
    "reads all globals": ("x = globals()", ""),
    "has a constexpr function": (
        "x = peek()",
        "@triton.constexpr_function\ndef peek():\n    return len(open('/proc/self/maps').read())\n",
    ),
    "climbs to all classes": ("x = ().__class__.__base__.__subclasses__()", ""),
    "patches tl": ("tl.load = tl.store", ""),
    "opens a file in print": ("print(open('/etc/passwd').read())", ""),
    "runs code in static_assert": ("tl.static_assert(exec('import os') is None)", ""),
    "reaches the arrays behind a tile": ("x = tl.arange(0, BLOCK).handle.data.fill(0)", ""),
    "asks the interpreter": ("x = triton.runtime.interpreter", ""),
}


@pytest.mark.parametrize(("first", "before"), KERNELS.values(), ids=KERNELS.keys())
def test_a_kernel_that_is_more_than_a_kernel_is_not_run(handed_in, first, before):
    student = handed_in(kernel_cell(first, before))
    with pytest.raises((AssertionError, StudentError)) as refused:
        kernel = StudentKernel(student, "double", SIGNATURE)
        kernel.metered([launch(torch.ones(4))])
    assert not isinstance(refused.value, SandboxDied)
    assert str(refused.value)


LYING = HEAD + """
import efflib.meter.kernel_source as source
source.module_source = lambda kernel: (TEXT, "double")
@triton.jit
def double(X, Y, N, BLOCK: tl.constexpr):
    pass
"""


@pytest.mark.parametrize(
    "text",
    [
        "import os\n@triton.jit\ndef double(X, Y, N, BLOCK: tl.constexpr):\n    pass\n",
        "import triton\nprint(1)\n",
        "",
        "double = 1\n",
        "import triton\n@triton.jit\ndef double(X):\n    pass\n",
        "x" * 100_000,
        None,
        7,
    ],
)
def test_a_text_that_is_no_kernel_is_not_run(handed_in, text):
    student = handed_in(f"TEXT = {text!r}\n{LYING}")
    with pytest.raises(AssertionError):
        StudentKernel(student, "double", SIGNATURE)


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


def test_a_kernel_that_is_not_written_says_so(handed_in):
    student = handed_in(f"{HEAD}@triton.jit\ndef double({PARAMETERS}):\n    raise NotImplementedError")
    with pytest.raises(StudentError) as missing:
        StudentKernel(student, "double", SIGNATURE)
    assert missing.value.kind == "NotImplementedError"
    with pytest.raises(StudentError) as missing:
        StudentKernel(student, "triple", SIGNATURE)
    assert missing.value.kind == "Undefined"


# the mistakes that everybody makes once: what the message has to say
MISTAKES = {
    "a number for an address": ("tl.store(Y + 1000 + tl.arange(0, BLOCK), 1.0)", "outside"),
    "no mask": ("tl.load(X + tl.arange(0, BLOCK))\ntl.load(X + 16 + tl.arange(0, BLOCK))", "outside"),
    "a race": ("tl.store(Y, tl.program_id(0).to(tl.float32))", "two programs"),
}


@pytest.mark.parametrize(("first", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_fault_names_itself_and_the_line(handed_in, first, words):
    kernel = StudentKernel(handed_in(kernel_cell(first)), "double", SIGNATURE)
    with pytest.raises(AssertionError, match=words) as told:
        kernel.metered([launch(torch.arange(20.0))])
    assert "tl.store(" in str(told.value) or "tl.load(" in str(told.value)


UNCOMPILED = {
    "a small product": (
        "t = tl.zeros([8, 8], tl.float32)\nu = tl.dot(t, t)", "at least 16"),
    "a shape that is no constant": ("t = tl.arange(0, N)", "tl.constexpr"),
    "no power of two": ("t = tl.arange(0, 24)", "power of two"),
    "two dtypes": (
        "t = tl.zeros([16, 16], tl.float32)\nu = tl.dot(t.to(tl.float16), t)", "one dtype"),
    "a loop that changes a type": (
        "t = 0\nfor i in range(N):\n    t = tl.zeros([16], tl.float32)", "changes its type"),
    "a global that is no constant": ("t = X + SIZE", "tl.constexpr(value)"),
    "a variable of one branch": ("if N > 3:\n    t = 1\nj = t", "every way"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "words"), UNCOMPILED.values(), ids=UNCOMPILED.keys())
def test_what_does_not_compile_is_said_in_words(handed_in, first, words):
    kernel = StudentKernel(handed_in(kernel_cell(first, "SIZE = 3\n")), "double", SIGNATURE)
    with pytest.raises(AssertionError, match="does not compile") as told:
        kernel.compiled({"BLOCK": 16})
    assert words in str(told.value), told.value
