"""Numbers and figures of the chapter on the meter, all counted on this machine's CPU.

    python benchmarks/meter_page.py            writes course/chapters/_generated/meter_*.md
                                               and course/figures/meter/*.svg

Deterministic: the meter counts, and no time is measured.  What the compiler makes of a kernel
depends on the version of Triton, which the table names.  Takes a minute or two.
"""

from pathlib import Path

# isort: off
from efflib.meter import Meter, block_sweep, compile_report, heat_maps, replay

# isort: on
import meter_kernels as kernels
import torch
import triton
from meter_faults import faults, markdown, quoted, repairs

from efflib.kernels import tma_attention
from efflib.kernels.attention_cost import flash_attention_cost, plain_attention_bytes
from efflib.kernels.flash_attention import compile_cases, flash_attention
from efflib.meter import __main__ as compiled
from efflib.meter.compiling import compile_for_targets
from efflib.meter.figures import BlockSize
from efflib.meter.roofline import GPUS, Roofline, roofline
from efflib.meter.sample_kernel import compile_cases as matmul_cases
from efflib.plots import style

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "course" / "chapters" / "_generated"
FIGURES = ROOT / "course" / "figures" / "meter"

N, D, HEADS = 128, 16, 2  # the attention that is metered
PREFILL = (1, 32, 4096, 128)  # and the one that is computed on paper, in bf16
KEY_HEADS = 8


