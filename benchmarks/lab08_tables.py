"""Numbers and figures of the chapter on FlashAttention, counted by the meter.

    python benchmarks/lab08_tables.py            writes course/chapters/_generated/lab08_*.md
                                                 and course/figures/lab08/*.svg, prints the tables

Nothing is timed: bytes and FLOPs of the course's kernels in the interpreter, formulas, and what
the compiler makes of the lab's causal kernel for GPUs that need not be there.
"""

import linecache
from pathlib import Path

from efflib.meter import Meter  # isort: skip  before triton
import torch

from autograder.labs.source import read_percent
from efflib.kernels.attention_cost import flash_attention_cost
from efflib.kernels.flash_attention import flash_attention
from efflib.kernels.flash_decoding import flash_decoding
from efflib.meter.compiling import Case, compile_for_targets
from efflib.meter.roofline import roofline
from efflib.plots import kernels, style

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab08"
BLOCKS = [2**n for n in range(4, 10)]
LONG = 16384
D, TOKENS = 64, 128  # on paper; tokens of what is counted
SCORES = [2.0, 1.0, 0.5, 3.0, 2.5, 1.0, 6.0, 4.0, 0.0]


def write(name: str, rows: list[list[str]], header: list[str]) -> None:
    lines = [header, ["---"] * len(header), *rows]
    text = "".join(f"| {' | '.join(row)} |\n" for row in lines)
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}")


def save(drawn: kernels.Drawn, name: str) -> None:
    figure, alt = drawn
    style.save(figure, FIGURES / f"{name}.svg", alt)


def tiled(n: int, block: int) -> int:
    """No cache: keys and values once for every block of queries."""
    shape = (1, 1, n, D)
    return flash_attention_cost(shape, shape, 2, None, block, 64).bytes


def stored(n: int, block: int) -> int:
    """By the same rule: the same reads for the same blocks, and four numbers for each score."""
    return tiled(n, block) - 4 * n + 2 * 4 * n * n


