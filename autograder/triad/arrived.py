"""What arrives in a student's functions: a summary of every argument, small enough to keep.

A cell behind the solution says `watch(globals(), ["quantize"])`.  Every call from a test or from a
driver is then noted; calls of the notebook's own functions among each other are not, for no test
chose their arguments.  A summary holds words ("bfloat16", "strided", "== 'left'") and ranges of
numbers ({"max": [smallest, largest]}: of a tensor's largest magnitude, say), never the data.
"""

import functools
import inspect
import math
import sys
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from autograder.triad.forked import RECORDED

SIMPLE = (bool, int, float, str, type(None))
TINY, HUGE = 1e-6, 1e4  # largest magnitude of a tensor that is called so
MOST_WORDS = 400  # of an argument: values beyond that are counted in its ranges only
PASSED_THROUGH = "torch.nn"  # frames between a driver and forward() of a student's module


class Summary:
    """words and ranges of one argument of one function."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}
        self.ranges: dict[str, list[float]] = {}

    def say(self, *words: str) -> None:
        for word in words:
            if word in self.words or len(self.words) < MOST_WORDS:
                self.words[word] = self.words.get(word, 0) + 1

    def reach(self, quantity: str, *values: float) -> None:
        """Numbers that a quantity had; what is no finite number is said in words."""
        for value in values:
            if math.isfinite(value):
                lo, hi = self.ranges.setdefault(quantity, [value, value])
                self.ranges[quantity] = [min(lo, value), max(hi, value)]


def watch(namespace: dict, names: list[str]) -> None:
    """Notes in the namespace what these functions and classes are called with from outside."""
    seen: dict[str, Summary] = {}
    for name in names:
        value = namespace.get(name)
        if inspect.isclass(value):
            namespace[name] = watched_class(namespace, name, value, seen)
        elif callable(value) and not hasattr(value, "fn"):  # a kernel is launched, not called
            namespace[name] = watched(namespace, name, value, seen)
    namespace[RECORDED] = Recorded(seen)


class Recorded:
    """Iterates over (argument, words, ranges) as they are when it is asked."""

    def __init__(self, seen: dict[str, Summary]) -> None:
        self.seen = seen

    def __iter__(self) -> Iterator[tuple[str, list[str], dict]]:
        return ((key, list(one.words), one.ranges) for key, one in self.seen.items())


def watched_class(namespace: dict, name: str, kind: type, seen: dict[str, Summary]) -> type:
    """A subclass whose public methods, and __init__, are watched."""
    body = {}
    for key in dir(kind):
        method = inspect.getattr_static(kind, key)
        own = inspect.isfunction(method) and not method.__module__.startswith("torch.")
        if own and (key == "__init__" or not key.startswith("_")):
            shown = name if key == "__init__" else f"{name}.{key}"
            body[key] = watched(namespace, shown, method, seen, of_object=True)
    return type(name, (kind,), body | {"__module__": kind.__module__, "__doc__": kind.__doc__})


def watched(namespace: dict, name: str, function, seen: dict, *, of_object: bool = False):
    """The function, whose arguments and errors are noted when a test or a driver calls it."""
    signature = inspect.signature(function)
    failed: dict[object, set[str]] = {}  # the object (or None) -> kinds of errors that it raised

    @functools.wraps(function)
    def recorder(*args, **kwargs):
        if called_from(namespace):
            return function(*args, **kwargs)
        own = seen.setdefault(name, Summary())
        key = id(args[0]) if of_object and args else None
        own.say(*(f"raises {kind}, then called" for kind in failed.get(key, ())))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # it says best itself what is missing
        bound.apply_defaults()
        arguments = list(bound.arguments.items())[1 if of_object else 0 :]
        for parameter, value in arguments:
            summarize(value, seen.setdefault(f"{name}.{parameter}", Summary()))
        try:
            return function(*args, **kwargs)
        except Exception as fault:
            kinds = {k.__name__ for k in type(fault).__mro__ if issubclass(k, Exception)}
            kinds -= {"Exception"}
            own.say(*(f"raises {kind}" for kind in kinds))
            failed.setdefault(key, set()).update(kinds)
            raise

    return recorder


def called_from(namespace: dict) -> bool:
    """Whether the notebook's own code called what is being watched."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(PASSED_THROUGH):
        frame = frame.f_back
    return frame is not None and frame.f_globals is namespace


