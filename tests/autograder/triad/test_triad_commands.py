"""What the command makes of holes: exit code 1, a line for each, the table of the docs."""

import functools

import pytest
from toylab import NAME, write
from toytriad import SOLVED, toy, triad

from autograder import cli
from autograder.commands import triads
from autograder.triad.mutants import prepare as really_prepare
from autograder.triad.mutants import run_mutants as really_run


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A toy course of which the solved notebook is known; its mutants run once."""
    root, lab = toy(tmp_path)
    monkeypatch.setattr(triads, "solved_labs", lambda *_: iter([(lab, SOLVED)]))
    mutants = functools.cache(lambda: really_prepare(lab, SOLVED))
    verdicts = functools.cache(lambda: list(really_run(lab, SOLVED, mutants(), jobs=1)))
    monkeypatch.setattr(triads, "prepare", lambda *_: mutants())
    monkeypatch.setattr(triads, "run_mutants", lambda *_, jobs: verdicts())
    return root


def test_an_unjudged_survivor_is_exit_code_1_until_it_is_judged(course, capsys):
    table = course / "mutants.md"
    command = ["triad", NAME, "--course", str(course), "--mutants", "--jobs", "1"]
    assert cli.run([*command, "--markdown", str(table)]) == 1
    assert "ex1:scale:number for tensor survives" in capsys.readouterr().out
    text = table.read_text()
    assert text.splitlines()[2].startswith(f"| {NAME} | ex1 |")
    judged = b'"*:number for tensor" = "one number is as good as the other"\n'
    write(triad(course) / "equivalent.toml", judged)
    assert cli.run(command) == 0
    assert " survives" not in capsys.readouterr().out
    assert table.read_text() == text, "it was written without being asked for"
    write(triad(course) / "equivalent.toml", judged + b'"ex1:scale:nan" = "no harm"\n')
    assert cli.run(command) == 1
    assert "lists ex1:scale:nan, but test_scale_by_hand kills it" in capsys.readouterr().out


VARIANTS = {
    "ex1/right_map.py": '''
        """By map."""
        def scale(n, factor):
            return [*map(factor.__mul__, n)]
        ''',
    "ex1.diff": """
        === abs: The sign is lost.
        fails: test_scale_negative
        -    return [factor * number for number in numbers]
        +    return [abs(factor * number) for number in numbers]

        === shorter: One is left out.
        fails: test_scale_by_hand
        of: map
        -    return [*map(factor.__mul__, n)]
        +    return [*map(factor.__mul__, n[1:])]

        === nothing: An empty list.
        fails: test_scale_by_hand
        +def scale(numbers, factor):
        +    return []
        """,
}


def test_variants_are_shown_as_diffs(tmp_path, monkeypatch, capsys):
    root, lab = toy(tmp_path, VARIANTS)
    monkeypatch.setattr(triads, "solved_labs", lambda *_: iter([(lab, SOLVED)]))
    command = ["triad", NAME, "--course", str(root), "--show"]
    assert cli.run([*command, "ex1"]) == 0
    said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in said if line.startswith(("right ", "wrong ", "has to fail"))] == [
        "right map: By map.",
        "wrong abs: The sign is lost.",
        "has to fail test_scale_negative",
        "wrong shorter: One is left out.",
        "has to fail test_scale_by_hand; an edit of right map",
        "wrong nothing: An empty list.",
        "has to fail test_scale_by_hand",
    ]
    for line in (
        "-    return [factor * number for number in numbers]",
        "+    return [abs(factor * number) for number in numbers]",
        "-    return [*map(factor.__mul__, n)]",
        "+    return []",
    ):
        assert line in said
    assert cli.run([*command, "ex2"]) == 0, "an exercise without variants"


@pytest.mark.parametrize("more", [["ex7"], ["ex1", "--seeds", "2"], ["ex1", "--mutants"]])
def test_what_cannot_be_shown_is_said(course, more, capsys):
    assert cli.run(["triad", NAME, "--course", str(course), "--show", *more]) == 2
    assert "ex" in capsys.readouterr().err
