"""Cells, calls, drivers and callbacks of a session; RemoteStudent's restarts."""

from types import SimpleNamespace

import pytest
import torch
from victims import BUDGET, Victim

from autograder.sandbox.remote import RemoteStudent
from autograder.sandbox.session import SandboxDied, SandboxSpec, Session
from efflib.lab.calls import Undefined
from efflib.lab.codec import CodecError
from efflib.lab.student import LocalStudent, StudentError

pytestmark = pytest.mark.slow


def test_a_cell_reports_output_and_error(victim):
    report = victim.cell("print('hello')\nimport sys; print('warning', file=sys.stderr)")
    assert (report.error, report.stdout) == (None, "hello\nwarning\n")
    report = victim.cell("x = 1\n1 / 0")
    assert report.error == "ZeroDivisionError: division by zero (line 2 of <module>: 1 / 0)"
    assert "SyntaxError" in victim.cell("def f(:").error
    assert "source code" in victim.cell("x = 1\0").error


def test_cells_share_a_namespace_that_looks_like_a_notebook(victim):
    victim.cell("from __future__ import annotations\nfrom dataclasses import dataclass")
    victim.cell("@dataclass\nclass Config:\n    width: int = 3\nimport __main__")
    victim.cell("import inspect, pickle\ndef attack():\n    'doc'\n    return Config().width")
    assert victim.attack() == 3
    assert victim.cell("assert __main__.attack is attack and __name__ == '__main__'").error is None
    assert victim.cell("assert \"'doc'\" in inspect.getsource(attack)").error is None
    assert victim.cell("assert pickle.loads(pickle.dumps(Config())) == Config()").error is None


def test_top_level_await_runs(victim):
    assert victim.cell("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')").stdout == (
        "awaited\n"
    )


def test_the_stub_of_ipython(victim):
    cell = """
shell = get_ipython()
shell.run_line_magic("timeit", "x = 1")
shell.run_line_magic("time", "y = 2")
shell.run_cell_magic("time", "", "z = 3")
shell.run_cell_magic("capture", "out", "w = 4")
shell.run_cell_magic("bash", "", "rm -rf /")
shell.run_line_magic("matplotlib", "inline")
shell.system("pip install x"); shell.getoutput("ls")
shell.events.register; display(3)
def attack(): return [x, y, z, w]
"""
    report = victim.cell(cell)
    assert report.error is None and "%%bash" in report.stdout and victim.attack() == [1, 2, 3, 4]


def driver_with_gradients(student, x):

    x = x.clone().requires_grad_()
    student.attack(x).sum().backward()
    return x.grad


def test_a_driver_runs_beside_the_functions(victim):
    victim.cell("def attack(x): return x ** 2")
    assert torch.equal(victim.drive(driver_with_gradients, torch.ones(2)), 2 * torch.ones(2))


@pytest.mark.parametrize(
    "cell, args, expected",
    [
        ("def attack(x, k=1): return x * k", (torch.arange(3.0),), torch.arange(3.0)),
        ("def attack(f): return f(2) + 1", (lambda x: x * 10,), 21),
        ("def attack(fs): return [f(1) for f in fs]", ([abs, float],), [1, 1.0]),
        ("def attack(f):\n try: f(1)\n except ValueError as e: return 'caught'", (None,), "caught"),
        ("def attack(d): return d[1][0].dtype", ({1: (torch.zeros(1),)},), torch.float32),
    ],
)
def test_remote_and_local_students_agree(victim, cell, args, expected):
    def raises(x):
        raise ValueError("the text stays here")

    args = tuple(raises if value is None else value for value in args)
    namespace = {}
    exec(cell, namespace)
    for value in (victim.run(cell, *args), LocalStudent(namespace).attack(*args)):
        assert type(value) is type(expected)
        same = torch.equal(value, expected) if torch.is_tensor(value) else value == expected
        assert same


