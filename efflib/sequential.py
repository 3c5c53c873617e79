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
from efflib.quantization.size import quantizable_linears

Statistic = Callable[[Tensor], Tensor]  # inputs of a linear [T, K] -> what is summed over texts
Change = Callable[[Tensor, Tensor], Tensor]  # (w [N, K], the sum) -> new w [N, K]


def find_blocks(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """(name, blocks): the nn.ModuleList that holds the most linears, e.g. "model.layers".

    Raises ValueError if there is none (GPT-2's own Conv1D is not an nn.Linear).
    """
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
    inputs = _inputs_of(changed, blocks[0], ids)  # one (hidden, other arguments) per text
    for block, linears in zip(blocks, block_linears(changed), strict=True):
        sums, before = _measured(block, linears, inputs, statistic)
        for name, linear in linears.items():
            linear.weight.copy_(change(linear.weight.detach().clone(), sums[name]))
        after = [_run(block, x) for x in inputs] if sequential else before
        inputs = [(hidden, *x[1:]) for hidden, x in zip(after, inputs, strict=True)]
    return changed


class _Reached(Exception):
    """The first block has its input: the rest of the forward pass is not needed."""


def _inputs_of(model: nn.Module, block: nn.Module, ids: Tensor) -> list[tuple]:
    """What the model calls `block` with, for each text: (hidden [1, T, D], args, kwargs)."""
    inputs = []

    def remember(module: nn.Module, args: tuple, kwargs: dict) -> None:
        kwargs = {k: None if "past_key_value" in k else v for k, v in kwargs.items()}
        if args:
            inputs.append((args[0], args[1:], kwargs))
        else:
            inputs.append((kwargs.pop("hidden_states"), (), kwargs))
        raise _Reached

    hook = block.register_forward_pre_hook(remember, with_kwargs=True)
    try:
        for text in ids.split(1):
            try:
                model(text)
            except _Reached:
                pass
    finally:
        hook.remove()
    return inputs


def _run(block: nn.Module, inputs: tuple) -> Tensor:
    """The hidden states [1, T, D] after the block; some of Hugging Face's return a tuple."""
    hidden, args, kwargs = inputs
    out = block(hidden, *args, **kwargs)
    return out[0] if isinstance(out, tuple) else out


def _measured(
    block: nn.Module, linears: dict[str, nn.Linear], inputs: list[tuple], statistic: Statistic
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
        outputs = [_run(block, x) for x in inputs]
    finally:
        for hook in hooks:
            hook.remove()
    unseen = [name for name in linears if name not in sums]
    if unseen:
        raise ValueError(f"no token reached {', '.join(unseen)}")
    return sums, outputs
