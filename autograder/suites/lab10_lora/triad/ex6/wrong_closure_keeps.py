"""A closure holds the decoded W between the passes."""

FAILS = ["test_nothing_large_is_kept"]


class FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decode):
        w = decode().to(x.dtype)

        def through(dy):
            decode()
            return dy @ w

        ctx.through = through
        return x @ w.T

    @staticmethod
    def backward(ctx, dy):
        return ctx.through(dy), None


def frozen_product(x, decode):
    return FrozenProduct.apply(x, decode)
