"""Decoding against what it is compared with, on the zoo's target and this CPU.

    .venv/bin/python benchmarks/decoding.py

Each pair runs in alternating order, REPEATS times; printed are medians and the median of the ratios
of neighbouring runs, so that a machine that is busy for a while is busy for both. One thread, as
the products are small and a second one mostly waits. Quantized linears: benchmarks/quantization.py.

    generate       greedy, with the cache, against transformers' generate of the same weights
    streaming      4 sinks and the most recent tokens, against recomputing the window for each token
                   (writes course/chapters/_generated/lab07_speed.md)
    speculative    with the zoo's draft, a lookup and both, against the target alone, on held-out
                   code; with the costs of the passes and what the model of speed makes of them
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from efflib import zoo
from efflib.attention.streaming import StreamingCache, recomputed_logits, stream_logits
from efflib.decoding.drafts import Draft, FirstOf, LookupDraft, ModelDraft, next_gamma
from efflib.decoding.replay import same_choice
from efflib.decoding.sampling import generate
from efflib.decoding.speculative import speculative_generate
from efflib.decoding.speed import best_gamma, needed_acceptance, speedup
from efflib.models import KVCache, Llama
from efflib.zoo.checkpoints import FOLDER
from efflib.zoo.phenomena.story import Scale, windows

PROMPT, NEW = 64, 128
PROMPTS = 3  # places of held-out code that speculation continues
clock = time.perf_counter
STREAMING = Path(__file__).parents[1] / "course" / "chapters" / "_generated" / "lab07_speed.md"
SIZES = (32, 256)  # of the streaming cache
RECOMPUTED = 8  # tokens; each is a pass of its own and costs the same


def seconds(run: Callable[[], object]) -> float:
    start = clock()
    run()
    return clock() - start


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


def streaming(model: Llama, text: torch.Tensor, repeats: int) -> list[str]:
    """Lines of the table; beside each what bounds it: the same passes without a streaming cache."""
    lines = ["| | 1 token, ms | recomputed, ms | ratio |", "|---|---|---|---|"]
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
        show(f"streaming / recomputing, {size}", times, RECOMPUTED, f"cache of {size}")
        ours, theirs = (1e3 * side / RECOMPUTED for side in times[:2])
        lines.append(f"| cache of {size} | {ours:.2f} | {theirs:.1f} | {times[2]:.1f} |")
        for name, one in bounds(model, text, size, repeats):
            many = products_seconds(model, size, repeats) if "products" in name else None
            many = theirs if many is None else 1e3 * many
            print(f"{'  ' + name:34} {1e3 * one:9.3f} ms {many:9.3f} ms {many / 1e3 / one:8.2f} x")
            lines.append(f"| {name} | {1e3 * one:.2f} | {many:.1f} | {many / 1e3 / one:.1f} |")
    return lines


def bounds(model: Llama, text: torch.Tensor, size: int, repeats: int) -> list[tuple[str, float]]:
    """Seconds of a token where the cache only grows, and if there were only products with weights.

    One token reads each weight for two FLOPs, so memory limits its products; `size` tokens read it
    once, and arithmetic limits theirs.
    """
    cache, times = KVCache(), []
    model(text[:, :size], cache=cache)
    for _ in range(20 * repeats):
        times.append(seconds(lambda: model(text[:, size : size + 1], cache=cache)))
        cache.truncate(size)
    ordinary = f"an ordinary cache of {size}, nothing evicted"
    return [
        (ordinary, median(times)),
        ("products with weights", products_seconds(model, 1, repeats)),
    ]


def linears(model: Llama) -> list[torch.nn.Linear]:
    return [m for m in model.modules() if isinstance(m, torch.nn.Linear)]


def products_seconds(model: Llama, tokens: int, repeats: int) -> float:
    """Median seconds of all products of a pass over so many tokens, in their order."""
    jobs = [(m, torch.randn(1, tokens, m.in_features)) for m in linears(model)]

    def all_of_them() -> None:
        for linear, x in jobs:
            linear(x)

    all_of_them()
    return median(seconds(all_of_them) for _ in range(8 * repeats))


def pass_seconds(model: Llama, text: torch.Tensor, tokens: int, repeats: int) -> float:
    """Least seconds of a pass over so many tokens behind PROMPT ones: others only add to it."""
    cache, times = KVCache(), []
    model(text[:, :PROMPT], cache=cache)
    for _ in range(20 * repeats):
        times.append(seconds(lambda: model(text[:, PROMPT : PROMPT + tokens], cache=cache)))
        cache.truncate(PROMPT)
    return min(times)


def costs(model: Llama, draft: Llama, text: torch.Tensor, repeats: int) -> tuple[float, float]:
    """c, what a pass of the draft costs, and w, what each token more in a pass costs: in passes."""
    one, nine = (pass_seconds(model, text, n, repeats) for n in (1, 9))
    return pass_seconds(draft, text, 1, repeats) / one, max(0.0, (nine / one - 1) / 8)


def needed_table(cost: float, wider: float) -> None:
    """For each draft at hand and for cheaper ones: the acceptance without which 2 x is out of
    reach, and the draft length that goes with it."""
    print(f"\n{'cost c of a draft pass':34} {'acceptance for 2 x':>20} {'at gamma':>10}")
    for c in (cost, cost / 2, 0.1, 0.05, 0.0):
        a = needed_acceptance(2, c, wider)
        gamma = "" if a is None else best_gamma(a, c, wider)
        print(f"{c:<34.3f} {'none' if a is None else f'{a:.3f}':>20} {gamma:>10}")


def speculation(model: Llama, repeats: int) -> None:
    """Held-out code; a draft model alone and where it is sure, a lookup, and both."""
    draft = zoo.load("draft")
    rows = windows("code", True, Scale(PROMPTS, 1, NEW), 0)
    own = generate(model, rows[:, : 1 + PROMPT], NEW)
    rate = same_choice(model, draft, own, 1 + PROMPT).float().mean().item()
    cost, wider = costs(model, draft, rows[:1], repeats)
    print(
        f"\nacceptance a = {rate:.3f} on the target's greedy text, c = {cost:.3f}, w = {wider:.3f}"
    )
    needed_table(cost, wider)
    print(f"\n{'speculative / plain':34} {'':>12} {'':>12} {'faster':>10}   the formula says")
    for gamma in (1, 2, 4, 8):
        report(model, rows, f"gamma {gamma}", lambda: ModelDraft(draft), gamma, repeats)
        print(f"{'':74}{speedup(rate, gamma, cost, wider):.2f} x")
    for sure in (0.4, 0.6):
        name = f"gamma 8, where sure by {sure}"
        report(model, rows, name, lambda sure=sure: ModelDraft(draft, sure=sure), 8, repeats)
    report(model, rows, "adaptive", lambda: ModelDraft(draft), 4, repeats, next_gamma)
    report(model, rows, "lookup, gamma 8", LookupDraft, 8, repeats)
    both = "lookup, else the model by 0.6"
    report(
        model, rows, both, lambda: FirstOf(LookupDraft(4), ModelDraft(draft, sure=0.6)), 8, repeats
    )


def report(
    model: Llama,
    rows: torch.Tensor,
    name: str,
    make: Callable[[], Draft],
    gamma: int,
    repeats: int,
    adapt: Callable[[int, int, int], int] | None = None,
) -> None:
    """One line: all rows written with a draft of make(), against the target alone."""
    prompts = [row[None, : 1 + PROMPT] for row in rows]

    def ours() -> list:
        return [speculative_generate(model, make(), p, NEW, gamma, adapt=adapt) for p in prompts]

    found = ours()
    times = compare(ours, lambda: [generate(model, p, NEW) for p in prompts], repeats)
    passes = sum(run.passes for run in found)
    share = sum(run.accepted for run in found) / max(1, sum(run.proposed for run in found))
    tokens = NEW * len(prompts)
    note = f"{share:.2f} of the proposals kept, {tokens / passes:.2f} tokens a pass; goal 2"
    show(name, times, tokens, note)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", choices=("speculation", "streaming"), help="leave out the rest")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count this thread's own time: for a machine that others use, with one thread",
    )
    options = parser.parse_args()
    if options.processor_time:
        global clock
        clock = time.thread_time
    repeats = options.repeats
    torch.set_num_threads(options.threads)
    model, text = zoo.load("target"), zoo.calibration("code", 1, 512)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, one sequence")
    print(f"{'ours / the other, for each token':34} {'ours':>12} {'the other':>12} {'faster':>10}")
    if options.only is None:
        generation(model, text[:, :PROMPT], repeats)
    if options.only != "speculation":
        lines = streaming(model, text, repeats)
        STREAMING.write_text("\n".join(lines) + "\n")
    if options.only != "streaming":
        speculation(model, max(1, repeats // 2))


if __name__ == "__main__":
    main()
