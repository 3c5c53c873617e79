"""The group size is taken as fixed where the codes are read."""

import torch

FAILS = ["test_groups_by_hand", "test_values_of_any_codes"]


def dequantize_groups(codes, scale, zero):
    group = torch.arange(codes.shape[1]) // 32
    return (codes.int() - zero[:, group]) * scale[:, group]
