"""Numbers and figures of the chapter on the key-value cache.

    python benchmarks/lab05_tables.py            writes course/chapters/_generated/lab05_*.md
                                                 and course/figures/lab05/*.svg, prints the tables
    python benchmarks/lab05_tables.py growth     one part: see `main`

Sizes follow from configs and are exact.  Losses are those of the shipped model on held-out code,
means over three slices of text with their range; times (growth) are this machine's, and want it
quiet.  Run it again whenever the checkpoint changes.  Takes about three minutes on two cores.
"""

import sys
import time
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor, nn

from efflib import kv, zoo
from efflib.attention.heads import with_kv_heads
from efflib.models.cache import KVCache
from efflib.plots import cache as pictures
from efflib.plots import style
from efflib.quantization.kv import QuantizedKVCache
from efflib.quantization.kv_codes import quantize_kv
from efflib.serving.decoder import MODELS
from efflib.serving.memory import FP16, W4, Format, GiB, KiB, gpu_memory, kv_bytes, plan
from efflib.serving.memory import weight_bytes as stored
from efflib.serving.roofline import RTX_4090, latency
from efflib.zoo.key_outlier import FACTOR, with_key_outlier
from efflib.zoo.windows import QUICK, windows

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "lab05"
SEEDS = (0, 1, 2)
PIECE = GROUP = 32
TOKENS = (100, 250, 500, 750, 1000)
ROWS = 6  # windows of 256 tokens in a slice
CACHES = {  # title -> options of QuantizedKVCache, all in 2 bits
    "keys per channel": {},
    "keys per token": {"keys": "token"},
    "per channel, before the rotation": {"theta": 10000.0},
    "per channel, 1 % of the values apart": {"outliers": 0.01},
    "per channel, both": {"theta": 10000.0, "outliers": 0.01},
}


def write(name: str, text: str) -> None:
    GENERATED.mkdir(parents=True, exist_ok=True)
    (GENERATED / name).write_text(text, encoding="utf-8")
    print(text, f"wrote {name}", sep="\n", flush=True)


# ---- sizes -----------------------------------------------------------------------------------


def sizes() -> str:
    """Bytes of a token, of 4096 tokens, and of the weights, for the models of the table."""
    lines = [
        "| model | key heads / query heads | weights | a token | 4096 tokens |",
        "|---|---|---|---|---|",
    ]
    for name, m in MODELS.items():
        heads = "latent" if m.latent else f"{m.kv_heads} / {m.heads}"
        cells = (kv.size(stored(m)), kv.size(kv_bytes(m)), kv.size(kv_bytes(m, 4096)))
        lines.append(f"| {name} | {heads} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def slips() -> str:
    """What the lectures print beside what the formula gives."""
    m, big = MODELS["llama-2-7b"], MODELS["llama-2-70b-mha"]
    each = kv_bytes(m)
    room = gpu_memory("RTX 4090")
    rows = [
        ("Llama-2-7B, 2K tokens", "1 GB", kv.size(kv_bytes(m, 2048))),
        ("Llama-2-7B, 8K tokens", "8 GB", kv.size(kv_bytes(m, 8192))),
        ("Llama-2-7B, 4 x 8K tokens", "32 GB", kv.size(kv_bytes(m, 8192, 4))),
        ("1 GB of cache, Llama-2-7B", "at most 1k tokens", f"{int(GiB / each)} tokens"),
        ("10 GB of cache, Llama-2-7B", "10k tokens", f"{int(10 * GiB / each)} tokens"),
        ("requests of 4k in these 10 GB", "3", f"{int(10 * GiB / each / 4096)}"),
        ("requests of 4k on an RTX 4090", "", f"{plan(m, room, 4096, reserve=0).batch}"),
        ("the same with 10 % in reserve", "", f"{plan(m, room, 4096).batch}"),
        ("Llama-2-70B with MHA, 512 tokens", "1.25 GB", kv.size(kv_bytes(big, 512))),
        ("the same, 4096 tokens", "10 GB", kv.size(kv_bytes(big, 4096))),
        ("the same, 16 x 4096 tokens", "160 GB", kv.size(kv_bytes(big, 4096, 16))),
    ]
    lines = ["| | printed | by the formula |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {a} | {b} | {c} |" for a, b, c in rows)]) + "\n"


