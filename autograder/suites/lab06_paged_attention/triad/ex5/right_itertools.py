"""accumulate for the chain, takewhile for the walk."""

from itertools import accumulate, takewhile


def chain(tokens, block_size, hash_block):
    ends = range(block_size, len(tokens) + 1, block_size)
    parts = (tuple(tokens[end - block_size : end]) for end in ends)
    return list(accumulate(parts, hash_block, initial=0))[1:]


def match(prompt, block_size, hash_block, found):
    keys = chain(prompt[: len(prompt) - 1], block_size, hash_block)
    pairs = [(found.get(key), (i + 1) * block_size) for i, key in enumerate(keys)]
    known = takewhile(lambda pair: pair[0] and list(pair[0][1]) == prompt[: pair[1]], pairs)
    return [entry[0] for entry, _ in known]
