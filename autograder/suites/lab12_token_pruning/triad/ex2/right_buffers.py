"""Buffers of fixed size that are written in place."""


class KeptTokens:
    def __init__(self, size, sinks=0, recent=0, decay=1.0, score=None):
        if size < 1 or sinks < 0 or recent < 0 or sinks + recent > size or not 0 <= decay <= 1:
            raise ValueError("options")
        self.size, self.sinks, self.recent, self.decay, self.score = (
            size,
            sinks,
            recent,
            decay,
            score,
        )
        self.n = self.seen = 0

    def step(self, q, k, v):
        B, G, T, d = k.shape
        if self.seen == 0:
            kind = torch.float64 if torch.float64 in (q.dtype, k.dtype) else torch.float32
            self._k, self._v = (x.new_zeros(B, G, self.size, d) for x in (k, v))
            self._at = torch.zeros(B, G, self.size, dtype=torch.int64)
            self._m = torch.zeros(B, G, self.size, dtype=kind)
        n = self.n
        at = (self.seen + torch.arange(T)).expand(B, G, T)
        all_k, all_v = torch.cat([self._k[:, :, :n], k], 2), torch.cat([self._v[:, :, :n], v], 2)
        all_at = torch.cat([self._at[:, :, :n], at], 2)
        out, p = attend(q, all_k, all_v)
        m = torch.cat([self._m[:, :, :n], self._m.new_zeros(B, G, T)], 2)
        for row in p.unflatten(1, (G, -1)).sum(2).unbind(2):
            m = self.decay * m + row
        score = m if self.score is None else self.score(m, all_at)
        stay = survivors(score, all_at, self.size, self.sinks, self.recent)
        self.n, self.seen = stay.shape[2], self.seen + T
        for b in range(B):
            for g in range(G):
                chosen = stay[b, g]
                self._k[b, g, : self.n] = all_k[b, g, chosen]
                self._v[b, g, : self.n] = all_v[b, g, chosen]
                self._at[b, g, : self.n] = all_at[b, g, chosen]
                self._m[b, g, : self.n] = m[b, g, chosen]
        return out

    keys = property(lambda self: self._k[:, :, : self.n])
    values = property(lambda self: self._v[:, :, : self.n])
    positions = property(lambda self: self._at[:, :, : self.n])
    mass = property(lambda self: self._m[:, :, : self.n])
