"""`Lab` as a notebook uses it: in plain Python, in a headless notebook, in the sandbox."""

import subprocess
import sys
import textwrap

import nbclient
import nbformat
import pytest

from efflib.lab import CheckFailed, Lab, cards
from efflib.lab.report import TestReport

TESTS = """
from efflib.lab import exercise
@exercise("ex1", points=2, invariant="one() is 1", cause="it returns two")
def test_one_is_one(student, rng):
    value = student.one()
    assert value == 1, f"one() returned {value}"
"""
EXERCISES = """
title = "Toy"
[ex1]
title = "One"
points = 5
functions = ["one"]
hidden = ["large numbers"]
hints = ["first", "second"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "test_public.py").write_text(TESTS)
    (tmp_path / "exercises.toml").write_text(EXERCISES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lab(folder):
    return Lab("toy")


def test_a_right_function_passes_and_points_are_told(lab, capsys, monkeypatch):
    monkeypatch.setitem(globals(), "one", lambda: 1)
    lab.check("ex1")
    out = capsys.readouterr().out
    assert "1 of 1 public tests passed" in out
    assert "2 of 2 points by these tests; 3 more by hidden tests: large numbers." in out


def test_a_wrong_function_fails_with_a_card(lab, capsys, monkeypatch):
    monkeypatch.setitem(globals(), "one", lambda: 2)
    with pytest.raises(CheckFailed):
        lab.check("ex1")
    card = "✗ one is one · one() returned 2 · one() is 1 · usual cause: it returns two"
    assert card in capsys.readouterr().out


def stub():
    raise NotImplementedError("Exercise 1")


def test_an_untouched_stub_is_told_what_to_do(lab, capsys, monkeypatch):
    monkeypatch.setitem(globals(), "one", stub)
    with pytest.raises(CheckFailed, match="not attempted yet"):
        lab.check("ex1")
    assert "write the function in the cell above" in capsys.readouterr().out


def test_a_missing_function_is_named(lab, capsys):
    with pytest.raises(CheckFailed):
        lab.check("ex1")
    assert "one is not defined · run the cell that defines it" in capsys.readouterr().out


def test_an_unknown_exercise_is_named(lab):
    with pytest.raises(ValueError, match="no exercise 'ex9'; this lab has ex1"):
        lab.check("ex9")


def test_a_notebook_alone_is_told_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lab = Lab("toy")
    assert "missing: open the notebook in the lab's own folder" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match="copy the whole folder"):
        lab.check("ex1")


def test_hints_come_one_by_one_and_the_last_stays(lab, capsys):
    capsys.readouterr()
    for _ in range(3):
        lab.hint("ex1")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["first", "second", "second"]


def test_predictions_are_compared_and_never_needed(lab, capsys):
    lab.predict("p", "more or less?", ["more", "less"])
    lab.reveal("p", "less")
    lab.answer("p", "less")
    lab.reveal("p", "less")
    lab.reveal("never asked", 3)
    out = capsys.readouterr().out
    assert "no prediction" in out and "as you predicted (less)" in out


def test_the_report_says_what_is_checked_and_what_is_to_come(lab, capsys, monkeypatch):
    lab.report()
    assert "not checked" in capsys.readouterr().out
    monkeypatch.setitem(globals(), "one", lambda: 1)
    lab.check("ex1")
    lab.report()
    assert "2 of 2" in capsys.readouterr().out.splitlines()[-1]


def test_in_the_sandbox_nothing_happens(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EFFLIB_SANDBOX", "1")
    lab = Lab("toy")
    lab.check("ex1"), lab.predict("p", "?"), lab.reveal("p", 1), lab.hint("ex1"), lab.report()
    assert capsys.readouterr().out == ""


def test_cards_escape_what_students_wrote_and_can_hide_it():
    report = TestReport("ex1", "test_a", "a", 1, "rule", "cause", observed="<script>alert(1)")
    html = cards.html_cards("summary", [report])
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert "alert" not in cards.html_card(report, show_observed=False)
    assert "rule" in cards.html_card(report, show_observed=False)


def test_importing_the_runtime_imports_no_technique_and_no_pytest():
    heavy = ("pytest", "IPython", "matplotlib", "ipywidgets", "transformers")
    code = f"import sys, efflib.lab; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def run_notebook(folder, *cells: str):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(textwrap.dedent(c)) for c in cells]
    client = nbclient.NotebookClient(
        notebook, allow_errors=True, resources={"metadata": {"path": folder}}
    )
    return client.execute().cells


def test_in_a_notebook_a_failed_check_is_a_card_and_one_line(folder):
    cells = run_notebook(
        folder,
        "from efflib.lab import Lab; lab = Lab('toy')",
        "def one():\n    return 2",
        "lab.check('ex1')",
        "def one():\n    raise ValueError('my own')",
        "lab.check('ex1')",
        "def one():\n    return 1",
        "lab.check('ex1')",
        "lab.predict('p', 'more?', ['yes', 'no'])",
    )
    assert "[ok]" in cells[0].outputs[0].data["text/html"]
    card, error = cells[2].outputs
    assert "one() returned 2" in card.data["text/html"]
    assert error.output_type == "error" and len(error.traceback) == 1
    assert "line 2 of one: raise ValueError" in cells[4].outputs[0].data["text/plain"]
    assert [o.output_type for o in cells[6].outputs] == ["display_data"]
    assert "application/vnd.jupyter.widget-view+json" in cells[7].outputs[0].data
