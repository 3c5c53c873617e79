"""What the chapter on the roofline times: this machine's ceilings, and passes of two models.

    python benchmarks/lab00_measured.py    writes course/chapters/_generated/lab00_*.md
                                           and course/figures/lab00/*.svg, prints the tables

One thread, and the processor's own clock (`time.process_time`), so that programs that run beside
this one take none of its time; they do take bandwidth and cache.  Ceilings are measured before and
after all else.  Needs 4 GB of memory.  Takes about two minutes.
"""

import time

import torch
from lab00_tables import save, write
from torch import Tensor

from efflib import zoo
from efflib.meter import this_machine
from efflib.meter.controls import EMPTY, matrices_alone
from efflib.meter.this_machine import LARGE, Ceilings, ceilings, copy_rate, pass_seconds
from efflib.models import cost
from efflib.models.llama import Llama
from efflib.plots import roofline as pictures
from efflib.serving import limits

BATCHES = (1, 2, 4, 8, 16, 32, 64)
PROMPTS = (1, 2, 4, 8, 16, 64, 256)
CACHED, BITS, REPEATS = 32, 32, 5
COPIES = (1, 4, 16, 64, 256)  # MiB
WIDTHS = (512, 1024, 2048, 4096, 8192)  # numbers in a row of a matrix


def of(config, new: int, cached: int, batch: int = 1) -> dict[str, cost.Part]:
    return cost.step_cost(config, new, cached, batch, BITS, BITS)


def factor(measured: float, predicted: float) -> str:
    return f"{measured / predicted:.2f}"


def roof() -> Ceilings:
    """Products and copies of several sizes; the ceilings are the largest of them."""
    found = ceilings(repeats=REPEATS)
    rates = [f"{copy_rate(mib * 2**20, REPEATS) / 1e9:.1f}" for mib in COPIES]
    write("copies", ["a copy of", *(f"{mib} MiB" for mib in COPIES)], [["GB/s", *rates]])
    return found


def batches(model: Llama, here: Ceilings) -> list[float]:
    """A step over the batch: predicted as one roofline and in turn, then measured."""
    taken, rows = [], []
    whole, turn = [], []
    for b in BATCHES:
        parts = of(model.config, 1, CACHED, b)
        whole.append(limits.least_seconds(cost.total(parts), here))
        turn.append(limits.seconds_in_turn(parts.values(), here))
        taken.append(pass_seconds(model, 1, CACHED, b, REPEATS))
        alone = matrices_alone(model, b, REPEATS)
        row = [f"{1e3 * x:.0f}" for x in (turn[-1], taken[-1], alone)]
        row += [factor(taken[-1], turn[-1]), f"{taken[-1] / taken[0]:.1f}", f"{b / taken[-1]:.0f}"]
        rows.append([str(b), *row])
    head = ["batch", "predicted, ms", "measured", "matrices alone", "measured / predicted"]
    write("batch", [*head, "times batch 1", "tokens/s"], rows)
    edge = limits.ridge_batch(model.config, CACHED, here, BITS, BITS)
    predicted = {"whole step": whole, "in turn": turn}
    save("batch", pictures.over_batch(BATCHES, predicted, taken, edge))
    save("opening", pictures.opening(BATCHES, taken))
    print(f"ridge batch {edge:.1f}")
    return taken


def prompts(model: Llama, here: Ceilings) -> dict[str, tuple[float, float]]:
    """A prompt over its length: one pass for all of its tokens."""
    rows, points = [], {}
    for n in PROMPTS:
        parts = of(model.config, n, 0)
        p, turn = cost.total(parts), limits.seconds_in_turn(parts.values(), here)
        took = pass_seconds(model, n, 0, 1, REPEATS)
        row = [f"{limits.intensity(p.flops, p.moved):.1f}", limits.bound(p, here)]
        row += [f"{1e3 * turn:.0f}", f"{1e3 * took:.0f}", factor(took, turn)]
        rows.append([str(n), *row, f"{p.flops / took / 1e9:.1f}", f"{p.moved / took / 1e9:.1f}"])
        if n in (1, 256):
            points[f"{n} token{'s' * (n > 1)}"] = (p.flops / p.moved, p.flops / took)
    head = ["prompt", "FLOPs a byte", "limit", "predicted, ms", "measured", "measured / predicted"]
    write("prompt", [*head, "GFLOP/s", "GB/s"], rows)
    return points


