"""`Lab` as a notebook uses it: in plain Python, in a headless notebook, in the sandbox."""

import shutil
import subprocess
import sys
import textwrap

import nbclient
import nbformat
import pytest
import torch
from nbgrader.utils import determine_grade

from efflib.lab import CheckFailed, Lab
from efflib.lab.exercises import find_folder
from efflib.lab.lab import VSCODE_NOTEBOOK
from efflib.lab.predict import Prediction, as_number, bundle

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
    assert "✓ Exercise 1 · One · 1 of 1 public tests · 2 of 2 points\n" in out
    assert "3 more points by hidden tests: large numbers." in out


def test_a_wrong_function_fails_with_a_card(lab, capsys, monkeypatch):
    monkeypatch.setitem(globals(), "one", lambda: 2)
    with pytest.raises(CheckFailed):
        lab.check("ex1")
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[-5:-1]] == [
        ["✗", "one is one"],
        ["observed", "one() returned 2"],
        ["rule", "one() is 1"],
        ["usual", "cause  it returns two"],
    ]


def stub():
    raise NotImplementedError("Exercise 1")


def test_an_untouched_stub_is_told_what_to_do(lab, capsys, monkeypatch):
    monkeypatch.setitem(globals(), "one", stub)
    with pytest.raises(CheckFailed, match="exercise 1 is not done yet: write it"):
        lab.check("ex1")
    assert "write the function in the cell above" in capsys.readouterr().out


def test_a_missing_function_is_named(lab, capsys):
    with pytest.raises(CheckFailed):
        lab.check("ex1")
    out = capsys.readouterr().out
    assert "one is not defined (exercise 1)\n" in out and "run the cell that defines it" in out


def test_an_unknown_exercise_is_named(lab):
    with pytest.raises(ValueError, match="no exercise 'ex9'; this lab has ex1"):
        lab.check("ex9")


def test_a_notebook_alone_is_told_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lab = Lab("toy")
    assert "[fail]  lab files" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match="copy the whole folder"):
        lab.check("ex1")


@pytest.mark.parametrize("cwd", ["", "labs/toy", "autograded/someone/toy"])
def test_the_files_are_found_from_anywhere_in_the_course(
    folder, tmp_path, monkeypatch, cwd, capsys
):
    course = tmp_path / "course"
    shutil.copytree(folder, course / "labs" / "toy", ignore=shutil.ignore_patterns("course"))
    (course / cwd).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(course / cwd)
    Lab("toy")
    assert str(course / "labs" / "toy") in capsys.readouterr().out


