"""A list of tokens for each row, joined whenever they are asked for."""

import torch


class RowCache:
    def __init__(self):
        self.rows, self.like = [], None

    @property
    def lengths(self):
        return [len(row) for row in self.rows]

    def append(self, k, v, counts):
        if k.shape != v.shape or len(counts) != len(k):
            raise ValueError("shapes")
        if any(c not in range(k.shape[2] + 1) for c in counts):
            raise ValueError("counts")
        like = (k.shape[0], k.shape[1], k.shape[3])
        if self.like is None:
            self.like, self.rows = like, [[] for _ in counts]
        if like != self.like:
            raise ValueError("another shape")
        size = max(n + c for n, c in zip(self.lengths, counts, strict=True))
        mask = torch.zeros(len(k), k.shape[2], size, dtype=torch.bool)
        for b, count in enumerate(counts):
            for i in range(k.shape[2]):
                if i < count:
                    self.rows[b].append((k[b, :, i].clone(), v[b, :, i].clone()))
                    mask[b, i, : len(self.rows[b])] = True
        filling = torch.full((k.shape[1], k.shape[3]), 7.0, dtype=k.dtype)
        out = []
        for which in (0, 1):
            rows = [[t[which] for t in row] + [filling] * (size - len(row)) for row in self.rows]
            empty = k.new_zeros(k.shape[1], 0, k.shape[3])
            out.append(torch.stack([torch.stack(r, 1) if r else empty for r in rows]))
        return out[0], out[1], mask

    def truncate(self, lengths):
        if len(lengths) != len(self.rows) or min(lengths, default=0) < 0:
            raise ValueError("lengths")
        for row, n in zip(self.rows, lengths, strict=True):
            del row[n:]


def attend(q, k, v, mask):
    share = q.shape[1] // k.shape[1]
    out = torch.zeros(*q.shape[:3], v.shape[3])
    for h in range(q.shape[1]):
        for b in range(len(q)):
            for t in range(q.shape[2]):
                seen = mask[b, t]
                if seen.any():
                    keys, values = k[b, h // share, seen].float(), v[b, h // share, seen].float()
                    weights = torch.softmax(keys @ q[b, h, t].float() * q.shape[3] ** -0.5, 0)
                    out[b, h, t] = weights @ values
    return out.to(q.dtype)
