"""The largest loss wins."""

FAILS = ["test_the_smallest_loss_wins", "test_losses_against_brute_force", "test_shared_scales"]


def search_scales(x_mean, weights, block, bits, group_size):
    exact = block(weights)
    losses = []
    for ratio in RATIOS:  # noqa: F821 -- given
        s = candidate_scales(x_mean, ratio)  # noqa: F821
        output = block([scaled_round_trip(w, s, bits, group_size) for w in weights])  # noqa: F821
        losses.append((output.float() - exact.float()).square().mean().item())
    ratio = RATIOS[losses.index(max(losses))]  # noqa: F821
    return candidate_scales(x_mean, ratio), ratio, losses  # noqa: F821
