"""Mutants of a whole function: what it returns, keeps or does to its arguments is changed.

A cell behind the solution says `wrap(globals(), "quantize", "nan")`; so these run beside it, in the
forked children.  Each counts in the namespace how often it acted: one that never could (float64
where no float32 is returned, a cache by shape where no argument is a tensor) is no mutant.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from itertools import chain

import torch
from torch import Tensor

from autograder.triad import aftermath, corners
from autograder.triad.forked import RECORDED, TOUCHED
from autograder.triad.spoilt import OTHER_FORMS, SPOILT, call, changed, described, tensors

SIMPLE = (bool, int, float, str, type(None))


def wrap(namespace: dict, name: str, kind: str, *details) -> None:
    """Puts a mutant in the place of a function, or of a class with such methods.

    kind: a key of WHOLE.
    """
    namespace.setdefault(TOUCHED, 0)

    def acted(count: int = 1) -> None:
        namespace[TOUCHED] += count

    def mutant_of(function: Callable) -> Callable:
        signature = inspect.signature(function)
        if details and details[0] not in signature.parameters:
            return function
        act = WHOLE[kind](function, acted, *details)

        @functools.wraps(function)
        def mutant(*args, **kwargs):
            inside = sys._getframe(1).f_globals is namespace
            if inside and kind in SPOILT:  # only what reaches a test is spoilt
                return function(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return act(bound)

        return mutant

    replace(namespace, name, mutant_of)


def replace(namespace: dict, name: str, made: Callable[[Callable], Callable]) -> None:
    """made(function) takes the place of a function, and of the methods of a class."""
    value = namespace[name]
    if inspect.isclass(value):
        methods = {key: part for key, part in vars(value).items() if inspect.isfunction(part)}
        public = {key: made(part) for key, part in methods.items() if is_public(key)}
        namespace[name] = type(name, (value,), public)
    elif not hasattr(value, "fn"):
        namespace[name] = made(value)


def is_public(method: str) -> bool:
    return method[0] != "_" or method in ("__init__", "__call__")


def record(namespace: dict, name: str) -> None:
    """Notes what a function is called with: [function, parameter, "value", a plain value] and
    [function, parameter, "kind", a kind of mutant that could act]. Of a class its methods.

    Kernels stay as they are: a test takes their text.
    """
    seen = namespace.setdefault(RECORDED, [])

    def recorder_of(function: Callable) -> Callable:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def recorder(*args, **kwargs):
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            result, error = None, None
            try:
                result = function(*args, **kwargs)
                return result
            except Exception as fault:
                error = fault
                raise
            finally:
                found = noted(bound.arguments, result, error)
                seen.extend(new for note in found if (new := [name, *note]) not in seen)

        return recorder

    replace(namespace, name, recorder_of)


def noted(arguments: dict, result, error: Exception | None) -> Iterator[list]:
    for parameter, value in arguments.items():
        if type(value) in SIMPLE:
            yield [parameter, "value", value]
    kinds = chain(corners.acting(arguments, result), aftermath.acting(arguments, result, error))
    yield from ([parameter, "kind", kind] for parameter, kind in kinds)


def cached_by_shape(function: Callable, acted: Callable) -> Callable:
    """What an earlier call with arguments of the same shapes and the same numbers returned."""
    memo = {}

    def act(bound):
        key = repr([described(value) for value in bound.arguments.values()])
        acted(any(True for _ in tensors(list(bound.arguments.values()))))
        if key not in memo:
            memo[key] = call(function, bound)
        return memo[key]

    return act


def first_argument(function: Callable, acted: Callable) -> Callable:
    def act(bound):
        acted()
        return next(iter(bound.arguments.values()), None)

    return act


def argument_returned(function: Callable, acted: Callable) -> Callable:
    """A tensor that equals an argument is that argument: who changes one changes both."""

    def act(bound):
        given = list(tensors(list(bound.arguments.values())))

        def leaf(value):
            same = (x for x in given if isinstance(value, Tensor) and identical(x, value))
            return next(same, value)

        return changed(call(function, bound), leaf, acted)

    return act


def identical(one: Tensor, two: Tensor) -> bool:
    return one is not two and one.dtype == two.dtype and torch.equal(one, two)


def argument_fixed(function: Callable, acted: Callable, parameter: str, value) -> Callable:
    """A parameter that is not looked at: the function works with a value of its own."""

    def act(bound):
        acted()  # also where the value is the same: that tests know no other is what is looked for
        bound.arguments[parameter] = value
        return call(function, bound)

    return act


def argument_destroyed(function: Callable, acted: Callable, parameter: str) -> Callable:
    """The result is right, and the caller's argument is another one afterwards."""

    def act(bound):
        result, before = call(function, bound), bound.arguments[parameter]
        for tensor in tensors(before):
            with torch.no_grad():
                tensor.logical_not_() if tensor.dtype is torch.bool else tensor.add_(1)
            acted()
        if isinstance(before, list | dict) and before:
            before.pop(next(iter(before)) if isinstance(before, dict) else -1)
            acted()
        return result

    return act


OF_A_FUNCTION = OTHER_FORMS | {
    "argument returned": argument_returned,
    "first argument": first_argument,
    "cached by shape": cached_by_shape,
}
ALWAYS = {*OF_A_FUNCTION, "destroyed"}  # the others are made where `record` saw that they can act
OF_A_FUNCTION = OF_A_FUNCTION | corners.OF_CALLS | aftermath.OF_CALLS
OF_A_PARAMETER = {"destroyed": argument_destroyed} | corners.OF_PARAMETERS | aftermath.OF_PARAMETERS
WHOLE = OF_A_FUNCTION | OF_A_PARAMETER | {"fixed": argument_fixed}
