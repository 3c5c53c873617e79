"""Numbers and figures of the chapter on PagedAttention, counted on drawn traces of requests.

    python benchmarks/lab06_tables.py            writes course/chapters/_generated/lab06_*.md
                                                 and course/figures/lab06/*.svg, prints the tables

Everything is counted in integers and depends on the seeds of the traces alone.  Means over SEEDS
traces, with the range where it matters.  Shares, sequences and rates are means over the steps in
which a request waits: before and after, every memory is half empty.  About two minutes.
"""

from pathlib import Path
from statistics import mean

import torch

from efflib import zoo
from efflib.models.llama import Llama, LlamaConfig
from efflib.plots import memory, style, turing
from efflib.serving.blocks import BlockPool, blocks_for
from efflib.serving.contiguous import POLICIES
from efflib.serving.decoder import MODELS
from efflib.serving.memory import kv_bytes
from efflib.serving.paged import PagedSequences, slot_of
from efflib.serving.prefix import PrefixSequences
from efflib.serving.waste import ContiguousMemory
from efflib.traffic.server import Blocks, Replay, mean_share, replay
from efflib.traffic.traces import CHAT, draw_trace
from efflib.zoo import corpus

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab06"
LLAMA_7B = LlamaConfig(32000, 4096, 11008, 32, 32, 32, 128, 4096)
MEMORY = 24e9  # bytes of the GPU
BANDWIDTH = 1008e9  # bytes per second, of an RTX 4090
ROW = 2 * 32 * 4096 * 2  # bytes of a key and a value in every layer, 16 bits
LONGEST, BLOCK, SEEDS, REQUESTS, PER_STEP = 2048, 16, 3, 150, 0.3
SIZES = (1, 4, 16, 64, 256)
KEPT = (1, 5)  # percent of the blocks that stay free when a request is admitted
POOLS = (52, 64, 76, 88)  # blocks of a prefix cache
SHOWN = ("llama-2-7b", "llama-3.1-8b", "deepseek-v3")


class Pool:
    """The reference's pool, called as the lab calls it."""

    def __init__(self, size: int) -> None:
        self._pool = BlockPool(size)
        self.take, self.release = self._pool.take, self._pool.release

    def free(self) -> int:
        return self._pool.free


def in_blocks(requests: list, size: int, blocks: int) -> tuple[int, int, int, int, int]:
    """used, reserved, internal, external, free."""
    own = [blocks_for(n, size) * size for n, _ in requests]
    used = sum(n for n, _ in requests)
    later = sum(min(rows, total) for rows, (_, total) in zip(own, requests, strict=True))
    return used, later - used, sum(own) - later, 0, blocks * size - sum(own)


def paged(rows: int, size: int = BLOCK, percent: int = 0, at_once: bool = False) -> Blocks:
    keep = rows // size * percent // 100
    return Blocks(rows, size, Pool, blocks_for, in_blocks, keep, at_once)


def cache_rows(weights: int) -> int:
    """Rows of the cache in what 16-bit weights leave of the memory, in whole blocks."""
    return int(MEMORY - weights) // ROW // BLOCK * BLOCK


def weight_bytes() -> int:
    with torch.device("meta"):  # shapes are enough
        return 2 * sum(p.numel() for p in Llama(LLAMA_7B).parameters())


def rate(run: Replay, weights: int) -> float:
    """Tokens per second at most: each step reads the weights once, and all rows in use."""
    running = mean(u.running for u in run.loaded)
    used = mean(u.used for u in run.loaded)
    return running * BANDWIDTH / (weights + used * ROW)


def measure(make, weights: int, overtaking: bool = False) -> dict[str, list[float]]:
    """Figures of one allocator on every trace; make() gives a new memory."""
    rows: dict[str, list[float]] = {}
    for seed in range(SEEDS):
        size = make().size
        run = replay(draw_trace(REQUESTS, *CHAT, PER_STEP, seed), make(), overtaking)
        figures = {kind: 100 * part for kind, part in mean_share(run.loaded, size).items()}
        figures |= {"steps": run.steps, "again": run.computed_again, "rate": rate(run, weights)}
        figures["running"] = mean(u.running for u in run.loaded)
        figures["most"] = 100 * max(u.used for u in run.loaded) / size
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


class HeadsFirst(PrefixSequences):
    """The control: a text gives back its first block first."""

    def free(self, name: int) -> None:
        self._tables[name].reverse()
        super().free(name)