@pytest.mark.parametrize(
    "cell",
    ["def attack(): raise KeyError('a')", "attack = 3", "def attack(x): pass", "attack = int"],
)
def test_errors_agree_with_a_local_student(victim, cell):
    namespace = {}
    exec(cell, namespace)
    args = ("no number",) if "int" in cell else ()
    with pytest.raises(StudentError) as here:
        LocalStudent(namespace).attack(*args)
    with pytest.raises(StudentError) as there:
        victim.run(cell, *args)
    assert (here.value.kind, here.value.message) == (there.value.kind, there.value.message)


def test_an_undefined_name(victim):
    with pytest.raises(StudentError) as caught:
        victim.nothing_of_that_name()
    assert caught.value.kind == Undefined.__name__


def test_a_builtin_exception_keeps_its_type(victim):
    with pytest.raises(ValueError, match="bits"):
        victim.run("def attack(): raise ValueError('bits must be positive')")


def test_arguments_that_cannot_travel_are_the_tests_fault(victim):
    victim.cell("def attack(x): return 1")
    with pytest.raises(CodecError):
        victim.attack(object())
    assert victim.attack(1) == 1


def test_ctrl_c_in_a_function_of_the_test_ends_the_session():
    def function(x):
        raise KeyboardInterrupt

    with Session(SandboxSpec()) as session:
        session.run_cell("def attack(f): return f(1)")
        with pytest.raises(KeyboardInterrupt):
            session.call("attack", (function,))
        with pytest.raises(SandboxDied):
            session.call("attack", (abs,))


def test_a_killed_cell_is_left_out_and_restarts_are_limited(monkeypatch):
    monkeypatch.setattr("autograder.sandbox.remote.MAX_STARTS", 3)
    cells = [
        "a = 1",
        SimpleNamespace(source="import os; os._exit(1)"),
        "1 / 0",
        "def attack(): return a",
        "def end(): import os; os._exit(1)",
    ]
    with Session(SandboxSpec()) as ahead:
        student = RemoteStudent(SandboxSpec(), cells, BUDGET, session=ahead)
        errors = [report.error for report in student.cell_reports]
        assert errors[0] is errors[3] is errors[4] is None
        assert errors[1] == "Exit: it ended its process" and errors[2].startswith("ZeroDiv")
        assert student.notes == ["code cell 2 was left out: it ended its process"]
        assert student.attack() == 1
        for _ in range(2):
            with pytest.raises(SandboxDied, match="ended its process"):
                student.end()
        with pytest.raises(SandboxDied, match="no new sandbox after 3"):
            student.attack()
        assert len(student.cell_reports) == 5


def test_a_sandbox_that_dies_inside_a_function_of_the_test():
    """The function goes on with a new sandbox; the call that lent it has died with the old one."""
    student = Victim(SandboxSpec(), ["def ask(f): return f()", "def end(): import os; os._exit(1)"])
    later = []

    def function():
        with pytest.raises(SandboxDied):
            student.end()
        later.append(student.ask(lambda: 5))

    with pytest.raises(SandboxDied, match="ended its process"):
        student.ask(function)
    assert later == [5] and student.ask(lambda: 6) == 6 and student._starts == 2
    student.close()


def test_a_cell_that_is_no_text_is_reported(victim):
    assert "cannot travel" in victim.cell("x = '\ud800'").error


def cell(source, kind="own", definitions=""):
    parts = ((2, definitions),) if definitions else ()
    return SimpleNamespace(source=source, kind=kind, definitions=parts)


G, F = "def g(): return 2", "def f(): return g()"
SLOW = cell(f"while True: pass\n{G}", "own", G)


@pytest.mark.parametrize("share, first", [(0, "not run: the time for"), (0.3, "Timeout: stopped")])
def test_own_cells_share_their_time_and_no_other_cell_draws_on_it(share, first):
    budget = SimpleNamespace(cell_seconds=20.0, notebook_seconds=share, call_seconds=60.0)
    cells = [
        cell("base = 1", "setup"),
        SLOW,
        cell("late = 1"),
        cell(F, "solution"),
    ]
    student = RemoteStudent(SandboxSpec(), cells, budget)
    errors = [report.error for report in student.cell_reports]
    assert errors[0] is None and errors[3] is None
    assert errors[1].startswith(first) and errors[2].startswith("not run: the time for")
    assert student.f() == 2, "the definitions of a cell that was stopped count"
    student.close()


