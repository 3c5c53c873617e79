"""The packed W4A16 kernel: its PTX by a model, the rest interpreted; all of it on a GPU, if any."""

import os
import re
import subprocess
import sys

import pytest
import torch
from quantized_inputs import error_bound, layer, rows, size
from rounding import allowed_rms, near, rms
from w4a16_ptx import halves, run, word

from efflib.kernels import w4a16, w4a16_packed
from efflib.kernels.w4a16_packed import BF16_CODES, FP16_CODES, packed_cases, packed_matmul
from efflib.meter import Meter, guarded
from efflib.meter.compiled_loop import main_loop
from efflib.meter.compiling import compile_for_targets
from efflib.quantization.packing import pack

pytestmark = pytest.mark.slow

DEVICE = os.environ.get("EFFLIB_TEST_DEVICE", "cpu")
PTX = DEVICE != "cpu"
IN_16_BITS = (torch.float16, torch.bfloat16)
EVERY = torch.arange(2**16)
TEXTS = {torch.float16: (FP16_CODES, (-1024, -64)), torch.bfloat16: (BF16_CODES, (-128,))}


def twice(value, dtype):
    """A word that holds the value two times."""
    return word(torch.full((2,), value).to(dtype))


def codes_by_ptx(text, offsets, low, high, zero, dtype):
    """q - z of both half-words, [len(low), 2 half-words, 4 fields] float64."""
    values = {"$4": low | high << 16}
    values |= {f"${5 + i}": twice(o - zero, dtype) for i, o in enumerate(offsets)}
    registers = run(text, values)
    return torch.stack([halves(registers[f"${i}"], dtype).double() for i in range(4)], -1)


def codes(low, high, zero):
    fields = torch.stack(
        [torch.stack([h >> 4 * i & 0xF for i in range(4)], -1) for h in (low, high)]
    )
    return fields.transpose(0, 1).double() - zero


@pytest.mark.parametrize("dtype", IN_16_BITS, ids=str)
def test_every_half_word_beside_others_and_every_zero_point(dtype):
    text, offsets = TEXTS[dtype]
    for zero in range(16):
        other = EVERY.flip(0) if zero % 2 else (EVERY * 40503 + zero) % 2**16
        got = codes_by_ptx(text.value, offsets, EVERY, other, zero, dtype)
        assert torch.equal(got, codes(EVERY, other, zero))


@pytest.mark.parametrize("dtype, right, wrong", [
    (torch.float16, "0xEA", "0xE8"),
    (torch.float16, "$1, $4, 0x00F000F0", "$1, $4, 0x000F000F"),
    (torch.float16, "0x64006400", "0x64006401"),
    (torch.float16, "high, $4, 8", "high, $4, 7"),
    (torch.float16, "0x2C002C00", "0x2C003C00"),
    (torch.float16, "sixteenth, $6", "sixteenth, $5"),
    (torch.bfloat16, "0x43004300", "0x44004400"),
    (torch.bfloat16, "h3, $4, 12", "h3, $4, 8"),
])  # fmt: skip
def test_the_model_sees_a_wrong_instruction(dtype, right, wrong):
    text, offsets = TEXTS[dtype]
    assert right in text.value
    got = codes_by_ptx(text.value.replace(right, wrong), offsets, EVERY, EVERY.flip(0), 5, dtype)
    assert not torch.equal(got, codes(EVERY, EVERY.flip(0), 5))


@pytest.mark.parametrize("case", packed_cases(), ids=lambda case: case.name)
def test_the_compiled_kernel_has_these_instructions_and_few_others(case):
    threads = 32 * case.options["num_warps"]
    weights = w4a16_packed.BLOCK_N * w4a16_packed.BLOCK_K * w4a16_packed.TILES // threads
    bits = "0x64006400" if "fp16" in case.name else "0x43004300"
    columns = case.arguments["BM"] // 8  # of 8, as the instruction takes them
    for report in compile_for_targets(case, ["sm_80", "sm_90", "sm_100"], sass=True):
        assert not isinstance(report, Exception), report
        assert not report.problems
        assert report.ptx.count(bits) == weights // 2  # two codes each
        blocks = re.findall(r"{\s*\.reg \.b32 (?:high|one).*?}", report.ptx, re.DOTALL)
        registers = 4 + (3 if "fp16" in case.name else 2)  # no result overwrites an input
        assert {len(set(re.findall(r"%r\d+", block))) for block in blocks} == {registers}
        loop = main_loop(report.sass)
        assert report.mma == loop["HMMA"] == columns * weights // 8
        assert report.wgmma == report.tcgen05 == 0
        assert loop.total() < 3.4 * weights  # so that an H200's bandwidth can be used


def on(*tensors):
    return tuple(t.to(DEVICE) for t in tensors)


