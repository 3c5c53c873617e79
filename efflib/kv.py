"""How large a key-value cache is, and what fits beside it on a GPU.

    python -m efflib.kv llama-3.1-70b --gpu H100 --gpus 4 --context 8192
    python -m efflib.kv path/to/config.json --gpu "RTX 4090" --context 4096 --weights 4 --cache 4

MODEL is a name of the table (`--list`), a config.json of Hugging Face, or the folder it lies in.
10 % of the memory stay in reserve.  Several GPUs count as one with their memory and rates summed,
which no machine quite reaches.  Times are bounds from bytes and FLOPs, not measurements.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from efflib.checks import expect_whole
from efflib.meter.roofline import gpu_named
from efflib.serving import memory
from efflib.serving.decoder import MODELS, Decoder, decoder
from efflib.serving.memory import FP16, Format, GiB, KiB
from efflib.serving.roofline import Machine, decode, latency, tokens_per_second

GROUP = 32  # of the cache; weights: 128
CACHE_METADATA = 32  # s and m in float16
NEW_TOKENS = 128
LEVERS = ("as asked", "weights in 4 bits", "cache in 4 bits", "8 key heads", "half the context")


def size(n: Fraction | int) -> str:
    """Bytes in the largest binary unit that leaves at least 1: 512 KiB, 12.6 GiB."""
    for unit, name in ((GiB, "GiB"), (memory.MiB, "MiB"), (KiB, "KiB")):
        if abs(n) >= unit:
            value = float(n / unit) if isinstance(n, Fraction) else n / unit
            return f"{value:,.4g} {name}" if abs(value) < 1000 else f"{value:,.0f} {name}"
    return f"{float(n):.4g} bytes"


def formats(weights: int, cache: int) -> tuple[Format, Format]:
    """Formats of weights and cache in so many bits: 16 without metadata, fewer in groups."""
    w = FP16 if weights == 16 else Format(weights, 128, 16 + weights)
    return w, FP16 if cache == 16 else Format(cache, GROUP, CACHE_METADATA)


def levers(m: Decoder, room: int, context: int, w: Format, cache: Format) -> dict[str, int]:
    """{what is changed: sequences that fit}, each lever alone."""
    w4, cache4 = formats(4, 4)
    found = {
        LEVERS[0]: memory.plan(m, room, context, w, cache).batch,
        LEVERS[1]: memory.plan(m, room, context, w4, cache).batch,
        LEVERS[2]: memory.plan(m, room, context, w, cache4).batch,
    }
    if m.latent is None and m.kv_heads > 8 and m.heads % 8 == 0:
        found[LEVERS[3]] = memory.plan(fewer_heads(m, 8), room, context, w, cache).batch
    if context > 1:
        found[LEVERS[4]] = memory.plan(m, room, context // 2, w, cache).batch
    return found


def fewer_heads(m: Decoder, kv_heads: int) -> Decoder:
    """The same decoder with so many key and value heads."""
    return replace(m, kv_heads=kv_heads)


def lines(args: argparse.Namespace) -> list[str]:
    """What the command prints.  Raises ValueError for what does not fit."""
    expect_whole(1, gpus=args.gpus, context=args.context)
    m, gpu = decoder(args.model), gpu_named(args.gpu)
    w, cache = formats(args.weights, args.cache)
    room = args.gpus * memory.gpu_memory(args.gpu)
    p = memory.plan(m, room, args.context, w, cache)
    stored, cached = float(w.per_value), float(cache.per_value)
    kind = "latent" if m.latent else f"{m.kv_heads} key heads for {m.heads} query heads"
    text = [
        f"{args.model}: {m.parameters() / 1e9:.2f} G parameters, {m.layers} layers, {kind}",
        f"weights              {size(p.weights)} at {stored:g} bits ({args.weights}-bit matrices)",
        f"cache of a token     {size(memory.kv_bytes(m, cache=cache))} at {cached:g} bits a value",
        f"cache of a sequence  {size(p.per_sequence)} of {args.context} tokens",
        f"{args.gpus} x {args.gpu:<16} {size(room)}, of which {size(p.usable)} are used",
    ]
    if p.left <= 0:
        need = memory.devices_needed(m, memory.gpu_memory(args.gpu), 1, 0, w)
        return [*text, f"the weights alone do not fit: {need} x {args.gpu} would hold them"]
    longest = memory.longest_context(m, room, 1, w, cache)
    reach = "any" if longest == float("inf") else f"{longest:,}"
    text += [f"sequences that fit   {p.batch}", f"longest single one   {reach} tokens", ""]
    counts = levers(m, room, args.context, w, cache)
    text += ["what each change alone does to the sequences that fit:"]
    text += [f"  {name:<18} {count:>6}" for name, count in counts.items()]
    if p.batch:
        machine = Machine(args.gpus * gpu.bandwidth, args.gpus * gpu.tensor["fp16"])
        one = latency(m, machine, args.context, NEW_TOKENS, 1, w, cache)
        rate = tokens_per_second(decode(m, args.context, w, cache), machine, p.batch)
        text += [
            "",
            f"at least {one.ttft * 1e3:.3g} ms to the first token of a prompt of {args.context}, "
            f"{one.tpot * 1e3:.3g} ms for each further one",
            f"at most {rate:,.0f} tokens/s of {p.batch} sequences together",
        ]
    return text


def parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(
        prog="python -m efflib.kv",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    described.add_argument("model", nargs="?", help="a name of the table, or a config.json")
    described.add_argument("--gpu", default="H100", help=", ".join(memory.GPU_MEMORY))
    described.add_argument("--gpus", type=int, default=1, help="how many of them")
    described.add_argument("--context", type=int, default=8192, help="tokens of a sequence")
    described.add_argument("--weights", type=int, default=16, help="bits of the matrices")
    described.add_argument("--cache", type=int, default=16, help="bits of keys and values")
    described.add_argument("--list", action="store_true", help="the names of the table")
    return described


def table() -> list[str]:
    """The models of the table with the cache of a token in 16 bits."""
    rows = [f"{'model':<16} {'parameters':>12} {'cache of a token':>18}"]
    for name, m in MODELS.items():
        each = size(memory.kv_bytes(m))
        rows.append(f"{name:<16} {m.parameters() / 1e9:>10.2f} G {each:>18}")
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    described = parser()
    args = described.parse_args(arguments)
    if args.list:
        print("\n".join(table()))
        return 0
    if args.model is None:
        described.error("name a model, or ask for --list")
    try:
        print("\n".join(lines(args)))
    except ValueError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
