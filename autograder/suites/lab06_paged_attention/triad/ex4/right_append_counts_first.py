"""append counts the blocks that it needs, the copied one too, before it takes any."""


class Sequences(Sequences):
    def append(self, name, tokens):
        table, length = self.tables.get(name, []), self.lengths.get(name, 0)
        writes = tokens > 0 and length % self.block_size > 0
        copy = writes and self.pool.count(table[-1]) > 1
        new = blocks_for(length + tokens, self.block_size) - len(table)
        if new + copy > self.pool.free():
            raise MemoryError("not enough")
        copies = []
        if copy:
            copies = [(table[-1], self.pool.take())]
            self.pool.release(table[-1])
            table[-1] = copies[0][1]
        self.tables[name] = table + [self.pool.take() for _ in range(new)]
        self.lengths[name] = length + tokens
        return copies
