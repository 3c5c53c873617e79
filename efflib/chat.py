"""Text from a model of the zoo, in 32, 8 or 4 bits, as it is generated: TinyChat in small.

    python -m efflib.chat --model target --quant w4a16           asks for text, goes on with it
    python -m efflib.chat --quant w8a8 --prompt "def main():"    once

    fp32    as trained
    w8a8    int8 weights and activations, integer products, a scale for every token (`w8a8`)
    w4a16   AWQ in groups of 32, stored as packed 4-bit words, decoded in every call (`packing`)

The models continue Python code or prose; they were never taught to answer.  Text goes to standard
output, figures to standard error.  Smaller is not faster here: a model of a few megabytes waits
for Python, and without a kernel for packed words w4a16 decodes each weight before it is used.
What a machine with a large model gains is in `efflib.serving.roofline`.
Source: TinyChat, part of Lin et al. 2023 (arXiv:2306.00978), section 4.
"""

import argparse
import sys
import time
from collections.abc import Iterator

import torch
from torch import nn

from efflib import zoo
from efflib.decoding.sampling import Sampling, stream
from efflib.models.llama import Llama
from efflib.quantization.awq_model import fold, quantized_weights, record, search_model
from efflib.quantization.packing import stored_bytes, w4a16
from efflib.quantization.smoothquant import w8a8
from efflib.quantization.w8a8 import Int8Linear

BITS, GROUP = 4, 32
CALIBRATION = (2, 256)  # samples and tokens that AWQ looks at: one number per input is searched
NEW_TOKENS = 120
SAMPLING = Sampling(temperature=0.7, top_p=0.9)
UNFINISHED = "\ufffd"  # what a character decodes to while some of its bytes are still to come
QUANTS = ("fp32", "w8a8", "w4a16")


def awq_w4a16(model: Llama) -> nn.Module:
    """A copy of the model with packed 4-bit linears, scales searched on training text."""
    calibration = record(model, zoo.calibration("code", *CALIBRATION))
    searches = search_model(model, calibration, BITS, GROUP)
    folded = fold(model, searches)
    codes = quantized_weights(folded, calibration, searches, BITS, GROUP, clip=True)
    return w4a16(folded, codes)


def load(name: str, quant: str) -> nn.Module:
    """A model of the zoo, quantized as one of QUANTS says.  Raises ValueError for another."""
    if quant not in QUANTS:
        raise ValueError(f"quant is one of {', '.join(QUANTS)}, got {quant!r}")
    model = zoo.load(name)
    if quant == "w8a8":
        return w8a8(model, "token", kind=Int8Linear)
    return awq_w4a16(model) if quant == "w4a16" else model


def prompt_ids(model: Llama, prompt: str) -> torch.Tensor:
    """The begin token and the prompt's. [1, T]  Raises ValueError if no room is left for text."""
    ids = [zoo.BEGIN_ID, *zoo.load_tokenizer().encode(prompt).ids]
    room = model.config.max_position_embeddings - NEW_TOKENS
    if len(ids) > room:
        raise ValueError(f"the prompt has {len(ids)} tokens, the model reads at most {room}")
    return torch.tensor([ids])


def continuation(
    model: Llama, prompt: str, generator: torch.Generator
) -> Iterator[tuple[str, float]]:
    """(piece of text, when its token was known in seconds) for each of NEW_TOKENS tokens.

    A character whose bytes are spread over tokens comes with the last of them, or, at the end of
    the text, as what it is.  Raises ValueError as `prompt_ids`.
    """
    tokenizer, ids, told = zoo.load_tokenizer(), [], ""
    tokens = stream(model, prompt_ids(model, prompt), NEW_TOKENS, SAMPLING, generator)
    for token in tokens:
        ids.append(token.item())
        text = tokenizer.decode(ids)
        whole = text if len(ids) == NEW_TOKENS else text.rstrip(UNFINISHED)
        yield whole[len(told) :], time.perf_counter()
        told = whole


def reply(model: Llama, prompt: str, generator: torch.Generator) -> None:
    """Print the prompt and its continuation as it comes, then the rate of decoding."""
    times = []
    for piece, when in continuation(model, prompt, generator):
        if not times:
            print(prompt, end="")
        print(piece, end="", flush=True)
        times.append(when)
    print(flush=True)
    rate = (len(times) - 1) / (times[-1] - times[0])  # the first token pays for the prompt
    print(f"[{len(times)} tokens, {rate:.1f} tokens/s]", file=sys.stderr)


def converse(model: Llama, generator: torch.Generator) -> None:
    """Continue line after line of standard input until it ends."""
    print("Type the beginning of some code; an empty line ends.", file=sys.stderr)
    while True:
        try:
            prompt = input("> ")
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        if not prompt:
            return
        try:
            reply(model, prompt, generator)
        except ValueError as fault:  # one line too long is no reason to load again
            print(fault, file=sys.stderr)


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser that says what is wrong in one line, without repeating its usage."""

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> OneLineParser:
    made = OneLineParser(prog="efflib.chat", description="Continue text with a model of the zoo.")
    made.add_argument("--model", choices=zoo.names(), default="target")
    made.add_argument("--quant", choices=QUANTS, default="fp32")
    made.add_argument("--prompt", metavar="TEXT", help="continue this and end")
    return made


def main(arguments: list[str] | None = None) -> int:
    """The program; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        model = load(options.model, options.quant)
        full = stored_bytes(zoo.load(options.model))
    except zoo.CorruptCheckpoint as fault:
        parser().error(str(fault))
    size = stored_bytes(model)
    print(
        f"[{options.model}, {options.quant}: {size / 1e6:.2f} MB of weights, "
        f"{full / size:.1f} times smaller than fp32]",
        file=sys.stderr,
    )
    generator = torch.Generator().manual_seed(0)
    if options.prompt is None:
        converse(model, generator)
        return 0
    try:
        reply(model, options.prompt, generator)
    except ValueError as fault:
        parser().error(str(fault))
    return 0


if __name__ == "__main__":
    sys.exit(main())
