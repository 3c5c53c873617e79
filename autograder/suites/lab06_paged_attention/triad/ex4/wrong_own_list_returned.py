"""table returns the list itself, which the caller may change."""

FAILS = [
    "test_copy_on_write_by_hand",
    "test_random_walks_of_sequences",
    "test_long_walks_of_sequences",
]


class Sequences(Sequences):
    def table(self, name):
        super().table(name)
        return self.tables[name]
