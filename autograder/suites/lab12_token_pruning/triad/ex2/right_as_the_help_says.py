"""Lists of four tensors, and gathers."""


class KeptTokens:
    def __init__(self, size, sinks=0, recent=0, decay=1.0, score=None):
        survivors(
            torch.zeros(1, 1, 1), torch.zeros(1, 1, 1, dtype=torch.int64), size, sinks, recent
        )
        if not (decay >= 0 and decay <= 1):
            raise ValueError("decay")
        self.room = (size, sinks, recent)
        self.decay = decay
        self.rule = score
        self.count = 0
        self.keys = self.values = self.mass = self.positions = None

    def step(self, q, k, v):
        B, heads, T, d = k.shape
        at = torch.arange(self.count, self.count + T).repeat(B, heads, 1)
        self.count += T
        if self.keys is not None:
            k = torch.cat([self.keys, k], dim=2)
            v = torch.cat([self.values, v], dim=2)
            at = torch.cat([self.positions, at], dim=2)
        out, p = attend(q, k, v)
        mass = mass_of(p, heads, self.decay)
        if self.mass is not None:
            new = torch.zeros(B, heads, T, dtype=mass.dtype)
            mass = mass + self.decay**T * torch.cat([self.mass, new], dim=2)
        score = self.rule(mass, at) if self.rule else mass
        stay = survivors(score, at, *self.room)
        self.mass = torch.gather(mass, 2, stay)
        self.positions = torch.gather(at, 2, stay)
        wide = stay.unsqueeze(-1).expand(-1, -1, -1, d)
        self.keys, self.values = torch.gather(k, 2, wide), torch.gather(v, 2, wide)
        return out
