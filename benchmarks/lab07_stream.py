"""One text of 100 000 tokens, read token by token in bounded memory.

    python benchmarks/lab07_stream.py                 writes course/figures/lab07/stream.svg
    python benchmarks/lab07_stream.py --tokens 5000   and course/chapters/_generated/lab07_stream.md

The zoo's target reads held-out code: all of the tokens through sinks in one piece, and the first
tenth through a window, through sinks in blocks and with all tokens kept (dense, which grows and
leaves the lengths that the model was trained on).  Bytes are those of all buffers that a cache
holds.  About five minutes on one core.
"""

import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F

from efflib import zoo
from efflib.attention.readers import Reader, reader
from efflib.plots import attention, style
from efflib.zoo.tokenizer import text_ids

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "course" / "figures" / "lab07" / "stream.svg"
TABLE = ROOT / "course" / "chapters" / "_generated" / "lab07_stream.md"
SIZE, SINKS, BLOCK, PIECES = 16, 4, 8, 50
WAYS = {"sinks": "sinks", "window": "window", "sinks in blocks": "paged", "dense": "dense"}
SHORT = 10  # all ways but the first read one of so many tokens


def follow(one: Reader, ids: torch.Tensor, piece: int) -> tuple[list[float], list[float]]:
    """(KB held after each piece, perplexity of each piece) of ids [1, 1 + T]."""
    held, perplexity = [], []
    for start in range(0, ids.shape[1] - piece, piece):
        logits = one.read(ids[:, start : start + piece])[0].float()
        loss = F.cross_entropy(logits, ids[0, start + 1 : start + piece + 1])
        held.append(one.bytes / 1024)
        perplexity.append(math.exp(loss))
    return held, perplexity


def row(name: str, held: list[float], perplexity: list[float], piece: int) -> str:
    first, late = held[1 if len(held) > 1 else 0], max(held[1:] or held)
    tokens = f"{piece * len(held):,}"
    half = len(perplexity) // 2
    parts = [sum(part) / len(part) for part in (perplexity[: half or 1], perplexity[half:])]
    return f"| {name} | {tokens} | {first:,.0f} | {late:,.0f} | {parts[0]:.1f} | {parts[1]:.1f} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000)
    tokens = parser.parse_args().tokens
    torch.set_num_threads(1)
    model, text = zoo.load("target"), text_ids("code", held_out=True)
    ids = torch.cat([torch.tensor([zoo.BEGIN_ID]), text[:tokens]])[None]
    piece = tokens // PIECES
    held, perplexity = {}, {}
    for name, way in WAYS.items():
        one = reader(model, way, SIZE, SINKS, BLOCK)
        read = ids if way == "sinks" else ids[:, : tokens // SHORT + 1]
        held[name], perplexity[name] = follow(one, read, piece)
        print(row(name, held[name], perplexity[name], piece), end="", flush=True)
    head = "| cache | tokens | KB after two pieces | KB, most | perplexity, first half "
    table = head + "| second half |\n|---|---|---|---|---|---|\n"
    table += row("sinks", held["sinks"], perplexity["sinks"], piece)
    start = PIECES // SHORT  # the same text as the others read
    table += row("sinks, its start", held["sinks"][:start], perplexity["sinks"][:start], piece)
    rest = [name for name in WAYS if name != "sinks"]
    table += "".join(row(name, held[name], perplexity[name], piece) for name in rest)
    TABLE.write_text(table)
    at = [piece * (i + 1) for i in range(PIECES)]
    shown = {name: perplexity[name] for name in ("window", "sinks")}
    title = f"{tokens:,} tokens in {max(held['sinks'][1:]):,.0f} KB: memory and perplexity stay"
    drawn, alt = attention.stream(at, held, shown, title)
    style.save(drawn, FIGURE, alt)


if __name__ == "__main__":
    main()
