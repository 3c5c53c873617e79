"""A sequence without tokens gets a block."""

FAILS = ["test_blocks_by_hand", "test_least_number_of_blocks"]


def blocks_for(tokens, block_size):
    return max(1, -(-tokens // block_size))
