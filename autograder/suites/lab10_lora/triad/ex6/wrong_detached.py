"""x is cut off: no gradient."""

FAILS = ["test_bfloat16_and_no_gradient", "test_both_passes_by_hand", "test_nothing_large_is_kept"]


def frozen_product(x, decode):
    return FrozenProduct.apply(x, decode).detach().requires_grad_()
