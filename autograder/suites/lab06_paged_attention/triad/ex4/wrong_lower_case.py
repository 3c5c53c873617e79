"""Names in lower case: "a" and "A" are one sequence."""

FAILS = ["test_names_and_sizes"]


class Sequences:
    def __init__(self, blocks, block_size):
        self.pool = BlockPool(blocks)
        self.size = block_size
        self.tables = {}
        self.lengths = {}

    def append(self, name, tokens):
        name = name.casefold() if isinstance(name, str) else name
        table = self.tables.get(name, [])
        length = self.lengths.get(name, 0)
        new = blocks_for(length + tokens, self.size) - len(table)
        copy = tokens > 0 and length % self.size != 0 and self.pool.count(table[-1]) > 1
        if new + copy > self.pool.free():
            raise MemoryError("blocks")
        copies = []
        self.tables[name] = table
        self.lengths[name] = length + tokens
        if copy:
            old, table[-1] = table[-1], self.pool.take()
            self.pool.release(old)
            copies.append((old, table[-1]))
        for _ in range(new):
            table.append(self.pool.take())
        return copies

    def fork(self, name, child):
        name, child = (x.casefold() if isinstance(x, str) else x for x in (name, child))
        if name not in self.tables or child in self.tables:
            raise ValueError("names")
        for block in self.tables[name]:
            self.pool.share(block)
        self.tables[child] = list(self.tables[name])
        self.lengths[child] = self.lengths[name]

    def free(self, name):
        name = name.casefold() if isinstance(name, str) else name
        if name not in self.tables:
            raise ValueError("name")
        for block in reversed(self.tables.pop(name)):
            self.pool.release(block)
        del self.lengths[name]

    def table(self, name):
        name = name.casefold() if isinstance(name, str) else name
        if name not in self.tables:
            raise ValueError("name")
        return list(self.tables[name])

    def length(self, name):
        name = name.casefold() if isinstance(name, str) else name
        if name not in self.lengths:
            raise ValueError("name")
        return self.lengths[name]

    def free_blocks(self):
        return self.pool.free()
