"""What a lab's notebook imports (`Lab`), and what its tests import (`exercise`, `expect_...`)."""

from efflib.lab.exercise import exercise
from efflib.lab.expect import (
    expect_at_most,
    expect_close,
    expect_error,
    expect_number,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.lab.lab import CheckFailed, Lab

__all__ = [
    "CheckFailed",
    "Lab",
    "exercise",
    "expect_at_most",
    "expect_close",
    "expect_error",
    "expect_number",
    "expect_same",
    "expect_tensor",
    "expect_tuple",
]
