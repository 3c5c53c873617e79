"""The help and the hints, word for word."""


def chain(tokens, block_size, hash_block):
    keys, key = [], 0
    for i in range(len(tokens) // block_size):
        key = hash_block(key, tuple(tokens[i * block_size : (i + 1) * block_size]))
        keys.append(key)
    return keys


def match(prompt, block_size, hash_block, found):
    blocks = []
    for key in chain(prompt[:-1], block_size, hash_block):
        entry = found.get(key)
        end = (len(blocks) + 1) * block_size
        if entry is None or list(entry[1]) != prompt[:end]:
            return blocks
        blocks.append(entry[0])
    return blocks
