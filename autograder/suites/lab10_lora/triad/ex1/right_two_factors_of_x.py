"""x through A and then through B, in float32; the modules named one after the other."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, r, alpha, dropout=0.0, rank_stabilized=False):
        super().__init__()
        if r < 1 or not 0 <= dropout < 1:
            raise ValueError("r or dropout")
        self.base, self.dropout = base.requires_grad_(False), dropout
        self.scale = alpha / math.sqrt(r) if rank_stabilized else alpha / r
        bound = 1 / math.sqrt(base.in_features)
        self.a = nn.Parameter(torch.empty(r, base.in_features).uniform_(-bound, bound))
        self.b = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        y = self.base(x)
        low = F.dropout(x.float(), self.dropout, self.training) @ self.a.T
        return y + (self.scale * (low @ self.b.T)).to(y.dtype)