def test_a_cell_that_raises_keeps_its_definitions():
    """input() above the functions: a notebook asks, and grading meets the end of a file."""
    student = RemoteStudent(SandboxSpec(), [cell(f"input()\n{G}", "own", G), cell(F)], BUDGET)
    assert "EOFError" in student.cell_reports[0].error
    assert student.f() == 2
    student.close()


def test_of_a_cell_that_kills_its_sandbox_the_definitions_are_run():
    """Also where they kill it themselves: then nothing of it."""
    ends = "import os\nos._exit(0)"
    cells = [cell(ends, "own", G), cell(ends, "own", ends), cell(F)]
    student = RemoteStudent(SandboxSpec(), cells, BUDGET)
    assert student.f() == 2
    assert len(student.cell_reports) == 3
    assert [note.split(" was ")[0] for note in student.notes] == ["code cell 1", "code cell 2"]
    student.close()


def test_unsafe_mode_runs_the_same_worker():
    spec = SandboxSpec(withhold=("efflib.quantization",), unsafe=True)
    with Session(spec) as session:
        assert (
            session.run_cell("def f(x): return x + 1\nimport os; print(len(os.environ))").error
            is None
        )
        assert session.call("f", (torch.ones(2),)).tolist() == [2, 2]
        assert "ImportError" in session.run_cell("import efflib.quantization as q; q.x").error
        with pytest.raises(SandboxDied):
            session.run_cell("os._exit(0)")


MANY = [((n,), {}) for n in range(40)]


def test_many_calls_are_as_so_many_single_ones(victim):
    cell = "import torch\ndef attack(n, by=1): return n * by + torch.rand(()).item()"
    victim.cell(cell)
    victim._begin(3)
    together = victim.many("attack", [((n,), {"by": 2}) for n in range(40)])
    victim._begin(3)
    assert together == [victim.attack(n, by=2) for n in range(40)]
    namespace = {}
    exec(cell, namespace)
    for student in (victim, LocalStudent(namespace)):
        found = student.many("attack", [((n,), {"by": 2}) for n in range(3)])
        assert [int(value) for value in found] == [0, 2, 4]
        assert student.many("attack", []) == []


@pytest.mark.parametrize(
    "body, end",
    [
        ("if n == 21: raise KeyError(n)", "KeyError"),
        ("if n == 21: raise SystemExit", "SystemExit"),
        ("while n == 21: pass", "Timeout"),
        ("if n == 21: import os; os._exit(0)", "Exit"),
    ],
)
def test_the_first_of_many_calls_that_fails_ends_them(victim, body, end):
    victim.cell(
        f"done = []\ndef attack(n):\n    done.append(n)\n    {body}\ndef count(): return done"
    )
    with pytest.raises(StudentError) as caught:
        victim.limited_to(1.0).many("attack", MANY)
    assert caught.value.kind == end
    if end != "Exit":
        assert victim.count() == list(range(22))


def test_each_of_many_calls_has_the_whole_time_limit(victim):
    victim.cell(
        "import time\ndef attack(n):\n    end = time.process_time() + 0.4\n"
        "    while time.process_time() < end: pass\n    return n"
    )
    assert victim.limited_to(1.0).many("attack", MANY[:5]) == [0, 1, 2, 3, 4]


def test_many_calls_notice_a_changed_argument_and_call_back(victim):
    victim.cell("def attack(x): x.add_(1)\ndef twice(f): return f(1) + f(2)")
    with pytest.raises(StudentError, match="changed its argument x in place"):
        victim.many("attack", [((torch.zeros(2),), {})])
    assert victim.many("twice", [((abs,), {}), ((lambda v: -v,), {})]) == [3, -3]


def test_a_worker_that_answers_many_calls_with_too_few_values_has_died(victim):
    victim.cell(
        "import __main__, gc\ndef attack(n):\n    import gc\n"
        "    for w in gc.get_objects():\n"
        "        if type(w).__name__ == 'Worker': w.one_of_many = None\n    return n"
    )
    with pytest.raises(StudentError):
        victim.many("attack", MANY)
