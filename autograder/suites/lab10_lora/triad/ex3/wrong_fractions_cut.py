"""Bytes are made whole numbers."""

FAILS = ["test_checkpoints_by_hand", "test_a_walk_through_the_passes"]


def checkpointed(layers, boundary, block, every):
    return math.ceil(layers / every) * int(boundary) + min(every, layers) * int(block)
