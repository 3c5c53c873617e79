"""The zero point of x is taken out of the last two terms."""

import torch


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    centred = w_sums - k * w_zero
    return products - torch.outer(x_sums, w_zero) - torch.outer(x_zero, centred)
