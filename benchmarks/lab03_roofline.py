"""The roofline of decoding in the chapter on AWQ: Llama-2-7B on an RTX 4090, from shapes alone.

The tables and figures of that chapter are written by lab03_tables.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from efflib.models.llama import Llama, LlamaConfig
from efflib.plots import salience
from efflib.serving.roofline import (
    RTX_4090,
    Step,
    decode_step,
    ridge_batch,
    tokens_per_second,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LLAMA_2_7B = LlamaConfig(32000, 4096, 11008, 32, 32, 32, 128)
# Milliseconds for a token on an RTX 4090 (mit-han-lab/llm-awq, tinychat/README.md), and tokens per
# second in fp16 of a program whose kernels are not fused (MIT 6.5940)
MILLISECONDS, UNFUSED = {16: 16.17, 4: 6.02}, 50
MEASURED = {bits: 1000 / each for bits, each in MILLISECONDS.items()}
CONTEXT = 512  # tokens in the cache, for the prediction
MEMORY = 24 * 2**30  # bytes of an RTX 4090
BATCHES = sorted({round(2 ** (i / 8)) for i in range(89)})  # 1 to 2048
ALT = (
    "Most tokens per second of Llama-2-7B on an RTX 4090 by batch, in 16 and in 4 bits; without a "
    "cache both reach one ceiling, with 512 cached tokens each both end where the memory is full"
)


def steps(tokens: int) -> dict[int, Step]:
    """A decoding step of Llama-2-7B in 16 bits, and in 4 in groups of 128."""
    with torch.device("meta"):
        model = Llama(LLAMA_2_7B)
    return {16: decode_step(model, tokens=tokens), 4: decode_step(model, 4, 128, tokens)}


def fits(step: Step) -> int:
    """How many sequences the memory holds, each with its cache, beside the weights."""
    return int((MEMORY - step.weights) / step.kv)


def table() -> str:
    """Bounds with a filled cache beside measurements, ridges at the first token, full memory."""
    filled, first = steps(CONTEXT), steps(0)
    lines = [
        "| weights | GB of weights | tokens/s at most | measured | share | ridge, empty cache | "
        "sequences in 24 GiB | tokens/s with so many |",
        "|---" * 8 + "|",
    ]
    for bits, step in filled.items():
        bound = tokens_per_second(step, RTX_4090)
        ridge = ridge_batch(first[bits], RTX_4090)
        lines.append(
            f"| {bits} bits | {step.weights / 1e9:.2f} | {bound:.0f} | {MEASURED[bits]:.1f} | "
            f"{MEASURED[bits] / bound:.0%} | batch {ridge:.0f} | {fits(step)} | "
            f"{tokens_per_second(step, RTX_4090, fits(step)):.0f} |"
        )
    ratio = [tokens_per_second(filled[4], RTX_4090), tokens_per_second(filled[16], RTX_4090)]
    measured = MEASURED[4] / MEASURED[16]
    most = [tokens_per_second(filled[bits], RTX_4090, fits(filled[bits])) for bits in (4, 16)]
    lines.append(
        f"| ratio | {filled[16].weights / filled[4].weights:.2f} | {ratio[0] / ratio[1]:.2f} | "
        f"{measured:.2f} | | | {fits(filled[4]) / fits(filled[16]):.2f} | {most[0] / most[1]:.2f} |"
    )
    share = UNFUSED / tokens_per_second(filled[16], RTX_4090)
    lines.append(f"| 16 bits, kernels not fused | | | {UNFUSED} | {share:.0%} | | | |")
    return "\n".join(lines) + "\n"


def figure() -> Figure:
    """Bounds by the batch without and with a cache, and what was measured at batch 1."""
    rates = {
        f"{bits} bits": [tokens_per_second(step, RTX_4090, batch) for batch in BATCHES]
        for bits, step in steps(0).items()
    }
    cached = {}
    for bits, step in steps(CONTEXT).items():
        held = [*(batch for batch in BATCHES if batch < fits(step)), fits(step)]
        cached[f"{bits} bits"] = held, [tokens_per_second(step, RTX_4090, n) for n in held]
    measured = {
        f"{name}: {MEASURED[bits]:.3g}": (1, MEASURED[bits])
        for bits, name in {16: "fp16", 4: "4 bits"}.items()
    }
    ridge = ridge_batch(steps(0)[16], RTX_4090)
    title = f"Four bits gain at small batches; without a cache, nothing from batch {ridge:.0f} on"
    return salience.decode(BATCHES, rates, measured, title, cached, f"{CONTEXT} cached tokens each")