def test_the_files_are_found_beside_the_notebook(folder, tmp_path_factory, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.setitem(globals(), VSCODE_NOTEBOOK, str(folder / "toy.ipynb"))
    Lab("toy")
    assert str(folder) in capsys.readouterr().out
    monkeypatch.delitem(globals(), VSCODE_NOTEBOOK)
    monkeypatch.setenv("JPY_SESSION_NAME", str(folder / "toy.ipynb"))
    assert find_folder("toy") == folder


def test_an_exercise_without_public_tests_is_not_passed(lab, folder, capsys):
    with (folder / "exercises.toml").open("a") as file:
        file.write('[ex2]\ntitle = "Two"\npoints = 5\n')
    with pytest.raises(CheckFailed, match="exercise 2"):
        lab.check("ex2")
    assert "0 of 0" in capsys.readouterr().out


def test_checking_leaves_the_notebooks_random_numbers_alone(lab, monkeypatch):
    monkeypatch.setitem(globals(), "one", lambda: int(torch.rand(()) >= 0))
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    lab.check("ex1")
    assert torch.equal(torch.rand(3), expected)


def test_hints_come_one_by_one_and_the_last_stays(lab, capsys):
    capsys.readouterr()
    for _ in range(3):
        lab.hint("ex1")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["first", "second", "second"]


def test_predictions_are_compared_and_never_needed(lab, capsys):
    asked = lab.predict("p", "more or less?", ["more", "less"])
    assert asked.value is None
    lab.reveal("p", "less")
    lab.answer("p", "less")
    assert asked.value == "less"
    lab.reveal("p", "less")
    lab.reveal("p", "more")
    lab.reveal("never asked", 3)
    out = capsys.readouterr().out
    assert "Predict: more or less?\n  - more\n  - less\n" in out
    assert "Result: less. You made no prediction" in out
    assert "Result: less, as you predicted." in out
    assert "Result: more, and not as you predicted (less)." in out


def test_a_range_of_options_is_right(lab, capsys):
    lab.predict("p", "which?", ["1", "2", "3", "4"])
    for answer in ("3", "1"):
        lab.answer("p", answer)
        lab.reveal("p", "2 to 4", right=["2", "3", "4"])
    out = capsys.readouterr().out
    assert "Result: 2 to 4, as you predicted (3)." in out
    assert "Result: 2 to 4, and not as you predicted (1)." in out


@pytest.mark.parametrize(("value", "said"), [(75, "21 points too little."), (98.5, "2.5 points")])
def test_percentages_differ_by_points(lab, capsys, value, said):
    lab.predict("share", "Which share?", unit="%")
    lab.answer("share", value)
    lab.reveal("share", 96)
    assert f"Result: 96 %; you predicted {value} %, {said}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "truth", "sentence"),
    [
        (3, 6.0, "Result: 6 MB; you predicted 3 MB, 50% too little."),
        (3, torch.tensor(2.0), "Result: 2 MB; you predicted 3 MB, 50% too much."),
        (3, 1.25, "Result: 1.25 MB; you predicted 3 MB, 2.4 times as much."),
        (3, 3.00001, "Result: 3 MB, as you predicted."),
        (3, 0, "Result: 0 MB; you predicted 3 MB."),
        (3, -6.0, "Result: -6 MB; you predicted 3 MB."),
        (1000, 1, "Result: 1 MB; you predicted 1000 MB."),
        (3, torch.ones(2), "Result: tensor([1., 1.]) MB; you predicted 3 MB."),
        (3, None, "Result: None MB; you predicted 3 MB."),
        (None, 5, "Result: 5 MB. You made no prediction this time."),
    ],
)
def test_reveal_never_fails(lab, capsys, value, truth, sentence):
    lab.predict("size", "How large?", unit="MB")
    lab.answer("size", value)
    lab.reveal("size", truth)
    assert sentence in capsys.readouterr().out


def test_asking_again_keeps_the_answer(lab):
    lab.predict("size", "How large?", unit="MB")
    lab.answer("size", 3)
    assert lab.predict("size", "How large?", unit="MB").value == 3


@pytest.mark.parametrize(
    ("answer", "number"), [("2.5", 2.5), ("2,5", 2.5), (" 3 ", 3), (4, 4), (torch.tensor(5.0), 5)]
)
def test_a_number_is_read(answer, number):
    assert as_number(answer) == number


@pytest.mark.parametrize("answer", ["", "a", "nan", "inf", torch.ones(2), [3], "1 000"])
def test_what_is_no_number_is_refused(answer):
    with pytest.raises(ValueError, match="is not a"):
        as_number(answer)


def test_an_answer_is_acknowledged_and_a_wrong_one_refused_with_the_reason(lab, capsys):
    lab.predict("size", "How large?", unit="MB")
    lab.predict("p", "more?", ["more", "less"])
    lab.answer("size", "2,5")
    assert "size: ✓ noted: 2.5 MB" in capsys.readouterr().out
    with pytest.raises(ValueError, match="'much' is not a number"):
        lab.answer("size", "much")
    with pytest.raises(ValueError, match="'much' is none of the options: more; less"):
        lab.answer("p", "much")
    with pytest.raises(ValueError, match="no question is called 'sice'; asked were 'size', 'p'"):
        lab.answer("sice", 3)
    assert lab.predict("size", "How large?", unit="MB").value == 2.5


def test_the_question_as_an_output_tells_what_was_taken():
    asked = Prediction("p", "how <much>?", unit="MB")
    assert "noted" not in bundle(asked)["text/html"]
    asked.take("3")
    assert "✓ noted: 3 MB" in bundle(asked)["text/html"]
    refused = bundle(asked, "'<a>' is not a number")["text/html"]
    assert "✗ &#x27;&lt;a&gt;&#x27; is not a number" in refused and "how &lt;much&gt;?" in refused


def test_the_report_says_what_is_checked_and_what_is_to_come(lab, capsys, monkeypatch):
    lab.report()
    assert "not checked yet  5 in all" in capsys.readouterr().out
    monkeypatch.setitem(globals(), "one", lambda: 1)
    lab.check("ex1")
    lab.predict("size", "How large?", unit="MB")
    lab.answer("size", 3)
    lab.predict("open", "?")
    lab.reveal("size", 4.0)
    capsys.readouterr()
    lab.report()
    assert capsys.readouterr().out.splitlines() == [
        "exercise  title  public points  hidden points",
        "ex1       One    2 of 2         3 outstanding",
        "          all    2 of 2         3 outstanding",
        "",
        "prediction  you said  result",
        "size        3 MB      4 MB",
        "open        -         -",
    ]


