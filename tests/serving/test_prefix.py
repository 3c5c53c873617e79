"""Prefix reuse: against a model that knows every text, and with a hash that collides."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from efflib.serving.blocks import OutOfBlocks
from efflib.serving.prefix import PrefixSequences, hash_block

TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=9)  # two tokens: much in common


def weak_hash(before, tokens):
    return (before + sum(tokens)) % 3


class PrefixMachine(RuleBasedStateMachine):
    """The model keeps found[text up to the end of a full block] = block, without any hash."""

    @initialize(blocks=st.integers(2, 8), block_size=st.integers(1, 3), weak=st.booleans())
    def begin(self, blocks, block_size, weak):
        self.paged = PrefixSequences(blocks, block_size, weak_hash if weak else hash_block)
        self.size, self.weak = block_size, weak
        self.queue, self.texts, self.tables = list(range(blocks)), {}, {}
        self.memory = [[None] * block_size for _ in range(blocks)]
        self.found, self.holds, self.named = {}, {}, 0

    def take(self):
        block = self.queue.pop(0)
        if self.found.get(self.holds.pop(block, None)) == block:
            self.found = {text: b for text, b in self.found.items() if b != block}
        return block

    def follow(self, name, tokens, copies):
        """What the manager did with a table, written into the model's memory."""
        text = self.texts[name]
        for a, b in copies:
            self.memory[b] = list(self.memory[a])
        table = self.paged.table(name)
        for token in tokens:
            self.memory[table[len(text) // self.size]][len(text) % self.size] = token
            text.append(token)
            if len(text) % self.size == 0:
                full = tuple(text)
                self.holds[table[len(text) // self.size - 1]] = full
                self.found.setdefault(full, table[len(text) // self.size - 1])

    @rule(prompt=TEXTS)
    def start(self, prompt):
        self.named += 1
        ends = range(self.size, len(prompt), self.size)  # one token at least is computed
        hits = [self.found.get(tuple(prompt[:end])) for end in ends]
        hits = hits[: hits.index(None)] if None in hits else hits
        found = self.paged.match(prompt)
        for i, block in enumerate(found):  # also where hashes collide
            assert self.holds[block] == tuple(prompt[: (i + 1) * self.size])
        if not self.weak:
            assert found == hits
        waiting = [b for b in found if b in self.queue]
        new = -(-len(prompt) // self.size) - len(found)
        if new + len(waiting) > len(self.queue):
            with pytest.raises(OutOfBlocks):
                self.paged.start(self.named, prompt)
            return
        assert self.paged.start(self.named, prompt) == len(found) * self.size
        self.queue = [b for b in self.queue if b not in waiting]
        expected = found + [self.take() for _ in range(new)]
        assert self.paged.table(self.named) == expected
        self.texts[self.named] = prompt[: len(found) * self.size]
        self.follow(self.named, prompt[len(found) * self.size :], [])

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), tokens=TEXTS)
    def extend(self, data, tokens):
        name = data.draw(st.sampled_from(sorted(self.texts)))
        missing = self.paged.missing(name, len(tokens))
        if missing > len(self.queue):
            with pytest.raises(OutOfBlocks):
                self.paged.extend(name, tokens)
            return
        before = self.paged.table(name)
        copies = self.paged.extend(name, tokens)
        taken = [self.take() for _ in range(missing)]
        now = self.paged.table(name)
        assert [b for b in now if b not in before] == taken
        assert copies == ([(before[-1], taken[0])] if copies else [])
        self.follow(name, tokens, copies)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def fork(self, data):
        self.named += 1
        parent = data.draw(st.sampled_from(sorted(self.texts)))
        self.paged.fork(parent, self.named)
        self.texts[self.named] = list(self.texts[parent])

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def free(self, data):
        name = data.draw(st.sampled_from(sorted(self.texts)))
        others = {b for n in self.texts if n != name for b in self.paged.table(n)}
        self.queue += [b for b in reversed(self.paged.table(name)) if b not in others]
        self.paged.free(name)
        del self.texts[name]

    @invariant()
    def everything_reads_what_it_holds(self):
        assert self.paged.pool.queue == self.queue
        for name, text in self.texts.items():
            rows = [token for b in self.paged.table(name) for token in self.memory[b]]
            assert rows[: len(text)] == text == self.paged.tokens(name)
        for block, text in self.holds.items():
            assert self.memory[block] == list(text[-self.size :])


PrefixMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestPrefix = PrefixMachine.TestCase


def test_by_hand():
    paged = PrefixSequences(6, 4)
    system = list(range(8))
    assert paged.start("A", [*system, 20, 21]) == 0 and paged.table("A") == [0, 1, 2]
    assert paged.start("B", [*system, 30]) == 8 and paged.table("B") == [0, 1, 3]
    assert paged.start("C", system) == 4  # the last token is computed: block 1 again, elsewhere
    assert paged.table("C") == [0, 4] and (paged.hits, paged.asked) == (12, 27)
    for name in "ABC":
        paged.free(name)
    assert paged.pool.queue == [5, 2, 3, 1, 4, 0]  # tails first, what was shared last
    assert paged.match([*system, 9]) == [0, 1]
    paged.start("D", list(range(50, 66)))  # four new blocks: 5, 2, 3 and 1
    assert paged.match([*system, 9]) == [0], "block 1 was handed out again"


def test_a_hash_is_no_proof():
    """(0, 1) and (1, 0) have one hash, and what follows them as well."""
    paged = PrefixSequences(8, 2, weak_hash)
    paged.start("A", [0, 1, 1, 1, 0])
    assert paged.match([1, 0, 1, 1, 0]) == []
    paged.start("B", [1, 0, 1, 1, 0])
    paged.free("A")
    assert paged.match([1, 0, 1, 1, 0]) == [] and paged.match([0, 1, 1, 1, 5]) == [0, 1]


@pytest.mark.parametrize("prompt", [[], ()])
def test_an_empty_prompt_is_refused(prompt):
    paged = PrefixSequences(2, 2)
    with pytest.raises(ValueError, match="not empty"):
        paged.start("A", prompt)
    paged.start("A", [1])
    with pytest.raises(ValueError, match="must be new"):
        paged.start("A", [1])
    with pytest.raises(ValueError, match="no sequence"):
        paged.extend("B", [1])
