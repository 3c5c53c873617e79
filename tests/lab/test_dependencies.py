"""A card names exercises that the failing one calls, if they fail as well."""

from efflib.lab.dependencies import failing_below, hint_at, names_used
from efflib.lab.exercises import Exercise
from efflib.lab.report import TestReport

EXERCISES = {
    "ex1": Exercise("ex1", "One", 5, ("encode", "decode")),
    "ex2": Exercise("ex2", "Two", 5, ("keep",)),
    "ex3": Exercise("ex3", "Three", 5, ("search",)),
}


def encode(x):
    return x


def keep(x):
    return [encode(y) for y in x]


def search(x):
    def inner(y):
        return keep(y)

    return inner(x)


def reports(outcome):
    return [TestReport("ex1", "test_a", "a", 2, "i", "c", "passed"),
            TestReport("ex1", "test_b", "b", 2, "i", "c", outcome)]  # fmt: skip


def failing(key, checked):
    return [e.key for e in failing_below(EXERCISES[key], EXERCISES, checked, globals())]


def test_what_a_function_mentions():
    assert "encode" in names_used(keep) and "keep" in names_used(search)
    assert names_used(None) == names_used(len) == set()


def test_only_exercises_that_are_called_and_fail_are_named():
    assert failing("ex2", {"ex1": reports("failed")}) == ["ex1"]
    assert failing("ex2", {"ex1": reports("passed")}) == []
    assert failing("ex2", {}) == []  # not checked yet: nothing is known
    assert failing("ex3", {"ex1": reports("failed")}) == []  # does not call it itself
    assert failing("ex1", {"ex1": reports("failed")}) == []


def test_the_sentence():
    assert hint_at([]) == ""
    assert hint_at([EXERCISES["ex1"]]) == (
        " It calls exercise 1, of which a public test fails: mend that first."
    )
