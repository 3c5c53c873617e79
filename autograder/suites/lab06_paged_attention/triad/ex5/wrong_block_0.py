"""Block 0 is taken for not found."""

FAILS = ["test_match_by_hand", "test_small_cases_of_match"]


def match(prompt, block_size, hash_block, found):
    blocks = []
    for i, key in enumerate(chain(prompt[:-1], block_size, hash_block)):
        end = (i + 1) * block_size
        block, tokens = found.get(key, (None, None))
        if not block or tokens != prompt[:end]:
            break
        blocks.append(block)
    return blocks
