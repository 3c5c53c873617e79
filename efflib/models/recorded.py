"""What the linear layers of a model, and the modules that hold them, are called with.

For calibration: one run of the float model on a little text, everything kept.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from efflib.checks import expect_names, is_named
from efflib.models.hub import FAMILIES, describe, model_type

SKIP = ("lm_head",)


class Call(NamedTuple):
    """The arguments that a module was called with."""

    args: tuple
    kwargs: dict


class Calibration(NamedTuple):
    """What the float model computed on the calibration text."""

    inputs: dict[str, Tensor]  # of every linear but the skipped ones, [B, T, K]
    blocks: dict[str, Call]  # of the modules that hold linears: attention and MLP


def without_cache(args: tuple, kwargs: dict) -> Call:
    """The call without transformers' cache: it would hold these tokens at the next call."""

    def kept(x: object) -> object:
        return None if hasattr(x, "get_seq_length") else x

    return Call(tuple(map(kept, args)), {name: kept(x) for name, x in kwargs.items()})


def _keep(calls: dict[str, Call], name: str, module: nn.Module, args: tuple, kwargs: dict) -> None:
    calls[name] = without_cache(args, kwargs)


def record(model: nn.Module, ids: Tensor, skip: tuple[str, ...] = SKIP) -> Calibration:
    """Run the model once on ids [B, T] and keep the inputs of linears and of their parents.

    skip: linears whose names contain an entry as whole components are left out.
    Raises ValueError if a linear sees no token, as an expert may.
    """
    return record_run(model, lambda: model(ids), skip)


def record_run(
    model: nn.Module, run: Callable[[], object], skip: tuple[str, ...] = SKIP
) -> Calibration:
    """The same of what run() does with modules of the model."""
    expect_names(model, skip=skip, optional=SKIP)
    modules = dict(model.named_modules())
    linears = [
        name
        for name, module in modules.items()
        if isinstance(module, nn.Linear) and not is_named(name, skip)
    ]
    parents = {name.rpartition(".")[0] for name in linears} - {""}
    if model_type(model) in FAMILIES:
        found = describe(model).blocks
        parents |= {name for block in found for name in (block.attention, block.mlp) if name}
    calls: dict[str, Call] = {}
    with ExitStack() as undo, torch.no_grad():
        for name in [*linears, *parents]:
            note = partial(_keep, calls, name)
            handle = modules[name].register_forward_pre_hook(note, with_kwargs=True)
            undo.callback(handle.remove)
        run()
    if unseen := [name for name in linears if name not in calls]:
        raise ValueError(f"no token of the text reached {', '.join(unseen)}")
    return Calibration({name: calls.pop(name).args[0] for name in linears}, calls)
