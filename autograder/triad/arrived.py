"""What arrives in a student's functions: a summary of every argument, small enough to keep.

A cell behind the solution says `watch(globals(), ["quantize"])`.  Every call from a test or from a
driver is then noted; calls of the notebook's own functions among each other are not, for no test
chose their arguments.  A summary holds words ("bfloat16", "strided", "== 'left'") and ranges of
numbers ({"max": [smallest, largest]}: of a tensor's largest magnitude, say), never the data.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence

from autograder.triad.forked import RECORDED
from autograder.triad.summary import Summary, summarize

PASSED_THROUGH = "torch.nn"  # frames between a driver and forward() of a student's module


class Seen(dict):
    """ "function.argument" -> Summary of all calls, made where it is first asked for."""

    def __init__(self, each: Callable[[dict[str, Summary]], None] | None) -> None:
        super().__init__()
        self.each = each

    def __missing__(self, key: str) -> Summary:
        return self.setdefault(key, Summary())

    def call(self, name: str, arguments: Sequence[tuple[str, object]]) -> None:
        """Of one call: takes in a summary of every argument."""
        own = {}
        for parameter, value in arguments:
            own[f"{name}.{parameter}"] = one = Summary()
            summarize(value, one)
        for key, one in own.items():
            self[key].take_in(one)
        if self.each:
            self.each(own)


def watch(
    namespace: dict,
    names: list[str],
    each: Callable[[dict[str, Summary]], None] | None = None,
) -> None:
    """Notes in the namespace what these functions and classes are called with from outside.

    each: is given the summaries of the arguments of every call.
    """
    seen = Seen(each)
    for name in names:
        value = namespace.get(name)
        if inspect.isclass(value):
            namespace[name] = watched_class(namespace, name, value, seen)
        elif callable(value) and not hasattr(value, "fn"):  # a kernel is launched, not called
            namespace[name] = watched(namespace, name, value, seen)
    namespace[RECORDED] = Recorded(seen)


class Recorded:
    """Iterates over (argument, words, ranges) as they are when it is asked."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen

    def __iter__(self) -> Iterator[tuple[str, list[str], dict]]:
        return ((key, list(one.words), one.ranges) for key, one in self.seen.items())


def watched_class(namespace: dict, name: str, kind: type, seen: Seen) -> type:
    """A subclass whose public methods, and __init__, are watched."""
    body = {}
    for key in dir(kind):
        method = inspect.getattr_static(kind, key)
        own = inspect.isfunction(method) and not method.__module__.startswith("torch.")
        if own and (key == "__init__" or not key.startswith("_")):
            shown = name if key == "__init__" else f"{name}.{key}"
            body[key] = watched(namespace, shown, method, seen, of_object=True)
    return type(name, (kind,), body | {"__module__": kind.__module__, "__doc__": kind.__doc__})


def watched(namespace: dict, name: str, function, seen: Seen, *, of_object: bool = False):
    """The function, whose arguments and errors are noted when a test or a driver calls it."""
    signature = inspect.signature(function)
    failed: dict[object, set[str]] = {}  # the object (or None) -> kinds of errors that it raised

    @functools.wraps(function)
    def recorder(*args, **kwargs):
        if called_from(namespace):
            return function(*args, **kwargs)
        own = seen[name]
        key = id(args[0]) if of_object and args else None
        own.say(*(f"raises {kind}, then called" for kind in failed.get(key, ())))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # it says best itself what is missing
        bound.apply_defaults()
        arguments = list(bound.arguments.items())[1 if of_object else 0 :]
        seen.call(name, arguments)
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
