"""Tokens one by one on a trial run first, then for good."""

import copy


class Sequences:
    def __init__(self, blocks, block_size):
        self.size, self.pool, self.known = block_size, BlockPool(blocks), {}

    def append(self, name, tokens):
        before = copy.deepcopy((self.pool, self.known))
        try:
            entry = self.known.setdefault(name, {"table": [], "tokens": 0})
            return [pair for _ in range(tokens) for pair in self._one(entry)]
        except MemoryError:
            self.pool, self.known = before
            raise

    def _one(self, entry):
        table, row = entry["table"], entry["tokens"] % self.size
        entry["tokens"] += 1
        if row == 0:
            table.append(self.pool.take())
            return []
        if self.pool.count(table[-1]) == 1:
            return []
        old, table[-1] = table[-1], self.pool.take()
        self.pool.release(old)
        return [(old, table[-1])]

    def fork(self, name, child):
        if child in self.known or name not in self.known:
            raise ValueError(f"{name} to {child}")
        self.known[child] = copy.deepcopy(self.known[name])
        [self.pool.share(block) for block in self.known[child]["table"]]

    def free(self, name):
        table = self.table(name)
        while table:
            self.pool.release(table.pop())
        self.known.pop(name)

    def table(self, name):
        if name not in self.known:
            raise ValueError(name)
        return self.known[name]["table"][:]

    def length(self, name):
        self.table(name)
        return self.known[name]["tokens"]

    def free_blocks(self):
        return self.pool.free()
