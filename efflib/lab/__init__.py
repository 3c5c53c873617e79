"""What a lab's notebook imports (`Lab`), and what its tests import (`exercise`, `expect_close`)."""

from efflib.lab.exercise import exercise, expect_close
from efflib.lab.lab import CheckFailed, Lab

__all__ = ["CheckFailed", "Lab", "exercise", "expect_close"]
