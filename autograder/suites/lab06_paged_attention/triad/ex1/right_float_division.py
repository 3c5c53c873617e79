"""A division of floats, rounded up: exact for numbers of tokens as a cache holds them."""


def blocks_for(tokens, block_size):
    return math.ceil(tokens / block_size)
