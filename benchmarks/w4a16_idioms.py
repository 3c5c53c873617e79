"""What it costs to take 4-bit codes out of their words: instructions of a GPU, counted on a CPU.

    python benchmarks/w4a16_idioms.py      writes course/chapters/_generated/w4a16_idioms.md

y_n = sum_k s (q - z) x_k for one row x, weights in the layout of `efflib.kernels.w4a16`, in small
kernels for whole tiles of one warp, then in the kernels of the course.  Each is compiled for sm_80
and sm_90 and disassembled; the instructions of its main loop (`efflib.meter.compiled_loop`) are
divided by the weights that a thread takes in one pass.  Deterministic for a version of Triton,
which the table names.  Under a minute.

Sources of the idioms: or-ing codes into the bits of a power of two, and lop3 for two at a time,
FasterTransformer (Kim et al. 2022, arXiv:2211.10017); products by tensor cores even for one row,
Marlin (Frantar et al. 2024, arXiv:2408.11743).

The ceiling.  An SM has 4 schedulers that issue one instruction for 32 threads each in a clock
(H100 whitepaper, "H100 SM architecture"; the same in A100 and H200): 128 thread-instructions.  With
i of them for a weight, of which memory delivers B / b a second (b bytes each),

    part of the bandwidth that can be used <= 128 SMs clock / (i B / b).

Latency, and units with fewer than 128 lanes, come on top: the real part is smaller.
"""

from pathlib import Path
from typing import NamedTuple

# isort: off
import efflib.meter.interpreter  # noqa: F401  before triton is imported

# isort: on
import triton
import triton.language as tl
from meter_faults import markdown

from efflib.kernels import w4a16, w4a16_packed
from efflib.kernels.w4a16_packed import FP16_CODES
from efflib.meter.compiled_loop import main_loop
from efflib.meter.compiling import Case, CompileReport, compile_for_targets
from efflib.meter.roofline import GPUS

PAGE = Path(__file__).parents[1] / "course" / "chapters" / "_generated" / "w4a16_idioms.md"
TARGETS = ["sm_80", "sm_90"]
BN, BK, GROUP = 32, 128, 128
STAGES = 4
LANES = 4 * 32  # thread-instructions that an SM issues in a clock
BITS = 4 + 24 / GROUP  # of a weight, as the kernels read it: scale 16, byte of the zero point 8
GPU = GPUS["H200"]

# ---- from words: eight fields of 32 bits ---------------------------------------------------------


@triton.jit
def converted(words, zero, i: tl.constexpr):
    """q - z by a conversion of each code from integer to float."""
    return (words >> 4 * i & 0xF).to(tl.float32) - zero[:, None]


@triton.jit
def lifted(words, zero, i: tl.constexpr):
    """(2^23 + q) - (2^23 + z): q or-ed into the bits of 2^23 (`w4a16.plane`)."""
    bits = words >> 4 * i & 0xF | 0x4B000000
    return bits.to(tl.float32, bitcast=True) - (8388608.0 + zero)[:, None]


