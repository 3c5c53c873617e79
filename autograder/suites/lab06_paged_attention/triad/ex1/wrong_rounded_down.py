"""The block that is not full is forgotten."""

FAILS = ["test_blocks_by_hand", "test_least_number_of_blocks"]


def blocks_for(tokens, block_size):
    return tokens // block_size
