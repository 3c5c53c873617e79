"""The whole prompt's chain, of which the last block may be left out."""


def chain(tokens, block_size, hash_block):
    keys = [0]
    for end in range(block_size, len(tokens) + 1, block_size):
        keys += [hash_block(keys[-1], tuple(tokens[end - block_size : end]))]
    return keys[1:]


def match(prompt, block_size, hash_block, found):
    blocks = []
    keys = chain(prompt, block_size, hash_block)
    for i, end in enumerate(range(block_size, len(prompt), block_size)):
        key = keys[i]
        if key not in found or found[key][1] != prompt[:end]:
            break
        blocks.append(found[key][0])
    return blocks
