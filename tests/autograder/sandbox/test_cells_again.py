"""Cells that did not come to their end, and cells that run once more: what is made of them."""

import time
from types import SimpleNamespace

import pytest

from autograder.grading.rebuild import CellSource, spare
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.remote import LATER, RemoteStudent
from autograder.sandbox.session import SandboxDied

BUDGET = SimpleNamespace(cell_seconds=20.0, notebook_seconds=60.0, call_seconds=60.0)
KEPT = {
    "wrapped": "def f(x): return x\nold = f\nf = list([lambda x: old(x) + 1])[0]\nraise OSError",
    "of its class": "class A: pass\na = A()\ndef f(x): return 2 if isinstance(a, A) else 0\n1 / 0",
    "changed": "def f(x): return f.n\nf.n = 1\nf.n += 1\nundefined",
    "below": "input()\ndef f(x): return 2",
    "below a decorator that fails": "@undefined\ndef g(): pass\ndef f(x): return 2",
    "in many lines": "n = [\n  1,\n  undefined,\n]\ndef f(x): return 2",
    "awaited": "import asyncio\nawait asyncio.sleep(0)\ndef f(x): return 2\nawait undefined\n",
}


def student_of(*sources):
    cells = [CellSource("", source, "own", spare(source)) for source in sources]
    return RemoteStudent(SandboxSpec(), cells, BUDGET)


@pytest.mark.parametrize("source", KEPT.values(), ids=KEPT)
def test_a_cell_that_raises_leaves_what_it_leaves_in_a_notebook_and_what_stands_below(source):
    student = student_of(source)
    assert student.cell_reports[0].error
    assert student.f(1) == 2
    student.close()


def test_a_cell_that_is_stopped_leaves_the_same():
    source = f"{KEPT['wrapped'].rpartition('raise')[0]}while True: pass\ndef g(): return 3"
    budget = SimpleNamespace(cell_seconds=0.5, notebook_seconds=60.0, call_seconds=60.0)
    cells = [CellSource("", source, "own", spare(source))]
    student = RemoteStudent(SandboxSpec(), cells, budget)
    assert student.cell_reports[0].error.startswith("Timeout")
    assert (student.f(1), student.g()) == (2, 3)
    student.close()


@pytest.mark.parametrize("quiet", [False, True], ids=["public", "hidden"])
def test_which_cell_ends_a_later_sandbox_is_not_told_once_hidden_input_was_seen(quiet):
    """A clock would do: wait for a time that says what came in, end; the next cells read it."""
    late = time.time() + 20.0  # the first sandbox has run its cells by then
    cells = [f"import os, time\nif {i} and time.time() > {late}: os._exit(0)" for i in range(3)]
    student = student_of(*cells, "def end(): os._exit(0)\ndef f(): return 1")
    assert student.notes == []
    with pytest.raises(SandboxDied):
        student.end()
    student.quiet = quiet
    time.sleep(max(0.0, late - time.time()) + 0.1)
    assert student.f() == 1
    told = [f"code cell {i} was left out: it ended its process" for i in (2, 3)]
    assert student.notes == ([LATER, LATER] if quiet else told)
    student.close()
