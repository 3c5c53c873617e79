"""dy is flattened by view, which fails where it arrives transposed."""

FAILS = ["test_layouts_and_sizes"]


class FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decode):
        ctx.decode = decode
        return x @ decode().to(x.dtype).T

    @staticmethod
    def backward(ctx, dy):
        w = ctx.decode().to(dy.dtype)
        return (dy.view(-1, dy.shape[-1]) @ w).reshape(*dy.shape[:-1], w.shape[1]), None


def frozen_product(x, decode):
    return FrozenProduct.apply(x, decode)
