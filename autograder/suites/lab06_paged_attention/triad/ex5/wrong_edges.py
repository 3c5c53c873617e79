"""Only the first and the last block of what a block stands for are compared."""

FAILS = ["test_other_texts_under_the_same_key"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        block, tokens = found.get(key, (None, []))
        text = prompt[: (i + 1) * block_size]
        ends = [tokens[:block_size], tokens[-block_size:], len(tokens)]
        if ends != [text[:block_size], text[-block_size:], len(text)]:
            break
        blocks.append(block)
    return blocks
