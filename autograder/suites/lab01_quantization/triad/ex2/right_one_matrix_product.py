"""The three corrections as one product of matrices [T, 3] and [3, N], in float64: exact."""

import torch


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    one = torch.ones(len(w_zero))
    left = torch.stack([x_sums, x_zero, k * x_zero], dim=1).double()
    right = torch.stack([-w_zero, -w_sums, w_zero * one.int()]).double()
    return (products.double() + left @ right).round().to(torch.int32)
