"""Rounded up by adding a little less than 1, which is too little for large blocks."""

FAILS = ["test_least_number_of_blocks"]


def blocks_for(tokens, block_size):
    return int(tokens / block_size + 0.999)
