"""W8A8 in Triton: sums exact in int32, scales applied as the PyTorch twin does, bytes on paper."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quantized_inputs import codes, steps

from efflib.kernels.inference_cost import w8a8_cost
from efflib.kernels.w8a8 import int8_matmul, w8a8_matmul
from efflib.meter import Meter, guarded
from efflib.quantization.w8a8 import MAX_CHANNELS


@given(
    M=st.sampled_from([1, 2, 17, 130]),
    N=st.integers(1, 140),
    K=st.integers(1, 200),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    seed=st.integers(0, 9),
)
@example(130, 140, 65, torch.bfloat16, 0)  # two blocks of each, one channel in the last step
@settings(max_examples=15)
def test_equal_to_the_twin_and_to_the_paper(M, N, K, dtype, seed):
    x, w, s_x, s_w = codes(M, K, seed), codes(N, K, seed + 1), steps(M), steps(N)
    with Meter() as m:
        got = w8a8_matmul(guarded(x), guarded(w), s_x, s_w, dtype)
    total = x.long() @ w.long().T
    # scales first, then times the sum: the order of quantization.w8a8, so equal bit by bit
    assert torch.equal(got, (total.int() * (s_x[:, None] * s_w)).to(dtype))
    exact = total.double() * s_x.double()[:, None] * s_w.double()
    # two products and the sum are rounded to float32, then the result to dtype
    u = {torch.float32: 0.0, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}[dtype]
    tiny = torch.finfo(dtype).smallest_normal * 2 * u  # of a subnormal half
    assert ((got.double() - exact).abs() <= (3.01 * 2.0**-24 + u * 1.01) * exact.abs() + tiny).all()
    cost = w8a8_cost((M, N, K), got.itemsize)
    assert {name: t.bytes for name, t in m.reads.items()} == cost.reads
    assert {name: t.bytes for name, t in m.writes.items()} == cost.writes
    assert (m.bytes, m.flops) == (cost.bytes, cost.flops) and not m.unfilled


def test_sums_are_exact_where_float32_is_not():
    """K 127^2 > 2^24, odd: float32 would round it."""
    K = 2101
    x, w = torch.full((2, K), 127, dtype=torch.int8), torch.full((3, K), 127, dtype=torch.int8)
    w[1], x[1] = -127, codes(1, K)[0]
    want = x.long() @ w.long().T
    assert want[0, 0] == K * 127**2 > 2**24 and want.float().long()[0, 0] != want[0, 0]
    with Meter() as m:
        got = int8_matmul(x, w)
    assert got.dtype == torch.int32 and torch.equal(got.long(), want)
    cost = w8a8_cost((2, 3, K), None)
    assert (m.bytes, m.flops) == (cost.bytes, cost.flops)


def test_all_codes_and_strides():
    x = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8).reshape(4, 64)
    wide = torch.stack([x, x.flip(1)], dim=1).reshape(4, 128)
    want = x.long() @ wide[:, 64:].long().T
    assert torch.equal(int8_matmul(x, wide[:, 64:]).long(), want)


@pytest.mark.parametrize("change, message", [
    ({"x": codes(2, 16).int()}, "codes must be int8, got torch.int32 and torch.int8"),
    ({"w": codes(3, 8)}, r"need x \[M, K\] and w \[N, K\], not empty: x \(2, 16\), w \(3, 8\)"),
    ({"w": codes(0, 16)}, "not empty"),
    ({"x": codes(16, 2).T, "w": codes(3, 16)}, "must be contiguous"),
    ({"x_scale": steps(3)}, r"need x_scale \[2\] and w_scale \[3\], got \(\(3,\), \(3,\)\)"),
    ({"w_scale": steps(3).half()}, "scales float32"),
    ({"dtype": torch.int8}, "dtype of .* and torch.int8"),
    ({name: torch.empty(1, MAX_CHANNELS + 1, dtype=torch.int8) for name in "xw"}, "leave int32"),
])  # fmt: skip
def test_what_does_not_fit_is_an_error(change, message):
    good = {"x": codes(2, 16), "w": codes(3, 16), "x_scale": steps(2), "w_scale": steps(3)}
    with pytest.raises(ValueError, match=message):
        w8a8_matmul(**good | {"dtype": torch.float32} | change)
