"""Each block is hashed twice."""

FAILS = ["test_chain_by_hand", "test_chains"]

chain_of = chain


def chain(tokens, block_size, hash_block):
    chain_of(tokens, block_size, hash_block)
    return chain_of(tokens, block_size, hash_block)
