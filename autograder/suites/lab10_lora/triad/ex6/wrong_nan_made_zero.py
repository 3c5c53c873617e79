"""Makes numbers of NaN and infinity, so that none spreads."""

FAILS = ["test_what_must_not_spread"]


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decode):
        ctx.decode = decode
        return (x.float() @ decode().T).to(x.dtype)

    @staticmethod
    def backward(ctx, dy):
        return (dy.float() @ ctx.decode()).to(dy.dtype), None


def frozen_product(x, decode):
    return Product.apply(x, decode)


def batched_update(x, y, adapters, index):
    if ((index < -1) | (index >= len(adapters))).any():
        raise ValueError("index")
    new = y.clone()
    for j, (a, b, scale) in enumerate(adapters):
        rows = index == j
        if rows.any():
            new[rows] += (scale * (x[rows] @ a.T @ b.T)).nan_to_num()
    return new
