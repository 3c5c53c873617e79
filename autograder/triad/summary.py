"""What one argument is, in words and ranges of numbers, never the data."""

import math
import re
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

SIMPLE = (bool, int, float, str, type(None))
TINY, HUGE = 1e-6, 1e4  # largest magnitude of a tensor that is called so
MOST_WORDS = 4000  # of an argument: values beyond that are counted in its ranges only
BOUND = re.compile(r"(?:(?P<quantity>.+) )?(?P<sign>>=|<=) (?P<number>-?[0-9.]+(?:e-?[0-9]+)?)")


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

    def take_in(self, other: "Summary") -> None:
        self.say(*other.words)
        for quantity, span in other.ranges.items():
            self.reach(quantity, *span)


def touches(words: Collection[str], ranges: Mapping[str, Sequence[float]], corner: str) -> bool:
    """Whether what was summarized has a corner: one of its words, or a number beyond a bound."""
    if corner in words:
        return True
    bound = BOUND.fullmatch(corner)
    span = ranges.get(bound["quantity"] or "value") if bound else None
    if span is None:
        return False
    number = float(bound["number"])
    return span[1] >= number if bound["sign"] == ">=" else span[0] <= number


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
    into.say(type(value).__name__, *(["length == 1"] if len(value) == 1 else []))
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
