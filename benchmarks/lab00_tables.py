"""Numbers and figures of the chapter on the roofline that need no clock.

    python benchmarks/lab00_tables.py            writes course/chapters/_generated/lab00_*.md
                                                 and course/figures/lab00/*.svg, prints the tables
    python benchmarks/lab00_tables.py server     one part: see `main`

They follow from formulas, and perplexities from a model and its text; what is timed is in
lab00_measured.py, training and energy in lab00_budgets.py.  Takes about a minute.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from efflib import zoo
from efflib.meter.roofline import GPUS
from efflib.models import cost
from efflib.plots import roofline as pictures
from efflib.plots import style
from efflib.serving import limits, metrics
from efflib.serving.decoder import MODELS
from efflib.serving.memory import GiB, weight_bytes
from efflib.traffic.one_card import serve
from efflib.zoo import scores
from efflib.zoo.evaluation import held_out_segments
from efflib.zoo.passes import losses_in_passes

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab00"


class Card(NamedTuple):
    """A GPU by its rates in 16 bits."""

    bandwidth: float
    peak: float


H100 = Card(GPUS["H100"].bandwidth, GPUS["H100"].tensor["fp16"])
PRINTED = {  # a lecture's teraFLOPS of an H100: (printed, our name of the type)
    "TF32": (989, "tf32"),
    "BF16, FP16": (1979, "fp16"),
    "FP8": (3958, "fp8"),
}
SEVEN, EIGHT = MODELS["llama-2-7b"], MODELS["llama-3.1-8b"]
NAMES = ("llama-2-7b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b")
RATES = (5, 10, 15, 20, 22, 24, 26, 28, 30)  # requests a second
TTFT, TPOT, MOST, PROMPT = 1.0, 0.02, 64, 2048  # limits in seconds; the server


def write(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [header, ["---"] * len(header), *rows]
    text = "".join(f"| {' | '.join(row)} |\n" for row in lines)
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / f"lab00_{name}.md").write_text(text, encoding="utf-8")
    print(f"{name}\n{text}", flush=True)


def save(name: str, drawn: tuple) -> None:
    figure, alt = drawn
    style.save(figure, FIGURES / f"{name}.svg", alt)


def context(found: float) -> str:
    return f"{found:,.0f}"


# ---- what a pass costs -----------------------------------------------------------------------


def sizes() -> None:
    rows = []
    for name in ("llama-2-7b", "llama-2-13b", *NAMES[1:]):
        m, stored = MODELS[name], float(weight_bytes(MODELS[name]))
        row = [f"{m.parameters() / 1e9:.2f}", f"{stored / 1e9:.1f}", f"{stored / GiB:.1f}"]
        rows.append([name, *row, f"{1e3 * stored / H100.bandwidth:.1f}"])
    write("sizes", ["model", "parameters, 10⁹", "GB in fp16", "GiB", "ms to read on an H100"], rows)


def formulas() -> None:
    """The lecture's layer, d = 4096: products of one more token, and of a prompt."""
    d, rows = SEVEN.hidden, []
    layer = cost.Shapes(1, d, 32, 32, d // 32, 4 * d, 1, gated=False)

    def products(new: int, cached: int) -> int:
        return sum(part.flops for part in cost.layer_cost(layer, new, cached).values()) // 2

    for n in (512, 4096, 32768):
        token, prompt = products(1, n - 1), products(n, 0)
        said, all_said = 12 * d**2 + n * d, 12 * n * d**2 + n**2 * d
        one_by_one = sum(12 * d**2 + i * d for i in range(1, n + 1))
        row = [token / said, prompt / all_said, prompt / one_by_one]
        rows.append([f"{n:,}", *(f"{x:.3f}" for x in row)])
    head = ["L", "one more token / printed", "prompt / printed", "prompt / printed token, summed"]
    write("formulas", head, rows)
    print(f"Llama-2-7B's layer: {cost.shapes(SEVEN).layer_weights / d**2:.2f} d^2 weights")


def shares() -> None:
    rows = []
    for name in ("llama-2-7b", "llama-3.1-8b", "llama-3.1-405b"):
        for kind, at in (("one token behind", lambda n: (1, n)), ("a prompt of", lambda n: (n, 0))):
            cells = (cost.attention_share(MODELS[name], *at(n)) for n in (512, 4096, 32768, 131072))
            rows.append([f"{name}, {kind}", *(f"{x:.0%}" for x in cells)])
    write("shares", ["attention's part of the FLOPs", "512", "4,096", "32,768", "131,072"], rows)


def passes() -> None:
    situations = {
        "1 reader, 500 tokens": (1, 500, 1),
        "32 readers, 500": (1, 500, 32),
        "512 readers, 500": (1, 500, 512),
        "32 readers, 8,000": (1, 8000, 32),
        "a prompt of 100": (100, 0, 1),
        "a prompt of 8,000": (8000, 0, 1),
    }
    rows = []
    for name, (new, cached, batch) in situations.items():
        parts = cost.step_cost(EIGHT, new, cached, batch)
        p = cost.total(parts)
        turn = limits.seconds_in_turn(parts.values(), H100)
        row = [f"{p.flops / 1e12:.3g}", f"{p.moved / 1e9:.1f}"]
        row += [f"{limits.intensity(p.flops, p.moved):.1f}", limits.bound(p, H100)]
        row += [f"{1e3 * limits.least_seconds(p, H100):.1f}", f"{1e3 * turn:.1f}"]
        rows.append([name, *row])
    head = ["pass", "TFLOPs", "GB", "FLOPs a byte", "limit", "ms at least", "parts in turn"]
    write("passes", head, rows)


def rates() -> None:
    rows = []
    for name, (printed, ours) in PRINTED.items():
        dense = GPUS["H100"].tensor[ours] / 1e12
        ridges = (f"{1e12 * x / H100.bandwidth:.0f}" for x in (printed, dense))
        rows.append([name, f"{printed:,}", f"{dense:,.0f}", *ridges])
    head = ["H100", "printed TFLOP/s", "without sparsity", "ridge as printed", "ridge"]
    write("rates", head, rows)


def ridges() -> None:
    rows = []
    models = {name: MODELS[name] for name in NAMES} | {"7b, 1 key head": _fewer_heads(1)}
    for name, m in models.items():
        batches = (limits.ridge_batch(m, n, H100) for n in (0, 50, 300))
        row = ["never" if b == float("inf") else context(b) for b in batches]
        row += [context(limits.ridge_context(m, H100, bits)) for bits in (16, 8, 4)]
        rows.append([name, *row])
    head = ["", "batch, no context", "50 tokens", "300", "never from", "keys in 8 bits", "in 4"]
    write("ridges", head, rows)


def _fewer_heads(n: int) -> cost.Shapes:
    m = cost.shapes(SEVEN)
    return cost.Shapes(m.layers, m.hidden, m.heads, n, m.head_dim, m.intermediate, m.vocab)


# ---- what users get --------------------------------------------------------------------------


def server() -> None:
    """Llama-3.1-8B on an H100 whose passes take their least time; the log by rate."""

    def seconds(new: int, cached: int, batch: int) -> float:
        return limits.least_seconds(cost.total(cost.step_cost(EIGHT, new, cached, batch)), H100)

    rows, done, good = [], [], []
    for rate in RATES:
        log = metrics.served(serve(seconds, rate, MOST, prompt=PROMPT))
        s = metrics.summarize(log, TTFT, TPOT)
        done.append(len(log) / metrics.span(log))
        good.append(s.goodput)
        pooled = sum(metrics.gaps(log)) / len(metrics.gaps(log))
        row = [f"{s.ttft:.2f}", f"{1e3 * s.tpot:.1f}", f"{1e3 * pooled:.1f}"]
        row += [f"{1e3 * s.itl_p99:.0f}", f"{s.throughput:,.0f}", f"{done[-1]:.1f}"]
        rows.append([str(rate), *row, f"{s.goodput:.1f}"])
    head = ["requests/s", "TTFT, s", "TPOT, ms", "ITL, ms", "ITL p99", "tokens/s", "finished/s"]
    write("server", [*head, "good/s"], rows)
    save("served", pictures.served(RATES, done, good, "TTFT 1 s, TPOT 20 ms"))


def repairs() -> None:
    """The same server at 20 requests a second: what each limit loses, and what helps."""
    faster, twice = Card(H100.bandwidth, 2 * H100.peak), Card(2 * H100.bandwidth, H100.peak)
    rows = []
    for what, card, bits in (
        ("as above", H100, 16),
        ("weights in 4 bits", H100, 4),
        ("twice the bandwidth", twice, 16),
        ("twice the peak", faster, 16),
        ("both of these", Card(*(2 * x for x in H100)), 16),
    ):

        def seconds(new: int, cached: int, batch: int, card=card, bits=bits) -> float:
            parts = cost.step_cost(EIGHT, new, cached, batch, bits)
            return limits.least_seconds(cost.total(parts), card)

        log = metrics.served(serve(seconds, 20, MOST, prompt=PROMPT))
        s, each = metrics.summarize(log, TTFT, TPOT), [metrics.times(request) for request in log]
        late = sum(t.ttft > TTFT for t in each), sum((t.tpot or 0) > TPOT for t in each)
        prompts = len(log) * seconds(PROMPT, 0, 1) / metrics.span(log)
        row = [what, f"{prompts:.0%}", f"{s.ttft:.2f}", f"{1e3 * s.tpot:.1f}", *map(str, late)]
        rows.append([*row, f"{s.throughput:,.0f}", f"{s.goodput:.1f}"])
    head = ["the server", "time in prompts", "TTFT, s", "TPOT, ms", "TTFT missed", "TPOT missed"]
    write("repairs", [*head, "tokens/s", "good/s"], rows)


# ---- is the model any good -------------------------------------------------------------------


def perplexity() -> None:
    """One model and text: strides, a mean over texts, and the slide's formula."""
    model, text = zoo.load("vanilla"), held_out_segments("code", 16 * 512)  # [16, 512]
    rows, points = [], []
    for stride in (127, 64, 16, 4):
        plan = scores.strided_passes(text.shape[1], 128, stride)
        losses = list(losses_in_passes(model, text, plan))
        read = sum(p.end - p.start for p in plan) / (text.shape[1] - 1)
        right = scores.perplexity(losses)
        points.append((read, right, f"stride {stride}"))
        texts = scores.mean_of_perplexities(losses)
        cells = [f"{right:.2f}", f"{texts:.2f}", f"{scores.mixed_bases(right):.1f}"]
        rows.append([str(stride), f"{read:.1f}", *cells])
    printed = 5.68  # LLaMA-7B, as the lectures print it
    said = f"{scores.mixed_bases(printed):.1f}"
    rows.append(["LLaMA-7B as printed", "", f"{printed:.2f}", "", said])
    head = ["stride", "tokens read for each", "perplexity", "mean over 16 texts", "the slide's"]
    write("perplexity", head, rows)
    save("strides", pictures.by_passes(*zip(*points, strict=True)))


PARTS = {
    f.__name__: f
    for f in (sizes, formulas, shares, passes, rates, ridges, server, repairs, perplexity)
}


def main(wanted: list[str]) -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name in wanted or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
