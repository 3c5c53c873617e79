"""No counts: owners are looked up in all tables."""


class Sequences:
    def __init__(self, blocks, block_size):
        self.block_size, self.order = block_size, list(range(blocks))
        self.all = {}  # name -> (table, tokens)

    def _owners(self, block):
        return sum(block in table for table, _ in self.all.values())

    def _known(self, name):
        if name not in self.all:
            raise ValueError(name)
        return self.all[name]

    def append(self, name, tokens):
        table, length = self.all.get(name, ([], 0))
        size, pairs, table = self.block_size, [], list(table)
        more = (length + tokens + size - 1) // size - len(table)
        if tokens and length % size and self._owners(table[-1]) > 1:
            more += 1
            pairs = [table.pop()]
        if more > len(self.order):
            raise MemoryError
        new, self.order = self.order[:more], self.order[more:]
        if pairs:
            pairs = [(pairs[0], new[0])]
        self.all[name] = (table + new, length + tokens)
        return pairs

    def fork(self, name, child):
        table, length = self._known(name)
        if child in self.all:
            raise ValueError(child)
        self.all[child] = (list(table), length)

    def free(self, name):
        table, _ = self._known(name)
        del self.all[name]
        self.order += [block for block in table[::-1] if not self._owners(block)]

    def table(self, name):
        return list(self._known(name)[0])

    def length(self, name):
        return self._known(name)[1]

    def free_blocks(self):
        return len(self.order)
