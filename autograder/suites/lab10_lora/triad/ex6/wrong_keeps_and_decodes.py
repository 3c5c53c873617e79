"""W stays on ctx as an attribute, and is decoded again."""

FAILS = ["test_nothing_large_is_kept"]


class FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decode):
        ctx.decode, ctx.w = decode, decode().to(x.dtype)
        return x @ ctx.w.T

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.decode().to(dy.dtype), None


def frozen_product(x, decode):
    return FrozenProduct.apply(x, decode)
