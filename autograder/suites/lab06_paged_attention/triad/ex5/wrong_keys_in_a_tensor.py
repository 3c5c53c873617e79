"""Keys kept as int64, which has no room for 64 bits without a sign."""

FAILS = ["test_long_texts"]
chain_before = chain


def chain(tokens, block_size, hash_block):
    return torch.tensor(chain_before(tokens, block_size, hash_block), dtype=torch.int64).tolist()
