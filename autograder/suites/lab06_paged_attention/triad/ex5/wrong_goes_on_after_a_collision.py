"""A block whose text is another is left out, and the walk goes on."""

FAILS = ["test_a_hash_that_collides"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        if key not in found:
            break
        block, tokens = found[key]
        if tokens != prompt[: (i + 1) * block_size]:
            continue
        blocks.append(block)
    return blocks
