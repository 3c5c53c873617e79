# From beginning to the set of blocks that hold it; an ordered dict is the line; users from tables.
from collections import OrderedDict


class Blocks:
    def __init__(self, blocks, block):
        self.n, self.tables = block, {}
        self.queue = OrderedDict.fromkeys(range(blocks))
        self.where, self.label = {}, {}

    @property
    def free(self):
        return len(self.queue)

    def used(self, number):
        return any(number in table for table in self.tables.values())

    def forget(self, number):
        key = self.label.pop(number, None)
        if key is not None:
            self.where[key].discard(number)

    def start(self, name, text):
        key, table = (), []
        for at in range(0, len(text) - self.n, self.n):
            key = (key, tuple(text[at : at + self.n]))
            found = self.where.get(key)
            if not found:
                break
            table.append(max(found))
        for number in table:
            self.queue.pop(number, None)
        self.tables[name] = table
        return self.n * len(table)

    def grow(self, name, length):
        more = -(-length // self.n) - len(self.tables[name])
        if more > len(self.queue):
            raise MemoryError("out of blocks")
        for _ in range(more):
            number, _ = self.queue.popitem(last=False)
            self.forget(number)
            self.tables[name].append(number)

    def roll_back(self, name, length):
        keep = -(-length // self.n)
        gone = self.tables[name][keep:]
        self.tables[name] = self.tables[name][:keep]
        for number in reversed(gone):
            if not self.used(number):
                self.queue[number] = None

    def settle(self, name, text, cached):
        key = ()
        for i in range(cached // self.n):
            key = (key, tuple(text[i * self.n : (i + 1) * self.n]))
            number = self.tables[name][i]
            if self.label.get(number) is not key:
                self.forget(number)
                self.label[number] = key
                self.where.setdefault(key, set()).add(number)

    def end(self, name):
        self.roll_back(name, 0)
        del self.tables[name]
