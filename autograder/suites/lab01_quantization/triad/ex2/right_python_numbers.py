"""One number after another, as Python integers."""

import torch


def integer_product(products, x_sums, w_sums, k, x_zero, w_zero):
    rows = []
    for t, row in enumerate(products.tolist()):
        sx, zx = int(x_sums[t]), int(x_zero[t])
        pairs = zip(row, w_sums.tolist(), w_zero.tolist(), strict=True)
        rows.append([p - zw * sx - zx * sw + k * zx * zw for p, sw, zw in pairs])
    return torch.tensor(rows, dtype=torch.int32)
