"""One block more than needed where the last one is just full."""

FAILS = ["test_blocks_by_hand", "test_least_number_of_blocks"]


def blocks_for(tokens, block_size):
    return tokens // block_size + 1
