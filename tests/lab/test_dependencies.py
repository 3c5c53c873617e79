"""A card names exercises that the failing one calls, if they fail as well."""

from efflib.lab.dependencies import failing_below, mend_first, names_used
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


def failing(key, found):
    """found: what the tests of an exercise say when they are run now."""
    others = failing_below(EXERCISES[key], EXERCISES, globals(), lambda key: found.get(key, []))
    return [exercise.key for exercise in others]


def test_what_a_function_mentions():
    assert "encode" in names_used(keep) and "keep" in names_used(search)
    assert names_used(None) == names_used(len) == set()


def test_only_exercises_that_are_called_and_fail_are_named():
    assert failing("ex2", {"ex1": reports("failed")}) == ["ex1"]
    assert failing("ex2", {"ex1": reports("passed")}) == []
    assert failing("ex2", {}) == []
    assert failing("ex3", {"ex1": reports("failed")}) == []  # does not call it itself
    assert failing("ex1", {"ex1": reports("failed")}) == []


def test_only_what_is_called_is_run():
    ran = []
    failing_below(EXERCISES["ex3"], EXERCISES, globals(), lambda key: ran.append(key) or [])
    assert ran == ["ex2"]


def test_the_sentence():
    assert mend_first([]) == ""
    assert mend_first([EXERCISES["ex1"]]) == (
        "Exercise 1 fails a public test, and this exercise calls it: mend that first."
    )
    assert mend_first([EXERCISES["ex1"], EXERCISES["ex2"]]) == (
        "Exercise 1 and exercise 2 fail a public test, and this exercise calls them: mend that "
        "first."
    )
