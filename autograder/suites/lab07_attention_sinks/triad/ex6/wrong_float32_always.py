"""float32 comes back for float64."""

import torch

FAILS = ["test_formula_by_hand", "test_softmax_of_every_shape"]


def sink_softmax(scores, bias):
    scores, bias = scores.float(), bias.float()
    b = bias.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]
