"""Each fault is found in a kernel that has it, and not in its clean twin."""

import meter_kernels as kernels
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from triton_version import OLDER

from efflib.meter import DataRace, KernelFault, Meter, OutOfBounds, UnknownAddress, guarded


def copy_tile(x, out, rows, columns, x_strides=None):
    with Meter():
        strides = x_strides or x.stride()
        kernels.copy_tile[(1,)](x, out, rows, columns, *strides, *out.stride(), 32, 32)


# -- out of bounds ------------------------------------------------------------------------------


def test_a_load_past_the_end_is_told_with_index_lanes_program_and_line():
    x, out = torch.randn(20), torch.zeros(64)
    with pytest.raises(OutOfBounds) as error, Meter():
        kernels.copy[(2,)](x, out, 32, 16)
    text = str(error.value)
    assert "load from X [20] out of bounds: index [20], but dimension 0 has size 20" in text
    assert "12 of 16 active lanes, in program (1, 0, 0) of copy" in text
    assert "meter_kernels.py:" in text and "tl.load(X + i, mask=i < n)" in text
    assert error.value.__cause__ is None  # not buried in Triton's InterpreterError


def test_a_store_out_of_bounds_leaves_the_neighbour_as_it_was():
    whole = torch.zeros(40)
    x, out = torch.randn(32), whole[:20]
    with pytest.raises(OutOfBounds, match=r"store to Out \[20\]"), Meter():
        kernels.copy[(2,)](x, out, 32, 16)
    assert torch.equal(whole[:16], x[:16]) and (whole[16:] == 0).all()


def test_before_the_start_and_in_an_empty_tensor():
    with pytest.raises(OutOfBounds, match=": 1 before the first element; 31 of 32"):
        copy_tile(torch.randn(32), torch.empty(32, 32), 32, 1, (-1, 1))
    with pytest.raises(OutOfBounds, match="element 0 of an empty tensor"), Meter():
        kernels.copy[(1,)](torch.empty(0), torch.empty(16), 16, 16)


def test_a_row_too_many_runs_into_the_next_tensor_and_is_still_told():
    """Two tensors in one allocation: the address exists, but belongs to another argument."""
    both = torch.randn(64)
    with pytest.raises(OutOfBounds, match=r"load from A \[20\].*index \[20\]"), Meter():
        kernels.one_of_two[(1,)](both[:20], both[20:], torch.empty(32), 32)


@given(
    rows=st.integers(1, 32),
    columns=st.integers(1, 32),
    shape=st.tuples(st.integers(1, 32), st.integers(1, 32)),
    transposed=st.booleans(),
)
@settings(max_examples=25)
def test_a_guarded_tensor_tells_every_row_and_column_too_many(rows, columns, shape, transposed):
    x = guarded(torch.randn(shape))
    if transposed:
        x = x.t()
    out = torch.zeros(32, 32)
    if rows <= x.shape[0] and columns <= x.shape[1]:
        copy_tile(x, out, rows, columns)
        assert torch.equal(out[:rows, :columns], x[:rows, :columns])
        assert (out != 0).sum() <= rows * columns
    else:
        with pytest.raises(OutOfBounds, match="load from X"):
            copy_tile(x, out, rows, columns)


def test_without_the_gap_a_column_too_many_is_the_next_row():
    compact = torch.randn(4, 8)
    copy_tile(compact, torch.empty(32, 32), 3, 9)  # the reason for guarded
    with pytest.raises(OutOfBounds, match=r"index \[0, 8\], but dimension 1 has size 8"):
        copy_tile(guarded(compact), torch.empty(32, 32), 3, 9)


def test_strides_taken_for_granted_are_told():
    x = guarded(torch.randn(4, 8))
    with pytest.raises(OutOfBounds):
        copy_tile(x, torch.empty(32, 32), 4, 8, (8, 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn, torch.int32, torch.bool])
def test_guarded_keeps_values_and_fills_gaps(dtype):
    values = torch.ones(2, 3, 4, dtype=dtype)
    view = guarded(values, gap=16)
    assert torch.equal(view.float(), values.float()) and view.stride() == ((3 + 16) * 20, 20, 1)
    beyond = view.as_strided((1,), (1,), 4).float()
    assert torch.isnan(beyond) if values.is_floating_point() else beyond >= 1
    with pytest.raises(ValueError, match="gap must be at least 1, got 0"):
        guarded(values, gap=0)


