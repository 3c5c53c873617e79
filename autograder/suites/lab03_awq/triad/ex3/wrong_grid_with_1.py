"""A grid from 0 to 1 with both ends."""

FAILS = ["test_the_smallest_loss_wins", "test_losses_against_brute_force"]


def search_scales(x_mean, weights, block, bits, group_size):
    exact = block(weights)
    losses = []
    for ratio in [i / 19 for i in range(20)]:  # noqa: F821 -- given
        s = candidate_scales(x_mean, ratio)  # noqa: F821
        output = block([scaled_round_trip(w, s, bits, group_size) for w in weights])  # noqa: F821
        losses.append((output.float() - exact.float()).square().mean().item())
    ratio = losses.index(min(losses)) / 19
    return candidate_scales(x_mean, ratio), ratio, losses  # noqa: F821
