"""A small number in place of the bias where there is none."""

import torch

FAILS = [
    "test_formula_by_hand",
    "test_large_scores_and_empty_rows",
    "test_softmax_of_every_shape",
    "test_empty_rows_and_no_bias",
]


def sink_softmax(scores, bias):
    b = bias.to(scores.dtype).clamp(min=-4.0)[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., 1:]
