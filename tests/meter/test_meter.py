"""The meter counts exactly: bytes, elements, sectors, FLOPs, tiles."""

import meter_kernels as kernels
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor
from triton_version import OLDER

from efflib.meter import Meter
from efflib.meter.hooks import Hooks
from efflib.meter.sample_kernel import matmul_kernel
from efflib.meter.traffic import warp_sectors

cdiv = triton.cdiv


def whole(*shape):
    """Whole numbers, whose sums are exact in any order."""
    return torch.randint(-9, 10, shape).float()


@given(n=st.integers(1, 100), block=st.sampled_from([4, 16, 64]))
@settings(max_examples=15)
def test_a_copy_moves_every_byte_once(n, block):
    x, out = torch.randn(n).half(), torch.zeros(n).half()
    with Meter() as m:
        kernels.copy[(cdiv(n, block),)](x, out, n, block)
    assert torch.equal(x, out)
    assert m.reads["X"].bytes == m.reads["X"].unique_bytes == m.writes["Out"].bytes == 2 * n
    assert (m.read_bytes, m.written_bytes, m.bytes) == (2 * n, 2 * n, 4 * n)
    assert m.reads["X"].reuse == 1
    assert m.reads["X"].active == n and m.reads["X"].lanes == cdiv(n, block) * block
    assert (m.counts("X") == 1).all() and (m.counts("Out", "write") == 1).all()
    assert (m.counts("Out") == 0).all()
    assert m.programs == cdiv(n, block) and m.flops == m.exponentials == 0


@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3), blocks=st.tuples(*[st.sampled_from([16, 32])] * 3)
)
@settings(max_examples=10)
def test_a_matmul_reads_each_operand_once_per_block_of_the_other(sizes, blocks):
    (m_, n, k), (bm, bn, bk) = sizes, blocks
    a, b, c = whole(m_, k), whole(k, n), torch.empty(m_, n)
    grid = cdiv(m_, bm), cdiv(n, bn)
    with Meter() as m:
        matmul_kernel[grid](a, b, c, m_, n, k, k, n, n, bm, bn, bk)
    assert torch.equal(c, a @ b)
    assert m.reads["A"].bytes == 4 * m_ * k * grid[1] and m.reads["A"].unique_bytes == 4 * m_ * k
    assert m.reads["B"].bytes == 4 * k * n * grid[0] and m.reads["B"].reuse == grid[0]
    assert m.writes["C"].bytes == 4 * m_ * n
    assert m.flops == 2 * grid[0] * grid[1] * bm * bn * cdiv(k, bk) * bk
    assert m.dots == {(bm, bn, bk): grid[0] * grid[1] * cdiv(k, bk)}
    assert (m.counts("A") == grid[1]).all() and m.counts("B").shape == (k, n)
    assert m.largest_tile == max(bm * bn, bm * bk, bk * bn)


@pytest.mark.parametrize("dtype, width", [
    (torch.float32, 4), (torch.bfloat16, 2), (torch.float8_e5m2, 1), (torch.int64, 8)
])  # fmt: skip
def test_bytes_follow_the_type(dtype, width):
    x = torch.arange(16).to(dtype)
    out = torch.empty_like(x)
    with Meter() as m:
        kernels.copy[(1,)](x, out, 16, 16)
    assert torch.equal(x.view(torch.uint8), out.view(torch.uint8))
    assert m.reads["X"].bytes == m.writes["Out"].bytes == 16 * width


def copied(x: torch.Tensor, rows: int, columns: int) -> Meter:
    out = torch.empty(32, 32, dtype=x.dtype)
    with Meter() as m:
        kernels.copy_tile[(1,)](x, out, rows, columns, *x.stride(), *out.stride(), 32, 32)
    return m


def test_coalescing_follows_the_addresses_and_not_the_tile():
    rows = torch.randn(32, 32).half()
    assert copied(rows, 32, 32).reads["X"].coalescing == 1  # 32 neighbours: 64 bytes, 2 sectors
    assert copied(rows.t(), 32, 32).reads["X"].coalescing == 1  # the layout turns with it
    apart = torch.randn(32, 32, 16).half()[:, :, 0]  # each element in its own sector
    assert copied(apart, 32, 32).reads["X"].coalescing == 2 / 32
    assert copied(apart, 32, 32).reads["X"].sectors == 32 * 32
    shared = torch.randn(32).half().expand(32, 32)  # one row for all
    read = copied(shared, 32, 32).reads["X"]
    assert read.coalescing == 1 and read.unique_bytes == 64 and read.reuse == 32
    shifted = torch.randn(33).half()[1:].expand(32, 32)  # begins 2 bytes into a sector
    assert copied(shifted, 32, 32).reads["X"].coalescing == 64 / (3 * 32)
    few = copied(rows, 32, 1).reads["X"]  # a column: 32 rows of 64 bytes
    assert few.active == 32 and few.sectors == 32 and few.coalescing == 2 / 32


