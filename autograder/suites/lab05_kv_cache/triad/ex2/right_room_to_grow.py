"""A buffer that doubles, written by index; attention by PyTorch's own function."""

import torch
import torch.nn.functional as F


class RowCache:
    def __init__(self):
        self.buffer, self.n = None, torch.zeros(0, dtype=torch.long)

    @property
    def lengths(self):
        return self.n.tolist()

    def append(self, k, v, counts):
        b, h, t, d = k.shape
        if v.shape != k.shape or len(counts) != b:
            raise ValueError("k, v and counts")
        added = torch.tensor(counts)
        if (added < 0).any() or (added > t).any():
            raise ValueError("counts")
        if self.buffer is None:
            self.buffer, self.n = k.new_zeros(2, b, 4, h, d), torch.zeros(b, dtype=torch.long)
        if self.buffer.shape[1::2] != (b, h) or self.buffer.shape[4] != d:
            raise ValueError("another shape")
        while self.buffer.shape[2] < int((self.n + added).max()):
            self.buffer = torch.cat([self.buffer, torch.zeros_like(self.buffer)], dim=2)
        new = torch.stack([k, v]).transpose(2, 3)  # [2, B, T, H, d]
        rows, tokens = (torch.arange(t) < added[:, None]).nonzero(as_tuple=True)
        self.buffer[:, rows, self.n[rows] + tokens] = new[:, rows, tokens]
        last = self.n[:, None] + torch.arange(t)  # the slot of each new token
        self.n = self.n + added
        size = int(self.n.max())
        keys, values = self.buffer[:, :, :size].transpose(2, 3).clone()
        return keys, values, torch.arange(size) <= last[..., None]

    def truncate(self, lengths):
        if len(lengths) != len(self.n) or min(lengths, default=0) < 0:
            raise ValueError("lengths")
        self.n = torch.minimum(self.n, torch.tensor(lengths, dtype=torch.long))


def attend(q, k, v, mask):
    by_key_head = q.unflatten(1, (k.shape[1], -1)).float()  # [B, Hkv, H / Hkv, T, d]
    keys, values = (
        x.float()[:, :, None].expand(-1, -1, by_key_head.shape[2], -1, -1) for x in (k, v)
    )
    seen = mask[:, None, None]
    out = F.scaled_dot_product_attention(by_key_head, keys, values, attn_mask=seen)
    return torch.where(seen.any(-1, keepdim=True), out, 0.0).flatten(1, 2).to(q.dtype)
