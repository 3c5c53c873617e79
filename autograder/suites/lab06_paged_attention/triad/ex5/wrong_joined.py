"""Tokens are compared as one string of digits: 1 11 is 11 1."""

FAILS = ["test_other_texts_under_the_same_key"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        block, tokens = found.get(key, (None, []))
        text = prompt[: (i + 1) * block_size]
        if len(tokens) != len(text) or "".join(map(str, tokens)) != "".join(map(str, text)):
            break
        blocks.append(block)
    return blocks
