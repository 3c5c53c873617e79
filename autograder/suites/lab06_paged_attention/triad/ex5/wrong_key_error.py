"""A key that is not known ends the walk with an error."""

FAILS = ["test_match_by_hand", "test_found_beginnings"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        end = (i + 1) * block_size
        block, tokens = found[key]
        if tokens != prompt[:end]:
            break
        blocks.append(block)
    return blocks
