"""Compiling for GPUs that are not there: what the interpreter lets pass, and counts of the rest."""

import subprocess
import sys
from importlib import import_module

import pytest
import torch
import triton
import triton.language as other_name
import triton.language as tl
from triton.language import cdiv
from triton_version import OLDER

from efflib.meter import Meter, compiling
from efflib.meter.__main__ import CATALOGUE, COLUMNS, main, table
from efflib.meter.compiled_loop import main_loop
from efflib.meter.compiling import Case, CompileFailed, CompilerMissing, compile_for_targets
from efflib.meter.compiling import compile_report as report
from efflib.meter.kernel_source import module_source, parameters
from efflib.meter.sample_kernel import compile_cases, matmul_kernel

pytestmark = pytest.mark.slow

SCALE = tl.constexpr(2.0)
LIMIT = tl.constexpr(float("inf"))
PLAIN = 3


@triton.jit
def scaled(x):
    return x


unscaled = scaled
WORDS = {"not": "a constant"}


@triton.jit
def scaled(x):  # noqa: F811
    return tl.minimum(x * SCALE, LIMIT)


@triton.jit
def uses_others(X, Out, N: other_name.constexpr, BIAS: tl.constexpr):
    WORDS = other_name.arange(0, N)  # not the dictionary above
    tl.store(Out + WORDS, scaled(tl.load(X + WORDS)) + BIAS, mask=WORDS < cdiv(N, 1))


@triton.jit
def uses_two_of_one_name(X):
    tl.store(X, scaled(unscaled(tl.load(X))))


@triton.jit
def uses_a_plain_global(Out):
    tl.store(Out, PLAIN)


@triton.jit
def uses_a_dictionary(X):
    tl.store(X, len(WORDS))


@triton.jit
def small_dot(A, B, Out, K: tl.constexpr):
    i, k = tl.arange(0, 16), tl.arange(0, K)
    a = tl.load(A + i[:, None] * K + k[None, :])
    b = tl.load(B + k[:, None] * 16 + i[None, :])
    tl.store(Out + i[:, None] * 16 + i[None, :], tl.dot(a, b))


