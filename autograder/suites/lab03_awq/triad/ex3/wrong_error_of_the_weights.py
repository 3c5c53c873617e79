"""The error of the weights is minimized; the block is not asked."""

FAILS = [
    "test_the_smallest_loss_wins",
    "test_ties_and_calls",
    "test_losses_against_brute_force",
    "test_shared_scales",
]


def search_scales(x_mean, weights, block, bits, group_size):
    exact = block(weights)
    losses = []
    for ratio in RATIOS:  # noqa: F821 -- given
        s = candidate_scales(x_mean, ratio)  # noqa: F821
        rounded = [scaled_round_trip(w, s, bits, group_size) for w in weights]  # noqa: F821
        losses.append(
            sum((r - w).square().mean().item() for r, w in zip(rounded, weights, strict=True))
            + 0 * len(exact)
        )
    ratio = RATIOS[losses.index(min(losses))]  # noqa: F821
    return candidate_scales(x_mean, ratio), ratio, losses  # noqa: F821