def two_walks(n: int, block: int) -> int:
    """For m and total, then for o: the keys once more for every block of queries."""
    return tiled(n, block) + 2 * -(-n // block) * n * D


WAYS = {"scores stored": stored, "two walks": two_walks, "one walk": tiled}


def counted(causal: str | None, block_m: int, block_n: int) -> Meter:
    q, k, v = (torch.randn(1, 1, TOKENS, 16) for _ in range(3))
    with Meter() as m:
        flash_attention(q, k, v, causal, block_m=block_m, block_n=block_n)
    return m


def paper() -> None:
    rows = []
    for name, block in [*((str(b), b) for b in BLOCKS), ("all in a cache", LONG)]:
        moved = [way(LONG, block) for way in WAYS.values()]
        if block == LONG:
            moved[1] = moved[2]  # the second walk finds the keys in the cache
        rows.append([name, *(f"{b / 1e6:,.0f}" for b in moved), f"{moved[0] / moved[2]:.1f}"])
    head = ["queries a block", "scores stored, MB", "two walks", "one walk", "stored / one walk"]
    write("lab08_paper", rows, head)
    curves = {name: [way(LONG, m) for m in BLOCKS] for name, way in WAYS.items()}
    head = "16,384 tokens: what is saved by storing nothing, and by walking once"
    save(kernels.traffic(BLOCKS, curves, head), "traffic")
    few = [4096, 8192, 16384]
    ways = {name: [way(n, 128) for n in few] for name, way in WAYS.items()}
    head = f"The same attention, three ways: {D} dimensions, 128 queries a block"
    save(kernels.stored_against_tiled(few, ways, head), "opening")


def causal() -> None:
    whole, skipped = counted(None, 16, 16), counted("bottom_right", 16, 16)
    rows = []
    for name, m in (("full", whole), ("causal", skipped)):
        blocks = m.counts("K").reshape(TOKENS, -1)[::16, 0].tolist()
        reads = " ".join(map(str, blocks))
        rows.append([name, f"{m.reads['K'].bytes:,}", f"{m.flops:,}", reads])
    write("lab08_causal", rows, ["kernel", "bytes of K", "FLOPs", "reads of each block of keys"])
    both = {"full": whole, "causal": skipped}
    maps = {name: m.counts("K").reshape(TOKENS, -1) for name, m in both.items()}
    save(kernels.reads(maps, "How often each element of K was read"), "reads")
    drawn = kernels.schedule(TOKENS, TOKENS, 32, 16, "Tiles above the diagonal are never read")
    save(drawn, "schedule")


def memory() -> None:
    rows, on_chip, moved = [], [], []
    for block in (16, 32, 64, 128):
        m = counted(None, block, 16)
        on_chip.append(m.peak_live_bytes / 4)
        moved.append(m.bytes)
        rows.append([str(block), f"{m.peak_live_bytes / 4:,.0f}", f"{m.bytes:,}"])
    write("lab08_memory", rows, ["queries of a block", "elements alive at once", "bytes moved"])
    save(kernels.law(on_chip, moved, "Twice the memory, about half the traffic"), "law")


def decoding() -> None:
    q, k, v = torch.randn(1, 8, 32), torch.randn(1, 2, 256, 32), torch.randn(1, 2, 256, 32)
    rows = []
    for splits in (1, 2, 4, 8):
        with Meter() as m:
            flash_decoding(q, k, v, splits=splits, block_n=32)
        cache = m.reads["K"].bytes + m.reads["V"].bytes
        rows.append([str(splits), f"{cache:,}", f"{m.bytes - cache:,}"])
    write("lab08_splits", rows, ["splits", "bytes of K and V", "all other bytes, merge included"])


def waves() -> None:
    heads, keys, processors, group = 8, 8192, 132, 4
    rows = []
    for splits in (1, 2, 8, 16, 17, 32, 33, 64):
        programs = heads * splits
        turns = -(-programs // processors)
        parts = 2 * splits * group * (D + 1) * 4  # of a key head, written and read by the merge
        rows.append(
            [str(splits), str(programs), str(turns), f"{turns * -(-keys // splits):,}",
             f"{programs / (turns * processors):.0%}", f"{1 + parts / (2 * keys * D * 2):.2f}"]
        )  # fmt: skip
    head = ["splits", "programs", "waves", "keys in a row", "processors busy", "bytes / cache"]
    write("lab08_waves", rows, head)


def roofs() -> None:
    rows = []
    for d in (64, 128):
        for gpu in ("H100", "B200"):
            r = roofline(4 * d * 1e6, 1, 1e6, gpu)  # a million scores
            times = (f"{1e9 * x:.0f}" for x in (r.tensor, r.exponentials))
            rows.append([str(d), gpu, *times])
    write("lab08_roofs", rows, ["d", "GPU", "tensor cores, ns", "exponentials, ns"])
    n, points = 4096, {}
    flops = 4 * n * n * D
    for name, block in (("16 queries", 16), ("128 queries", 128), ("all cached", n)):
        points[f"scores stored, {name}"] = flops / stored(n, block)
        points[f"tiles, {name}"] = flops / tiled(n, block)
    head = "Stored scores stay left of the ridge; tiles cross it with a cache"
    save(kernels.roofline_of(points, "H100", head), "roofline")


def causal_kernel():
    """attend_causal of the lab's solution."""
    cells = read_percent(ROOT / "solutions/lab08_flash_attention/flash_attention.py").cells
    own = [c.source for c in cells if c.metadata.get("solution") in ("ex4", "ex5")]
    source = "import triton\nimport triton.language as tl\n" + "\n".join(own)
    name = "<the lab's kernels>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict = {"__name__": "lab"}
    exec(compile(source, name, "exec"), scope)
    return scope["attend_causal"]


def registers() -> None:
    names = "head_q row_q head_k row_k head_lse T S".split()
    types = dict.fromkeys(["Q", "K", "V", "Out"], "*fp16") | {"LSE": "*fp32", "scale": "fp32"}
    launch = dict(zip(names, (65536, 64, 65536, 64, 1024, 1024, 1024), strict=True))
    strides = {"any": dict.fromkeys(names, "i32"), "a launch's": launch}
    rows, targets, kernel = [], ["sm_80", "sm_90", "sm_100"], causal_kernel()
    for block_m in (64, 128):
        for warps in (4, 8):
            for name, sizes in strides.items():
                arguments = types | sizes | {"GROUP": 4, "D": D, "BM": block_m, "BN": 64}
                case = Case("", kernel, arguments, {"num_warps": warps})
                found = compile_for_targets(case, targets)
                each = (
                    f"{r.registers} / {r.stack_bytes} / {r.shared_bytes // 1024}" for r in found
                )
                rows.append([f"{block_m} x 64", str(warps), name, *each])
    head = ["block", "warps", "strides", "A100", "H100", "B200"]
    write("lab08_registers", rows, head)


def main() -> None:
    torch.manual_seed(0)
    FIGURES.mkdir(parents=True, exist_ok=True)
    paper()
    causal()
    memory()
    decoding()
    waves()
    roofs()
    registers()
    save(kernels.online_steps(SCORES, 3, 9), "steps")


if __name__ == "__main__":
    main()
