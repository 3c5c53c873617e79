"""Stories of the course on a model of one's own, block by block.

    python -m efflib.zoo.phenomena awq --model FOLDER --text FILE --device cuda --dtype bfloat16

Every way of changing the model is carried along at once: while a block is in memory, each way
changes a copy of it, and runs its texts through.  So what is needed is the memory of one block and
the hidden states of the texts, one set for each way; the numbers are those of `quantize_model`,
`awq`, `gptq_model`, `prune_wanda` and `prune_sparsegpt` on the whole model (a test holds the two
together).  After each block the states are written to the folder of results, and a run that was cut
off goes on from there.
"""

import copy
import hashlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.hessian import gram
from efflib.models.recorded import Call, record_run
from efflib.models.streamed import StreamedModel
from efflib.quantization.awq_model import fold, quantized_weights, search_model, with_values
from efflib.quantization.gptq import dequantize_gptq, gptq
from efflib.quantization.linear import fake_quantize_weight
from efflib.quantization.size import quantizable_linears
from efflib.sequential import find_blocks, inputs_of, measured, run_block
from efflib.sparsity.magnitude import magnitude_mask
from efflib.sparsity.masks import Pattern, apply_mask
from efflib.sparsity.sparsegpt import sparsegpt
from efflib.sparsity.wanda import wanda_mask


@dataclass
class Here:
    """One block, as the only one of a model, and what it is called with."""

    model: nn.Module
    call: Call
    float_inputs: list[Tensor]  # hidden states [1, T, D] of the calibration texts, float model
    inputs: list[Tensor]  # those that the blocks before, changed in the same way, put out

    @property
    def block(self) -> nn.Module:
        return blocks_of(self.model)[0]


Way = Callable[[Here], nn.Module]  # the model with its block changed


def blocks_of(model: nn.Module) -> nn.ModuleList:
    return find_blocks(model)[1]


def rounded(bits: int, group: int) -> Way:
    def way(here: Here) -> nn.Module:
        for linear in quantizable_linears(here.model).values():
            linear.weight.copy_(fake_quantize_weight(linear.weight, bits, group))
        return here.model

    return way


def by_awq(bits: int, group: int) -> Way:
    def way(here: Here) -> nn.Module:
        x = torch.cat(here.float_inputs)  # [n, T, D], searched on the float model's activations
        found = record_run(here.model, lambda: run_block(here.block, x, here.call))
        searches = search_model(here.model, found, bits, group)
        folded = fold(here.model, searches)
        codes = quantized_weights(folded, found, searches, bits, group, clip=True)
        return with_values(folded, codes)

    return way


def by_statistic(statistic: Callable, change: Callable) -> Way:
    """As `change_sequentially`, for one block."""

    def way(here: Here) -> nn.Module:
        linears = quantizable_linears(here.model)
        sums, _ = measured(here.block, here.call, linears, here.inputs, statistic)
        for name, linear in linears.items():
            linear.weight.copy_(change(linear.weight.detach().clone(), sums.pop(name)))
        return here.model

    return way


def by_gptq(bits: int, group: int) -> Way:
    return by_statistic(gram, lambda w, h: dequantize_gptq(gptq(w, h, bits, group)).to(w))


def by_wanda(pattern: Pattern) -> Way:
    def change(w: Tensor, squares: Tensor) -> Tensor:
        return apply_mask(w, wanda_mask(w, squares.sqrt().float(), pattern))

    return by_statistic(lambda x: x.double().square().sum(0), change)


def by_sparsegpt(pattern: Pattern) -> Way:
    return by_statistic(gram, lambda w, h: sparsegpt(w, h, pattern))


def by_magnitude(pattern: Pattern) -> Way:
    def way(here: Here) -> nn.Module:
        for linear in quantizable_linears(here.model).values():
            w = linear.weight
            w.copy_(apply_mask(w, magnitude_mask(w, pattern, "row")))
        return here.model

    return way


def ways(story: str, group: int) -> dict[str, Way]:
    """{name: way} of a story; raises ValueError for one that is not told of any model."""
    told = {
        "quantization": {f"RTN {b} bits": rounded(b, group) for b in (8, 4, 3)},
        "awq": {
            name.format(b): make(b, group)
            for b in (4, 3)
            for name, make in (("RTN {} bits", rounded), ("AWQ {} bits", by_awq))
        },
        "gptq": {
            name.format(b): make(b, group)
            for b in (4, 3)
            for name, make in (("RTN {} bits", rounded), ("GPTQ {} bits", by_gptq))
        },
        "pruning": {
            f"{name} {label}": make(pattern)
            for label, pattern in (("50 %", 0.5), ("2:4", (2, 4)))
            for name, make in (
                ("magnitude", by_magnitude),
                ("Wanda", by_wanda),
                ("SparseGPT", by_sparsegpt),
            )
        },
    }
    if story not in told:
        raise ValueError(f"no story {story!r} of any model; there are {', '.join(told)}")
    return told[story]


