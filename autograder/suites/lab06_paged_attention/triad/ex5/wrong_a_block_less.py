"""The last full block is left out, though a token follows it."""

FAILS = ["test_match_by_hand", "test_found_beginnings", "test_small_cases_of_match"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-block_size], block_size, hash_block)):
        end = (i + 1) * block_size
        block, tokens = found.get(key, (None, None))
        if tokens != prompt[:end]:
            break
        blocks.append(block)
    return blocks
