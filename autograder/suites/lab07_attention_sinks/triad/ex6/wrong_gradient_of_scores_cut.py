"""No gradient through the denominator."""

import torch

FAILS = ["test_attention_and_its_gradients", "test_gradients_and_groups"]


def sink_softmax(scores, bias):
    b = bias.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
    total = torch.cat([b, scores], dim=-1).logsumexp(-1, keepdim=True)
    return (scores - total.detach()).exp() + 0 * b.nan_to_num(0.0, 0.0, 0.0)