@torch.no_grad()
def measure(
    streamed: StreamedModel,
    changes: dict[str, Way],
    calibration: Tensor,
    held_out: Tensor,
    kept: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    stop: int | None = None,
) -> dict[str, float]:
    """Loss (nats a token) on held_out [m, T + 1], of the model as it is ("float") and changed.

    calibration [n, T] ids.  kept: a file for the states after each block; a run that finds its own
    there goes on from it.  say: is told how long the rest will take.  stop: only so many blocks are
    gone through and no loss comes out: to measure what it takes.
    """
    calls, states = _embedded(streamed, [calibration, held_out[:, :-1]], ["float", *changes])
    key = _key(streamed, changes, calibration, held_out)
    first, states = _found(kept, key, states)
    last = len(calls[0]) if stop is None else stop
    for i in range(first, last):
        start = time.monotonic()
        states = _through(streamed, i, [called[i] for called in calls], states, changes)
        if kept is not None:
            torch.save({"key": key, "next": i + 1, "states": states}, kept)
        left = (last - i - 1) * (time.monotonic() - start) / 60
        say(f"block {i + 1} of {len(calls[0])}, {left:.1f} minutes left")
    if last < len(calls[0]):
        return {}
    return {name: _loss(streamed, both[1], held_out) for name, both in states.items()}


States = dict[str, list[list[Tensor]]]  # {way: hidden states [1, T, D] of both kinds of texts}


def _embedded(
    streamed: StreamedModel, texts: list[Tensor], names: list[str]
) -> tuple[list[list[Call]], States]:
    """(the calls of all blocks for both kinds of texts, what each way starts from)."""
    blocks = blocks_of(streamed.model)
    with ExitStack() as stack:
        for name in streamed.decoder.family.embeddings:
            stack.enter_context(streamed.loaded(name))
        found = [inputs_of(streamed.model, blocks, ids.to(streamed.device)) for ids in texts]
    hidden = [inputs for inputs, _ in found]
    return [calls for _, calls in found], {name: hidden for name in names}


def _through(
    streamed: StreamedModel, i: int, calls: list[Call], states: States, changes: dict[str, Way]
) -> States:
    """What each way's block i puts out."""
    after = {}
    with streamed.loaded(f"{streamed.decoder.family.blocks}.{i}") as block:
        for name, texts in states.items():
            changed = block
            if name != "float":
                here = Here(_alone(streamed, block), calls[0], states["float"][0], texts[0])
                changed = blocks_of(changes[name](here))[0]
            after[name] = [
                [run_block(changed, x, call) for x in inputs]
                for inputs, call in zip(texts, calls, strict=True)
            ]
    return after


def _alone(streamed: StreamedModel, block: nn.Module) -> nn.Module:
    """A copy of the model that has no other block than a copy of this one."""
    name, model = streamed.decoder.family.blocks, streamed.model
    every = model.get_submodule(name)
    model.set_submodule(name, nn.ModuleList([block]))
    try:
        return copy.deepcopy(model)
    finally:
        model.set_submodule(name, every)


def _loss(streamed: StreamedModel, hidden: list[Tensor], held_out: Tensor) -> float:
    cap = getattr(streamed.model.config, "final_logit_softcapping", None)  # of Gemma 2
    losses = []
    with (
        streamed.loaded(streamed.decoder.family.last_norm) as norm,
        streamed.loaded("lm_head") as head,
    ):
        for x, ids in zip(hidden, held_out.to(streamed.device), strict=True):
            logits = head(norm(x))[0].float()  # [T, V]
            logits = logits if cap is None else cap * torch.tanh(logits / cap)
            losses.append(F.cross_entropy(logits, ids[1:]).item())
    return sum(losses) / len(losses)


def _key(streamed: StreamedModel, changes: dict[str, Way], *texts: Tensor) -> str:
    """What a state belongs to."""
    digest = hashlib.sha256(repr([str(streamed.folder), *changes, streamed.dtype]).encode())
    for ids in texts:
        digest.update(ids.numpy().tobytes())
    return digest.hexdigest()


def _found(kept: Path | None, key: str, states: States) -> tuple[int, States]:
    """(the block to go on with, the states before it)."""
    if kept is not None and kept.is_file():
        stored = torch.load(kept, weights_only=True)
        if stored["key"] == key:
            return stored["next"], stored["states"]
    return 0, states
