"""Pruning a whole model, block by block.

    for each block of the model, in order:
        run the calibration texts through the block as it is, collect ||X_j||_2 of every linear
        mask the block's linears
        run the texts through the pruned block: its outputs are the inputs of the next block

So each block is scored on the inputs it will really meet; with all scores taken from the dense
model, the errors of the first blocks would be news to the last ones.  Within one block all linears
are scored on one dense pass, as in the authors' code.  Only linears inside blocks are pruned:
embeddings are looked up, not multiplied, and the output layer's error goes to the logits directly.
The zeros are simulated: neither memory nor time is saved until a format and a kernel use them.
Source: Sun et al. 2024 (arXiv:2306.11695), section 3; Frantar and Alistarh 2023 (arXiv:2301.00774).
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from efflib.checks import expect_dims, expect_integers
from efflib.quantization.size import quantizable_linears
from efflib.sparsity.masks import apply_mask

Rule = Callable[[Tensor, Tensor], Tensor]  # (w [N, K], norms [K]) -> mask [N, K]


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
def prune_blocks(model: nn.Module, rule: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy of the model with mask rule(w) applied to every linear of its blocks; no data."""
    pruned = copy.deepcopy(model)
    for linears in block_linears(pruned):
        for linear in linears.values():
            linear.weight.copy_(apply_mask(linear.weight, rule(linear.weight)))
    return pruned


@torch.no_grad()
def prune_sequentially(model: nn.Module, ids: Tensor, rule: Rule) -> nn.Module:
    """A copy of the model, pruned block by block with mask = rule(w, norms of its input).

    model: `Llama` or a Hugging Face causal model in eval mode; ids [n, T], run one text at a time.
    Raises ValueError if the model has no blocks, is in training mode (dropout would change the
    norms), ids are empty, or a linear sees no token.
    """
    if model.training:
        raise ValueError("calibration in training mode: call model.eval() before")
    expect_dims("[n, T]", ids=ids)
    expect_integers(ids=ids)
    pruned = copy.deepcopy(model)
    _, blocks = find_blocks(pruned)
    inputs = _inputs_of(pruned, blocks[0], ids)  # one (hidden, other arguments) per text
    for block, linears in zip(blocks, block_linears(pruned), strict=True):
        norms = _norms_of(block, linears, inputs)
        for name, linear in linears.items():
            mask = rule(linear.weight.detach().clone(), norms[name])
            linear.weight.copy_(apply_mask(linear.weight, mask))
        inputs = [(_run(block, x), *x[1:]) for x in inputs]
    return pruned


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


def _norms_of(
    block: nn.Module, linears: dict[str, nn.Linear], inputs: list[tuple]
) -> dict[str, Tensor]:
    """||X_j||_2 over all texts of the input of every linear: {name: [K]} float32."""
    squares: dict[str, Tensor] = {}
    hooks = []
    for name, linear in linears.items():

        def add(module: nn.Module, args: tuple, name: str = name) -> None:
            now = args[0].double().flatten(0, -2).square().sum(0)  # [K]
            squares[name] = squares[name] + now if name in squares else now

        hooks.append(linear.register_forward_pre_hook(add))
    try:
        for x in inputs:
            _run(block, x)
    finally:
        for hook in hooks:
            hook.remove()
    unseen = [name for name in linears if name not in squares]
    if unseen:
        raise ValueError(f"no token reached {', '.join(unseen)}")
    return {name: total.sqrt().float() for name, total in squares.items()}
