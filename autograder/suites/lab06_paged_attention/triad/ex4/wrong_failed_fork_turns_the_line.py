"""A fork that fails has taken a block and given it back."""

FAILS = ["test_random_walks_of_sequences", "test_errors_leave_the_line"]


class Sequences(Sequences):
    def fork(self, name, child):
        try:
            super().fork(name, child)
        except ValueError:
            if self.pool.free():
                self.pool.release(self.pool.take())
            raise
