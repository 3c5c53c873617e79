"""Stories of the course on a model of one's own, block by block.

    python -m efflib.zoo.phenomena awq --model FOLDER --text FILE --device cuda --dtype bfloat16

Every way of changing the model is carried along at once: while a block is in memory, each way
changes a copy of it, and runs its texts through.  So what is needed is the memory of one block and
the hidden states of the texts, one set for each way; the numbers are those of `quantize_model`,
`awq`, `gptq_model`, `prune_wanda` and `prune_sparsegpt` on the whole model (a test holds the two
together).  After each block the states are written to the folder of results, and a run that was cut
off goes on from there.
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.models.groups import with_linears
from efflib.models.recorded import Call
from efflib.models.streamed import StreamedModel
from efflib.sequential import inputs_of, run_block
from efflib.zoo.phenomena.ways import Here, Way, blocks_of


@torch.no_grad()
def measure(
    streamed: StreamedModel,
    changes: dict[str, Way],
    calibration: Tensor,
    held_out: Tensor,
    kept: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    stop: int | None = None,
    done: Callable[[int, str], None] = lambda count, name: None,
) -> dict[str, float]:
    """Loss (nats a token) on held_out [m, T + 1], of the model as it is ("float") and changed.

    calibration [n, T] ids.  kept: a file for the states after each block; a run that finds its own
    there goes on from it.  say: is told how long the rest will take.  stop: only so many blocks are
    gone through and no loss comes out: to measure what it takes.  done: is told after each way of a
    block how many there were, of blocks x (1 + ways), those of an earlier run included.
    """
    calls, states = _embedded(streamed, [calibration, held_out[:, :-1]], ["float", *changes])
    key = _key(streamed, changes, calibration, held_out)
    first, states = _found(kept, key, states)
    last = len(calls[0]) if stop is None else stop
    for i in range(first, last):
        start = time.monotonic()
        states = _through(streamed, i, [called[i] for called in calls], states, changes, done)
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
    streamed: StreamedModel,
    i: int,
    calls: list[Call],
    states: States,
    changes: dict[str, Way],
    done: Callable[[int, str], None],
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
            done(i * len(states) + len(after), name)
    return after


def _alone(streamed: StreamedModel, block: nn.Module) -> nn.Module:
    """A copy of the model that has no block but a copy of this one, with linears for Conv1D."""
    name, model = streamed.decoder.family.blocks, streamed.model
    every = model.get_submodule(name)
    model.set_submodule(name, nn.ModuleList([block]))
    try:
        return with_linears(model)
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
