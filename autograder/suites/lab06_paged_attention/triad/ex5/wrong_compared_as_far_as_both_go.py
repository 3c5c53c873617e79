"""Tokens are compared in pairs: a shorter or longer text under the same key passes."""

FAILS = ["test_a_hash_that_collides"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for key in chain(prompt[:-1], block_size, hash_block):
        block, tokens = found.get(key, (None, [None]))
        if any(x != y for x, y in zip(tokens, prompt, strict=False)):
            break
        blocks.append(block)
    return blocks
