"""Expectations decide as their docstrings say, and tell what came and what was expected."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_number,
    expect_same,
    expect_tensor,
    expect_tuple,
)


def test_close_values_pass():
    expect_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]), what="x", atol=0.11)
    expect_close(torch.tensor([float("nan")]), torch.tensor([float("nan")]), what="x")
    expect_close(torch.zeros(0), torch.zeros(0), what="x")


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (
            torch.tensor([1.0, 2.5]),
            r"x is 2.5 at \[1\], expected 2 \(off by 0.5, allowed 0.1; 1 of 2 values differ\)",
        ),
        (
            torch.tensor([1.0, float("nan")]),
            r"x is nan at \[1\], expected 2 \(1 of 2 v[^;]*\)$",
        ),
        (
            torch.tensor([1.0, float("inf")]),
            r"x is inf at \[1\], expected 2 \(1 of 2 v[^;]*\)$",
        ),
        (torch.tensor([[1.0, 2.0]]), r"x has shape \[1, 2\], expected \[2\]"),
        ([1.0, 2.0], "x is of type list, not a tensor"),
        (None, "x is of type NoneType, not a tensor"),
    ],
)
def test_differences_are_put_into_words(observed, message):
    with pytest.raises(AssertionError, match=message):
        expect_close(observed, torch.tensor([1.0, 2.0]), what="x", atol=0.1)


@pytest.mark.parametrize("points", [0, -1, float("nan"), float("inf")])
def test_points_must_be_positive(points):
    with pytest.raises(ValueError, match="points"):
        exercise("ex1", points=points, invariant="i", cause="c")


def test_whole_numbers_are_compared_exactly():
    big = torch.tensor([2**60])
    expect_close(big, big.clone(), what="x")
    with pytest.raises(AssertionError, match=f"x is {2**60 + 1} at .*off by 1"):
        expect_close(big + 1, big, what="x")


def test_an_infinity_is_close_to_nothing_else():
    inf = torch.tensor(float("inf"))
    expect_close(inf, inf.clone(), what="x", rtol=1.0)
    for other in (torch.tensor(1.0), -inf, torch.tensor(float("nan"))):
        for a, b in ((inf, other), (other, inf)):
            with pytest.raises(AssertionError):
                expect_close(a, b, what="x", rtol=1.0)


def test_numbers_are_compared_with_numbers():
    expect_close(3, 3.0, what="x")
    expect_close(0.1 + 0.2, 0.3, what="x", rtol=2.0**-52)
    for observed in (True, "3", None, torch.tensor(3.0), 3.0 + 2**-40):
        with pytest.raises(AssertionError):
            expect_close(observed, 3.0, what="x")


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=5),
    st.floats(0, 1e3),
    st.floats(0, 1),
    st.data(),
)
@settings(deadline=None)
def test_the_bound_is_that_of_the_docstring(values, atol, rtol, data):
    expected = torch.tensor(values, dtype=torch.float64)
    shift = [data.draw(st.floats(-1e4, 1e4)) for _ in values]
    observed = expected + torch.tensor(shift, dtype=torch.float64)
    within = ((observed - expected).abs() <= atol + rtol * expected.abs()).all()
    try:
        expect_close(observed, expected, what="x", atol=atol, rtol=rtol)
        assert within
    except AssertionError as fault:
        assert not within, fault


def test_numbers_are_numbers():
    assert expect_number(3, "f()") == 3 and expect_number(0.5, "f()") == 0.5
    for other in (True, "3", None, torch.tensor(3.0)):
        with pytest.raises(
            AssertionError, match=r"f\(\) returned (bool|str|NoneType|Tensor), not a"
        ):
            expect_number(other, "f()")


def test_tensors_have_the_dtype_and_shape_asked_for():
    x = torch.zeros(2, 3)
    assert expect_tensor(x, "f()") is expect_tensor(x, "f()", torch.float32, (2, 3)) is x
    with pytest.raises(AssertionError, match=r"f\(\) returned list, not a tensor"):
        expect_tensor([0.0], "f()")
    with pytest.raises(AssertionError, match=r"dtype torch.float32, not torch.int8"):
        expect_tensor(x, "f()", torch.int8)
    with pytest.raises(AssertionError, match=r"shape \[2, 3\], not \[3, 2\]"):
        expect_tensor(x, "f()", shape=(3, 2))


def test_the_parts_of_a_tuple_are_named():
    value = (torch.zeros(1), 0.5)
    assert expect_tuple(value, (torch.Tensor, float), "f()") is value
    for wrong, seen in (
        (value[::-1], r"\(float, Tensor\)"),
        (value[:1], r"\(Tensor\)"),
        ([], "list"),
    ):
        with pytest.raises(AssertionError, match=rf"tuple \(Tensor, float\); it returned {seen}"):
            expect_tuple(wrong, (torch.Tensor, float), "f()")


def test_an_error_is_expected_with_what_should_raise_it():
    expect_error(ValueError, lambda: int("x"), "int of x")
    with pytest.raises(AssertionError, match="int of 3: no ValueError was raised"):
        expect_error(ValueError, lambda: int("3"), "int of 3")
    with pytest.raises(TypeError):
        expect_error(ValueError, lambda: int(None), "int of None")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1.01])
def test_at_most_refuses_nan(bad):
    with pytest.raises(AssertionError, match="error is .*, at most 1 is allowed"):
        expect_at_most(bad, 1.0, "error")
    with pytest.raises(AssertionError, match=r"1 of 2 values"):
        expect_at_most(torch.tensor([0.5, bad]), torch.tensor([1.0, 1.0]), "error")
    expect_at_most(torch.tensor([1.0, -5.0]), 1.0, "error")


def test_the_same_means_dtype_shape_and_every_value():
    x = torch.tensor([1.0, float("nan")])
    expect_same(x.clone(), x, "w")
    for other in (x.double(), x[None], torch.tensor([1.0, 2.0]), x.nextafter(x + 1), [1.0]):
        with pytest.raises(AssertionError, match="^w "):
            expect_same(other, x, "w")


@pytest.mark.parametrize(
    ("observed", "expected", "remark"),
    [
        (torch.float32, torch.float64, ""),  # the test's own precision is asked of nobody
        (torch.bfloat16, torch.float64, "; its dtype is torch.bfloat16)"),
        (torch.bfloat16, torch.float32, "; its dtype is torch.bfloat16, not torch.float32)"),
    ],
)
def test_a_difference_names_the_dtype_that_may_be_its_cause(observed, expected, remark):
    with pytest.raises(AssertionError) as caught:
        expect_close(
            torch.ones(1, dtype=observed), torch.zeros(1, dtype=expected), what="x", atol=0.1
        )
    text = str(caught.value)
    assert text.endswith(remark) if remark else "dtype" not in text
