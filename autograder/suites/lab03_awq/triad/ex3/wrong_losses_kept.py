"""The list of losses is a default argument: the next call goes on filling it."""

FAILS = ["test_the_smallest_loss_wins", "test_losses_against_brute_force"]


def search_scales(x_mean, weights, block, bits, group_size, losses=[]):  # noqa: B006
    exact = block(weights)
    for ratio in RATIOS:  # noqa: F821
        s = candidate_scales(x_mean, ratio)  # noqa: F821
        y = block([scaled_round_trip(w, s, bits, group_size) for w in weights])  # noqa: F821
        losses.append((y.float() - exact.float()).square().mean().item())
    best = losses.index(min(losses)) % 20
    return candidate_scales(x_mean, RATIOS[best]), RATIOS[best], losses  # noqa: F821
