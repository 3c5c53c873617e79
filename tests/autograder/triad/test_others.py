"""Answers that somebody else wrote: refused, got through, and files that are none."""

import re

import pytest
from toylab import NAME, write
from toytriad import SOLVED, dedent, toy

from autograder import cli
from autograder.commands import triads

ANSWERS = {
    "right/ex1_loop.py": """
        # A loop.
        def scale(numbers, factor):
            result = []
            for number in numbers:
                result.append(factor * number)
            return result
        """,
    "right/ex2_bound.py": """
        \"\"\"A name that is bound, not
        defined.\"\"\"
        clip = lambda n, lo, hi: [min(max(x, lo), hi) for x in n]
        """,
    "right/ex1_abs.py": "# Believed right.\ndef scale(n, f):\n    return [abs(f * x) for x in n]\n",
    "wrong/ex1_empty.py": "# Nothing.\ndef scale(n, f):\n    return []\n",
    # test_scale_negative draws four numbers from -2..-1: the first is wrong for some draws only
    "wrong/ex1_by_luck.py": """
        # Numbers below -1.9 are not multiplied.
        def scale(n, f):
            return [x if x < -1.9 else f * x for x in n]
        """,
    "wrong/ex1_right.py": "# It is none.\ndef scale(n, f):\n    return [f * x for x in n]\n",
    "wrong/ex2_raises.py": "# It raises.\nimport nothing\ndef clip(n, lo, hi):\n    return n\n",
}


@pytest.fixture
def judged(tmp_path, monkeypatch, capsys):
    """judged(answers, *options) -> (exit code, lines)"""
    root, lab = toy(tmp_path / "course")
    monkeypatch.setattr(triads, "solved_labs", lambda *_: iter([(lab, SOLVED)]))

    def run(answers, *options):
        folder = tmp_path / "answers"
        folder.mkdir()
        for path, source in answers.items():
            write(folder / path, dedent(source).encode())
        command = ["triad", NAME, "--course", str(root), "--others", str(folder), "--jobs", "1"]
        code = cli.run([*command, *options])
        said = capsys.readouterr()
        return code, re.sub(r"\s+", " ", said.out + said.err)

    return run


def test_what_is_refused_and_what_gets_through_is_said(judged):
    code, said = judged(ANSWERS, "--seeds", "12")
    assert code == 1
    assert "ex1 right abs: loses test_scale_negative under 12 of 12 seeds" in said
    assert re.search(r"ex1 wrong by_luck: gets through under \d+ of 12 seeds \(", said)
    assert "[Numbers below -1.9 are not multiplied.]" in said
    assert "ex1 wrong right: gets through under 12 of 12 seeds" in said
    assert "ex2 wrong raises: its cell does not run to its end" in said
    assert "right: 1 of 3 refused" in said and "wrong: 1 of 4 caught under every seed" in said
    assert "loop" not in said and "bound" not in said and "empty" not in said


def test_all_as_they_should_be(judged):
    names = ("right/ex1_loop.py", "right/ex2_bound.py", "wrong/ex1_empty.py")
    code, said = judged({name: ANSWERS[name] for name in names})
    assert code == 0 and "right: 0 of 2 refused" in said and "wrong: 1 of 1 caught" in said


@pytest.mark.parametrize(
    ("path", "source", "says"),
    [
        ("right/ex9_new.py", "x = 1", "an answer is called ex1_<name>.py"),
        ("right/ex1.py", "x = 1", "an answer is called ex1_<name>.py"),
        ("right/ex1_typo.py", "def scale(:\n", "line 1: invalid syntax"),
        ("wrong/ex1_less.py", "def scal():\n    pass", "ex1 is to define scale as well"),
        ("other/ex1_a.py", "x = 1", "answers lie in"),
        ("right/readme.txt", "x", "has neither right/ex1_<name>.py nor wrong/"),
    ],
)
def test_a_file_that_is_no_answer_is_named(judged, path, source, says):
    code, said = judged({path: source})
    assert code == 2 and says in said.replace("answers /", "answers/")
