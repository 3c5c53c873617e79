"""The keys in place of the blocks."""

FAILS = ["test_match_by_hand", "test_a_hash_that_collides", "test_found_beginnings"]

match_of = match


def match(prompt, block_size, hash_block, found):
    blocks = match_of(prompt, block_size, hash_block, found)
    return chain(prompt, block_size, hash_block)[: len(blocks)]