@pytest.mark.parametrize("dtype", IN_16_BITS, ids=str)
@pytest.mark.parametrize("M, N, K, granularity", [
    (1, 33, 1024, 128),  # whole tiles, two steps, two blocks of rows of W
    (1, 64, 192, 64),  # tiles of 64; the batch of tiles is not full
    (1, 20, 77, "channel"),  # the last half-word of a row is filled up
    (1, 100, 100, 32),  # the last group is short
    (1, 20, 300, "channel"),  # several tiles in a group
    (1, 24, 40, 8),  # a tile larger than a group
    (1, 7, 129, 128),  # a last group of one input
    (1, 1, 3, "channel"),
    (2, 33, 1024, 128),
    (8, 20, 77, "channel"),
    (16, 40, 256, 128),
    (9, 7, 129, 128),
])  # fmt: skip
def test_kernel_against_float64_and_the_layer(M, N, K, granularity, dtype):
    linear, x = layer(N, K, granularity), rows(M, K, dtype)
    w = linear.decode()
    y = x.double() @ w.double().T
    arguments = x, linear.words, linear.scale, linear.zeros
    if PTX:
        got = packed_matmul(*on(*arguments), size(linear)).cpu()
    else:
        with Meter() as m:
            got = packed_matmul(*map(guarded, arguments[:2]), *arguments[2:], size(linear), PTX)
        assert not m.unfilled
        tiles = linear.scale.shape[1] * -(-size(linear) // (128 if size(linear) > 64 else 64))
        assert m.reads["X"].bytes == -(-N // w4a16_packed.BLOCK_N) * M * K * x.itemsize
        read = {name: t.bytes for name, t in m.reads.items() if name != "X"}
        # no half-word twice, and none beyond the row
        assert read == {"Words": N * -(-K // 4) * 2, "Scale": N * tiles * 2, "Zeros": N * tiles}
    assert got.dtype == dtype and got.shape == (M, N)
    assert rms(got, y) <= allowed_rms(linear(x), y, dtype)
    assert near(got, y, error_bound(x, w, y))


@pytest.mark.parametrize("dtype", IN_16_BITS, ids=str)
def test_every_code_and_zero_point_at_every_place(dtype):
    """W = s (q - z) with x = unit vectors: y is the weight, exactly."""
    values = (torch.arange(16)[:, None] + torch.arange(16)) % 16
    zero = torch.arange(16).flip(0)[:, None].repeat(1, 2)
    scale = torch.full((16, 2), 0.5, dtype=torch.float16)
    want = (0.5 * (values - zero.repeat_interleave(8, dim=1))).to(dtype)
    packed = on(pack(values), scale, pack(zero.flatten()))
    for k in range(16):
        [x] = on(torch.eye(16, dtype=dtype)[k : k + 1])
        assert torch.equal(packed_matmul(x, *packed, 8, PTX)[0].cpu(), want[:, k])
    [x] = on(torch.eye(16, dtype=dtype))
    assert torch.equal(packed_matmul(x, *packed, 8, PTX).cpu().T, want)


def test_products_beyond_fp16_are_kept():
    """15 * 60000 is no fp16 number; the sum, scaled, is."""
    codes_ = torch.full((3, 128), 15)
    scale = torch.full((3, 1), 2.0**-12, dtype=torch.float16)
    x = torch.full((1, 128), 60000.0, dtype=torch.float16)
    got = packed_matmul(*on(x, pack(codes_), scale, pack(torch.zeros(3).int())), 128, PTX).cpu()
    assert torch.equal(got, (x.double().sum(1, True) * 15 * 2.0**-12).to(x.dtype).expand(1, 3))


@pytest.mark.skipif(PTX, reason="chosen for good on a GPU")
def test_which_rows_go_there(monkeypatch):
    linear, taken = layer(8, 64, 32), []

    def watched(*arguments):
        taken.append((len(arguments[0]), arguments[0].dtype))
        return packed_matmul(*arguments, ptx=False)

    def product(M, dtype):
        x = rows(M, 64, dtype)
        y = x.double() @ linear.decode().double().T
        got = w4a16.w4a16_matmul(x, linear.words, linear.scale, linear.zeros, 32)
        assert got.dtype == dtype and rms(got, y) <= allowed_rms(linear(x), y, dtype)

    monkeypatch.setattr(w4a16, "packed_matmul", watched)
    product(1, torch.float16)
    assert not w4a16_packed.runs_ptx(torch.device("cpu")) and not taken  # interpreted
    monkeypatch.setattr(w4a16, "runs_ptx", lambda device: True)
    for M in (1, 16, 17):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            product(M, dtype)
    assert taken == [(M, dtype) for M in (1, 16) for dtype in IN_16_BITS]


@pytest.mark.skipif(PTX or not torch.cuda.is_available(), reason="no GPU, or running on it")
def test_the_same_compiled_on_a_gpu():
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        command, env=environment | {"EFFLIB_TEST_DEVICE": "cuda"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