@torch.inference_mode()
def rows_one_by_one(weights: list[Tensor], batch: int) -> float:
    """Seconds of as many products of a matrix and a vector as there are rows."""
    inputs = {w.shape[1]: torch.ones(batch, w.shape[1]) for w in weights}
    return this_machine.seconds_of(
        lambda: [torch.mv(w, x) for w in weights for x in inputs[w.shape[1]]], REPEATS
    )


def suspects(model: Llama) -> None:
    """Where a step's time goes that the roofline does not know of."""
    empty = pass_seconds(this_machine.random_model(EMPTY), 1, CACHED, 1, REPEATS)
    weights = [m.weight.detach() for m in model.modules() if isinstance(m, torch.nn.Linear)]
    rows = []
    for b in (1, 2, 4, 8):
        alone, vectors = matrices_alone(model, b, REPEATS), rows_one_by_one(weights, b)
        rows.append([str(b), f"{1e3 * alone:.0f}", f"{1e3 * vectors:.0f}", f"{1e3 * empty:.0f}"])
    head = ["batch", "ms of the matrices", "row by row", "as many layers without weights"]
    write("suspects", head, rows)


@torch.inference_mode()
def widths(size: int = 2**28) -> None:
    """GB/s of matrices, `size` bytes together, each times a vector, over the length of a row."""
    rates = []
    for n in WIDTHS:
        weights, x = torch.ones(size // (4 * n * 1024), 1024, n), torch.ones(n)
        took = this_machine.seconds_of(lambda w=weights, x=x: [torch.mv(m, x) for m in w], REPEATS)
        rates.append(f"{size / took / 1e9:.1f}")
    write("widths", ["rows of", *map(str, WIDTHS)], [["GB/s", *rates]])


def control(here: Ceilings) -> None:
    """The course's model, whose weights lie in the cache."""
    target, rows = zoo.load("target"), []
    first = None
    for b in BATCHES:
        parts = of(target.config, 1, CACHED, b)
        said = limits.seconds_in_turn(parts.values(), here)
        took = pass_seconds(target, 1, CACHED, b, 4 * REPEATS)
        first = first or took
        row = [f"{1e3 * x:.2f}" for x in (said, took)]
        rows.append([str(b), *row, factor(took, said), f"{took / first:.1f}"])
    head = ["batch", "predicted, ms", "measured", "measured / predicted", "times batch 1"]
    write("control", head, rows)


def main() -> None:
    torch.set_num_threads(1)
    this_machine.CLOCK = time.process_time
    model = this_machine.random_model(LARGE)
    here = roof()
    batches(model, here)
    points = prompts(model, here)
    suspects(model)
    widths()
    control(here)
    save("roof", pictures.roof(here.peak, here.bandwidth, points, "One thread of this machine"))
    again, m = ceilings(repeats=REPEATS), cost.shapes(LARGE)
    rows = [
        [when, f"{c.peak / 1e9:.0f}", f"{c.bandwidth / 1e9:.1f}", f"{c.ridge:.1f}"]
        for when, c in (("before", here), ("after", again))
    ]
    write("ceilings", ["", "GFLOP/s, float32", "GB/s", "ridge, FLOPs a byte"], rows)
    moved = cost.total(of(LARGE, 1, 0)).moved
    print(f"{m.parameters / 1e6:.0f} million parameters, {moved / 1e6:.0f} MB a step; {here}")


if __name__ == "__main__":
    main()
