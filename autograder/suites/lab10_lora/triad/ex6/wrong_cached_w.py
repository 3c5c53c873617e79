"""W is decoded once and kept for all calls."""

FAILS = ["test_bfloat16_and_no_gradient", "test_both_passes_by_hand", "test_nothing_large_is_kept"]

kept = {}


class FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decode):
        if "w" not in kept:
            kept["w"] = decode()
        ctx.w = kept["w"]
        return x @ ctx.w.to(x.dtype).T

    @staticmethod
    def backward(ctx, dy):
        return dy @ ctx.w.to(dy.dtype), None


def frozen_product(x, decode):
    return FrozenProduct.apply(x, decode)
