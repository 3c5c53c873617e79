"""What the hints say, word for word."""


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decode):
        ctx.decode = decode
        return x @ decode().to(x.dtype).T

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.decode().to(dy.dtype), None


def frozen_product(x, decode):
    return Product.apply(x, decode)


def batched_update(x, y, adapters, index):
    if index.numel() and (index.min() < -1 or index.max() >= len(adapters)):
        raise ValueError(index)
    y = y.clone()
    for j, (a, b, scale) in enumerate(adapters):
        rows = index == j
        y[rows] += scale * (x[rows] @ a.T @ b.T)
    return y