def capacity() -> str:
    """Sequences of 4096 tokens of Llama-2-7B by lever and memory, and least times of a request."""
    m, cache4 = MODELS["llama-2-7b"], Format(4, 32)
    levers = {
        "as it is": (m, FP16, FP16, 4096),
        "weights in 4 bits": (m, W4, FP16, 4096),
        "cache in 4 bits": (m, FP16, cache4, 4096),
        "8 key heads": (kv.fewer_heads(m, 8), FP16, FP16, 4096),
        "half the context": (m, FP16, FP16, 2048),
        "all but half the context": (kv.fewer_heads(m, 8), W4, cache4, 4096),
    }
    memories = (13, 24, 80)
    lines = [
        "| | " + " | ".join(f"{n} GiB" for n in memories) + " | to the first token | each further |"
    ]
    lines.append("|---" * (3 + len(memories)) + "|")
    for name, (d, weights, cache, context) in levers.items():
        counts = [plan(d, n * GiB, context, weights, cache, 0).batch for n in memories]
        times = latency(d, RTX_4090, context, 64, 1, weights, cache)
        cells = [str(n) for n in counts]
        cells += [f"{1e3 * times.ttft:.0f} ms", f"{1e3 * times.tpot:.1f} ms"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


# ---- measured --------------------------------------------------------------------------------


@torch.no_grad()
def losses(model: nn.Module, ids: Tensor, cache=None) -> Tensor:
    """Nats per token of each of ids [n, 1 + T], through the cache in pieces where there is one."""
    pieces = [ids[:, :-1]] if cache is None else ids[:, :-1].split(PIECE // 2, dim=1)
    logits = torch.cat([model(p, cache=cache) for p in pieces], dim=1)
    return nn.functional.cross_entropy(logits.mT, ids[:, 1:], reduction="none").mean(1)


def loss(model: nn.Module, ids: Tensor) -> float:
    return losses(model, ids).mean().item()


def spread(values: list[float]) -> str:
    return f"{mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def difference(x: Tensor) -> str:
    """Mean and standard error."""
    return f"{x.mean():+.3f} ± {x.std() / len(x) ** 0.5:.3f}"


def rounding(model: nn.Module, slices: list[Tensor]) -> tuple[str, dict]:
    """Added loss of every cache of CACHES, with and without large key channels."""
    large = with_key_outlier(model, FACTOR)
    exact = [losses(model, ids) for ids in slices]

    def added(m: nn.Module, bits: int, **options) -> Tensor:  # [slices, windows]
        caches = (QuantizedKVCache(bits, GROUP, GROUP, **options) for _ in slices)
        pairs = zip(slices, exact, caches, strict=True)
        return torch.stack([losses(m, ids, cache) - e for ids, e, cache in pairs])

    titles = ("2 bits", "bits a code", "large key channels", "control", "control, above the first")
    lines = ["| " + " | ".join(titles) + " |"]
    lines.append("|---" * 5 + "|")
    first = None
    for title, options in CACHES.items():
        both = [added(m, 2, **options) for m in (large, model)]
        first = both[1] if first is None else first
        bits = QuantizedKVCache(2, GROUP, GROUP, **options).bits_per_value
        cells = [title, f"{bits:.2f}", *(spread(x.mean(1).tolist()) for x in both)]
        cells.append("" if first is both[1] else difference((both[1] - first).flatten()))
        lines.append("| " + " | ".join(cells) + " |")
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for name, m in (("control", model), ("large channels", large)):
        for keys in ("channel", "token"):
            for bits in (8, 4, 2):
                point = (bits + 32 / GROUP, added(m, bits, keys=keys).mean().item())
                points.setdefault((name, keys), []).append(point)
    return "\n".join(lines) + "\n", points


class Blocks(KVCache):
    """Keys in 2 bits, in blocks of 32 tokens that are whole; the others and all values exact.

    turn: for each layer a matrix [d, d] that keys are multiplied by before they are rounded.
    """

    def __init__(self, direction: str, group: int = GROUP, turn: list[Tensor] | None = None):
        super().__init__()
        self.direction, self.group, self.turn = direction, group, turn
        self.done: dict[int, Tensor] = {}

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().append(layer, k, v)
        done = self.done.get(layer, k[:, :, :0])
        old = (keys.shape[2] - k.shape[2]) // PIECE * PIECE
        if old > done.shape[2]:
            new = keys[:, :, done.shape[2] : old]
            turn = torch.eye(k.shape[3]) if self.turn is None else self.turn[layer]
            new = quantize_kv(new @ turn, 2, self.group, self.direction).decode() @ turn.inverse()
            done = self.done[layer] = torch.cat([done, new], dim=2)
        return torch.cat([done, keys[:, :, old:]], dim=2), values


def hadamard(size: int) -> Tensor:
    """An orthogonal matrix of +1 and -1 over the root of `size`, a power of 2."""
    h = torch.ones(1, 1)
    while len(h) < size:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)]) / 2**0.5
    return h


