"""Sequences whose keys and values lie in shuffled pages."""

import torch

from efflib.kernels.split_attention import gather_pages

UNUSED = -(2**20)  # in the table, where no page is: far out of bounds if it is read


def paged(lengths, page_size, H=2, Hkv=2, d=16, dtype=torch.float32, seed=0):
    """(q, k, v, block_table, lengths): shuffled pages, NaN in all rows that no sequence uses."""
    generator = torch.Generator().manual_seed(seed)
    used = [-(-n // page_size) for n in lengths]
    order = torch.randperm(sum(used) + 3, generator=generator).tolist()
    shape = (len(order), page_size, Hkv, d)
    k, v = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    q = torch.randn((len(lengths), H, d), generator=generator).to(dtype)
    table = torch.full((len(lengths), max(used) + 1), UNUSED, dtype=torch.int32)
    free = torch.ones(shape[:2], dtype=torch.bool)
    for b, (n, pages) in enumerate(zip(lengths, used, strict=True)):
        mine = [order.pop() for _ in range(pages)]
        table[b, :pages] = torch.tensor(mine, dtype=torch.int32)
        for j in range(n):
            free[mine[j // page_size], j % page_size] = False
    k[free] = v[free] = torch.nan
    return q, k, v, table, torch.tensor(lengths, dtype=torch.int32)


def contiguous(k, v, table, lengths, b):
    """k, v [1, Hkv, n, d] of sequence b."""
    return tuple(gather_pages(t, table[b], int(lengths[b])) for t in (k, v))
