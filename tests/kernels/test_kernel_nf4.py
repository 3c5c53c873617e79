"""NF4 decoding in Triton: bit-equal to `dequantize_nf4`, and the bytes on paper."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quantized_inputs import same_bits, weight

from efflib.kernels.inference_cost import least_nf4_scale_bytes, nf4_cost
from efflib.kernels.nf4 import BLOCKS, compile_cases, dequantize_nf4_triton
from efflib.meter import Meter, guarded
from efflib.meter.compiling import compile_report
from efflib.quantization.nf4 import NF4Weight, dequantize_nf4, nf4_codebook, quantize_nf4


@given(
    n=st.integers(1, 3000),
    double=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    spread=st.floats(1e-3, 1e3),
    seed=st.integers(0, 99),
)
@example(1, True, torch.float32, 1.0, 0)
@example(64 * 17 + 1, False, torch.bfloat16, 1.0, 0)  # a second program with a block of one weight
@settings(max_examples=25)
def test_equal_bit_by_bit_and_bytes_on_paper(n, double, dtype, spread, seed):
    q = quantize_nf4(spread * weight(n, seed), double)
    with Meter() as m:
        got = dequantize_nf4_triton(q._replace(packed=guarded(q.packed)), dtype)
    assert not m.unfilled and same_bits(got, dequantize_nf4(q).to(dtype))
    cost = nf4_cost(n, double, got.itemsize, BLOCKS)
    assert {name: t.bytes for name, t in m.reads.items()} == cost.reads
    assert {name: t.bytes for name, t in m.writes.items()} == cost.writes
    assert m.bytes == cost.bytes and m.writes["Out"].reuse == m.reads["Packed"].reuse == 1


def test_second_scales_of_more_than_256_blocks_and_least_bytes():
    w = weight((130, 129))
    w[3:5] = 0  # blocks of zeros
    q = quantize_nf4(w)
    assert len(q.scales.second) == 2
    with Meter() as m:
        got = dequantize_nf4_triton(q)
    assert same_bits(got, dequantize_nf4(q)) and got.shape == (130, 129)
    assert m.reads["Packed"].coalescing > 0.99  # the last sector is not full
    scales = sum(m.reads[name].unique_bytes for name in ("A", "Second"))
    assert scales + 4 == least_nf4_scale_bytes(w.numel())


def test_every_pair_of_codes():
    """All 256 bytes, scale 1: the levels themselves, the high half first."""
    packed = torch.arange(256, dtype=torch.uint8)
    got = dequantize_nf4_triton(NF4Weight(packed, torch.ones(8), (512,)))
    levels = nf4_codebook()
    assert torch.equal(got, torch.cartesian_prod(levels, levels).flatten())


def test_compiled_code_does_not_fuse_the_two_roundings_of_a_scale():
    """What the interpreter cannot show: a GPU would make dynamic * second + mean one operation."""
    [case] = compile_cases()
    fused = compile_report(case.kernel, case.arguments, "sm_90")
    apart = compile_report(case.kernel, case.arguments, "sm_90", **case.options)
    assert case.options == {"enable_fp_fusion": False}
    assert "fma.rn.f32" in fused.ptx and "fma" not in apart.ptx


def test_what_does_not_fit_is_an_error():
    q = quantize_nf4(weight((3, 50)))
    for change, message in (
        ({"shape": (3, 80)}, r"shape \(3, 80\) needs codes and scales \[\(120,\), \(4,\)"),
        ({"shape": (0, 3)}, "needs codes and scales"),
        ({"scales": q.scales._replace(codes=q.scales.codes.int())}, "must be .*got .*int32"),
        (
            {"scales": q.scales._replace(second=torch.ones(2))},
            r"got \[\(75,\), \(3,\), \(2,\), \(\)\]",
        ),
        ({"scales": q.scales._replace(mean=None)}, r"got .*\(1,\), None\]"),
        ({"packed": q.packed.repeat_interleave(2)[::2]}, "contiguous; got"),
        ({"packed": q.packed.int()}, "must be .*got .*int32"),
    ):
        with pytest.raises(ValueError, match=message):
            dequantize_nf4_triton(q._replace(**change))
    with pytest.raises(ValueError, match="dtype must be one of .*, got torch.float64"):
        dequantize_nf4_triton(q, torch.float64)
