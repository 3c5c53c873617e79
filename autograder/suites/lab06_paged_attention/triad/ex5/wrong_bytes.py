"""Tokens are compared as bytes: ids from 256 on are an error."""

FAILS = ["test_other_texts_under_the_same_key", "test_long_texts"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        block, tokens = found.get(key, (None, []))
        if bytes(tokens) != bytes(prompt[: (i + 1) * block_size]):
            break
        blocks.append(block)
    return blocks
