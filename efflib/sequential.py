"""Changing a model block by block, each block on the inputs that it will really meet.

    for each block of the model, in order:
        run the calibration texts through the block as it is, collect a statistic of every linear
        change the block's linears
        run the texts through the changed block: its outputs are the inputs of the next block

With all statistics taken from the model as it was, the errors of the first blocks would be news to
the last ones.  Within one block all linears are measured in one pass before any of them changes,
as in the code of Wanda and SparseGPT.  Only linears inside blocks change: embeddings are looked
up, not multiplied, and the output layer's error goes to the logits directly.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_integers
from efflib.models.hub import describe, model_type
from efflib.models.recorded import Call, without_cache
from efflib.quantization.size import quantizable_linears

Statistic = Callable[[Tensor], Tensor]  # inputs of a linear [T, K] -> what is summed over texts
Change = Callable[[Tensor, Tensor], Tensor]  # (w [N, K], the sum) -> new w [N, K]


def find_blocks(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """(name, blocks): those of `hub.describe`, e.g. "model.layers".

    In a module whose config names no model_type, the nn.ModuleList that holds the most linears.
    Raises ValueError as `describe`, or if there is none (GPT-2's own Conv1D is not an nn.Linear).
    """
    if model_type(model) is not None:
        name = describe(model).family.blocks
        return name, model.get_submodule(name)
    lists = {n: m for n, m in model.named_modules() if isinstance(m, nn.ModuleList)}
    counts = {n: sum(isinstance(m, nn.Linear) for m in b.modules()) for n, b in lists.items()}
    name = max(counts, key=counts.get, default=None)
    if name is None or counts[name] == 0:
        raise ValueError(f"{type(model).__name__} has no nn.ModuleList with nn.Linear in it")
    return name, lists[name]


def block_linears(model: nn.Module) -> list[dict[str, nn.Linear]]:
    """For each block of `find_blocks`, {full name: linear}; weights tied to others left out."""
    blocks_name, blocks = find_blocks(model)
    linears = quantizable_linears(model, skip=())
    prefixes = [f"{blocks_name}.{i}." for i in range(len(blocks))]
    return [{n: m for n, m in linears.items() if n.startswith(p)} for p in prefixes]


@torch.no_grad()
def change_sequentially(
    model: nn.Module, ids: Tensor, statistic: Statistic, change: Change, sequential: bool = True
) -> nn.Module:
    """A copy of the model with weights change(w, sum over the texts of statistic(x)).

    model: `Llama` or a Hugging Face causal model in eval mode; ids [n, T], run one text at a time;
    statistic: of a linear's inputs x [T, K] in the model's dtype; it is summed over the texts.
    sequential=False: all statistics are those of the model as it was.
    Raises ValueError if the model has no blocks, is in training mode (dropout would change the
    inputs), ids are empty, or a linear sees no token.
    """
    if model.training:
        raise ValueError("calibration in training mode: call model.eval() before")
    expect_dims("[n, T]", ids=ids)
    expect_integers(ids=ids)
    changed = copy.deepcopy(model)
    _, blocks = find_blocks(changed)
    inputs, calls = inputs_of(changed, blocks, ids)
    for block, call, linears in zip(blocks, calls, block_linears(changed), strict=True):
        sums, before = measured(block, call, linears, inputs, statistic)
        for name, linear in linears.items():
            linear.weight.copy_(change(linear.weight.detach().clone(), sums[name]))
        inputs = [run_block(block, x, call) for x in inputs] if sequential else before
    return changed


class _Reached(Exception):
    """What was looked for is found: the rest of the forward pass is not needed."""


def inputs_of(
    model: nn.Module, blocks: nn.ModuleList, ids: Tensor
) -> tuple[list[Tensor], list[Call]]:
    """(the first block's hidden states [1, T, D] of each text, the call of each block).

    All texts are of one length, so what is beside the hidden states is the same for all of them.
    It is not the same for all blocks: some have a window, and angles of their own.
    """
    calls, inputs = [], []

    def pass_on(*args, **kwargs) -> Tensor:
        hidden = args[0] if args else kwargs.pop("hidden_states")
        calls.append(without_cache(args[1:], kwargs))
        if len(calls) == len(blocks):
            raise _Reached
        return hidden

    def remember(module: nn.Module, args: tuple, kwargs: dict) -> None:
        inputs.append(args[0] if args else kwargs["hidden_states"])
        raise _Reached

    for block in blocks:
        block.forward = pass_on
    try:
        model(ids[:1])
    except _Reached:
        pass
    finally:
        for block in blocks:
            del block.forward
    hook = blocks[0].register_forward_pre_hook(remember, with_kwargs=True)
    try:
        for text in ids.split(1):
            try:
                model(text)
            except _Reached:
                pass
    finally:
        hook.remove()
    return inputs, calls


def run_block(block: nn.Module, hidden: Tensor, call: Call) -> Tensor:
    """The hidden states [1, T, D] after the block; some of Hugging Face's return a tuple."""
    out = block(hidden, *call.args, **call.kwargs)
    return out[0] if isinstance(out, tuple) else out


def measured(
    block: nn.Module,
    call: Call,
    linears: dict[str, nn.Linear],
    inputs: list[Tensor],
    statistic: Statistic,
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """({name: sum over all texts of statistic(its input)}, the block's outputs)."""
    sums: dict[str, Tensor] = {}
    hooks = []
    for name, linear in linears.items():

        def add(module: nn.Module, args: tuple, name: str = name) -> None:
            now = statistic(args[0].detach().flatten(0, -2))
            sums[name] = sums[name] + now if name in sums else now

        hooks.append(linear.register_forward_pre_hook(add))
    try:
        outputs = [run_block(block, x, call) for x in inputs]
    finally:
        for hook in hooks:
            hook.remove()
    unseen = [name for name in linears if name not in sums]
    if unseen:
        raise ValueError(f"no token reached {', '.join(unseen)}")
    return sums, outputs
