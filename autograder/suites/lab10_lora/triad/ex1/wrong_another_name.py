"""The frozen layer is kept under another name than the card's."""

FAILS = ["test_the_start"]


class LoRALinear(LoRALinear):
    def __init__(self, base, r, alpha, dropout=0.0, rank_stabilized=False):
        super().__init__(base, r, alpha, dropout, rank_stabilized)
        del self.base
        self.frozen = base

    def forward(self, x):
        y = self.frozen(x)
        low = F.dropout(x.float(), self.dropout, self.training) @ self.a.T
        return y + (self.scale * (low @ self.b.T)).to(y.dtype)
