"""An unknown name is a KeyError."""

FAILS = ["test_random_walks_of_sequences", "test_long_walks_of_sequences"]


class Sequences(Sequences):
    def free(self, name):
        if name not in self.tables:
            raise KeyError(name)
        super().free(name)
