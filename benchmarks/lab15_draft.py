"""Distils a draft, and a ternary model from its float self, for lab 15: a quarter of a core hour.

    python benchmarks/lab15_draft.py            what is missing in benchmarks/lab15_draft.json
    python benchmarks/lab15_draft.py --fresh    all of it, anew

Draft: blocks 0 and 3 of the zoo's `learnable_sink`, STEPS steps towards the zoo's `target` on
BATCH x LENGTH tokens of the standard library, of what the target wrote, or of what the draft writes
at that moment.  Measured on held-out text that the target goes on with, at temperature 1: the
chance that a proposal is accepted, sum_v min(p, q), and the share of tokens that both find
likeliest.

Ternary: the zoo's `draft` with BitLinears, towards its float self, on the standard library, on its
own text (LLM-QAT), or on tokens that were drawn evenly.  Measured: held-out loss.

The learning rate is searched for each way with a seed of its own (100), by factors of about three.
"""

import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from efflib import zoo
from efflib.decoding.sampling import Sampling, generate
from efflib.finetuning.distillation import (
    distance,
    distill,
    forward_kl,
    own_text,
    reverse_kl,
)
from efflib.quantization.ternary import with_bit_linears
from efflib.zoo.distillation import LENGTH as PIECE
from efflib.zoo.distillation import PROMPT, written
from efflib.zoo.evaluation import held_out_segments, token_losses
from efflib.zoo.tokenizer import BEGIN_ID, text_ids

FILE = Path(__file__).with_suffix(".json")
STATE = Path("build/lab15")
STEPS, BATCH, LENGTH, SEEDS = 40, 8, 128, (0, 1, 2)
RATES, FIRST = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2), 3e-3
KEPT = (0, 3)  # blocks of learnable_sink
DRAFT = {  # way: (whose text, what is made small; None: cross-entropy with the text)
    "hard labels, library": ("library", None),
    "forward KL, library": ("library", forward_kl),
    "reverse KL, library": ("library", reverse_kl),
    "distance, library": ("library", distance),
    "hard labels, target's": ("target's", None),
    "forward KL, own": ("own", forward_kl),
    "reverse KL, own": ("own", reverse_kl),
}
TERNARY = {
    "hard labels, library": ("library", None),
    "forward KL, library": ("library", forward_kl),
    "forward KL, own": ("self", forward_kl),
    "forward KL, random tokens": ("random", forward_kl),
}


@cache
def target() -> nn.Module:
    return zoo.load("target")


@cache
def library() -> Tensor:
    return text_ids("code", False)


def begun(pieces: Tensor) -> Tensor:
    """A begin token before each piece [n, L]."""
    return torch.cat([torch.full((len(pieces), 1), BEGIN_ID), pieces], dim=1)


def cut() -> nn.Module:
    """Half the blocks of learnable_sink."""
    model = zoo.load("learnable_sink")
    model.model.layers = nn.ModuleList(model.model.layers[i] for i in KEPT)
    for i, layer in enumerate(model.model.layers):
        layer.self_attn.layer = i
    return model


def pieces(seed: int) -> Tensor:
    """STEPS batches of pieces of the library. [STEPS BATCH, LENGTH]"""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(library()) - LENGTH, (STEPS * BATCH, 1), generator=generator)
    return library()[starts + torch.arange(LENGTH)]


def kept(name: str, make: Callable[[], Tensor]) -> Tensor:
    file = STATE / f"{name}.pt"
    if not file.exists():
        STATE.mkdir(parents=True, exist_ok=True)
        torch.save(make(), file)
    return torch.load(file, weights_only=True)


