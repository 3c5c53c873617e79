"""The engine beside `generate`: tokens per second of 16 requests of unequal length, in one run.

    python benchmarks/engine.py [--repeats 3] [--json FILE]

Sixteen prompts of held-out code, 20 to 140 tokens, with 16 to 128 tokens to come, target in fp32,
one thread, greedy.  Each row serves all of them; the rows take turns, and the seconds are those of
the processor, the least of the repeats.

    one after the other   `generate`, 16 times
    static, 8 at once     `generate` on two batches padded on the left; each runs until its longest
    static, 16            one batch
    engine ...            with 8 or 16 requests at once, with and without proposals

A static batch goes on for requests that are done: its tokens count only as far as they were asked
for.  Prints how often texts differ from one after the other, and the largest difference of logits
beside the smallest gap of the two best: where the second is larger, rounding changed nothing.
"""

import argparse
import json
import random
import time
from collections.abc import Callable

import torch

from efflib import zoo
from efflib.decoding.sampling import generate, left_padded
from efflib.engine.engine import Engine, Sizes, run
from efflib.engine.passes import Piece, mixed_pass
from efflib.engine.proposals import Lookup, Proposer
from efflib.engine.requests import Request
from efflib.zoo.tokenizer import text_ids

Answers = list[list[int]]


def trace(n: int = 16, seed: int = 0) -> list[Request]:
    """Prompts out of held-out code, each with its begin token."""
    draw, text = random.Random(seed), text_ids("code", True)
    made = []
    for _ in range(n):
        length, at = draw.randint(19, 139), draw.randrange(len(text) - 200)
        prompt = (zoo.BEGIN_ID, *text[at : at + length].tolist())
        made.append(Request(prompt, draw.randint(16, 128)))
    return made


def one_by_one(model, asked: list[Request]) -> Answers:
    prompts = [torch.tensor([r.prompt]) for r in asked]
    ids = [generate(model, p, r.max_tokens) for p, r in zip(prompts, asked, strict=True)]
    return [row[0, len(r.prompt) :].tolist() for row, r in zip(ids, asked, strict=True)]


def static(model, asked: list[Request], batch: int) -> Answers:
    answers = []
    for start in range(0, len(asked), batch):
        some = asked[start : start + batch]
        ids, lengths = left_padded([torch.tensor(r.prompt) for r in some])
        most = max(r.max_tokens for r in some)
        out = generate(model, ids, most, lengths=lengths)[:, ids.shape[1] :].tolist()
        answers += [row[: r.max_tokens] for row, r in zip(out, some, strict=True)]
    return answers


def engine_of(model, most: int, proposer: Proposer | None) -> Engine:
    return Engine(model, Sizes(blocks=320, block=16, budget=256, most=most), proposer=proposer)


def margins(model, asked: list[Request], answers: Answers) -> tuple[float, float]:
    """Largest difference between logits of a batch and alone, and the least gap of the two best."""
    engine = engine_of(model, 16, None)
    texts = [[*r.prompt, *a][:-1] for r, a in zip(asked, answers, strict=True)]
    for i, text in enumerate(texts):
        engine.cache.start(i, [])
        engine.cache.grow(i, len(text))
    with torch.inference_mode():
        together = [[] for _ in texts]
        for at in range(0, max(map(len, texts)), 8):
            pieces = [
                Piece(i, at, t[at : at + 8], len(t[at : at + 8])) for i, t in enumerate(texts)
            ]
            pieces = [p for p in pieces if p.ids]
            logits = mixed_pass(model, engine.cache, pieces).split([p.wanted for p in pieces])
            for piece, rows in zip(pieces, logits, strict=True):
                together[piece.name].append(rows)
        alone = [model(torch.tensor([t]))[0] for t in texts]
    apart = max(float((torch.cat(a) - b).abs().max()) for a, b in zip(together, alone, strict=True))
    best = [b[len(r.prompt) - 1 :].topk(2).values for b, r in zip(alone, asked, strict=True)]
    return apart, min(float((top[:, 0] - top[:, 1]).min()) for top in best)


def rows(model, asked: list[Request]) -> dict[str, Callable[[], Answers]]:
    engines = {"engine, 8 at once": (8, None), "engine, 8, proposals": (8, Lookup)}
    engines |= {"engine, 16": (16, None), "engine, 16, proposals": (16, Lookup)}
    made: dict[str, Callable[[], Answers]] = {
        "one after the other": lambda: one_by_one(model, asked),
        "static, 8 at once": lambda: static(model, asked, 8),
        "static, 16": lambda: static(model, asked, 16),
    }
    for name, (most, kind) in engines.items():
        made[name] = lambda most=most, kind=kind: run(
            engine_of(model, most, kind() if kind else None), asked
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, asked = zoo.load("target"), trace()
    made, seconds, answers = rows(model, asked), {}, {}
    with torch.inference_mode():
        for _ in range(options.repeats):
            for name, serve in made.items():
                begin = time.process_time()
                answers[name] = serve()
                spent = time.process_time() - begin
                seconds[name] = min(spent, seconds.get(name, spent))
        apart, gap = margins(model, asked, answers["one after the other"])
    tokens, plain = sum(r.max_tokens for r in asked), seconds["one after the other"]
    print(
        f"{len(asked)} requests, {sum(len(r.prompt) for r in asked)} tokens read, {tokens} made\n"
    )
    print(f"{'':<24}{'tokens/s':>9}{'times generate':>16}{'other texts':>13}")
    found = []
    for name, spent in seconds.items():
        other = sum(
            a != b for a, b in zip(answers[name], answers["one after the other"], strict=True)
        )
        print(f"{name:<24}{tokens / spent:>9.0f}{plain / spent:>16.2f}{other:>13}")
        found.append({"row": name, "tokens_per_s": tokens / spent, "other_texts": other})
    print(f"\nlogits in a batch and alone differ by at most {apart:.1e},")
    print(f"the two best of a place by at least {gap:.1e}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
