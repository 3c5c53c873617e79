"""Every term is clamped to the range of int32 before the terms are added."""

import torch

FAILS = ["test_exact_up_to_the_last_bit"]


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    ends = torch.iinfo(torch.int32)

    def kept(term):
        return term.clamp(ends.min, ends.max)

    x_sums, x_zero = x_sums.long()[:, None], x_zero.long()[:, None]
    w_sums, w_zero = w_sums.long(), w_zero.long()
    total = products - kept(x_sums * w_zero) - kept(x_zero * w_sums) + kept(k * x_zero * w_zero)
    return kept(total).to(torch.int32)