def directions(model: nn.Module, slices: list[Tensor]) -> str:
    """Added loss of keys in 2 bits, the same tokens rounded in every row."""
    large, layers = with_key_outlier(model, FACTOR), model.config.num_hidden_layers
    exact = [losses(model, ids) for ids in slices]
    probe = KVCache()
    with torch.no_grad():
        large(windows("prose", True, QUICK, 0)[:4, :-1], cache=probe)
    even = [torch.diag(1 / k.abs().mean((0, 1, 2))) for k in probe.keys]  # of all heads together
    rows = {
        "per channel": (3, ("channel",)),
        "per token": (3, ("token",)),
        "per token, each channel divided by its mean size on prose": (3, ("token", GROUP, even)),
        "per token, channels turned": (3, ("token", GROUP, [hadamard(32)] * layers)),
        "per token, groups of 8": (6, ("token", 8)),
    }
    titles = ("keys in 2 bits", "bits a code", "large key channels", "control", "control, above")
    lines = ["| " + " | ".join(titles) + " |", "|---" * 5 + "|"]
    first = None
    for title, (bits, options) in rows.items():
        cells = [title, str(bits)]
        for m in (large, model):
            pairs = zip(slices, exact, strict=True)
            x = torch.stack([losses(m, ids, Blocks(*options)) - e for ids, e in pairs]).flatten()
            cells.append("" if options[-1] is even and m is model else difference(x))
        first = x if first is None else first
        above = x is not first and options[-1] is not even
        lines.append("| " + " | ".join([*cells, difference(x - first) if above else ""]) + " |")
    return "\n".join(lines) + "\n"


def heads(model: nn.Module, slices: list[Tensor]) -> str:
    """Loss with fewer key heads, without further training."""
    lines = ["| key heads | cache of a token | mean of a group | first head of a group |"]
    lines.append("|---|---|---|---|")
    c = model.config
    for n in (6, 3, 2, 1):
        cells = [
            spread([loss(with_kv_heads(model, n, how), ids) for ids in slices])
            for how in ("mean", "first")
        ]
        each = 2 * c.num_hidden_layers * n * c.head_dim * 2 / KiB
        lines.append(f"| {n} | {each:.2f} KiB | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


@torch.no_grad()
def seconds(model: nn.Module, ids: Tensor, tokens: int, cached: bool) -> float:
    """Of one more token after so many, the fastest of 5, or of 20 with a cache, which are short."""
    times = []
    for _ in range(20 if cached else 5):
        cache = KVCache() if cached else None
        if cached:
            model(ids[:, :tokens], cache=cache)
        new = ids[:, tokens : tokens + 1] if cached else ids[:, : tokens + 1]
        start = time.perf_counter()
        model(new, cache=cache)
        times.append(time.perf_counter() - start)
    return min(times)


def growth(model: nn.Module, ids: Tensor) -> str:
    """Table and figure of the time of one more token."""
    ways = {"read again": False, "with a cache": True}
    taken = {name: [seconds(model, ids, n, c) for n in TOKENS] for name, c in ways.items()}
    c = model.config
    each = 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * 4
    figure, alt = pictures.growth(TOKENS, taken, [n * each for n in TOKENS])
    style.save(figure, FIGURES / "opening.svg", alt)
    lines = ["| ms for one more token | " + " | ".join(f"after {n}" for n in TOKENS) + " |"]
    lines.append("|---" * (1 + len(TOKENS)) + "|")
    for name, row in taken.items():
        lines.append(f"| {name} | " + " | ".join(f"{1e3 * s:.1f}" for s in row) + " |")
    return "\n".join(lines) + "\n"


def write_states(model: nn.Module, ids: Tensor) -> None:
    """The picture of one head's keys and values, with large channels."""
    probe = KVCache()
    with torch.no_grad():
        with_key_outlier(model, FACTOR)(ids, cache=probe)
    figure, alt = pictures.states(probe.keys[3][0, 0], probe.values[3][0, 0])
    style.save(figure, FIGURES / "states.svg", alt)


def main(parts: list[str]) -> None:
    torch.manual_seed(0)
    wanted = parts or ["sizes", "growth", "heads", "rounding", "directions", "states"]
    model = zoo.load("target")
    slices = [windows("code", True, QUICK, seed)[:ROWS] for seed in SEEDS]
    if "sizes" in wanted:
        write("lab05_sizes.md", sizes())
        write("lab05_slips.md", slips())
        write("lab05_capacity.md", capacity())
    if "growth" in wanted:
        write("lab05_growth.md", growth(model, torch.cat(list(slices[0]))[None]))
    if "heads" in wanted:
        write("lab05_heads.md", heads(model, slices))
    if "rounding" in wanted:
        table, points = rounding(model, slices)
        write("lab05_rounding.md", table)
        figure, alt = pictures.against_bits(points)
        style.save(figure, FIGURES / "bits.svg", alt)
    if "directions" in wanted:
        write("lab05_directions.md", directions(model, slices))
    if "states" in wanted:
        write_states(model, slices[0][:1, :128])


if __name__ == "__main__":
    main(sys.argv[1:])
