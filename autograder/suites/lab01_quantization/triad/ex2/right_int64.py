"""64-bit integers inside, cast at the end."""

import torch


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    x_sums, x_zero = x_sums.long().unsqueeze(1), x_zero.long().unsqueeze(1)
    w_sums, w_zero = w_sums.long(), w_zero.long()
    total = products.long() - x_sums * w_zero - x_zero * w_sums + x_zero * w_zero * k
    return total.to(torch.int32)
