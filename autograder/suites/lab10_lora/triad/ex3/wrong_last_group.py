"""The last group in place of the largest."""

FAILS = ["test_a_walk_through_the_passes", "test_checkpoints_by_hand", "test_the_best_distance"]


def checkpointed(layers: int, boundary: float, block: float, every: int) -> float:
    """Bytes of activations with a checkpoint at the input of every `every`-th block."""
    return math.ceil(layers / every) * boundary + (layers % every or every) * block