def prefixes() -> str:
    """Two conversations in turn, in pools of several sizes: what share of their tokens is found."""
    texts = [t for t in corpus.documents("prose", held_out=True).values() if len(t) > 6000][:2]
    ids = [zoo.load_tokenizer().encode(text[:6000]).ids for text in texts]
    prompts = [text[: 200 * n] for n in (1, 2, 3, 4) for text in ids]
    lines = ["| blocks | last block back first, % | first block back first, % |", "|---|---|---|"]
    for size in POOLS:
        found = []
        for kind in (PrefixSequences, HeadsFirst):
            kept = kind(size, BLOCK)
            for i, prompt in enumerate(prompts):
                kept.start(i, prompt)
                kept.free(i)
            found.append(100 * kept.hits / kept.asked)
        lines.append(f"| {size} | {found[0]:.1f} | {found[1]:.1f} |")
    return "\n".join(lines) + "\n"


def row_sizes() -> str:
    lines = ["| model | a row in 16 bits, KB |", "|---|---|"]
    lines += [f"| {name} | {float(kv_bytes(MODELS[name], 1)) / 1024:.0f} |" for name in SHOWN]
    return "\n".join(lines) + "\n"


def main() -> None:
    weights = weight_bytes()
    rows = cache_rows(weights)
    found = {p: measure(lambda p=p: ContiguousMemory(rows, p, LONGEST), weights) for p in POLICIES}
    over = {
        p: measure(lambda p=p: ContiguousMemory(rows, p, LONGEST), weights, overtaking=True)
        for p in ("power2", "oracle")
    }
    sizes = {size: measure(lambda size=size: paged(rows, size), weights) for size in SIZES}
    found["oracle, in blocks"] = measure(lambda: paged(rows, at_once=True), weights)
    found[f"blocks of {BLOCK}"] = sizes[BLOCK]
    bars = dict(found)
    for kept in KEPT:
        found[f"{kept} % kept free"] = measure(lambda kept=kept: paged(rows, BLOCK, kept), weights)
    write("lab06_table", table(found, "allocator"))
    write("lab06_sizes", table({str(size): figures for size, figures in sizes.items()}, "block"))
    write("lab06_prefixes", prefixes())
    write("lab06_rows", row_sizes())
    write("lab06_findings", findings(rows, found, over))
    shares = {
        name: {kind: mean(figures[kind]) / 100 for kind in memory.KINDS}
        for name, figures in bars.items()
    }
    least, most = found["maximum"], found[f"blocks of {BLOCK}"]
    title = f"While requests wait, {mean(least['used']):.0f} % of the rows hold tokens with the "
    title += f"longest pieces, {mean(most['used']):.0f} % in blocks"
    save(memory.shares(shares, title), "shares")
    save(memory.opening(mean(least["used"]) / 100, "A server whose memory is full"), "opening")
    for steps, name in ((4, "turing"), (len(turing.STORY), "fork")):
        save(turing.draw(PagedSequences, slots, steps), name)


def findings(rows: int, found: dict, over: dict) -> str:
    least, most = found["maximum"], found[f"blocks of {BLOCK}"]
    oracle, whole = found["oracle"], found["oracle, in blocks"]
    tables = [b - a for a, b in zip(oracle["used"], whole["used"], strict=True)]
    late = [b - a for a, b in zip(whole["used"], most["used"], strict=True)]
    gain = mean(most["rate"]) / mean(least["rate"])
    external = {p: (mean(found[p]["external"]), mean(over[p]["external"])) for p in over}
    return (
        f"- The cache has {rows:,} rows: {rows // LONGEST} pieces of {LONGEST}, or "
        f"{rows // BLOCK:,} blocks of {BLOCK}.\n"
        f"- While requests wait, {mean(least['used']):.1f} % of the rows hold a token with pieces "
        f"of the greatest length (at most {max(least['most']):.1f} % at any step), "
        f"{mean(most['used']):.1f} % in blocks.\n"
        f"- From the oracle to blocks there are two steps. Blocks that lie anywhere, all of them "
        f"taken at admission, bring {mean(tables):.1f} points ({min(tables):.1f} to "
        f"{max(tables):.1f}); taking them as late as they are needed brings {mean(late):.1f} "
        f"({min(late):.1f} to {max(late):.1f}).\n"
        f"- {mean(most['running']):.1f} sequences run at a time in place of "
        f"{mean(least['running']):.1f}, for which reading weights and rows allows {gain:.1f} times "
        "the tokens per second.\n"
        "- External waste is partly the line's: if whoever fits may go ahead, it falls from "
        f"{external['power2'][0]:.1f} to {external['power2'][1]:.1f} % (power of two) and from "
        f"{external['oracle'][0]:.1f} to {external['oracle'][1]:.1f} % (oracle).\n"
    )


def slots(block_table: list[int], positions: torch.Tensor, block_size: int) -> torch.Tensor:
    return torch.tensor([slot_of(block_table, p, block_size) for p in positions.tolist()])


if __name__ == "__main__":
    main()
