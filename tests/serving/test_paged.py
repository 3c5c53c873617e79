"""Block tables, driven at random against memory that is really written and read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from efflib.serving.blocks import OutOfBlocks, blocks_for
from efflib.serving.paged import PagedSequences, slot_of

COUNTS = st.integers(0, 9)


class PagedMachine(RuleBasedStateMachine):
    """Sequences hold numbers that occur once; the model knows which, and writes them to slots."""

    @initialize(blocks=st.integers(1, 8), block_size=st.integers(1, 4), cpu=st.integers(0, 6))
    def begin(self, blocks, block_size, cpu):
        self.paged = PagedSequences(blocks, block_size, cpu)
        self.memory = [None] * (blocks * block_size)
        self.cpu_memory = [None] * (cpu * block_size)
        self.texts, self.away, self.written, self.named = {}, {}, 0, 0

    def name(self):
        self.named += 1
        return self.named

    def copy(self, pairs, source, target):
        size = self.paged.block_size
        for a, b in pairs:
            target[b * size : (b + 1) * size] = source[a * size : (a + 1) * size]

    def state(self):
        pool = self.paged.pool
        tables = {name: self.paged.table(name) for name in self.paged.names}
        return tables, pool.queue, [pool.count(b) for b in range(pool.size)], self.paged.swapped

    def needed(self, name, tokens):
        """Blocks that one more owner of so many tokens needs, by looking at all tables."""
        text, size = self.texts.get(name, []), self.paged.block_size
        table = self.paged.table(name) if name in self.texts else []
        new = -(-(len(text) + tokens) // size) - len(table)
        owners = sum(table[-1:] == [b] for n in self.texts for b in self.paged.table(n)[-1:])
        return new + bool(tokens and len(text) % size and owners > 1)

    def write(self, name, tokens):
        before, free = self.state(), self.paged.pool.free
        needed = self.needed(name, tokens)
        assert self.paged.missing(name, tokens) == needed
        if needed > free:
            with pytest.raises(OutOfBlocks):
                self.paged.append(name, tokens)
            assert self.state() == before
            return
        copies = self.paged.append(name, tokens)
        assert self.paged.pool.free == free - needed
        self.copy(copies, self.memory, self.memory)
        text = self.texts.setdefault(name, [])
        for slot in self.paged.slots(name, len(text)):
            self.written += 1
            self.memory[slot] = self.written
            text.append(self.written)

    @rule(tokens=COUNTS)
    def new(self, tokens):
        self.write(self.name(), tokens)

    @precondition(lambda self: self.texts)
    @rule(data=st.data(), tokens=COUNTS)
    def append(self, data, tokens):
        self.write(data.draw(st.sampled_from(sorted(self.texts))), tokens)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def fork(self, data):
        parent, child = data.draw(st.sampled_from(sorted(self.texts))), self.name()
        free = self.paged.pool.free
        self.paged.fork(parent, child)
        self.texts[child] = list(self.texts[parent])
        assert self.paged.pool.free == free, "a fork takes no block"

    @precondition(lambda self: self.texts or self.away)
    @rule(data=st.data())
    def free(self, data):
        name = data.draw(st.sampled_from(sorted(self.texts | self.away)))
        tail = []
        if name in self.texts:
            pool = self.paged.pool
            tail = [b for b in reversed(self.paged.table(name)) if pool.count(b) == 1]
            before = pool.queue
        self.paged.free(name)
        if name in self.texts:
            assert self.paged.pool.queue == before + tail, "the last block joins the queue first"
        self.texts.pop(name, None), self.away.pop(name, None)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def swap_out(self, data):
        name = data.draw(st.sampled_from(sorted(self.texts)))
        cpu, before = self.paged.cpu_pool, self.state()
        if cpu is None or cpu.free < len(self.paged.table(name)):
            with pytest.raises(ValueError if cpu is None else OutOfBlocks):
                self.paged.swap_out(name)
            assert self.state() == before
            return
        self.copy(self.paged.swap_out(name), self.memory, self.cpu_memory)
        self.away[name] = self.texts.pop(name)

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def swap_in(self, data):
        name, before = data.draw(st.sampled_from(sorted(self.away))), self.state()
        with pytest.raises(ValueError):
            self.paged.append(name, 1)
        if self.paged.pool.free < blocks_for(len(self.away[name]), self.paged.block_size):
            with pytest.raises(OutOfBlocks):
                self.paged.swap_in(name)
            assert self.state() == before
            return
        self.copy(self.paged.swap_in(name), self.cpu_memory, self.memory)
        self.texts[name] = self.away.pop(name)

    @invariant()
    def every_sequence_reads_what_it_wrote(self):
        for name, text in self.texts.items():
            assert [self.memory[slot] for slot in self.paged.slots(name)] == text
            assert self.paged.length(name) == len(text)
            assert len(self.paged.table(name)) == blocks_for(len(text), self.paged.block_size)

    @invariant()
    def owners_are_counted_and_nothing_is_lost(self):
        pool = self.paged.pool
        owned = [b for name in self.texts for b in self.paged.table(name)]
        assert [pool.count(b) for b in range(pool.size)] == [
            owned.count(b) for b in range(pool.size)
        ]
        assert sorted(pool.queue + list(set(owned))) == list(range(pool.size))
        assert sorted(self.paged.names) == sorted(self.texts) and pool.free == len(pool.queue)
        assert sorted(self.paged.swapped) == sorted(self.away)


PagedMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPaged = PagedMachine.TestCase


def test_the_example_of_the_lecture():
    paged = PagedSequences(8, 4)
    for other in range(8):
        paged.append(other, 4)
    for other in (7, 1, 4):  # requests that end leave the free blocks of the slides
        paged.free(other)
    filled = []
    for tokens in (6, 1, 1, 1):  # the prompt; and, mathematician, renowned
        assert paged.append("Alan", tokens) == []
        table, n = paged.table("Alan"), paged.length("Alan")
        filled.append([(b, min(4, n - 4 * i)) for i, b in enumerate(table)])
    assert filled == [
        [(7, 4), (1, 2)],
        [(7, 4), (1, 3)],
        [(7, 4), (1, 4)],
        [(7, 4), (1, 4), (4, 1)],
    ]
    assert [slot_of([7, 1, 4], p, 4) for p in (0, 3, 4, 8)] == [28, 31, 4, 16]


@given(st.lists(st.integers(0, 99), unique=True, min_size=1), st.integers(1, 9), st.data())
def test_slots_by_walking_through_the_rows(table, block_size, data):
    rows = [b * block_size + r for b in table for r in range(block_size)]
    p = data.draw(st.integers(0, len(rows) - 1))
    assert slot_of(table, p, block_size) == rows[p]
    with pytest.raises(ValueError, match="beyond"):
        slot_of(table, len(rows), block_size)


def test_copy_on_write_by_hand():
    paged = PagedSequences(4, 4)
    paged.append("A", 6)
    paged.fork("A", "B")
    assert paged.append("B", 1) == [(1, 2)] and paged.table("B") == [0, 2]
    assert paged.append("A", 1) == [] and paged.table("A") == [0, 1]  # the last owner
    paged.free("A")
    assert paged.pool.queue == [3, 1] and paged.pool.count(0) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.append("A", -1),
        lambda p: p.append("A", 1.5),
        lambda p: p.fork("A", "A"),
        lambda p: p.fork("C", "D"),
        lambda p: p.free("C"),
        lambda p: p.swap_out("A"),
        lambda p: p.swap_in("A"),
        lambda p: p.table("C"),
        lambda p: p.slots("A", -1),
        lambda p: p.pool.count(4),
        lambda p: p.pool.share(3),
        lambda p: p.pool.release(3),
        lambda p: p.pool.take_back(0),
        lambda p: p.pool.release_all([0, 0]),
        lambda p: PagedSequences(0, 4),
        lambda p: PagedSequences(4, 0),
        lambda p: PagedSequences(4, 4, -1),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(call):
    paged = PagedSequences(4, 4)
    paged.append("A", 6)
    with pytest.raises(ValueError, match=r"\w"):
        call(paged)
    assert paged.table("A") == [0, 1] and paged.pool.queue == [2, 3]
