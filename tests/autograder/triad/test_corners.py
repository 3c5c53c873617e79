"""Mutants of corners, and of what a call leaves behind: what each does; `record` foresees it.

Each is asked on a function that a line defines, with arguments on which it acts.
"""

import pytest
import torch
from torch import nn

from autograder.triad import aftermath, corners
from autograder.triad.forked import RECORDED, TOUCHED
from autograder.triad.whole import record, wrap

NAN, INF = float("nan"), float("inf")
T = torch.tensor


def same(x):
    return x


def mutant(function, kind, parameter=None):
    """The mutant of a function, and a function that says how often it acted."""
    namespace = {"f": function}
    wrap(namespace, "f", kind, *([parameter] if parameter else []))
    return namespace["f"], lambda: namespace[TOUCHED]


def foreseen(function, calls):
    """[parameter, kind] that `record` notes of these calls."""
    namespace = {"f": function}
    record(namespace, "f")
    for call in calls:
        try:
            namespace["f"](*call)
        except ValueError:
            pass
    return {(parameter, what) for _, parameter, kind, what in namespace[RECORDED] if kind == "kind"}


NUMBERS = {
    "in bfloat16": (T([1 + 2**-10]), T([1.0])),
    "in float16": (T([1 + 2**-12]), T([1.0])),
    "clipped at 1e4": (T([2e4, -2e4, 1.0]), T([1e4, -1e4, 1.0])),
    "tiny lost": (T([1e-7, 1e-5]), T([0.0, 1e-5])),
    "finite": (T([NAN, 1.0]), T([0.0, 1.0])),
    "in 32 bits": (2**31, -(2**31)),
    "counted in float": (2**24 + 1, 2**24),
    "in 8 bits": (T([200, 3]), T([-56, 3])),
    "in 16 bits": (40_000, 40_000 - 2**16),
    "as memory lies": (T([[1, 2], [3, 4]]).T, T([[1, 2], [3, 4]])),
    "first of a batch": (T([[[1]], [[2]]]), T([[[1]], [[1]]])),
    "first of four dimensions": (T([[[[1]], [[2]]]]), T([[[[1]], [[1]]]])),
}
FORMS = {
    "result squeezed": (T([[1.0]]), T(1.0)),
    "result of another type": (3, 3.0),
}
NOT_TOUCHED = [
    T([1.0, 0.5]), T([[1, 2], [3, 4]]), 3, 0.25, T([[[1.0, 2.0]]]), T([True]), "text", None, [1.5],
]  # fmt: skip


def equal(one, two):
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)
    return type(one) is type(two) and one == two


def test_every_kind_of_a_number_is_here():
    assert NUMBERS.keys() == corners.OF_ARGUMENTS.keys()


@pytest.mark.parametrize("kind", NUMBERS)
def test_an_argument_is_another_one(kind):
    given, expected = NUMBERS[kind]
    f, acted = mutant(same, kind, "x")
    for value in NOT_TOUCHED:
        assert f(value) is value
    assert not acted() and not {("x", kind)} & foreseen(same, [(v,) for v in NOT_TOUCHED])
    assert equal(f(given), expected) and acted() == 1
    assert ("x", kind) in foreseen(same, [(given,)])


@pytest.mark.parametrize("kind", [*corners.NUMBERS, *FORMS])
def test_a_result_is_another_one(kind):
    given, expected = NUMBERS.get(kind) or FORMS[kind]
    kind = kind if kind in FORMS else f"result {kind}"
    f, acted = mutant(same, kind)
    assert equal(f(given), expected) and acted() == 1
    assert ("", kind) in foreseen(same, [(given,)])


def test_numbers_inside_lists_and_tuples_count_as_well():
    f, acted = mutant(same, "in 32 bits", "x")
    assert f([(2**31, "a"), {"b": 1}]) == [(-(2**31), "a"), {"b": 1}] and acted() == 1


