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
