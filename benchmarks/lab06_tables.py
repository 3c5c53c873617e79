"""Numbers and figures of the chapter on PagedAttention, counted on drawn traces of requests.

    python benchmarks/lab06_tables.py            writes course/chapters/_generated/lab06_*.md
                                                 and course/figures/lab06/*.svg, prints the tables

Everything is counted in integers and depends on the seeds of the traces alone.  Means over SEEDS
traces, with the range where it matters.  Shares, sequences and rates are means over the steps in
which a request waits: before and after, every memory is half empty.  About a minute.
"""

from pathlib import Path
from statistics import mean

import torch

from efflib.models.llama import Llama, LlamaConfig
from efflib.plots import memory, style, turing
from efflib.serving import roofline
from efflib.serving.contiguous import POLICIES
from efflib.serving.paged import PagedSequences, slot_of
from efflib.serving.traces import CHAT, draw_trace
from efflib.serving.waste import ContiguousMemory, PagedMemory, Replay, mean_share, replay

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab06"
LLAMA_7B = LlamaConfig(32000, 4096, 11008, 32, 32, 32, 128, 4096)
MEMORY = 24e9  # bytes of the GPU
LONGEST, BLOCK, SEEDS, REQUESTS, PER_STEP = 2048, 16, 3, 150, 0.3
SIZES = (1, 4, 16, 64, 256)


def on_meta() -> Llama:
    with torch.device("meta"):  # shapes are enough
        return Llama(LLAMA_7B)


def cache_rows(llama: Llama) -> int:
    """Rows of the cache in what 16-bit weights leave of the memory, in whole blocks."""
    weights = 2 * sum(p.numel() for p in llama.parameters())
    return int((MEMORY - weights) // roofline.kv_bytes(LLAMA_7B, 1)) // BLOCK * BLOCK


def rate(llama: Llama, run: Replay) -> float:
    """Tokens per second at most, by the roofline of an RTX 4090, with the mean batch and length."""
    running = sum(u.running for u in run.loaded)
    batch = max(1, round(running / len(run.loaded)))
    step = roofline.decode_step(llama, tokens=round(sum(u.used for u in run.loaded) / running))
    return roofline.tokens_per_second(step, roofline.RTX_4090, batch)


def measure(make, llama: Llama) -> dict[str, list[float]]:
    """Figures of one allocator on every trace; make() gives a new memory."""
    rows: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        size = make().size
        run = replay(draw_trace(REQUESTS, *CHAT, PER_STEP, seed), make())
        figures = {kind: 100 * part for kind, part in mean_share(run.loaded, size).items()}
        figures |= {"steps": run.steps, "again": run.computed_again, "rate": rate(llama, run)}
        figures["running"] = sum(u.running for u in run.loaded) / len(run.loaded)
        for name, value in figures.items():
            rows.setdefault(name, []).append(value)
    return rows


def spread(values: list[float], digits: int = 0) -> str:
    low, high = min(values), max(values)
    return f"{mean(values):,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def table(found: dict[str, dict[str, list[float]]], first: str) -> str:
    lines = [
        f"| {first} | used, % | sequences at a time | steps | tokens computed again | tokens/s |"
    ]
    lines.append("|---|---|---|---|---|---|")
    for name, rows in found.items():
        cells = [spread(rows["used"], 1), spread(rows["running"], 1), spread(rows["steps"])]
        cells += [spread(rows["again"]), spread(rows["rate"])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(name: str, text: str) -> None:
    (GENERATED / f"{name}.md").write_text(text)
    print(f"{name}\n{text}")


def save(drawn: memory.Drawn, name: str) -> None:
    figure, alt = drawn
    style.save(figure, FIGURES / f"{name}.svg", alt)


def main() -> None:
    llama = on_meta()
    rows = cache_rows(llama)
    found = {p: measure(lambda p=p: ContiguousMemory(rows, p, LONGEST), llama) for p in POLICIES}
    sizes = {size: measure(lambda size=size: PagedMemory(rows, size), llama) for size in SIZES}
    found[f"blocks of {BLOCK}"] = sizes[BLOCK]
    write("lab06_table", table(found, "allocator"))
    write("lab06_sizes", table({str(size): figures for size, figures in sizes.items()}, "block"))
    least, most = found["maximum"], found[f"blocks of {BLOCK}"]
    gain = mean(most["rate"]) / mean(least["rate"])
    write(
        "lab06_findings",
        f"- The cache has {rows:,} rows: {rows // LONGEST} pieces of {LONGEST}, or "
        f"{rows // BLOCK:,} blocks of {BLOCK}.\n"
        f"- While requests wait, {mean(least['used']):.1f} % of the rows hold a token with pieces "
        f"of the greatest length, {mean(most['used']):.1f} % in blocks.\n"
        f"- {mean(most['running']):.1f} sequences run at a time in place of "
        f"{mean(least['running']):.1f}, which the roofline allows {gain:.1f} times the tokens per "
        "second.\n",
    )
    shares = {
        name: {kind: mean(figures[kind]) / 100 for kind in memory.KINDS}
        for name, figures in found.items()
    }
    title = f"While requests wait, {mean(least['used']):.0f} % of the rows hold tokens with the "
    title += f"longest pieces, {mean(most['used']):.0f} % in blocks"
    save(memory.shares(shares, title), "shares")
    save(memory.opening(mean(least["used"]) / 100, "A server whose memory is full"), "opening")
    for steps, name in ((4, "turing"), (len(turing.STORY), "fork")):
        save(turing.draw(PagedSequences, slots, steps), name)


def slots(block_table: list[int], positions: torch.Tensor, block_size: int) -> torch.Tensor:
    return torch.tensor([slot_of(block_table, p, block_size) for p in positions.tolist()])


if __name__ == "__main__":
    main()
