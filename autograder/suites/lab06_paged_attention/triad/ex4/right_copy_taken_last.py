"""New blocks are taken before the one for the copy."""


class Sequences(Sequences):
    def append(self, name, tokens):
        table, length = list(self.tables.get(name, [])), self.lengths.get(name, 0)
        new = blocks_for(length + tokens, self.block_size) - len(table)
        shared = tokens > 0 and length % self.block_size != 0 and self.pool.count(table[-1]) > 1
        if self.pool.free() < new + shared:
            raise MemoryError
        more = [self.pool.take() for _ in range(new)]
        pairs = []
        if shared:
            pairs = [(table[-1], self.pool.take())]
            self.pool.release(table[-1])
            table[-1] = pairs[0][1]
        self.tables[name], self.lengths[name] = table + more, length + tokens
        return pairs
