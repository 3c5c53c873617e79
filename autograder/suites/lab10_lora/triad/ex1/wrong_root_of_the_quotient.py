"""The root of alpha / r."""

FAILS = ["test_a_layer_by_hand", "test_the_formula"]


class LoRALinear(nn.Module):
    """A frozen layer with a trainable update of rank r.

    Raises ValueError unless r >= 1 and 0 <= dropout < 1.
    """

    def __init__(
        self,
        base: nn.Module,
        r: int,
        alpha: float,
        dropout: float = 0.0,
        rank_stabilized: bool = False,
    ) -> None:
        super().__init__()
        if r < 1 or not 0 <= dropout < 1:
            raise ValueError(f"need r={r} >= 1 and 0 <= dropout={dropout} < 1")
        self.base, self.dropout = base.requires_grad_(False), dropout
        self.scale = math.sqrt(alpha / r) if rank_stabilized else alpha / r
        bound = 1 / math.sqrt(base.in_features)
        self.a = nn.Parameter(torch.empty(r, base.in_features).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x: Tensor) -> Tensor:
        """[..., K] -> [..., N]."""
        y = self.base(x)
        low = F.dropout(x.float(), self.dropout, self.training) @ self.a.T  # [..., r]
        return y + (self.scale * (low @ self.b.T)).to(y.dtype)
