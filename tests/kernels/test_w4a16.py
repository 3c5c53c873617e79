"""W4A16 in Triton: right to rounding, 4 bits a weight and its metadata read, and nothing else."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from quantized_inputs import error_bound, layer, rows, size
from rounding import U, allowed_rms, near, rms

from efflib.kernels.inference_cost import w4a16_cost
from efflib.kernels.w4a16 import w4a16_matmul
from efflib.meter import Meter, guarded
from efflib.quantization.packing import pack


def kernel(linear, x):
    return w4a16_matmul(x, guarded(linear.words), linear.scale, linear.zeros, size(linear))


@pytest.mark.parametrize("dtype", U, ids=str)
@pytest.mark.parametrize("M, N, K, granularity", [
    (1, 40, 256, 128),
    (1, 20, 77, "channel"),  # the last word of a row is filled up
    (3, 100, 100, 32),  # the last group is short
    (66, 20, 300, "channel"),  # several tiles in a group, two blocks of rows
    (5, 24, 40, 8),  # a tile larger than a group
])  # fmt: skip
def test_kernel_against_float64_and_the_layer(M, N, K, granularity, dtype):
    linear, x = layer(N, K, granularity), rows(M, K, dtype)
    w = linear.decode()
    y = x.double() @ w.double().T
    with Meter() as m:
        got = kernel(linear, guarded(x))
    assert not m.unfilled and got.dtype == dtype and got.is_contiguous()
    # the layer decodes, rounds to dtype, multiplies
    assert rms(got, y) <= allowed_rms(linear(x), y, dtype)
    assert near(got, y, error_bound(x, w, y))


@given(
    M=st.sampled_from([1, 1, 2, 65]),
    N=st.integers(1, 40),
    K=st.integers(1, 140),
    granularity=st.sampled_from(["channel", 8, 16, 40, 64, 128]),
    seed=st.integers(0, 9),
)
@example(1, 7, 129, 128, 0)  # a last group of one input
@example(65, 66, 40, 8, 0)  # two blocks of rows and of columns
@settings(max_examples=12)
def test_counted_bytes_and_flops_are_those_on_paper(M, N, K, granularity, seed):
    linear, x = layer(N, K, granularity, seed), rows(M, K)
    with Meter() as m:
        got = kernel(linear, guarded(x))
    w = linear.decode()
    y = x.double() @ w.double().T
    assert near(got, y, error_bound(x, w, y))
    cost = w4a16_cost((M, N, K), size(linear), x.itemsize)
    assert {name: t.bytes for name, t in m.reads.items()} == cost.reads
    assert {name: t.bytes for name, t in m.writes.items()} == cost.writes
    assert (m.bytes, m.flops) == (cost.bytes, cost.flops)
    # each byte that the layer stores is asked for; no word is read twice by one block of rows
    stored = {"Words": linear.words, "Scale": linear.scale}
    for name, tensor in stored.items():
        assert m.reads[name].unique_bytes == tensor.numel() * tensor.itemsize
    assert m.reads["Zeros"].unique_bytes == -(-linear.scale.numel() // 2)
    assert m.reads["Words"].reuse == (2 if M > 64 else 1)


def test_one_row_reads_four_bits_a_weight_and_metadata():
    """20 bits for 128 weights: 4.15625 bits, 3.85 times less than 16."""
    N, K = 32, 512
    linear = layer(N, K, 128)
    with Meter() as m:
        w4a16_matmul(rows(1, K, torch.float16), linear.words, linear.scale, linear.zeros, 128)
    weight = sum(m.reads[name].unique_bytes for name in ("Words", "Scale", "Zeros"))
    assert 8 * weight / (N * K) == 4 + 20 / 128
    requested = sum(m.reads[name].bytes for name in ("Words", "Scale", "Zeros"))
    assert 8 * requested / (N * K) == 4 + 24 / 128  # zero points come as bytes
    assert m.reads["Words"].coalescing == 1  # all of each 32-byte sector is used
    cost = w4a16_cost((1, 4096, 4096), 128, 2)
    assert 2 * 4096**2 / (cost.bytes - cost.reads["X"] - 8192) == pytest.approx(16 / 4.1875)


def test_every_code_and_zero_point_at_every_place_of_a_word():
    """W = s (q - z) with x = unit vectors: y is the weight, exactly."""
    codes = (torch.arange(16)[:, None] + torch.arange(16)) % 16  # [N, K]
    zero = torch.arange(16).flip(0)[:, None].repeat(1, 2)  # [N, groups of 8]
    scale = torch.full((16, 2), 0.5, dtype=torch.float16)
    want = 0.5 * (codes - zero.repeat_interleave(8, dim=1))
    arguments = pack(codes), scale, pack(zero.flatten()), 8
    assert torch.equal(w4a16_matmul(torch.eye(16), *arguments).T, want)
    for k in range(16):
        assert torch.equal(w4a16_matmul(torch.eye(16)[k : k + 1], *arguments)[0], want[:, k])


def test_what_does_not_fit_is_an_error():
    linear, x = layer(8, 64, 32), rows(2, 64)
    good = dict(x=x, words=linear.words, scale=linear.scale, zeros=linear.zeros, group_size=32)
    for change, message in (
        ({"group_size": 12}, "groups must be of whole words, 8 codes, or one group; got size 12"),
        ({"group_size": 0}, "got size 0"),
        ({"group_size": 64}, r"K = 64 in groups of 64 does not fit: .*scale \(8, 2\)"),
        ({"x": rows(2, 72)}, "K = 72 in groups of 32 does not fit"),
        ({"x": rows(2, 64)[0]}, r"need x \[M, K\]"),
        ({"x": rows(2, 64).double()}, "got .*torch.float64"),
        ({"scale": linear.scale.float()}, "scale float16"),
        ({"zeros": linear.zeros[:1]}, r"16 zero points do not fit zeros \(1,\)"),
        ({"x": rows(64, 64).T}, "must be contiguous in their last dimension"),
    ):
        with pytest.raises(ValueError, match=message):
            w4a16_matmul(**good | change)
