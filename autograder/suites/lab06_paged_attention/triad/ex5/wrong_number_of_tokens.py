"""How many tokens are known, in place of the blocks."""

FAILS = [
    "test_match_by_hand",
    "test_a_hash_that_collides",
    "test_found_beginnings",
    "test_small_cases_of_match",
]

match_of = match


def match(prompt, block_size, hash_block, found):
    return block_size * len(match_of(prompt, block_size, hash_block, found))
