import pytest
import torch

from efflib.lab import exercise, expect_close


def test_close_values_pass():
    expect_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]), what="x", atol=0.11)
    expect_close(torch.tensor([float("nan")]), torch.tensor([float("nan")]), what="x")
    expect_close(torch.zeros(0), torch.zeros(0), what="x")


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (torch.tensor([1.0, 2.5]), r"x is 2.5 at \[1\], expected 2 \(1 of 2 values differ\)"),
        (torch.tensor([1.0, float("nan")]), r"x is nan at \[1\], expected 2"),
        (torch.tensor([1.0, float("inf")]), r"x is inf at \[1\], expected 2"),
        (torch.tensor([[1.0, 2.0]]), r"x has shape \[1, 2\], expected \[2\]"),
        ([1.0, 2.0], "x is a list, not a tensor"),
        (None, "x is a NoneType, not a tensor"),
    ],
)
def test_differences_are_put_into_words(observed, message):
    with pytest.raises(AssertionError, match=message):
        expect_close(observed, torch.tensor([1.0, 2.0]), what="x", atol=0.1)


def test_points_must_be_positive():
    with pytest.raises(ValueError, match="points"):
        exercise("ex1", points=0, invariant="i", cause="c")
