"""The toy of lab 0: its check shows what is wrong, and lets the notebook go on."""

import pytest

from efflib.lab import display
from efflib.lab.toy import Toy


def tokens_per_second(milliseconds):
    return FUNCTIONS[-1](milliseconds)


def right(milliseconds):
    if milliseconds <= 0:
        raise ValueError(milliseconds)
    return 1000 / milliseconds


FUNCTIONS = [right]


def checked(function, capsys) -> str:
    """The card for this function, which must be what this module calls tokens_per_second."""
    FUNCTIONS.append(function)
    try:
        Toy().check("toy")
    finally:
        FUNCTIONS.pop()
    return capsys.readouterr().out


def test_a_right_function_passes(capsys):
    card = checked(right, capsys)
    assert "2 of 2 public tests" in card and "2 of 2 points" in card


def test_a_wrong_one_is_told_what_was_seen_and_expected(capsys):
    card = checked(lambda milliseconds: 100 / milliseconds, capsys)
    assert "0 of 2 public tests" in card
    assert "tokens_per_second(100) is 1" in card and "10" in card
    assert "100 in place of the 1000 milliseconds" in card


def test_one_that_refuses_nothing_passes_one_test(capsys):
    card = checked(lambda milliseconds: 1000 / milliseconds if milliseconds else 0.0, capsys)
    assert "1 of 2 public tests" in card and "no ValueError" in card


def test_hints_come_one_by_one_and_questions_can_be_answered(capsys):
    toy = Toy()
    toy.hint("toy")
    toy.hint("toy")
    told = capsys.readouterr().out
    assert "Hint 1 of 3" in told and "Hint 2 of 3" in told
    toy.predict("rate", "How many?", unit="tokens/s")
    toy.answer("rate", "10")
    toy.reveal("rate", 10.0)
    assert "as you predicted" in capsys.readouterr().out


def test_another_key_is_refused():
    with pytest.raises(ValueError, match="no exercise 'ex1'"):
        Toy().check("ex1")


def test_in_the_sandbox_nothing_runs(monkeypatch, capsys):
    monkeypatch.setattr("efflib.lab.toy.in_sandbox", lambda: True)
    assert not display.in_sandbox()
    assert checked(lambda milliseconds: 1 / 0, capsys) == ""
