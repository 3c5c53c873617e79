"""Only the tokens of the block itself are compared."""

FAILS = ["test_a_hash_that_collides", "test_found_beginnings"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        start, end = i * block_size, (i + 1) * block_size
        block, tokens = found.get(key, (None, None))
        if tokens is None or tokens[-block_size:] != prompt[start:end]:
            break
        blocks.append(block)
    return blocks
