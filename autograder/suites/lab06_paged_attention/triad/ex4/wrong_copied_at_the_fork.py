"""A fork takes blocks of its own for everything."""

FAILS = [
    "test_copy_on_write_by_hand",
    "test_random_walks_of_sequences",
    "test_long_walks_of_sequences",
    "test_beams",
]


class Sequences(Sequences):
    def fork(self, name, child):
        length = self.length(name)
        if child in self.tables:
            raise ValueError(child)
        self.append(child, length)
