"""The last column is dropped in place of the first."""

import torch

FAILS = [
    "test_formula_by_hand",
    "test_large_scores_and_empty_rows",
    "test_attention_and_its_gradients",
    "test_softmax_of_every_shape",
    "test_empty_rows_and_no_bias",
    "test_gradients_and_groups",
]


def sink_softmax(scores, bias):
    b = bias.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
    return torch.cat([b, scores], dim=-1).softmax(-1)[..., :-1]
