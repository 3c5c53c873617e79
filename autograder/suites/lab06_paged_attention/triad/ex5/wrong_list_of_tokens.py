"""The hash gets a list."""

FAILS = ["test_chain_by_hand", "test_chains"]


def chain(tokens, block_size, hash_block):
    keys, key = [], 0
    for start in range(0, len(tokens) - block_size + 1, block_size):
        key = hash_block(key, tokens[start : start + block_size])
        keys.append(key)
    return keys
