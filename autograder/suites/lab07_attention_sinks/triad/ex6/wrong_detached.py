"""No gradient reaches the bias."""

import torch

FAILS = ["test_attention_and_its_gradients", "test_gradients_and_groups"]


def sink_softmax(scores, bias):
    b = bias.detach().to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]