def test_an_address_from_memory_is_refused():
    target = torch.randn(16)
    addresses = torch.tensor([target.data_ptr()])
    with pytest.raises(UnknownAddress, match="pass the tensor itself"), Meter():
        kernels.through_address[(1,)](addresses, torch.empty(16), 16)


@pytest.mark.parametrize("n", [0, 5, 16])
@pytest.mark.parametrize("kind", ["and", "not", "both"])
def test_a_mask_may_hold_a_condition_of_a_number(kind, n):
    x, out = torch.arange(16.0), torch.zeros(16)
    with Meter() as m:
        kernels.masked_by_a_number[(1,)](x, out, n, kind, 16)
    on = torch.arange(16) < n
    assert torch.equal(out, torch.where(on, torch.arange(16.0), 0.0))
    assert torch.equal(x, torch.arange(16.0) + on)
    assert m.reads["X"].bytes == 8 * n and m.writes["X"].bytes == 4 * n


def test_rows_that_only_the_kernel_sees_far_apart():
    x, out = guarded(torch.randn(4, 16)), torch.empty(4, 16)
    with Meter(apart={"X": 2**30}) as m:
        kernels.rows_apart[(4,)](x, out, 2**30, True, 16)
    assert torch.equal(out, x)
    assert m.reads["X"].bytes == x.numel() * 4 and (m.counts("X") == 1).all()
    with pytest.raises(OutOfBounds, match="2147483648 before the first.*in program \\(2, 0, 0\\)"):
        with Meter(apart={"X": 2**30}):
            kernels.rows_apart[(4,)](x, out, 2**30, False, 16)
    with pytest.raises(OutOfBounds, match="load from X"), Meter(apart={"X": 2**30}):
        kernels.rows_apart[(2,)](x, out, x.stride(0), True, 16)  # where the row really lies
    with pytest.raises(OutOfBounds, match="load from X"), Meter(apart={"X": 2**30}):
        kernels.rows_apart[(4,)](x, out, 2**30 + 8, True, 16)


def test_what_is_multiplied_and_whether_a_gpu_rounds_it():
    for dtype, precision, kind in (
        (torch.float16, "tf32", "fp16"),
        (torch.float32, "tf32", "tf32"),
        (torch.float32, "ieee", "fp32"),
        (torch.bfloat16, "ieee", "bf16"),
    ):
        a, out = torch.ones(16, 16, dtype=dtype), torch.empty(16, 16)
        with Meter() as m:
            kernels.product[(1,)](a, a, out, precision)
        assert m.products == {kind} and (out == 16).all()


# -- masked lanes without other= ------------------------------------------------------------------


def test_lanes_masked_without_other_ruin_the_result_and_are_listed():
    x = torch.randn(3, 5)
    results = {}
    for other in (True, False):
        out = torch.empty(3, 5)
        with Meter() as m:
            kernels.softmax[(3,)](x, out, 5, 5, other, 8)
        results[other] = out, m.unfilled
    out, unfilled = results[True]
    # a distance of up to 8 to the maximum, exp, five terms, a quotient: 20 roundings, on both sides
    assert torch.allclose(out, torch.softmax(x, 1), rtol=2.0**-18, atol=0) and not unfilled
    out, unfilled = results[False]
    assert torch.isnan(out).all()
    assert len(unfilled) == 1 and "mask=i < columns)" in unfilled.pop()


@pytest.mark.parametrize("dtype", [
    torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int32, torch.bool
])  # fmt: skip
def test_poison_of_every_type(dtype):
    x = torch.zeros(4, 4, dtype=dtype)
    out = torch.zeros(16, dtype=dtype)
    with Meter():
        kernels.copy_with_holes[(1,)](x, out, 4, 16)
    filled = out.float()
    assert (filled[:4] == 0).all()
    if dtype.is_floating_point:
        assert torch.isnan(filled[4:]).all()
    else:
        assert (filled[4:] > (0 if dtype == torch.bool else 1e8)).all()


# -- races ----------------------------------------------------------------------------------------


def run(kernel, programs, *args, races=True):
    with Meter(races=races):
        kernel[(programs,)](*args)