@triton.jit
def lifted_in_place(words, zero, i: tl.constexpr):
    """16^-m (2^23 + 16^m q) - (16^-m 2^23 + z), exact: one shift for five fields, fma for the rest.

    m = i for fields 0 .. 4, and i - 5 after a shift by 20 bits.
    """
    m: tl.constexpr = i % 5
    down: tl.constexpr = 0.0625**m
    bits = words >> 20 * (i // 5) & 0xF << 4 * m | 0x4B000000
    offset = -8388608.0 * down - zero
    return tl.fma(
        bits.to(tl.float32, bitcast=True),
        tl.full(words.shape, down, tl.float32),
        tl.broadcast_to(offset[:, None], words.shape),
    )


@triton.jit
def words_kernel(
    X, Words, Scale, Zeros, Out, row_w, GROUPS,
    BN: tl.constexpr, BK: tl.constexpr, IDIOM: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One row of y, BN elements of it, products and sums in float32."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    word = tl.arange(0, BK // 8)
    acc = tl.zeros([BN, BK // 8], tl.float32)
    for group in tl.range(0, GROUPS, num_stages=STAGES):
        j = group * (BK // 8) + word
        words = tl.load(Words + n[:, None] * row_w + j[None, :])
        at = n * GROUPS + group
        s = tl.load(Scale + at).to(tl.float32)
        zero = (tl.load(Zeros + at // 2) >> (at % 2 * 4).to(tl.uint8) & 0xF).to(tl.float32)
        dot = tl.zeros([BN, BK // 8], tl.float32)
        for i in tl.static_range(8):
            if IDIOM == "converted":
                q = converted(words, zero, i)
            elif IDIOM == "lifted":
                q = lifted(words, zero, i)
            else:
                q = lifted_in_place(words, zero, i)
            dot += q * tl.load(X + 8 * j + i).to(tl.float32)[None, :]
        acc += s[:, None] * dot
    tl.store(Out + n, tl.sum(acc, 1).to(Out.dtype.element_ty))


# ---- from half-words: four fields of 16 bits -----------------------------------------------------


@triton.jit
def half_lifted(halves, zero, i: tl.constexpr):
    """(1024 + q) - (1024 + z) in fp16: q or-ed into the bits of 1024; Triton code by code."""
    bits = halves >> 4 * i & 0xF | 0x6400
    return bits.to(tl.float16, bitcast=True) - (1024.0 + zero).to(tl.float16)[:, None]


@triton.jit
def lop3_planes(halves, zero):
    """q - z of fields 0 .. 3, two half-words at a time: `w4a16_packed.FP16_CODES`."""
    low = tl.broadcast_to((-1024.0 - zero).to(tl.float16)[:, None], halves.shape)
    high = tl.broadcast_to((-64.0 - zero).to(tl.float16)[:, None], halves.shape)
    q0, q1, q2, q3 = tl.inline_asm_elementwise(
        FP16_CODES, "=&r,=&r,=&r,=&r,r,r,r", [halves, low, high],
        (tl.float16, tl.float16, tl.float16, tl.float16), True, 2,
    )  # fmt: skip
    return q0, q1, q2, q3


@triton.jit
def row(X, j, i: tl.constexpr):
    """x of the inputs 4 j + i, [1, BK / 4]."""
    return tl.load(X + 4 * j + i)[None, :]


@triton.jit
def columns(X, j, i: tl.constexpr):
    """The same for a tensor core: [BK / 4, 8], eight times."""
    return tl.broadcast_to(tl.load(X + 4 * j + i)[:, None], [j.shape[0], 8])


@triton.jit
def halves_kernel(
    X, Words, Scale, Zeros, Out, row_w, GROUPS,
    BN: tl.constexpr, BK: tl.constexpr, IDIOM: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The same from half-words; products in float32, in fp16, or by a tensor core."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    half = tl.arange(0, BK // 4)
    halves_at = Words.to(tl.pointer_type(tl.int16)) + n[:, None] * (2 * row_w)
    acc = tl.zeros([BN, 8 if IDIOM == "lop3, tensor cores" else BK // 4], tl.float32)
    for group in tl.range(0, GROUPS, num_stages=STAGES):
        j = group * (BK // 4) + half
        halves = tl.load(halves_at + j[None, :])
        at = n * GROUPS + group
        s = tl.load(Scale + at).to(tl.float32)
        zero = (tl.load(Zeros + at // 2) >> (at % 2 * 4).to(tl.uint8) & 0xF).to(tl.float32)
        if IDIOM == "lifted":
            q0, q1 = half_lifted(halves, zero, 0), half_lifted(halves, zero, 1)
            q2, q3 = half_lifted(halves, zero, 2), half_lifted(halves, zero, 3)
        else:
            q0, q1, q2, q3 = lop3_planes(halves, zero)
        if IDIOM == "lop3, tensor cores":
            dot = tl.dot(q1, columns(X, j, 1), tl.dot(q0, columns(X, j, 0)))
            dot = tl.dot(q3, columns(X, j, 3), tl.dot(q2, columns(X, j, 2), dot))
        elif IDIOM == "lop3, fp16 sums":
            dot = q0 * row(X, j, 0) + q1 * row(X, j, 1)
            dot = (dot + q2 * row(X, j, 2) + q3 * row(X, j, 3)).to(tl.float32)
        else:
            dot = q0.to(tl.float32) * row(X, j, 0).to(tl.float32)
            dot += q1.to(tl.float32) * row(X, j, 1).to(tl.float32)
            dot += q2.to(tl.float32) * row(X, j, 2).to(tl.float32)
            dot += q3.to(tl.float32) * row(X, j, 3).to(tl.float32)
        acc += s[:, None] * dot
    # the columns of a tensor core are equal
    y = tl.max(acc, 1) if IDIOM == "lop3, tensor cores" else tl.sum(acc, 1)
    tl.store(Out + n, y.to(Out.dtype.element_ty))


# ---- counting ------------------------------------------------------------------------------------


class Idiom(NamedTuple):
    case: Case
    weights: float  # that a thread takes in one pass of the loop
    stages: int = STAGES


def small(kernel, idiom: str, name: str) -> Idiom:
    types = {"X": "*fp16", "Words": "*i32", "Scale": "*fp16", "Zeros": "*u8", "Out": "*fp16"}
    numbers = {"row_w": 1024, "GROUPS": 64, "BN": BN, "BK": BK, "IDIOM": idiom, "STAGES": STAGES}
    return Idiom(Case(name, kernel, types | numbers, {"num_warps": 1}), BN * BK / 32)


def idioms() -> list[Idiom]:
    """The small kernels, then those of the course."""
    plain, *packed, gemm, _ = w4a16.compile_cases()
    threads = 32 * w4a16_packed.WARPS
    taken = w4a16_packed.BLOCK_N * w4a16_packed.BLOCK_K * w4a16_packed.TILES / threads
    return [
        small(words_kernel, "converted", "conversion, float32"),
        small(words_kernel, "lifted", "bits of 2^23, float32"),
        small(words_kernel, "in place", "bits of 2^23 in place, float32"),
        small(halves_kernel, "lifted", "bits of 1024 by code, float32 sums"),
        small(halves_kernel, "lop3", "lop3 on two codes, float32 sums"),
        small(halves_kernel, "lop3, fp16 sums", "lop3 on two codes, fp16 sums of 4"),
        small(halves_kernel, "lop3, tensor cores", "lop3 on two codes, tensor cores"),
        Idiom(plain, w4a16.GEMV_BLOCK_N * w4a16.BLOCK_K / 32),
        *(Idiom(case, taken) for case in packed),
        Idiom(gemm, w4a16.GEMM_BLOCK_N * w4a16.BLOCK_K / 128, 3),  # Triton's warps and stages
    ]


def per_weight(idiom: Idiom, report: CompileReport) -> dict[str, float]:
    """{operation: thread-instructions a weight}.  Raises ValueError if the loop was unrolled.

    With s stages, PTX asks s times for the words and inputs of a tile: s - 1 times before the loop.
    """
    loop = main_loop(report.sass)
    if loop["LDGSTS"] * idiom.stages != report.cp_async:
        raise ValueError(f"{idiom.case.name}: a pass of the loop is not one tile")
    return {name: n / idiom.weights for name, n in loop.items()}


def bandwidth(instructions: float) -> float:
    """Largest part of the H200's bandwidth at so many instructions a weight."""
    weights = 8 * GPU.bandwidth / BITS  # a second
    return min(1.0, LANES * GPU.sms * GPU.clock / (instructions * weights))


def table_row(idiom: Idiom) -> list[str]:
    ampere, hopper = compile_for_targets(idiom.case, TARGETS, sass=True)
    counts = [per_weight(idiom, report) for report in (ampere, hopper)]
    a, h = (sum(c.values()) for c in counts)
    top = sorted(counts[1].items(), key=lambda item: (-item[1], item[0]))[:4]
    most = ", ".join(f"{name} {n:.2f}" for name, n in top)
    part = bandwidth(h)
    return [
        idiom.case.name, f"{a:.1f}", f"{h:.1f}", most, str(hopper.registers),
        str(ampere.stack_bytes + hopper.stack_bytes), f"{part:.0%}",
        f"{16 / BITS * part:.1f}",
    ]  # fmt: skip


HEADER = ["idiom", "sm_80", "sm_90", "most frequent on sm_90", "registers", "spills",
          "of H200's bandwidth", "times fp16 at full bandwidth"]  # fmt: skip


def page() -> str:
    budget = LANES * GPU.sms * GPU.clock / (8 * GPU.bandwidth / BITS)
    head = (
        f"Triton {triton.__version__}: instructions of a thread for each weight, and the ceiling "
    )
    head += (
        f"that follows on an H200, where up to {budget:.1f} leave time for all its bandwidth:\n\n"
    )
    return head + markdown(HEADER, [table_row(idiom) for idiom in idioms()])


if __name__ == "__main__":
    text = page()
    PAGE.write_text(text)
    print(text)
