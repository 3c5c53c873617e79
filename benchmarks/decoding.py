"""Decoding against what it is compared with, on the zoo's target and this CPU.

    .venv/bin/python benchmarks/decoding.py

Each pair runs in alternating order, REPEATS times; printed are medians and the median of the ratios
of neighbouring runs, so that a machine that is busy for a while is busy for both. One thread, as
the products are small and a second one mostly waits. Quantized linears: benchmarks/quantization.py.

    generate       greedy, with the cache, against transformers' generate of the same weights
    streaming      4 sinks and the most recent tokens, against recomputing the window for each token
    speculative    with the zoo's draft, against the target alone
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch

from efflib import zoo
from efflib.attention.streaming import StreamingCache, recomputed_logits, stream_logits
from efflib.decoding.sampling import generate
from efflib.decoding.speculative import speculative_generate
from efflib.models import Llama
from efflib.zoo.checkpoints import FOLDER

PROMPT, NEW = 64, 128
SIZES = (32, 256)  # of the streaming cache
RECOMPUTED = 8  # tokens; each is a pass of its own and costs the same


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(ours: Callable, theirs: Callable, repeats: int) -> tuple[float, float, float]:
    """Median seconds of both, and the median of theirs / ours; each once before, not counted."""
    ours(), theirs()
    pairs = []
    for i in range(repeats):
        first, second = (ours, theirs) if i % 2 == 0 else (theirs, ours)
        times = seconds(first), seconds(second)
        pairs.append(times if i % 2 == 0 else times[::-1])
    return *(median(side) for side in zip(*pairs, strict=True)), median(b / a for a, b in pairs)


def show(name: str, times: tuple[float, float, float], tokens: int, goal: str = "") -> None:
    ours, theirs, ratio = times
    print(
        f"{name:34} {1e3 * ours / tokens:9.3f} ms {1e3 * theirs / tokens:9.3f} ms {ratio:8.2f} x"
        f"   {goal}"
    )


def generation(model: Llama, prompt: torch.Tensor, repeats: int) -> None:
    from transformers import LlamaForCausalLM

    other = LlamaForCausalLM.from_pretrained(FOLDER / "target", dtype=torch.float32).eval()
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    mask = torch.ones_like(prompt)

    def theirs() -> torch.Tensor:
        return other.generate(prompt, attention_mask=mask, **options)

    same = torch.equal(generate(model, prompt, NEW), theirs())
    times = compare(lambda: generate(model, prompt, NEW), theirs, repeats)
    show("generate / transformers", times, NEW, f"same tokens: {same}; goal 1")


def streaming(model: Llama, text: torch.Tensor, repeats: int) -> None:
    for size in SIZES:
        cache = StreamingCache(size, range(4), model.config.rope_theta, model.config.rope_scaling)
        with torch.no_grad():
            model(text[:, :size], cache=cache)
        ids, at = text[:, size:][:, :RECOMPUTED], torch.arange(size, size + RECOMPUTED)
        times = compare(
            lambda cache=cache, ids=ids: stream_logits(model, ids, cache),
            lambda size=size, at=at: recomputed_logits(model, text, size, at),
            4 * repeats,
        )
        goal = "; goal 5" if size == SIZES[-1] else ""
        show(f"streaming / recomputing, {size}", times, RECOMPUTED, f"cache of {size}{goal}")


def speculation(model: Llama, prompt: torch.Tensor, repeats: int) -> None:
    draft = zoo.load("draft")
    for gamma in (2, 4, 6):
        found = speculative_generate(model, draft, prompt, NEW, gamma)
        times = compare(
            lambda gamma=gamma: speculative_generate(model, draft, prompt, NEW, gamma),
            lambda: generate(model, prompt, NEW),
            repeats,
        )
        note = f"acceptance {found.acceptance:.2f}, {NEW / found.passes:.2f} tokens a pass; goal 2"
        show(f"speculative / plain, gamma {gamma}", times, NEW, note)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    repeats = options.repeats
    torch.set_num_threads(options.threads)
    model, text = zoo.load("target"), zoo.calibration("code", 1, 512)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, one sequence")
    print(f"{'ours / the other, for each token':34} {'ours':>12} {'the other':>12} {'faster':>10}")
    generation(model, text[:, :PROMPT], repeats)
    streaming(model, text, repeats)
    speculation(model, text[:, :PROMPT], repeats)


if __name__ == "__main__":
    main()
