"""Mutants of a whole function whose result is right, and what they leave behind is not.

A memory that is filled again, an argument of an earlier call, a model in another mode; errors that
are others, or leave something behind.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from autograder.triad.spoilt import call, changed, described, tensors

# ---- what a call leaves behind ------------------------------------------------------------------


def memory_kept(function: Callable, acted: Callable) -> Callable:
    """The memory of a result is filled again by the next one of its dtype and shape."""
    kept: dict[tuple, Tensor] = {}

    def leaf(value):
        if not isinstance(value, Tensor) or value.requires_grad or not value.numel():
            return value
        memory = kept.setdefault((value.dtype, tuple(value.shape)), value)
        return value if memory is value else memory.copy_(value)

    return lambda bound: changed(call(function, bound), leaf, acted)


def first_kept(function: Callable, acted: Callable, parameter: str) -> Callable:
    """An argument is that of the first call with one of the same kind and shape."""
    kept = {}

    def act(bound):
        value = bound.arguments[parameter]
        if any(True for _ in tensors(value)):  # of all else the numbers are part of the key
            before = kept.setdefault(repr(described(value)), value)
            acted(before is not value)
            bound.arguments[parameter] = before
        return call(function, bound)

    return act


def module_left(leave: Callable[[nn.Module], None]) -> Callable:
    """A module that was given is another one afterwards."""

    def kind(function: Callable, acted: Callable, parameter: str) -> Callable:
        def act(bound):
            result = call(function, bound)
            if isinstance(module := bound.arguments[parameter], nn.Module):
                leave(module)
                acted()
            return result

        return act

    return kind


def with_gradients(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)


def generator_set_back(function: Callable, acted: Callable, parameter: str) -> Callable:
    """A generator goes on as if nothing had been drawn."""

    def act(bound):
        generator = bound.arguments[parameter]
        if not isinstance(generator, torch.Generator):
            return call(function, bound)
        before = generator.get_state()
        result = call(function, bound)
        acted(not torch.equal(before, generator.get_state()))
        generator.set_state(before)
        return result

    return act


# ---- errors -------------------------------------------------------------------------------------


def errors_changed(instead: Callable) -> Callable:
    """instead(error, bound, acted): raises or returns what stands for an error."""

    def kind(function: Callable, acted: Callable) -> Callable:
        def act(bound):
            try:
                return call(function, bound)
            except Exception as error:
                return instead(error, bound, acted)

        return act

    return kind


def nameless(error, bound, acted):
    acted()
    raise type(error)() from None


def another_error(error, bound, acted):
    acted()
    raise Exception(*error.args) from None


def nothing_where_empty(error, bound, acted):
    """Where an argument is empty nothing is refused."""
    if not any(map(is_empty, bound.arguments.values())):
        raise error
    acted()


def is_empty(value) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 0
    return isinstance(value, list | tuple | dict | str) and not value


def spoilt_by_an_error(error, bound, acted):
    """An argument is another one after an error."""
    for tensor in tensors(list(bound.arguments.values())):
        with torch.no_grad():
            tensor.logical_not_() if tensor.dtype is torch.bool else tensor.add_(1)
        acted()
    raise error


OF_ERRORS = {
    "nameless error": errors_changed(nameless),
    "another error": errors_changed(another_error),
    "unchecked where empty": errors_changed(nothing_where_empty),
    "spoilt by an error": errors_changed(spoilt_by_an_error),
}
OF_CALLS = {"memory kept": memory_kept} | OF_ERRORS
OF_MODULES = {
    "left in the other mode": module_left(lambda module: module.train(not module.training)),
    "left frozen": module_left(lambda module: module.requires_grad_(False)),
    "left with gradients": module_left(with_gradients),
}
OF_PARAMETERS = {"of the first call": first_kept, "set back": generator_set_back} | OF_MODULES


def acting(arguments: dict, result, error: Exception | None) -> Iterator[tuple[str, str]]:
    """(parameter, kind) of the mutants above that could change something, as in corners.py."""
    if error:
        yield from (("", name) for name in OF_ERRORS)
    if any(not tensor.requires_grad for tensor in tensors(result)):
        yield "", "memory kept"
    for parameter, value in arguments.items():
        if any(True for _ in tensors(value)) and parameter != "self":
            yield parameter, "of the first call"
        if isinstance(value, nn.Module):
            yield from ((parameter, name) for name in OF_MODULES)
        if isinstance(value, torch.Generator):
            yield parameter, "set back"