# ---- one argument -------------------------------------------------------------------------------


def summarize(value: object, into: Summary) -> None:
    if isinstance(value, Tensor):
        of_tensor(value.detach(), value.requires_grad, into)
    elif isinstance(value, SIMPLE):
        of_simple(value, into)
    elif isinstance(value, nn.Module):
        of_module(value, into)
    elif isinstance(value, list | tuple | dict | set | frozenset):
        of_container(value, into)
    elif callable(value):
        into.say("function")
    else:
        into.say(f"== {value!r}" if isinstance(value, torch.dtype) else type(value).__name__)


def of_tensor(x: Tensor, grad: bool, into: Summary) -> None:
    into.say(str(x.dtype).removeprefix("torch."), f"{x.ndim}-d")
    into.reach("numel", x.numel())
    for i, size in enumerate(x.shape):
        into.reach(f"dim {i}", size)
        into.reach(f"dim {i - x.ndim}", size)
    held = {
        "requires grad": grad,
        "strided": not x.is_contiguous(),
        "empty": x.numel() == 0,
        "one element": x.numel() == 1,
        "size 1": 1 in x.shape,
    }
    into.say(*(word for word, is_so in held.items() if is_so))
    if x.numel() and x.dtype is not torch.bool and not x.is_complex():
        of_numbers(x.double().flatten(), x.is_floating_point(), into)
    elif x.dtype is torch.bool and x.numel():
        into.say(*(["True"] if x.any() else []), *(["False"] if not x.all() else []))


def of_numbers(x: Tensor, real: bool, into: Summary) -> None:
    """x: [n] float64, n > 0"""
    finite = x[x.isfinite()]
    held = {
        "nan": x.isnan().any(),
        "inf": (x == math.inf).any(),
        "-inf": (x == -math.inf).any(),
        "-0.0": real and ((x == 0) & x.signbit()).any(),
        "ties": len(x.unique()) < len(x),
        "zeros": (x == 0).all(),
        "negative": (x < 0).any(),
        "fraction": real and (finite != finite.round()).any(),
    }
    into.say(*(word for word, is_so in held.items() if is_so))
    if len(finite):
        into.reach("value", float(finite.min()), float(finite.max()))
        largest = float(finite.abs().max())
        into.reach("max", *([largest] if largest else []))  # 0 is "zeros", not tiny
        into.say(*(["tiny"] if 0 < largest <= TINY else []), *(["huge"] if largest >= HUGE else []))


def of_simple(value, into: Summary) -> None:
    if value is None or isinstance(value, bool):
        into.say(str(value))
    elif isinstance(value, str):
        into.say(f"== {value!r}")
        into.reach("length", len(value))
    else:
        into.say(type(value).__name__, f"== {value!r}")
        into.reach("value", value)
        if isinstance(value, float):
            words = {"nan": value != value, "inf": value == math.inf, "-inf": value == -math.inf}
            into.say(*(word for word, is_so in words.items() if is_so))
            into.say(*(["fraction"] if math.isfinite(value) and value % 1 else []))


def of_container(value, into: Summary) -> None:
    into.say(type(value).__name__)
    into.reach("length", len(value))
    of_items(value.values() if isinstance(value, dict) else value, into)
    if isinstance(value, dict):
        of_items(value, into, "key")


def of_items(items, into: Summary, called: str = "item") -> None:
    """What is in a container, also in containers inside it, as "item ..."."""
    inside = Summary()
    for item in items:
        if isinstance(item, list | tuple | set | frozenset):
            of_items(item, into, called)
            inside.reach("length", len(item))
        else:
            summarize(item, inside)
    into.say(*(f"{called} {word}" for word in inside.words))
    for quantity, span in inside.ranges.items():
        into.reach(called if quantity == "value" else f"{called} {quantity}", *span)


def of_module(module: nn.Module, into: Summary) -> None:
    modes = {part.training for part in module.modules()}
    into.say("mixed modes" if len(modes) > 1 else "train" if modes == {True} else "eval")
    parameters = list(module.parameters())
    into.say(type(module).__name__, *(str(p.dtype).removeprefix("torch.") for p in parameters))
    into.say(*(["frozen"] if any(not p.requires_grad for p in parameters) else []))
    into.reach("parameters", len(parameters))
