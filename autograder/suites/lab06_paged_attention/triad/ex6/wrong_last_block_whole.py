"""The last block is read whole, also rows that are not in use."""

import math

import torch

FAILS = ["test_equal_to_contiguous", "test_blocks_of_every_size", "test_bfloat16_and_views"]


def paged_attention(q, k, v, table, length):
    heads, d = q.shape
    size, group = k.shape[1], heads // k.shape[2]
    state = torch.full((heads,), -math.inf), torch.zeros(heads), torch.zeros(heads, d)
    for i in range(-(-length // size)):
        n = size
        keys, values = (
            x[table[i], :n].float().repeat_interleave(group, dim=1).transpose(0, 1) for x in (k, v)
        )
        scores = (keys @ q.float()[:, :, None]).squeeze(-1) / math.sqrt(d)
        state = absorb(state, scores.float(), values.float())
    return state[2] / state[1][:, None]
