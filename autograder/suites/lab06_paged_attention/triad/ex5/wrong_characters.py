"""Tokens are compared in 16 bits."""

FAILS = ["test_other_texts_under_the_same_key"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        block, tokens = found.get(key, (None, []))
        text = prompt[: (i + 1) * block_size]
        if [t % 2**16 for t in tokens] != [t % 2**16 for t in text]:
            break
        blocks.append(block)
    return blocks
