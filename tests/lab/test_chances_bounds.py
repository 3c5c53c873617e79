"""What a student's code says to coin and pick costs the grader's process little memory."""

import pytest
import torch

from efflib.lab.chances import MAX_WAYS, ways


@pytest.mark.parametrize("size", [2**20, 5_000])
def test_rows_that_no_lab_has_are_refused(size):
    row, most = torch.full((size,), 1.0 / size, dtype=torch.float64), []

    def run(_, pick):
        while True:
            pick(row)
            most.append(None)

    with pytest.raises(AssertionError, match="there are 4 tokens"):
        ways(run, 4, 100)
    with pytest.raises(AssertionError, match="too many ways|more often|calls"):
        ways(run, size, 100)
    assert len(most) * size <= MAX_WAYS
