"""Blocks behind one that is not found are used."""

FAILS = ["test_match_by_hand", "test_found_beginnings"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        end = (i + 1) * block_size
        block, tokens = found.get(key, (None, None))
        if tokens != prompt[:end]:
            continue
        blocks.append(block)
    return blocks
