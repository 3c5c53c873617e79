"""alpha is made a whole number."""

FAILS = ["test_the_formula"]


class LoRALinear(LoRALinear):
    def __init__(self, base, r, alpha, dropout=0.0, rank_stabilized=False):
        super().__init__(base, r, int(alpha), dropout, rank_stabilized)
