"""The line of blocks gives what `PrefixSequences` gives for requests one after the other."""

from random import Random

import pytest

from efflib.serving.prefix import PrefixSequences
from efflib.traffic.conversations import Conversations, hash_block


def chain(tokens, size, hash_of):
    keys = []
    for i in range(len(tokens) // size):
        keys.append(hash_of(keys[-1] if keys else 0, tuple(tokens[i * size : i * size + size])))
    return keys


def match(prompt, size, hash_of, known):
    table = []
    for i, key in enumerate(chain(prompt[:-1], size, hash_of)):
        if key not in known or known[key][1] != prompt[: (i + 1) * size]:
            break
        table.append(known[key][0])
    return table


@pytest.mark.parametrize(("blocks", "heads_first"), [(300, False), (24, False), (24, True)])
def test_the_same_is_found(blocks, heads_first):
    random = Random(blocks)
    texts = [[random.randrange(2) for _ in range(80)] for _ in range(3)]
    cache, reference = (
        Conversations(blocks, 4, chain, match, heads_first),
        PrefixSequences(blocks, 4),
    )
    for i in range(60):
        prompt = random.choice(texts)[: random.randrange(1, 81)]
        if random.random() < 0.3:
            prompt = prompt[:-5] + [2] * 3 + prompt[:5]
        cache.serve(prompt)
        reference.start(i, prompt)
        assert cache.known == reference.pool.known()
        if heads_first:
            reference._tables[i].reverse()
        reference.free(i)
        assert cache.line == reference.pool.queue
        assert (cache.found, cache.asked) == (reference.hits, reference.asked)
    assert cache.found


def test_too_few_blocks_and_a_hash_of_64_bits():
    with pytest.raises(MemoryError, match="2 blocks"):
        Conversations(2, 4, chain, match).serve([1] * 9)
    assert 0 <= hash_block(0, (1, 2)) != hash_block(0, (2, 1)) < 2**64
