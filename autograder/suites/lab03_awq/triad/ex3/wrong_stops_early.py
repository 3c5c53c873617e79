"""Stops at the first loss that rises, and fills the rest with infinity."""

FAILS = ["test_the_smallest_loss_wins", "test_ties_and_calls"]


def search_scales(x_mean, weights, block, bits, group_size):
    exact, losses = block(weights), []
    for ratio in RATIOS:  # noqa: F821
        s = candidate_scales(x_mean, ratio)  # noqa: F821
        y = block([scaled_round_trip(w, s, bits, group_size) for w in weights])  # noqa: F821
        losses.append((y.float() - exact.float()).square().mean().item())
        if len(losses) > 1 and losses[-1] >= losses[-2]:
            break
    losses += [float("inf")] * (20 - len(losses))
    best = losses.index(min(losses))
    return candidate_scales(x_mean, RATIOS[best]), RATIOS[best], losses  # noqa: F821
