"""Lets the tests of a lab call its functions on the device that stands for a GPU (see elsewhere).

A cell behind the solution says `cross(globals(), ["quantize"])`.  From then on every call from a
test, or from a driver, crosses a border: tensors of the arguments, also in lists, objects and
modules, are elsewhere while the function runs, and here again afterwards, with its result.
Functions of the test that the code calls back cross it the other way.

A call whose gradients are needed outside runs here: they would have to pass the border later.
"""

import functools
import threading
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from elsewhere import Elsewhere, There
from torch import nn

from autograder.triad.forked import RECORDED
from autograder.triad.whole import replace

FUNCTIONS = types.FunctionType | types.MethodType | functools.partial
PLAIN = (str, bytes, int, float, range, type(None), torch.dtype, torch.device, torch.Generator)
PLAIN += (type, types.ModuleType)
SHARED = "efflib.parallel"  # what threads have in common stays what it is


class NeedsGradients(Exception):
    pass


class Border(threading.local):
    """inside: the lab's function is running.  stands_for: {id of a parameter: (it, the own one)}."""

    def __init__(self, namespace: dict):
        self.namespace, self.inside, self.stands_for = namespace, False, {}

    def there(self, x: torch.Tensor, seen: dict):
        if isinstance(x, There) or x.is_meta:
            return x
        if isinstance(x, nn.Parameter):
            made = nn.Parameter(There(x.data), requires_grad=x.requires_grad)
            made.grad = None if x.grad is None else There(x.grad)
            self.stands_for[id(made)] = made, x
        elif x.requires_grad and not self.inside:
            raise NeedsGradients
        else:
            made = x.to("meta") if x.requires_grad else There(x)  # of a function that is called back
        return seen.setdefault(id(x), (x, made))[1]

    def here(self, x: torch.Tensor, seen: dict):
        if id(x) in self.stands_for:
            own = self.stands_for[id(x)][1].requires_grad_(x.requires_grad)
            own.grad = x.grad.value if isinstance(x.grad, There) else x.grad
            return own
        value = x.data if isinstance(x, nn.Parameter) else x
        if not isinstance(value, There):
            return x
        made = value.value
        if isinstance(x, nn.Parameter):
            made = nn.Parameter(made, requires_grad=x.requires_grad)
        return seen.setdefault(id(x), (x, made))[1]

    def carry(self, x, over: Callable, seen: dict):
        """x with its tensors on the other side. Objects stay themselves; lists that change do not."""
        if id(x) in seen:
            return seen[id(x)][1]
        if isinstance(x, torch.Tensor):
            return over(x, seen)
        if isinstance(x, FUNCTIONS):
            own = getattr(x, "__globals__", None) is self.namespace
            return x if own or over == self.here else self.called_back(x)
        if hasattr(x, "__next__"):
            return (self.carry(part, over, {}) for part in x)
        if isinstance(x, PLAIN) or type(x).__module__.startswith(SHARED):
            return x
        seen[id(x)] = x, x
        made = self.carried(x, over, seen)
        seen[id(x)] = x, made
        return made

    def carried(self, x, over: Callable, seen: dict):
        if isinstance(x, list | tuple):
            parts = [self.carry(part, over, seen) for part in x]
            same = all(a is b for a, b in zip(x, parts, strict=True))
            return x if same else type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        if isinstance(x, dict):
            parts = {key: self.carry(part, over, seen) for key, part in x.items()}
            if any(x[key] is not part for key, part in parts.items()):
                x = x.copy()
                x.update(parts)
            return x
        for name, value in list(getattr(x, "__dict__", {}).items()):
            if not (isinstance(value, FUNCTIONS) or "hooks" in name):  # methods, and not called back
                vars(x)[name] = self.carry(value, over, seen)
        return x

    def called_back(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def back(*args, **kwargs):
            if not self.inside:
                return function(*args, **kwargs)
            args, kwargs = self.carry([list(args), kwargs], self.here, {})
            self.inside = False
            try:
                result = function(*args, **kwargs)
            finally:
                self.inside = True
            return self.carry(result, self.there, {})

        return back


def tensors(x, seen: dict) -> Iterator[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        yield x
    elif not isinstance(x, PLAIN) and id(x) not in seen:
        seen[id(x)] = x
        parts = x.values() if isinstance(x, dict) else getattr(x, "__dict__", {}).values()
        for part in x if isinstance(x, list | tuple) else parts:
            yield from tensors(part, seen)


def trains(function: Callable, args: tuple) -> bool:
    """A pass through a module of the lab's, whose gradients somebody may ask for."""
    of_module = function.__name__ == "forward" and isinstance(args[0], nn.Module)
    return of_module and torch.is_grad_enabled() and any(p.requires_grad for p in args[0].parameters())


def crossing(border: Border, function: Callable, note: Callable) -> Callable:
    @functools.wraps(function)
    def crossed(*args, **kwargs):
        if border.inside or trains(function, args):
            return function(*args, **kwargs)
        given, result = [list(args), dict(kwargs)], None
        border.stands_for = {}
        with Elsewhere() as elsewhere:
            try:
                given = border.carry(given, border.there, {})
            except NeedsGradients:
                border.carry(given, border.here, {})
                return function(*args, **kwargs)
            border.inside = True
            try:
                result = function(*given[0], **given[1])
                note(given, result, elsewhere)
            finally:
                border.inside = False
                both = border.carry([given, result], border.here, {})
                border.stands_for = {}
        return both[1]

    return crossed


def cross(namespace: dict, names: list[str]) -> None:
    """Notes in the namespace a Crossed for every name."""
    border, notes = Border(namespace), namespace.setdefault(RECORDED, [])
    for name in names:
        own = [name, 0, 0, 0, 0]
        notes.append(own)

        def note(given, result, elsewhere: Elsewhere, own=own) -> None:
            there = any(x.is_meta for x in tensors(given, {}))
            own[1] += there
            own[2] += elsewhere.arrived
            own[3] += elsewhere.left
            own[4] += there and any(x.ndim and not x.is_meta for x in tensors(result, {}))

        replace(namespace, name, lambda function, note=note: crossing(border, function, note))


class Crossed(NamedTuple):
    """Of a function: calls elsewhere; tensors that it moved there, and back; results left here."""

    name: str
    calls: int
    arrived: int
    left: int
    here: int
