# A line, users of each block, and the whole beginning that each holds.


class Blocks:
    def __init__(self, blocks, block):
        self.size, self.tables = block, {}
        self.line, self.count, self.held = [i for i in range(blocks)], {}, {}

    @property
    def free(self):
        return len(self.line)

    def start(self, name, text):
        table, end = [], self.size
        while end < len(text):
            found = None
            for number, tokens in self.held.items():
                if tokens == tuple(text[:end]):
                    found = number
            if found is None:
                break
            if found in self.line:
                self.line.remove(found)
            self.count[found] = self.count.get(found, 0) + 1
            table.append(found)
            end += self.size
        self.tables[name] = table
        return len(table) * self.size

    def grow(self, name, length):
        table = self.tables[name]
        needs = (length + self.size - 1) // self.size - len(table)
        if needs > len(self.line):
            raise MemoryError
        while needs > 0:
            number = self.line.pop(0)
            self.held.pop(number, None)
            self.count[number] = 1
            table.append(number)
            needs -= 1

    def roll_back(self, name, length):
        table = self.tables[name]
        while len(table) > (length + self.size - 1) // self.size:
            number = table.pop()
            self.count[number] -= 1
            if self.count[number] == 0:
                self.line.append(number)

    def settle(self, name, text, cached):
        for i in range(cached // self.size):
            self.held[self.tables[name][i]] = tuple(text[: (i + 1) * self.size])

    def end(self, name):
        self.roll_back(name, 0)
        self.tables.pop(name)
