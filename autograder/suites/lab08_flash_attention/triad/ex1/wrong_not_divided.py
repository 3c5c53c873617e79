"""finish does not divide by the sum."""

FAILS = ["test_by_hand", "test_pieces", "test_any_pieces"]


def finish(m: Tensor, total: Tensor, acc: Tensor) -> tuple[Tensor, Tensor]:
    """(o [T, d], lse [T]) of a state."""
    return acc, m + total.log()
