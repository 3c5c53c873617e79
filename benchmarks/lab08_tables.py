"""Numbers and figures of the chapter on FlashAttention, counted by the meter.

    python benchmarks/lab08_tables.py            writes course/chapters/_generated/lab08_*.md
                                                 and course/figures/lab08/*.svg, prints the tables

Nothing is timed: bytes and FLOPs of the course's kernels in the interpreter, and formulas.
"""

from pathlib import Path

from efflib.meter import Meter  # isort: skip  before triton
import torch

from efflib.kernels.attention_cost import flash_attention_cost, plain_attention_bytes
from efflib.kernels.flash_attention import flash_attention
from efflib.kernels.flash_decoding import flash_decoding
from efflib.plots import kernels, style

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab08"
LENGTHS = [2**n for n in range(9, 15)]
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
    shape = (1, 1, n, D)
    return flash_attention_cost(shape, shape, 2, None, block, 64).bytes


def stored(n: int) -> int:
    return plain_attention_bytes((1, 1, n, D), (1, 1, n, D), 2)


def counted(causal: str | None, block_m: int, block_n: int) -> Meter:
    q, k, v = (torch.randn(1, 1, TOKENS, 16) for _ in range(3))
    with Meter() as m:
        flash_attention(q, k, v, causal, block_m=block_m, block_n=block_n)
    return m


def paper() -> None:
    rows = [
        [f"{n:,}", *(f"{b / 1e6:,.1f}" for b in (stored(n), *(tiled(n, m) for m in (16, 64, 256))))]
        for n in LENGTHS
    ]
    write("lab08_paper", rows, ["tokens", "scores stored, MB", "16 queries", "64", "256"])
    curves = {f"B_m = {m}": [tiled(n, m) for n in LENGTHS] for m in (16, 64, 256)}
    plain = [stored(n) for n in LENGTHS]
    save(kernels.traffic(LENGTHS, curves, plain, "Larger blocks of queries move less"), "traffic")
    few = [4096, 8192, 16384]
    moved = [stored(n) for n in few], [tiled(n, 128) for n in few]
    head = f"The same attention, two ways: {D} dimensions, 128 queries a block"
    save(kernels.stored_against_tiled(few, *moved, head), "opening")


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


def main() -> None:
    torch.manual_seed(0)
    FIGURES.mkdir(parents=True, exist_ok=True)
    paper()
    causal()
    memory()
    decoding()
    save(kernels.online_steps(SCORES, 3, 9), "steps")
    flops, n = 4 * 4096 * 4096 * D, 4096
    points = {"scores stored": flops / stored(n)}
    points |= {f"tiles, {m} queries, no cache": flops / tiled(n, m) for m in (16, 128)}
    points["tiles, all cached"] = flops / tiled(n, n)  # each byte once, as with one block
    head = "The cache decides which side of the ridge tiles are on"
    save(kernels.roofline_of(points, "H100", head), "roofline")


if __name__ == "__main__":
    main()