def three(number: float) -> str:
    """At least three digits, without powers of ten."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def attention_inputs(n: int = N, d: int = D, heads: int = HEADS) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, heads, n, d, generator=generator).half() for _ in range(3))


# ---- counts --------------------------------------------------------------------------------------


def report() -> str:
    with Meter() as m:
        flash_attention(*attention_inputs(), "bottom_right", None, 32, 32)
    return quoted(m.report("H100"))


def counted_against_paper() -> str:
    names = ("Q", "K", "V", "Out", "LSE")
    rows = []
    for label, causal, blocks in (
        ("full, 32 x 32", None, (32, 32)),
        ("causal, 32 x 32", "bottom_right", (32, 32)),
        ("causal, 64 x 16", "bottom_right", (64, 16)),
    ):
        q, k, v = attention_inputs()
        with Meter() as m:
            flash_attention(q, k, v, causal, None, *blocks)
        cost = flash_attention_cost(q.shape, k.shape, q.itemsize, causal, *blocks)
        bytes_counted = [(m.reads[n] if n in "QKV" else m.writes[n]).bytes for n in names]
        for kind, numbers in (
            ("counted", [*bytes_counted, m.flops, m.exponentials]),
            ("paper", list(cost)),
        ):
            rows.append([label, kind, *(f"{n:,}" for n in numbers)])
    return markdown(["blocks", "", *names, "FLOPs", "exponentials"], rows)


def coalescing() -> str:
    x = torch.ones(32, 64, dtype=torch.float16)
    tiles = {
        "32 x 16 tile of rows": (32, 16, 64, 1),
        "16 x 32 tile of rows": (16, 32, 64, 1),
        "16 x 32 tile, every second column": (16, 32, 64, 2),
        "column of 32": (32, 1, 64, 1),
    }
    rows = []
    for label, (r, c, row, column) in tiles.items():
        with Meter() as m:
            kernels.copy_tile[(1,)](x, torch.empty(r, c, dtype=x.dtype), row, column, r, c)
        t = m.reads["X"]
        rows.append([label, f"{t.bytes:,}", f"{t.sectors * 32:,}", f"{t.coalescing:.3g}"])
    return markdown(["fp16 matrix, 64 columns", "bytes asked for", "moved", "coalescing"], rows)


def cached() -> str:
    q, k, v = attention_inputs(heads=1)  # K and V are 8,192 bytes together
    with Meter(trace=True) as m:
        flash_attention(q, k, v, None, None, 16, 32)
    rows = []
    for l2 in (4096, 16384):
        for resident in (1, 2, 8):
            got = replay(m, l2, resident)
            rows.append([f"{l2:,}", resident, f"{got.requested:,}", f"{got.fetched:,}",
                         f"{got.hit_rate:.0%}"])  # fmt: skip
    return markdown(["L2, bytes", "programs at a time", "asked for", "fetched", "hits"], rows)


def sweep() -> list[BlockSize]:
    """Live tiles and all bytes of full attention by rows of a block of queries."""
    points = []
    for block in (16, 32, 64, 128):
        with Meter() as m:
            flash_attention(*attention_inputs(256, 32, 1), None, None, block, 32)
        points.append(BlockSize(f"{block} rows", m.peak_live_bytes, m.bytes))
    return points


def law() -> str:
    """K and V traffic when N or d doubles and M = block_m d is kept, or M doubles."""
    rows, base = [], None
    for label, n, d, block in (
        ("start", 64, 16, 32),
        ("N doubled", 128, 16, 32),
        ("d doubled", 64, 32, 16),
        ("M doubled", 64, 16, 64),
    ):
        with Meter() as m:
            flash_attention(*attention_inputs(n, d, 1), None, None, block, 32)
        moved = m.reads["K"].bytes + m.reads["V"].bytes
        base = base or moved
        rows.append([label, n, d, block, block * d, f"{moved:,}", f"{moved / base:g}"])
    columns = ["", "N", "d", "block_m", "M = block_m d", "K and V read, bytes", "times the start"]
    return markdown(columns, rows)


# ---- roofline ------------------------------------------------------------------------------------


def workloads(gpu: str) -> dict[str, Roofline]:
    """Attention in bf16 on paper: prefill as PREFILL, then one decoding step with a cache."""
    shape = PREFILL
    kv = (1, KEY_HEADS, *shape[2:])
    flash = flash_attention_cost(shape, kv, 2, None, 128, 128)
    once = 2 * (2 * shape[1] + 2 * KEY_HEADS) * shape[2] * shape[3]
    _, heads, keys, d = shape
    step = 4 * heads * keys * d, 2 * 2 * KEY_HEADS * keys * d, heads * keys
    plain = flash.flops, plain_attention_bytes(shape, kv, 2), heads * keys * keys
    cases = {
        "prefill, scores stored": plain,
        "prefill, FlashAttention, no cache": (flash.flops, flash.bytes, flash.exponentials),
        "prefill, FlashAttention, each byte once": (flash.flops, once, flash.exponentials),
        "decoding, one query": step,
    }
    return {name: roofline(*case, gpu, "bf16") for name, case in cases.items()}


def rooflines() -> str:
    rows = []
    for gpu in GPUS:
        for name, r in workloads(gpu).items():
            times = [three(1e6 * t) for t in (r.tensor, r.memory, r.exponentials)]
            rows.append([gpu, name, three(r.intensity), three(r.ridge), *times, r.bound])
    return markdown(["GPU", "attention", "FLOP/byte", "ridge", "tensor cores, us", "memory, us",
                     "exponentials, us", "bound by"], rows)  # fmt: skip


def roofline_figure(gpu: str = "H100"):
    points = workloads(gpu)
    chosen, peak = GPUS[gpu], GPUS[gpu].tensor["bf16"]
    x = [0.5, peak / chosen.bandwidth, 10000]
    fig, (ax,) = style.figure(width=6.6, height=4.0)
    ax.plot(x, [min(peak, i * chosen.bandwidth) / 1e12 for i in x], color=style.GREY)
    for (name, r), colour, marker in zip(
        points.items(), style.COLOURS, style.MARKERS, strict=False
    ):
        reached = min(peak, r.intensity * chosen.bandwidth) / 1e12
        ax.plot(r.intensity, reached, marker, color=colour, label=name, linestyle="none")
    slope = (12, 0.7 * 12 * chosen.bandwidth / 1e12)  # below the line, whatever the GPU
    ax.annotate(f"{chosen.bandwidth / 1e12:g} TB/s", slope, fontsize=8, va="top")
    ax.annotate(f"{peak / 1e12:,.0f} TFLOP/s", (600, 1.1 * peak / 1e12), fontsize=8)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(1, 3 * peak / 1e12)
    ax.set_xlabel("arithmetic intensity, FLOP per byte")
    ax.set_ylabel("at most, TFLOP/s")
    ax.set_title(f"{gpu}, bf16: storing the scores leaves attention bound by memory", fontsize=11)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return fig


# ---- the compiler --------------------------------------------------------------------------------


def compiler() -> str:
    cases = compile_cases()
    shown = cases + tma_attention.compile_cases()
    text, _ = compiled.table(shown, ["sm_80", "sm_90", "sm_100"])
    case = cases[-1]
    few = compile_report(case.kernel, case.arguments | {"BN": 128}, "sm_90", num_warps=4)
    [small] = matmul_cases()
    [failed] = compile_for_targets(small._replace(arguments=small.arguments | {"BK": 8}), ["sm_90"])
    return (
        f"Triton {triton.__version__}:\n\n```text\n{text}\n```\n\nFlash attention with d=128, "
        f"blocks of 128 x 128 on 4 warps, for sm_90: {few.registers} registers, "
        f"{'; '.join(few.problems) or 'no problem'}. The matrix product with blocks of 8 along K, "
        "which the interpreter runs:\n\n"
        + quoted(f"{type(failed).__name__}: {str(failed).splitlines()[-1]}")
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(ROOT)}", flush=True)


def save_figures() -> None:
    with Meter() as m:
        flash_attention(*attention_inputs(heads=1), "bottom_right", None, 16, 16)
    title = "Causal attention: a key is read by the blocks of queries that see it"
    alt = "Reads per element of Q, all 1, and of K, from 8 for the first keys down to 1"
    style.save(heat_maps(m, ["Q", "K"], title), FIGURES / "reads.svg", alt)
    title = "Twice the tiles on chip, about half the bytes moved"
    alt = "Bytes moved against bytes on chip on logarithmic axes, next to a line of slope -1"
    style.save(block_sweep(sweep(), title), FIGURES / "sweep.svg", alt)
    alt = "Roofline of an H100 with attention: storing scores, FlashAttention, decoding"
    style.save(roofline_figure(), FIGURES / "roofline.svg", alt)


def main() -> None:
    for part in (repairs, faults, report, counted_against_paper, coalescing, cached, law,
                 rooflines, compiler):  # fmt: skip
        write(GENERATED / f"meter_{part.__name__}.md", part())
    save_figures()


if __name__ == "__main__":
    main()
