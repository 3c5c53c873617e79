"""Calls that disturb one another are found, and refusals that change an argument."""

import pytest
import torch

from efflib.lab.again import again, refused
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


def test_refusals():
    def f(x):
        raise ValueError("no")

    def accepts(x):
        return x

    refused(LocalStudent({"f": f}), [("f", torch.ones(2))])
    with pytest.raises(AssertionError, match="raised nothing, expected ValueError"):
        refused(LocalStudent({"f": accepts}), [("f", torch.ones(2))])
