"""Numbers and figures of the chapter on several devices.

    python benchmarks/lab17_tables.py            writes course/chapters/_generated/lab17_*.md
                                                 and course/figures/lab17/*.svg, prints the tables
    python benchmarks/lab17_tables.py plans      one part: see `main`

All of it is counted or computed, the same everywhere.  (Times of real processes are the lab's own:
they are another machine's, and another day's, on every run.)
"""

import math
import sys
from functools import partial
from pathlib import Path

import torch
from lab17_plans import GPT_FAST, LLAMA, NETWORKS, digits, doubled, three_plans

import efflib.parallel.plans as costs
from efflib import zoo
from efflib.parallel.communicator import total
from efflib.parallel.heads import cached_numbers
from efflib.parallel.llama import TensorLlama
from efflib.parallel.ring import ring_all_reduce, sent_bytes
from efflib.parallel.schedules import bubble, gpipe, live, one_f_one_b, start_times
from efflib.parallel.together import run_together
from efflib.plots import parallel as pictures
from efflib.plots import style
from efflib.zoo.checkpoints import FOLDER

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab17"
DEVICES = (1, 2, 4, 8)
# model: layers, query heads, key heads, size of a head
MODELS = {
    "Llama-2-7B": (32, 32, 32, 128),
    "Llama-3-8B": (32, 32, 8, 128),
    "Llama-3-70B": (80, 64, 8, 128),
    "Falcon-7B": (32, 71, 1, 64),
}


def write(name: str, text: str) -> None:
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / name).write_text(text, encoding="utf-8")
    print(text, f"wrote {name}", sep="\n", flush=True)


def picture(name: str, drawn: pictures.Drawn) -> None:
    style.save(drawn[0], FIGURES / name, drawn[1])


def table(head: list[str], rows: dict[str, list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join([k, *v]) + " |" for k, v in rows.items())]) + "\n"


def opening() -> None:
    picture("opening.svg", pictures.opening(DEVICES, [GPT_FAST[p] for p in DEVICES]))


# ---- what travels ----------------------------------------------------------------------------


def _losses(ids, comm):
    part = TensorLlama(FOLDER / "target", comm)
    return part.losses(ids), part.parameters()


