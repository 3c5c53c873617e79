"""A student's kernel in a test: what is refused before it runs, and in which words.

That the same happens in grading, in sandboxes: tests/autograder/sandbox/test_kernels_apart.py.
"""

import itertools
import linecache

import pytest
import torch

from efflib.kernel_lab import student_kernel
from efflib.kernel_lab.student_kernel import (
    KEPT_IN,
    RUNS_IN,
    StudentKernel,
    remembered,
    run_once,
)
from efflib.lab.student import LocalStudent, StudentError

pytest.importorskip("triton")
HEAD = "import efflib.meter.interpreter\nimport triton\nimport triton.language as tl\n"
SIGNATURE = {"X": "*fp32", "Y": "*fp32", "N": "i32", "BLOCK": "constexpr"}
PARAMETERS = "X, Y, N, BLOCK: tl.constexpr"
LINES = [
    "j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    "x = tl.load(X + j, mask=j < N, other=0.0)",
    "tl.store(Y + j, x + x, mask=j < N)",
]
NUMBERS = itertools.count()


def notebook(source: str) -> LocalStudent:
    """A notebook with one cell."""
    name, namespace = f"<kernel cell {next(NUMBERS)}>", {"__name__": "__main__"}
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    exec(compile(source, name, "exec"), namespace)
    return LocalStudent(namespace)


def kernel_cell(first: str = "pass", before: str = "") -> str:
    body = "".join(f"    {line}\n" for line in [*first.splitlines(), *LINES])
    return f"{HEAD}{before}\n@triton.jit\ndef double({PARAMETERS}):\n{body}"


def double(first: str = "pass", before: str = "") -> StudentKernel:
    return StudentKernel(notebook(kernel_cell(first, before)), "double", SIGNATURE)