def test_the_report_shows_the_board(lab, capsys):
    lab.score("usual", 0.2027, "s")
    lab.score("mine", None, "s")
    assert capsys.readouterr().out.splitlines() == ["usual: 0.2027 s", "mine: does not count"]
    lab.report()
    board = ["board  score", "usual  0.2027 s", "mine   does not count"]
    assert capsys.readouterr().out.splitlines()[-3:] == board


def test_in_the_sandbox_nothing_happens(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EFFLIB_SANDBOX", "1")
    lab = Lab("toy")
    assert lab.predict("p", "?").value is None
    lab.check("ex1"), lab.reveal("p", 1), lab.hint("ex1"), lab.report()
    lab.score("mine", 1.0)
    assert capsys.readouterr().out == ""


def test_importing_the_runtime_imports_no_technique_and_no_pytest():
    heavy = ("pytest", "IPython", "matplotlib", "ipywidgets", "transformers")
    code = f"""
import sys, efflib.lab
own = {{m for m in sys.modules if m.startswith("efflib.") and not m.startswith("efflib.lab")}}
print([m for m in {heavy} if m in sys.modules], own or "no other part of efflib")
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[] no other part of efflib"


def run_notebook(folder, *cells: str):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(textwrap.dedent(c)) for c in cells]
    client = nbclient.NotebookClient(
        notebook, allow_errors=True, resources={"metadata": {"path": folder}}
    )
    return client.execute().cells


def nbgraders_score(cell) -> float:
    """What stock nbgrader gives for an executed check cell of 5 points."""
    cell.metadata["nbgrader"] = {"grade": True, "solution": False, "points": 5, "grade_id": "c"}
    return determine_grade(cell)[0]


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
        "p = lab.predict('p', 'more?', ['<yes>', 'no'])",
        "lab.predict('q', 'how much?', unit='MB')",
        "lab.reveal('q', 3); lab.hint('ex1'); lab.report()",
    )
    assert "[ok]" in cells[0].outputs[0].data["text/html"]
    card, scroll, error = cells[2].outputs
    assert "scrollIntoView" in scroll.data["application/javascript"]
    assert "one() returned 2" in card.data["text/html"]
    assert error.output_type == "error" and len(error.traceback) == 1
    assert "line 2 of one: raise ValueError" in cells[4].outputs[0].data["text/plain"]
    assert [o.output_type for o in cells[6].outputs] == ["display_data"]
    assert [nbgraders_score(cells[i]) for i in (2, 4, 6)] == [0, 0, 5]
    for asked, text in ((cells[7], "&lt;yes&gt;"), (cells[8], "how much?")):
        question, field = asked.outputs  # the field alone is lost in a notebook opened again
        assert text in question.data["text/html"]
        assert "application/vnd.jupyter.widget-view+json" in field.data
    assert [o.output_type for o in cells[9].outputs] == ["display_data"] * 3


def test_what_must_be_mended_first_stands_first_and_is_looked_at_anew(lab, folder, monkeypatch):
    more = TESTS.replace("ex1", "ex2").replace("student.one()", "student.two() - 1")
    (folder / "test_public.py").write_text(TESTS + more.replace("test_one_is_one", "test_two"))
    with (folder / "exercises.toml").open("a") as file:
        file.write('[ex2]\ntitle = "Two"\npoints = 5\nfunctions = ["two"]\n')
    monkeypatch.setitem(globals(), "one", lambda: 2)
    monkeypatch.setitem(globals(), "two", lambda: one() + 1)  # noqa: F821 -- set above
    printed = []
    monkeypatch.setattr("efflib.lab.lab.show", lambda text, html: printed.append(text))
    with pytest.raises(CheckFailed):
        lab.check("ex2")  # exercise 1 was never checked
    assert printed[-1].startswith("Exercise 1 fails a public test, and this exercise calls it")
    monkeypatch.setitem(globals(), "one", lambda: 1)
    lab.check("ex2")
    monkeypatch.setitem(globals(), "two", lambda: one() + 2)  # noqa: F821 -- its own mistake now
    with pytest.raises(CheckFailed):
        lab.check("ex2")
    assert printed[-1].startswith("✗ Exercise 2")