def calls() -> None:
    """The shipped model in parts: weights held, calls and bytes for 256 tokens and their losses."""
    model = zoo.load("target")
    ids = torch.randint(2048, (1, 257), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        right = torch.nn.functional.cross_entropy(model(ids)[0, :-1], ids[0, 1:], reduction="none")
    rows = {}
    for size in (1, 2, 3, 4):
        results, made, _ = run_together(_losses, [(ids,)] * size)
        off = max((losses.flatten() - right).abs().max().item() for losses, _ in results)
        held = max(n for _, n in results)
        count, handed = total(made[0])
        sent = sent_bytes("all_reduce", handed, size)
        rows[str(size)] = [f"{held:,}", str(count), f"{handed:,}", f"{sent:,.0f}", f"{off:.0e}"]
    head = ["ranks", "weights on the fullest", "calls", "bytes handed over", "sent, by a ring"]
    write("lab17_calls.md", table([*head, "largest error of a loss"], rows))


def cache() -> None:
    """KiB of keys and values that a token leaves on the fullest device: 16 bits, all layers."""
    rows = {}
    for name, (layers, heads, kv, d) in MODELS.items():
        cells = []
        for p in (1, 2, 4, 8, 16):
            fullest, everywhere = cached_numbers(p, heads, kv, d)
            copies = everywhere / cached_numbers(1, heads, kv, d)[1]
            cells.append(
                f"{2 * layers * fullest / 1024:.4g}" + (f" (x {copies:.3g})" * (copies > 1))
            )
        rows[f"{name}: {heads} heads, {kv} key head{'s' * (kv > 1)}"] = cells
    write("lab17_cache.md", table(["KiB a token", "1", "2", "4", "8", "16 devices"], rows))


def loss() -> None:
    """Bytes that a rank sends for a token's loss: logits gathered, or three numbers."""
    rows = {}
    for vocabulary in (2048, 32000, 128256):
        cells = []
        for p in (2, 8):
            gathered = sent_bytes("all_gather", 4 * vocabulary / p, p)
            three = sent_bytes("all_reduce", 12, p)
            cells += [f"{gathered:,.0f}", f"{three:.0f}"]
        rows[f"{vocabulary:,}"] = cells
    head = ["vocabulary", "2 ranks: logits", "three numbers", "8 ranks: logits", "three numbers"]
    write("lab17_loss.md", table(head, rows))


def collectives() -> None:
    """What a rank sends for 1 MB handed over, and the ticks of the ring, counted."""
    kinds = ("all_reduce", "reduce_scatter", "all_to_all", "all_gather")
    rows = {kind: [f"{sent_bytes(kind, 1.0, p):.3g}" for p in (2, 4, 8, 64)] for kind in kinds}
    rows["ring: messages in turn"] = [str(2 * (p - 1)) for p in (2, 4, 8, 64)]
    ticks = []
    for p in (2, 4, 8, 64):
        _, _, seen = run_together(ring_all_reduce, [(torch.ones(64),)] * p)
        ticks.append(str(max(seen)))
    rows["ring: ticks, one thing at a time"] = ticks
    write("lab17_collectives.md", table(["MB sent for 1 MB", "2", "4", "8", "64 ranks"], rows))


# ---- schedules -------------------------------------------------------------------------------

ORDERS = {"GPipe": gpipe, "1F1B": one_f_one_b}


def schedules() -> None:
    rows = {}
    for name, order in ORDERS.items():
        for micro in (4, 8, 32):
            orders = [order(s, 4, micro) for s in range(4)]
            starts = start_times(orders, 1.0, 2.0)
            end = max(row[-1] for row in starts) + 2.0
            held = [live(o) for o in orders]
            counted = 1 - 3.0 * micro / end
            cells = [f"{bubble(4, micro):.3f}", f"{counted:.3f}", ", ".join(map(str, held))]
            rows[f"{name}, {micro}"] = cells
            if micro == 8:
                made = pictures.schedule(orders, starts, (1.0, 2.0), held, name)
                picture(f"{name.lower()}.svg", made)
    head = ["4 stages, micro-batches", "waiting, by the formula", "counted", "alive by stage"]
    write("lab17_schedules.md", table(head, rows))


# ---- plans -----------------------------------------------------------------------------------


def gpt_fast() -> None:
    """Measured speed-ups beside the model's, and what is over an even share for each all-reduce."""
    job = LLAMA._replace(bandwidth=13.2e9 * GPT_FAST[1], peak=312e12, beta=1 / 300e9)
    lines = {"measured": [GPT_FAST[p] / GPT_FAST[1] for p in DEVICES]}
    alone = costs.tensor_step(job, 1, 1)
    for alpha in (0, 3, 10):
        chosen = job._replace(alpha=alpha * 1e-6)
        lines[f"ring, alpha {alpha} µs"] = [
            alone / costs.tensor_step(chosen, 1, p) for p in DEVICES
        ]
    # doubling, and the control: messages are free, and a share of a step is not divided.  Both have
    # one number, chosen to give 8 GPUs
    turn = (1 / GPT_FAST[8] - alone / 8) / 64 / 3 - job.beta * job.row
    row = [alone / doubled(job._replace(alpha=turn), 1, p) for p in DEVICES]
    lines[f"doubling, alpha {1e6 * turn:.1f} µs"] = row
    same = (GPT_FAST[1] / GPT_FAST[8] - 1 / 8) / (1 - 1 / 8)
    lines[f"{same:.0%} not divided"] = [1 / (same + (1 - same) / p) for p in DEVICES]
    rows = {name: [f"{v:.2f}" for v in row] for name, row in lines.items()}
    over = [1e6 * (1 / GPT_FAST[p] - 1 / GPT_FAST[1] / p) / 64 for p in DEVICES]
    rows["over an even share, µs for each of 64 calls"] = [f"{v:.0f}" for v in over]
    pairs = list(zip(over[1:], DEVICES[1:], strict=True))
    rows["the same for each turn of a ring"] = ["", *(f"{v / 2 / (p - 1):.1f}" for v, p in pairs)]
    rows["for each turn of doubling"] = ["", *(f"{v / math.log2(p):.1f}" for v, p in pairs)]
    beyond = [1e3 * (1 / GPT_FAST[p] - 13.2 / 2039 / p) for p in DEVICES]
    rows["ms beyond reading at the data sheet's 2.04 TB/s"] = [f"{v:.2f}" for v in beyond]
    write("lab17_gpt_fast.md", table(["times as fast", "1", "2", "4", "8 GPUs"], rows))
    picture("speedups.svg", pictures.speedups(DEVICES, lines))


def plans() -> None:
    """Four H100: the better plan by batch and network, by a ring and by the better all-reduce."""
    found, batches = {}, (1, 4, 16, 64, 256, 1024, 4096)
    for name, (alpha, beta) in NETWORKS.items():
        job = LLAMA._replace(alpha=alpha, beta=beta)
        for batch in batches:
            micros = [m for m in range(1, min(batch, 64) + 1) if batch % m == 0]
            pipeline = min(costs.pipeline_step(job, batch, 4, m) for m in micros)
            ring = costs.tensor_step(job, batch, 4)
            found[f"{name}, ring", batch] = ring, pipeline
            found[f"{name}, best", batch] = min(ring, doubled(job, batch, 4)), pipeline
    rows = {}
    for name in dict.fromkeys(name for name, _ in found):
        pairs = [found[name, b] for b in batches]
        rows[name] = [f"{digits(1e3 * t)} / {digits(1e3 * p)}" for t, p in pairs]
    copies = [costs.tensor_step(LLAMA, math.ceil(b / 4), 1) for b in batches]
    rows["four whole copies, no message"] = [digits(1e3 * t) for t in copies]
    head = ["ms a step: tensor / pipeline, batch", *map(str, batches)]
    write("lab17_plans.md", table(head, rows))
    title = "Small batches want tensor parallel on NVLink, and over PCIe with a better all-reduce"
    picture("plans.svg", pictures.plans(found, title))


def both() -> None:
    """Four H100, the better all-reduce: tensor, pipeline and both, for 7B and 70B."""
    batches = (1, 16, 64, 256, 1024)
    head = ["ms a step: tensor / pipeline / both, batch", *map(str, batches)]
    write("lab17_both.md", table(head, three_plans(batches)))


def main() -> None:
    parts = {
        f.__name__: f
        for f in (opening, calls, cache, loss, collectives, schedules, gpt_fast, plans, both)
    }
    for name in sys.argv[1:] or parts:
        if name not in parts:
            sys.exit(f"{name} is none of {', '.join(parts)}")
        parts[name]()


if __name__ == "__main__":
    partial(main)()