def test_integers_that_are_as_wide_as_the_bits_stay():
    f, acted = mutant(same, "in 32 bits", "x")
    x = T([1, -2], dtype=torch.int32)
    assert f(x) is x and acted() == 0


def test_a_gradient_is_lost():
    f, acted = mutant(lambda x: 2 * x, "result detached")
    assert not f(torch.ones(2, requires_grad=True)).requires_grad and acted() == 1
    f(torch.ones(2))
    assert acted() == 1


def test_the_memory_of_a_result_is_filled_again():
    f, acted = mutant(lambda x: x + 1, "memory kept")
    first = f(T([1.0]))
    assert first.tolist() == [2.0] and acted() == 0
    other = f(T([1.0, 2.0]))
    assert f(T([5.0])).tolist() == first.tolist() == [6.0] and acted() == 1
    assert other.tolist() == [2.0, 3.0]


def test_an_argument_of_the_first_call():
    f, acted = mutant(lambda x, y: x + y, "of the first call", "x")
    assert f(T([1.0]), T([0.0])).tolist() == [1.0] and acted() == 0
    assert f(T([7.0]), T([1.0])).tolist() == [2.0] and acted() == 1
    assert f(T([7.0, 8.0]), 0).tolist() == [7.0, 8.0]  # of another shape


MODULES = {
    "left in the other mode": lambda module: not module.training,
    "left frozen": lambda module: not any(p.requires_grad for p in module.parameters()),
    "left with gradients": lambda module: all(p.grad is not None for p in module.parameters()),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_module_is_left_other_than_it_was(kind):
    f, acted = mutant(same, kind, "x")
    module = nn.Linear(2, 2)
    assert not MODULES[kind](module)
    assert f(module) is module and MODULES[kind](module) and acted() == 1
    assert ("x", kind) in foreseen(same, [(nn.Linear(2, 2),)])


def test_a_generator_is_set_back():
    def draw(generator):
        return torch.rand(1, generator=generator)

    f, acted = mutant(draw, "set back", "generator")
    generator = torch.Generator().manual_seed(3)
    assert f(generator).item() == f(generator).item() and acted() == 2
    assert ("generator", "set back") in foreseen(draw, [(generator,)])


def refuse(x):
    if len(x) < 2:
        raise ValueError(f"{len(x)} are too few")
    return x


def test_errors_are_others():
    assert {("", kind) for kind in aftermath.OF_ERRORS} <= foreseen(refuse, [([],)])
    assert not {("", kind) for kind in aftermath.OF_ERRORS} & foreseen(refuse, [([1, 2],)])
    f, acted = mutant(refuse, "nameless error")
    with pytest.raises(ValueError, match="^$"):
        f([1])
    f, acted = mutant(refuse, "another error")
    with pytest.raises(Exception, match="1 are too few") as caught:
        f([1])
    assert caught.type is Exception and acted() == 1


def test_what_is_empty_is_not_refused():
    f, acted = mutant(refuse, "unchecked where empty")
    with pytest.raises(ValueError, match="1 are too few"):
        f([1])
    assert acted() == 0 and f([]) is None and f(torch.ones(0)) is None and acted() == 2


def test_an_error_leaves_an_argument_changed():
    f, acted = mutant(refuse, "spoilt by an error")
    x = T([1.0])
    with pytest.raises(ValueError):
        f(x)
    assert x.tolist() == [2.0] and acted() == 1


class Counter:
    def __init__(self, start):
        self.count = start

    def add(self, number):
        self.count += number
        return self.count


def test_of_a_class_the_methods_that_have_the_parameter():
    namespace = {"Counter": Counter}
    wrap(namespace, "Counter", "in 8 bits", "number")
    counter = namespace["Counter"](200)
    assert counter.add(200) == 144 and namespace[TOUCHED] == 1
    namespace = {"Counter": Counter}
    record(namespace, "Counter")
    namespace["Counter"](1).add(200)
    assert ["Counter", "number", "kind", "in 8 bits"] in namespace[RECORDED]
    assert ["Counter", "number", "value", 200] in namespace[RECORDED]