def test_adding_without_atomics_is_a_race_and_with_them_is_not():
    x, out = torch.ones(64), torch.zeros(1)
    with pytest.raises(DataRace, match=r"Out: element \[0\] was written by program 0") as error:
        run(kernels.total, 4, x, out, 16, False)
    assert "in program (1, 0, 0) of total" in str(error.value)
    out.zero_()
    run(kernels.total, 4, x, out, 16, True)
    assert out.item() == 64
    out.zero_()
    run(kernels.total, 1, x, out, 64, False)  # one program is alone
    run(kernels.total, 4, x, out, 16, False, races=False)


def test_in_place_shift_is_a_race_and_into_another_tensor_is_not():
    x = torch.arange(65.0)
    with pytest.raises(DataRace, match="X: element"):
        run(kernels.shift, 4, x, x, 16)
    out = torch.zeros(65)
    run(kernels.shift, 4, torch.arange(65.0), out, 16)
    assert torch.equal(out[1:], torch.arange(64.0))


def test_writing_what_several_read_is_a_race_also_for_one_of_them():
    x = torch.zeros(4)
    with pytest.raises(DataRace, match="was read by several programs"):
        run(kernels.broadcast_then_write, 2, x, x)
    same_memory = torch.empty(0).set_(x.untyped_storage(), 0, (1,), (1,))
    with pytest.raises(DataRace, match=r"write of Out: element \[0\] was read by several"):
        run(kernels.broadcast_then_write, 2, x, same_memory)
    run(kernels.broadcast_then_write, 3, x, torch.zeros(4))


def test_the_last_program_may_read_what_a_counter_orders():
    x, n, programs = torch.arange(64.0), 16, 4
    for wait in (True, False):
        partial, count, out = torch.zeros(4), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
        args = x, partial, count, out, n, programs, wait
        if wait:
            run(kernels.last_adds_up, programs, *args)
            assert out.item() == sum(range(64))
        else:
            with pytest.raises(DataRace, match="Partial: element .* was written by program 0"):
                run(kernels.last_adds_up, programs, *args)


def test_a_lock_orders_what_it_protects():
    x = torch.ones(64)
    for lock in (True, False):
        word, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
        if lock:
            run(kernels.locked_total, 4, x, word, out, 16, True)
            assert out.item() == 64 and word.item() == 0
        else:
            with pytest.raises(DataRace):
                run(kernels.locked_total, 4, x, word, out, 16, False)


@pytest.mark.skipif(OLDER, reason="no tl.atomic_store")
def test_a_flag_hands_data_over_only_if_it_is_atomic():
    for atomic in (True, False):
        x, data, out = torch.ones(1), torch.zeros(1), torch.zeros(1)
        args = x, data, torch.zeros(1, dtype=torch.int32), out, atomic
        if atomic:
            run(kernels.hand_over, 2, *args)
            assert out.item() == 2
        else:
            with pytest.raises(DataRace, match="Flag: element .* was written by program 0"):
                run(kernels.hand_over, 2, *args)


@given(index=st.lists(st.integers(0, 15), min_size=16, max_size=16))
@settings(max_examples=20)
def test_lanes_of_a_store_that_disagree(index):
    assume(len(set(index)) < 16)
    index = torch.tensor(index)
    with pytest.raises(DataRace, match="two lanes of one store write different values to Out"):
        run(kernels.scatter, 1, index, torch.arange(16.0), torch.zeros(16), 16)
    run(kernels.scatter, 1, index, torch.ones(16), torch.zeros(16), 16)  # they agree
    run(kernels.scatter, 1, torch.randperm(16), torch.arange(16.0), torch.zeros(16), 16)


def test_programs_that_touch_bytes_of_one_element_do_not_race():
    words, parts = torch.arange(16, dtype=torch.int16), torch.empty(32, dtype=torch.uint8)
    run(kernels.bytes_of, 4, words, parts, 8)
    for width in (1, 2):
        run(kernels.copy_bytes, 4, words, torch.empty_like(words), width, width)
    with pytest.raises(DataRace, match=r"Out: element \[0\] was written by program 0"):
        run(kernels.copy_bytes, 4, words, torch.empty_like(words), 1, 2)


def test_launches_are_ordered():
    x, out = torch.ones(64), torch.zeros(1)
    with Meter():
        kernels.total[(1,)](x, out, 16, False)
        kernels.total[(1,)](x, out, 16, False)
    assert out.item() == 32


def test_all_faults_are_one_kind():
    assert all(issubclass(e, KernelFault) for e in (OutOfBounds, UnknownAddress, DataRace))