@triton.jit
def changes_type(X, Out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    acc = tl.zeros([N], tl.int32)
    for _ in range(n):
        acc = acc + tl.load(X + i)
    tl.store(Out + i, acc)


@triton.jit
def described(X, Out, rows, R: tl.constexpr, C: tl.constexpr):
    x = tl.make_tensor_descriptor(X, [rows, C], [C, 1], [R, C])
    r = tl.program_id(0) * R
    at = (r + tl.arange(0, R)[:, None]) * C + tl.arange(0, C)[None, :]
    tl.store(Out + at, x.load([r, 0]))


def test_each_generation_uses_its_tensor_cores():
    [case] = compile_cases()
    a, h, b = compile_for_targets(case, ["sm_80", "sm_90", "sm_100"])
    assert a.mma > 0 and a.cp_async > 0 and a.wgmma == a.tcgen05 == 0
    assert h.wgmma > 0 and h.mma == h.tcgen05 == 0
    assert b.tcgen05 > 0 and b.mma == b.wgmma == 0
    for result, capability in ((a, 80), (h, 90), (b, 100)):
        assert result.warps == 8 and 0 < result.registers <= 255 and not result.problems
        assert f".target sm_{capability}" in result.ptx
        # the pipeline holds at least two stages of a tile of A and of B, 2 bytes each
        assert result.shared_bytes >= 2 * (128 * 64 + 64 * 128) * 2


def test_too_much_shared_memory_and_spills_are_problems():
    arguments = compile_cases()[0].arguments
    big = report(matmul_kernel, arguments, "sm_90", num_warps=8, num_stages=8)
    assert (
        big.shared_bytes > 227 * 1024 and "bytes of shared memory, has 232,448" in big.problems[0]
    )
    narrow = report(matmul_kernel, arguments, "sm_80", num_warps=2, num_stages=2)
    assert narrow.stack_bytes > 0 and narrow.registers == 255
    assert any("spills registers" in problem for problem in narrow.problems)


@triton.jit
def exclusive_or(X, Out, n, R: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, 32)
    acc = tl.load(X + i)
    for step in range(n):
        for k in tl.static_range(STEPS):
            acc = (acc ^ tl.load(X + step * 32 + i + k * R)) * 3
    tl.store(Out + i, acc)


def test_instructions_of_the_main_loop_are_counted_in_the_machine_code():
    arguments = {"X": "*i32", "Out": "*i32", "n": "i32", "R": 1 << 20}
    for target in ("sm_80", "sm_90", "sm_100"):
        loops = []
        for steps in (5, 10):
            one = report(exclusive_or, arguments | {"STEPS": steps}, target, True, num_warps=1)
            assert "BRA" in one.sass and main_loop(one.sass)["BRA"] >= 1
            loops.append(main_loop(one.sass))
        # a load for each element of X; the compiler may repeat the loop's body a few times
        passes = loops[0]["LDG"] // 5
        assert passes >= 1 and loops[0]["LDG"] == 5 * passes
        assert loops[1]["LDG"] % 10 == 0 and loops[1].total() > loops[1]["LDG"] + loops[1]["LOP3"]
    assert one.ptx and not report(exclusive_or, arguments | {"STEPS": 1}).sass


def test_the_longest_loop_is_the_main_one():
    sass = """
    .L_x_0:
            /*0000*/                   MOV R1, c[0x0][0x28] ;
            /*0010*/              @!P0 BRA `(.L_x_2) ;
    .L_x_1:
            /*0020*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
            /*0030*/               @P1 FFMA.FTZ R4, R4, R5, R6 ;
            /*0040*/                   FFMA R5, R4, R5, R6 ;
            /*0050*/         @!UP0 UIADD3 UR4, UR4, 0x1, URZ ;
            /*0060*/               @P0 BRA P1, `(.L_x_1) ;
    .L_x_2:
            /*0070*/                   EXIT ;
    .L_x_3:
            /*0080*/                   BRA `(.L_x_3);
    """
    assert main_loop(sass) == {"LDG": 1, "FFMA": 2, "UIADD3": 1, "BRA": 1}
    assert not main_loop(sass.split(".L_x_1:")[0]) and main_loop("") == {}


def test_descriptors_become_tma():
    x = torch.empty(64, 64, dtype=torch.float16)
    arguments = {"X": x, "Out": "*fp16", "rows": 64, "R": 32, "C": 64}
    assert report(described, arguments, "sm_90").tma > 0
    assert report(described, arguments, "sm_80").tma == 0


def test_the_compiler_refuses_what_the_interpreter_accepts():
    a, b = (torch.arange(128.0).reshape(shape).half() for shape in ((16, 8), (8, 16)))
    out = torch.empty(16, 16)
    with Meter():
        small_dot[(1,)](a, b, out, 8)  # runs, and rightly
    assert torch.equal(out, a.float() @ b.float())  # whole numbers: exact in any order
    with pytest.raises(CompileFailed, match=r"small_dot for sm_90: [\s\S]*K >= 16"):
        report(small_dot, {"A": a, "B": b, "Out": out, "K": 8}, "sm_90")
    arguments = {"X": "*fp32", "Out": "*fp32", "n": "i32", "N": 16}
    with pytest.raises(CompileFailed, match="Loop-carried variable acc has initial type"):
        report(changes_type, arguments, "sm_90")
    with pytest.raises(CompileFailed, match="Cannot access global variable PLAIN"):
        report(uses_a_plain_global, {"Out": "*i32"}, "sm_90")


def test_a_kernel_brings_what_it_uses():
    source, name = module_source(triton.autotune([triton.Config({"N": 16})], key=[])(uses_others))
    assert name == "uses_others"
    for line in ("SCALE = tl.constexpr(", "LIMIT = tl.constexpr(float(", "language as other_name"):
        assert line in source
    assert source.index("def scaled") < source.index("def uses_others")
    assert "autotune" not in source and source.count("@triton.jit") == 2
    assert parameters(uses_others) == {"X": False, "Out": False, "N": True, "BIAS": True}
    x = torch.empty(32)
    result = report(uses_others, {"X": x, "Out": x, "N": 32, "BIAS": 1.5}, "sm_80", num_warps=1)
    assert result.warps == 1 and result.mma == 0


def test_what_is_no_kernel_is_an_error():
    with pytest.raises(TypeError, match="not a @triton.jit kernel: 3"):
        report(3, {})
    with pytest.raises(TypeError, match="uses_two_of_one_name uses two functions of one name"):
        report(uses_two_of_one_name, {"X": "*i32"})
    with pytest.raises(TypeError, match="uses_a_dictionary uses WORDS: not a @triton.jit kernel"):
        report(uses_a_dictionary, {"X": "*i32"})


def test_wrong_arguments_and_targets_are_errors():
    with pytest.raises(ValueError, match=r"missing \['B', 'K'\], unknown \['Q'\]"):
        report(small_dot, {"A": "*fp16", "Out": "*fp32", "Q": 1})
    whole = {"A": "*fp16", "B": "*fp16", "Out": "*fp32", "K": 16}
    with pytest.raises(ValueError, match="target must be one of .*'sm_90'.*, got 'sm_75'"):
        report(small_dot, whole, "sm_75")
    with pytest.raises(TypeError, match="argument A must be a tensor, a number or a type name"):
        report(small_dot, whole | {"A": [1]})


def test_arguments_are_typed_as_a_launch_types_them():
    """1 and None are constants; multiples of 16 and aligned tensors are known to be that."""
    x = torch.empty(64, dtype=torch.bfloat16)
    arguments = {"X": x, "Out": x[1:], "n": 1, "N": 16}
    job = compiling._job(changes_type, arguments, "sm_90", {})
    assert job["signature"] == {"X": "*bf16", "Out": "*bf16", "n": "constexpr", "N": "constexpr"}
    assert job["constants"] == {"n": 1, "N": 16} and job["aligned"] == ["X"]
    job = compiling._job(changes_type, arguments | {"n": 2**40, "X": "*fp16"}, "sm_90", {})
    assert job["signature"]["n"] == "i64" and job["aligned"] == ["X", "n"]


def test_without_ptxas_the_error_says_what_is_missing(monkeypatch):
    hide = (
        "import runpy; from triton import knobs;"
        "knobs.NvidiaTool.from_path = staticmethod(lambda path: None);"
        "runpy.run_module('efflib.meter.compile_worker', run_name='__main__')"
    )
    monkeypatch.setattr(compiling, "WORKER", [sys.executable, "-c", hide])
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    arguments = {"A": "*fp16", "B": "*fp16", "Out": "*fp32", "K": 16}
    with pytest.raises(CompilerMissing, match="Cannot find ptxas.*: Triton's wheel"):
        report(small_dot, arguments)


def test_a_process_that_dies_is_an_error(monkeypatch):
    monkeypatch.setattr(compiling, "WORKER", [sys.executable, "-c", "raise SystemExit('no')"])
    with pytest.raises(RuntimeError, match=r"compiling process ended with 1:\nno"):
        report(small_dot, {"A": "*fp16", "B": "*fp16", "Out": "*fp32", "K": 16})


def test_the_table_shows_results_and_errors():
    good = {"A": "*fp16", "B": "*fp16", "Out": "*fp32", "K": 16}
    cases = [Case("fits", small_dot, good), Case("too small", small_dot, good | {"K": 8})]
    text, all_good = table(cases, ["sm_80"])
    lines = text.splitlines()
    assert not all_good and lines[0].split() == " ".join(COLUMNS).split()
    assert lines[1].startswith("fits") and lines[1].endswith("ok") and "mma " in lines[1]
    assert lines[2].startswith("too small") and "CompileFailed: " in lines[2]


def test_the_command_prints_the_table(capsys):
    """Every kernel of the course compiles for every target it is for, without spills."""
    code = main(["compile"])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[0] == "kernel"
    for row in rows:  # Triton 3.6 spills 16 bytes in one of the kernels for sm_100
        assert row.endswith("  ok") or (OLDER and "sm_100" in row), row
    assert code == 0 or OLDER
    for module in CATALOGUE:
        for case in import_module(module).compile_cases():
            named = [row for row in rows if row.startswith(f"{case.name}  ")]
            assert len(named) == len(case.targets) > 0
            assert all(target in row for target, row in zip(case.targets, named, strict=True))
    with pytest.raises(SystemExit):
        main(["compile", "--target", "sm_75"])


def test_compiling_does_not_import_triton_before_the_kernel_does():
    code = (
        "import sys; import efflib.meter.compiling; early = 'triton' in sys.modules;"
        "from efflib.meter import Meter; print(early, 'triton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"], done.stderr
