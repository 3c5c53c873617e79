"""How much faster speculation is, from three measured numbers.

With g proposals a round, each accepted independently with probability a, a draft pass that costs
c target passes, and w more target passes for each token that a pass checks:

    E = 1 + a + ... + a^g                    tokens a round, all of them the target's
    S = E / (1 + g (c + w))                  times the tokens per second of plain decoding

Source: Leviathan et al. (2023), Theorem 3.8, where w = 0: reading the weights takes all the time of
a pass. On a small model it is not: c is bounded from below by the time that a pass spends outside
of its products, however small the draft is, and w by the arithmetic.

S rises in g while the next proposal is accepted often enough, a^(g+1) > (c + w) S, and falls
afterwards: so there is a best g, and it may be 0.
"""

from efflib.checks import expect_whole
from efflib.decoding.speculative import expected_tokens


def speedup(acceptance: float, gamma: int, cost: float, wider: float = 0.0) -> float:
    """S for gamma proposals a round; cost is c, wider is w, both in passes of the target.

    Raises ValueError for negative costs, and as `expected_tokens`.
    """
    if not (cost >= 0 and wider >= 0):
        raise ValueError(f"cost={cost} and wider={wider} must be >= 0")
    return expected_tokens(acceptance, gamma) / (1 + gamma * (cost + wider))


def best_gamma(acceptance: float, cost: float, wider: float = 0.0, most: int = 64) -> int:
    """The number of proposals from 0 to `most` with the largest S; of equal ones the smallest."""
    expect_whole(most=most)
    return max(range(most + 1), key=lambda gamma: speedup(acceptance, gamma, cost, wider))


def needed_acceptance(goal: float, cost: float, wider: float = 0.0, most: int = 64) -> float | None:
    """The least acceptance, to 0.001, whose best gamma reaches S = goal; None if none does.

    Raises ValueError for a goal that is not positive.
    """
    if not goal > 0:
        raise ValueError(f"goal={goal} must be positive")
    for thousandths in range(1001):
        a = thousandths / 1000
        if speedup(a, best_gamma(a, cost, wider, most), cost, wider) >= goal:
            return a
    return None
