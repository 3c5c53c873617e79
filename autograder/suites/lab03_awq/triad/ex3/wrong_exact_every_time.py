"""The exact output is computed again for every ratio."""

FAILS = ["test_ties_and_calls"]


def search_scales(x_mean, weights, block, bits, group_size):

    losses = []
    for ratio in RATIOS:  # noqa: F821 -- given
        s = candidate_scales(x_mean, ratio)  # noqa: F821
        exact = block(weights)
        output = block([scaled_round_trip(w, s, bits, group_size) for w in weights])  # noqa: F821
        losses.append((output.float() - exact.float()).square().mean().item())
    ratio = RATIOS[losses.index(min(losses))]  # noqa: F821
    return candidate_scales(x_mean, ratio), ratio, losses  # noqa: F821
