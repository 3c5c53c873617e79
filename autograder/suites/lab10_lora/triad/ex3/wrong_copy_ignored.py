"""The copy is not counted."""

FAILS = ["test_bytes_by_hand", "test_whole_models"]


def bytes_held(
    frozen: int, trained: int, bits: float = 16, copy: bool = False
) -> tuple[float, float, float]:
    """Bytes of (weights, gradients, optimizer)."""
    return frozen * bits / 8 + 2 * trained, 2 * trained, 8 * trained