def batches(whose: str, seed: int):
    """What `distill` takes: ids [BATCH, 1 + LENGTH] for each step."""
    if whose == "own":
        prompts = begun(pieces(seed)[:, :PROMPT]).split(BATCH)
        generator = torch.Generator().manual_seed(seed)
        new = LENGTH - PROMPT
        return lambda m, step: generate(m, prompts[step], new, Sampling(), generator)
    if whose == "library":
        return begun(pieces(seed)).split(BATCH)
    if whose == "target's":
        tokens = STEPS * BATCH * LENGTH + PIECE
        text = kept(f"target-{seed}", lambda: written(target(), library(), tokens, seed))
        return begun(text[: STEPS * BATCH * LENGTH].view(-1, LENGTH)).split(BATCH)
    if whose == "self":
        make = lambda: own_text(zoo.load("draft"), STEPS * BATCH, LENGTH, seed)  # noqa: E731
        return kept(f"self-{seed}", make).split(BATCH)
    generator = torch.Generator().manual_seed(seed)
    return begun(torch.randint(2048, (STEPS * BATCH, LENGTH), generator=generator)).split(BATCH)


@cache
def judged() -> tuple[Tensor, Tensor]:
    """(held-out pieces that the target goes on with [n, 1 + T], its logits there)."""
    text = kept("judged", lambda: written(target(), text_ids("code", True), 16 * PIECE, 7))
    ids = begun(text.view(-1, PIECE))
    with torch.no_grad():
        return ids, target()(ids[:, :-1])[:, PROMPT:]


@torch.no_grad()
def acceptance(model: nn.Module) -> dict[str, float]:
    ids, wanted = judged()
    seen = model(ids[:, :-1])[:, PROMPT:]
    return {
        "acceptance": 1 - distance(wanted, seen).double().mean().item(),
        "same": (wanted.argmax(-1) == seen.argmax(-1)).double().mean().item(),
        "forward": forward_kl(wanted, seen).double().mean().item(),
        "reverse": reverse_kl(wanted, seen).double().mean().item(),
    }


def held_out(model: nn.Module) -> dict[str, float]:
    loss = token_losses(model, held_out_segments("code", 16384), 128, 128)
    return {"loss": loss.double().mean().item()}


def draft(way: str, rate: float, seed: int) -> dict[str, float]:
    whose, divergence = DRAFT[way]
    model, _ = distill(cut(), target(), batches(whose, seed), STEPS, rate, divergence)
    return acceptance(model)


def ternary(way: str, rate: float, seed: int) -> dict[str, float]:
    whose, divergence = TERNARY[way]
    start = zoo.load("draft")
    student = with_bit_linears(start)
    return held_out(distill(student, start, batches(whose, seed), STEPS, rate, divergence)[0])


def lines(done: dict, kind: str, ways: dict, make: Callable, worth: Callable[[dict], float]):
    """Searches and runs every way; writes the file after each."""

    def at(way: str, rate: float, seed: int) -> dict:
        key = f"{kind} | {way} | {rate} | {seed}"
        if key not in done:
            done[key] = make(way, rate, seed)
            FILE.write_text(json.dumps(done, indent=1) + "\n")
            print(key, {k: round(v, 4) for k, v in done[key].items()}, flush=True)
        return done[key]

    for way in ways:
        i = RATES.index(FIRST)
        while True:
            near = [j for j in (i - 1, i, i + 1) if 0 <= j < len(RATES)]
            found = max(near, key=lambda j: worth(at(way, RATES[j], 100)))
            if found == i:
                break
            i = found
        done[f"{kind} | {way} | rate"] = RATES[i]
        for seed in SEEDS:
            at(way, RATES[i], seed)


def main() -> None:
    torch.set_num_threads(1)
    done = {}
    if FILE.exists() and "--fresh" not in sys.argv[1:]:
        done = json.loads(FILE.read_text())
    if "start" not in done:
        shipped = zoo.load("draft")
        done["start"] = {
            "cut": acceptance(cut()),
            "whole": acceptance(zoo.load("learnable_sink")),
            "shipped draft": acceptance(shipped),
            "float": held_out(shipped),
            "rounded": held_out(with_bit_linears(shipped)),
            "rounded, rows": held_out(with_bit_linears(shipped, "channel")),
        }
    lines(done, "ternary", TERNARY, ternary, lambda found: -found["loss"])
    lines(done, "draft", DRAFT, draft, lambda found: found["acceptance"])
    FILE.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()
