"""The gradient twice."""

FAILS = [
    "test_bfloat16_and_no_gradient",
    "test_both_passes_by_hand",
    "test_two_layers_against_autograd",
]


class FrozenProduct(torch.autograd.Function):
    """x W^T, with W decoded in each pass."""

    @staticmethod
    def forward(ctx, x, decode):
        ctx.decode = decode
        return x @ decode().to(x.dtype).T

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy @ ctx.decode().to(dy.dtype), None


def frozen_product(x: Tensor, decode) -> Tensor:
    """x [..., K] times the transpose of decode() [N, K], which is not kept. [..., N]"""
    return FrozenProduct.apply(x, decode)
