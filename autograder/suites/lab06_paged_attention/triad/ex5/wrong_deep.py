"""A recursion over blocks, which ends at a thousand of them."""

FAILS = ["test_long_texts"]


def chain(tokens, block_size, hash_block, key=0):
    if len(tokens) < block_size:
        return []
    key = hash_block(key, tuple(tokens[:block_size]))
    return [key, *chain(tokens[block_size:], block_size, hash_block, key)]
