"""einsum, and the sums of the centred codes."""

import torch


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    moved = x_sums - k * x_zero  # the sum of q_x - z_x
    total = products - torch.einsum("t,n->tn", x_zero, w_sums)
    return total - torch.einsum("t,n->tn", moved, w_zero)
