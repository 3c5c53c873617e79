"""Calls that disturb one another are found, and refusals that change an argument."""

import pytest
import torch

from efflib.lab.again import again, changed, held, held_results, refused
from efflib.lab.student import LocalStudent

KEPT = {}


def double(x):
    return 2 * x


def in_one_memory(x):
    memory = KEPT.setdefault(tuple(x.shape), torch.empty_like(x))
    return memory.copy_(2 * x)


def as_memory_lies(x):
    return 2 * torch.as_strided(x, x.shape, torch.empty(x.shape).stride())


def nonsense(x):
    return x * float("nan")


CALLS = [("f", torch.tensor([1.0, 2.0])), ("f", torch.tensor([3.0, 4.0]))]


def test_calls_that_leave_one_another_alone():
    again(LocalStudent({"f": double}), CALLS)


@pytest.mark.parametrize("function", [in_one_memory, as_memory_lies])
def test_calls_that_do_not(function):
    KEPT.clear()
    with pytest.raises(AssertionError, match="f among other calls: the result"):
        again(LocalStudent({"f": function}), CALLS)


def test_nan_is_not_equal_to_itself_here():
    with pytest.raises(AssertionError, match="holds no real numbers"):
        again(LocalStudent({"f": nonsense}), CALLS)


def test_what_comes_whole_is_given_as_it_is():
    seen = []
    again(LocalStudent({"f": lambda x: seen.append(x.is_contiguous()) or 2 * x}),
          [("f", {"whole": torch.tensor([1.0, 2.0])})])  # fmt: skip
    assert all(seen)


def test_results_are_read_when_the_last_is_there():
    KEPT.clear()
    calls = [args for _, *args in CALLS]
    alone = held_results(LocalStudent({"f": double}), "f", calls)
    assert [x.tolist() for x in alone] == [[2.0, 4.0], [6.0, 8.0]]
    kept = held_results(LocalStudent({"f": in_one_memory}), "f", calls)
    assert [x.tolist() for x in kept] == [[6.0, 8.0], [6.0, 8.0]]


@pytest.mark.parametrize("given", [torch.ones(2), [1, torch.ones(2)], {"a": torch.ones(2)}])
def test_refusals_that_change_something(given):
    def f(x):
        x = list(x.values())[0] if isinstance(x, dict) else x
        x = x[1] if isinstance(x, list) else x
        x += 1
        raise ValueError("no")

    with pytest.raises(AssertionError, match="ChangedArgument|changed an argument"):
        refused(LocalStudent({"f": f}), [("f", given)])


def test_refusals():
    def f(x):
        raise ValueError("no")

    def accepts(x):
        return x

    refused(LocalStudent({"f": f}), [("f", torch.ones(2))])
    with pytest.raises(AssertionError, match="raised nothing, expected ValueError"):
        refused(LocalStudent({"f": accepts}), [("f", torch.ones(2))])


def by_identity(x):
    if id(x) not in KEPT:
        KEPT[id(x)] = x, 2 * x
    return KEPT[id(x)][1].clone()


def test_what_is_known_by_its_tensor_is_found():
    KEPT.clear()
    for function, right in ((double, True), (by_identity, False)):
        both = held(LocalStudent({"f": function}), torch.Generator(), CALLS)
        assert [len(results) for results in both] == [3, 2]
        assert all(x.tolist() == [2.0, 4.0] for x in both[0]) is right
    with pytest.raises(AssertionError, match="other numbers stand in the same tensors"):
        changed(LocalStudent({"f": by_identity}), CALLS[:1], CALLS[1:])
    changed(LocalStudent({"f": double}), CALLS[:1], CALLS[1:])
