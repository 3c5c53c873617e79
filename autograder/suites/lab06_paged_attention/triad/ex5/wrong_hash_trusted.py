"""A key that is known is taken for the text."""

FAILS = ["test_a_hash_that_collides", "test_found_beginnings"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        block, tokens = found.get(key, (None, None))
        if tokens is None:
            break
        blocks.append(block)
    return blocks
