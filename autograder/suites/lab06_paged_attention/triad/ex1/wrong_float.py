"""A float comes back."""

FAILS = ["test_blocks_by_hand", "test_least_number_of_blocks"]


def blocks_for(tokens, block_size):
    return (tokens + block_size - 1) / block_size // 1