@given(
    addresses=st.lists(st.integers(0, 2000), min_size=1, max_size=80),
    width=st.sampled_from([1, 2, 4, 8]),
    data=st.data(),
)
def test_sectors_of_a_row_are_those_of_its_warps(addresses, width, data):
    active = data.draw(st.lists(st.booleans(), min_size=len(addresses), max_size=len(addresses)))
    addresses = np.array(addresses, np.int64) * width
    expected = [0, 0]
    for start in range(0, len(addresses), 32):
        warp = {a for a, on in zip(addresses[start:][:32], active[start:][:32], strict=True) if on}
        expected[0] += len({a // 32 for a in warp})
        expected[1] += len(warp) * width
    assert warp_sectors(addresses, np.array(active), width) == tuple(expected)


@pytest.mark.skipif(OLDER, reason="the interpreter has no dot_scaled of packed numbers")
def test_a_scaled_dot_counts_the_numbers_and_not_the_bytes():
    m_, n, k = 16, 16, 64
    a = torch.full((m_, k // 2), 0x22, dtype=torch.uint8)  # two e2m1 codes 2: 1.0 each
    b, out = torch.ones(k, n).to(torch.float8_e5m2), torch.empty(m_, n)
    scale_a = torch.full((m_, k // 32), 128, dtype=torch.uint8)  # 2^(128 - 127)
    scale_b = torch.full((n, k // 32), 127, dtype=torch.uint8)
    with Meter() as m:
        kernels.dot_scaled[(1,)](a, scale_a, b, scale_b, out, m_, n, k)
    assert (out == 2 * k).all()
    assert m.flops == 2 * m_ * n * k and m.reads["A"].bytes == m_ * k // 2


def test_tensor_descriptors_of_kernel_and_host():
    x = torch.randn(10, 16)
    for described in (True, False):
        out = torch.zeros_like(x)
        with Meter() as m:
            if described:
                kernels.copy_described[(2,)](x, out, 10, 16, 8, 16)
            else:
                of = [TensorDescriptor.from_tensor(t, [8, 16]) for t in (x, out)]
                kernels.copy_descriptor[(2,)](*of, 8)
        assert torch.equal(x, out)
        names = ("X", "Out") if described else ("x", "out")
        assert m.reads[names[0]].bytes == m.writes[names[1]].bytes == 10 * 16 * 4
        assert m.reads[names[0]].lanes == 2 * 8 * 16


def test_block_pointers_are_refused_or_metered():
    x, out = torch.randn(16), torch.empty(16)
    try:
        with Meter() as m:
            kernels.block_pointer[(1,)](x, out, 16)
    except InterpreterError as error:
        assert "Block pointers have been removed" in str(error)
    else:  # Triton up to 3.8
        assert m.reads["X"].bytes == 64 and torch.equal(x, out)


def test_atomics_count_in_both_directions():
    x, out = torch.ones(64), torch.zeros(1)
    with Meter() as m:
        kernels.total[(4,)](x, out, 16, True)
    assert out.item() == 64
    assert m.reads["Out"].bytes == m.writes["Out"].bytes == 4 * 4
    assert m.reads["Out"].unique_bytes == m.writes["Out"].unique_bytes == 4


def test_one_load_from_two_tensors_and_one_tensor_under_two_names():
    a, b, out = torch.randn(3, 16)
    with Meter() as m:
        kernels.one_of_two[(1,)](a, b, out, 16)
    assert torch.equal(out[::2], a[::2]) and torch.equal(out[1::2], b[1::2])
    assert m.reads["A"].bytes == m.reads["B"].bytes == 8 * 4
    with Meter() as m:
        kernels.one_of_two[(1,)](a, a, out, 16)
    assert torch.equal(out, a) and m.reads["A"].bytes == m.reads["B"].bytes == 8 * 4


def test_tuples_and_casts_of_pointers():
    a, b, out = torch.randn(3, 16)
    with Meter() as m:
        kernels.add_tuple[(1,)]((a, b), out, 16)
    assert torch.equal(out, a + b) and m.reads["pair[0]"].bytes == m.reads["pair[1]"].bytes == 64
    words, parts = torch.arange(8, dtype=torch.int16) * 300, torch.empty(16, dtype=torch.uint8)
    with Meter() as m:
        kernels.bytes_of[(1,)](words, parts, 16)
    assert torch.equal(parts, words.view(torch.uint8)) and m.reads["X"].bytes == 16


def test_launches_add_up_and_counts_are_of_the_last():
    x = torch.randn(16)
    with Meter(trace=True) as m:
        kernels.copy[(1,)](x, torch.empty(16), 16, 16)
        kernels.copy[(1,)](x[:8], torch.empty(8), 8, 16)
    assert [launch.kernel for launch in m.launches] == ["copy", "copy"]
    assert m.reads["X"].bytes == m.reads["X"].unique_bytes == (16 + 8) * 4
    assert m.counts("X").shape == (8,)
    assert [(step[0], step[2], len(step[3])) for step in m.trace] == [
        (0, "read", 2), (0, "write", 2), (1, "read", 1), (1, "write", 1)
    ]  # fmt: skip
    with pytest.raises(KeyError, match=r"no tensor argument 'Y'; there are \['Out', 'X'\]"):
        m.counts("Y")


def test_a_kernel_may_come_through_heuristics_and_autotune():
    tuned = triton.autotune([triton.Config({"N": 16})], key=["n"])(kernels.copy)
    x, out = torch.randn(30), torch.empty(30)
    with Meter() as m:
        tuned[lambda meta: (cdiv(30, meta["N"]),)](x, out, 30)
    assert torch.equal(x, out) and m.reads["X"].bytes == 120


def test_the_interpreter_is_left_as_it_was():
    def state():
        return tl.core.tensor.__init__, hasattr(tl.core.tensor, "__del__"), np.geterr()

    before = state()
    with pytest.raises(RuntimeError, match="do not nest"), Meter(), Meter():
        pass
    with pytest.raises(InterpreterError), Meter():  # an error of the kernel that is no fault
        kernels.copy[(1,)](torch.randn(16), torch.empty(16), 16, 15)
    with pytest.raises(ZeroDivisionError), Meter():
        1 / 0  # noqa: B018
    assert Hooks.running is None and state() == before
    x, out = torch.randn(16), torch.empty(16)
    kernels.copy[(1,)](x, out, 16, 16)
    assert torch.equal(x, out)