def launch(x):
    return {
        "args": {"X": x, "Y": torch.full_like(x, torch.nan), "N": len(x), "BLOCK": 16},
        "strides": {},
        "grid": (-(-len(x) // 16),),
        "outputs": ["Y"],
    }


def test_an_honest_kernel():
    [run] = double().metered([launch(torch.arange(20.0))])
    assert torch.equal(run["outputs"]["Y"], 2 * torch.arange(20.0))
    assert run["reads"] == {"X": [80, 80]} and run["programs"] == 2


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
def test_a_kernel_that_is_more_than_a_kernel_is_not_run(first, before):
    with pytest.raises((AssertionError, StudentError), match="."):
        double(first, before)


class Lying(LocalStudent):
    """A notebook's process that says what it likes."""

    def __init__(self, text) -> None:
        self.text = text

    def _drive(self, *_):
        return self.text, "double"


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
def test_a_text_that_is_no_kernel_is_not_run(text):
    with pytest.raises(AssertionError):
        StudentKernel(Lying(text), "double", SIGNATURE)


def test_a_kernel_that_is_not_written_says_so():
    stub = f"{HEAD}@triton.jit\ndef double({PARAMETERS}):\n    raise NotImplementedError('ex3')\n"
    for name, kind in (("double", "NotImplementedError"), ("triple", "Undefined")):
        with pytest.raises(StudentError) as missing:
            StudentKernel(notebook(stub), name, SIGNATURE)
        assert missing.value.kind == kind


def test_a_template_keeps_its_parameters():
    source = kernel_cell().replace("N, BLOCK", "BLOCK, N")
    with pytest.raises(AssertionError, match="parameters of the template"):
        StudentKernel(notebook(source), "double", SIGNATURE)


# the mistakes that everybody makes once: what the message has to say
MISTAKES = {
    "a number for an address": ("tl.store(Y + 1000 + tl.arange(0, BLOCK), 1.0)", "outside"),
    "no mask": (
        "tl.load(X + tl.arange(0, BLOCK))\ntl.load(X + 16 + tl.arange(0, BLOCK))",
        "outside",
    ),
    "a race": ("tl.store(Y, tl.program_id(0).to(tl.float32))", "two programs"),
}


@pytest.mark.parametrize(("first", "words"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_fault_names_itself_and_the_line(first, words):
    kernel = double(first)
    with pytest.raises(AssertionError, match=words) as told:
        kernel.metered([launch(torch.arange(20.0))])
    assert "tl.store(" in str(told.value) or "tl.load(" in str(told.value)


# what is refused with a way out: the kernel's first line, what stands before it, the words
FOREIGN = {
    "torch.inf": ("t = X if N > torch.inf else Y", "import torch\n", "float('-inf')"),
    "math.inf": ("t = -math.inf", "import math\n", "`math.inf` in `t = -math.inf`"),
    "torch.exp": ("t = torch.exp(N)", "import torch\n", "write tl.exp"),
    "torch.sort": ("t = torch.nothing(N)", "import torch\n", "`torch.nothing` in"),
    "float()": ("t = tl.load(X).float()", "", "write .to(tl.float32)"),
    "block pointers": (
        "t = tl.load(tl.make_block_ptr(X, [4], [1], [0], [4], [0]))",
        "",
        "removed block pointers",
    ),
}


@pytest.mark.parametrize(("first", "before", "words"), FOREIGN.values(), ids=FOREIGN.keys())
def test_what_is_foreign_is_named_with_its_line_and_a_way_out(first, before, words):
    with pytest.raises(AssertionError) as told:
        double(first, before)
    assert words in str(told.value) and "import" not in str(told.value), told.value


UNCOMPILED = {
    "a small product": (
        "t = tl.zeros([8, 8], tl.float16)\nu = tl.dot(t, t)", "at least 16"),
    "a shape that is no constant": ("t = tl.arange(0, N)", "tl.constexpr"),
    "no power of two": ("t = tl.arange(0, 24)", "power of two"),
    "two dtypes": (
        "t = tl.zeros([16, 16], tl.float32)\nu = tl.dot(t.to(tl.float16), t)", "one dtype"),
    "a product by @": ("t = tl.zeros([16, 16], tl.float16)\nu = t @ t", "tl.dot(a, b)"),
    "print without a text": ("print(N)", "print('x', x)"),
    "the line": ("t = tl.arange(0, N)", "in the line `t = tl.arange(0, N)`"),
    "a loop that changes a type": (
        "t = 0\nfor i in range(N):\n    t = tl.zeros([16], tl.float32)", "changes its type"),
    "a global that is no constant": ("t = X + SIZE", "tl.constexpr(value)"),
    "a variable of one branch": ("if N > 3:\n    t = 1\nj = t", "every way"),
}  # fmt: skip


@pytest.mark.parametrize(("first", "words"), UNCOMPILED.values(), ids=UNCOMPILED.keys())
def test_what_does_not_compile_is_said_in_words(first, words):
    kernel = double(first, "SIZE = 3\n")
    with pytest.raises(AssertionError, match="does not compile") as told:
        kernel.compiled({"BLOCK": 16})
    assert words in str(told.value), told.value


def test_what_the_compiler_said_is_asked_once(tmp_path, monkeypatch):
    monkeypatch.setenv(KEPT_IN, str(tmp_path / "compiled"))
    answers = iter([{"error": {"kind": "missing"}}, *({"registers": n} for n in (1, 2, 3))])

    def asked(block: int) -> dict:
        request = ("a text", "a name", {"constants": {"BLOCK": block}})
        return remembered(request, lambda: next(answers))

    assert asked(16) == {"error": {"kind": "missing"}}, "the next one may find a compiler"
    assert [asked(16) for _ in range(3)] == 3 * [{"registers": 1}]
    assert asked(32) == {"registers": 2}
    monkeypatch.setattr(student_kernel, "asked_by", lambda: ("another Triton", ""))
    assert asked(32) == {"registers": 3}
    assert len(list((tmp_path / "compiled").iterdir())) == 3


def test_the_same_kernel_runs_once_on_the_same_numbers_where_a_folder_says_so(
    tmp_path, monkeypatch
):
    answers = iter([{"fault": None, "outputs": {"Y": torch.tensor([n + 0.5])}} for n in range(9)])

    def ran(text: str, numbers: torch.Tensor) -> float:
        launch = {"args": {"X": numbers}, "grid": (1,)}
        [run] = run_once((text, "kernel", [launch]), lambda: [next(answers)])
        return run["outputs"]["Y"].item()

    x = torch.arange(4.0)
    monkeypatch.delenv(RUNS_IN, raising=False)
    assert [ran("a", x), ran("a", x)] == [0.5, 1.5], "between students nothing is kept"
    monkeypatch.setenv(RUNS_IN, str(tmp_path))
    assert [ran("a", x), ran("a", x.clone())] == [2.5, 2.5]
    assert [ran("b", x), ran("a", x.bfloat16()), ran("a", x.view(2, 2))] == [3.5, 4.5, 5.5]
    assert ran("a", x) == 2.5
