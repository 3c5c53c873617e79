"""Arguments that do not fit, named in one sentence: checks that many modules share.

Each raises ValueError with the name and value that were given, and what is allowed.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


def expect_whole(least: int = 0, **numbers: int) -> None:
    """Each number is an integer of at least `least`."""
    for name, number in numbers.items():
        whole = isinstance(number, Integral) and not isinstance(number, bool)
        if not whole or number < least:
            raise ValueError(f"{name}={number!r} must be an integer of at least {least}")


def expect_dims(layout: str, **tensors: "Tensor") -> None:
    """Each tensor has the dimensions that layout names, "[B, T]", and none of them is 0.

    After "..., " any more may stand in front.
    """
    dims = layout.strip("[]").split(", ")
    least = len(dims) - (dims[0] == "...")
    for name, tensor in tensors.items():
        fits = tensor.ndim >= least if dims[0] == "..." else tensor.ndim == least
        if not fits or tensor.numel() == 0:
            raise ValueError(f"{name} must be a non-empty {layout}, got {tuple(tensor.shape)}")


def expect_integers(**tensors: "Tensor") -> None:
    """Each tensor holds integers: a float would be cut to one without a word."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() or tensor.is_complex():
            raise ValueError(f"{name} must be integers, got {tensor.dtype}")


def expect_within(stop: int, **tensors: "Tensor") -> None:
    """Each tensor holds indices: integers from 0 to stop - 1."""
    expect_integers(**tensors)
    for name, tensor in tensors.items():
        if tensor.numel() and not 0 <= int(tensor.min()) <= int(tensor.max()) < stop:
            low, high = int(tensor.min()), int(tensor.max())
            raise ValueError(f"{name} must be from 0 to {stop - 1}, got {low} to {high}")


def expect_finite(**tensors: "Tensor") -> None:
    """No tensor holds NaN or infinity: no search finds a minimum among them."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} {tuple(tensor.shape)} must be finite, got NaN or infinity")


def expect_keys(found: Iterable[str], **wanted: Iterable[str]) -> None:
    """Every wanted name is among the found ones."""
    found = list(found)
    for what, names in wanted.items():
        for name in names:
            if name not in found:
                raise ValueError(f"{what}: there is no {name!r}{nearest(name, found)}")


def expect_names(model: "nn.Module", optional: Iterable[str] = (), **lists: Iterable[str]) -> None:
    """Each entry names a module of the model as `is_named` reads it, and the list is no string.

    An optional entry may name none.
    """
    modules = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    for argument, entries in lists.items():
        if isinstance(entries, str):
            raise ValueError(f"{argument}={entries!r} is one string: write ({entries!r},)")
        for entry in entries:
            if entry not in optional and not any(is_named(name, (entry,)) for name in modules):
                parts = {part for name in modules for part in (name, *name.split("."))}
                raise ValueError(
                    f"{argument}: no module of {type(model).__name__} is named {entry!r}"
                    f"{nearest(entry, parts)}"
                )


def is_named(name: str, entries: Iterable[str]) -> bool:
    """Whether a dotted name contains an entry as whole components: "lm_head", "layers.0", "mlp"."""
    return any(f".{entry}." in f".{name}." for entry in entries)


def nearest(name: str, known: Iterable[str]) -> str:
    """'; the nearest is ...' if one of the known names is like it but for case or a few letters."""
    by_lower = {other.lower(): other for other in sorted(known)}
    close = get_close_matches(str(name).lower(), by_lower, n=1)
    return f"; the nearest is {by_lower[close[0]]!r}" if close else ""
