"""How many parameters and tokens a training budget is for: Chinchilla, and what it leaves out.

    budget              C = 6 N D FLOPs          N parameters, D tokens: 2 forward, 4 backward
    rule of thumb       D = 20 N                 so N = sqrt(C / 120)
    loss (approach 3)   L(N, D) = E + A / N^alpha + B / D^beta
    its best N for C    N = G (C / 6)^(beta / s),  G = (alpha A / (beta B))^(1 / s)
                        s = alpha + beta

Where 20 comes from: `TABLE` is what Hoffmann et al. (2022, arXiv:2203.15556, table 3) project by
their first approach, exponents near 1/2 for N and D alike, so D / N is nearly the same throughout:
20 to 22.  Their third approach, the loss above with the printed numbers, gives other ratios, which
grow with the budget; Besiroglu et al. (2024, arXiv:2404.10102) fit it again: about 20.

What it leaves out: the model is used.  C is spent once, 2 N FLOPs for every token that it later
reads or writes.  `cheapest` finds the least sum for the same loss (Sardana et al. 2023,
arXiv:2401.00448): smaller models, trained for longer, as Llama's are.  It assumes one pass over
fresh text, one architecture and one data set, and says nothing about what a model can do.
"""

import math
from typing import NamedTuple

RATIO = 20.0  # tokens for each parameter
GOPHER = 5.76e23  # FLOPs; the unit of the table's third column


class Row(NamedTuple):
    """One line of the table: what is printed."""

    parameters: float
    flops: float
    gopher: float  # FLOPs over those of Gopher
    tokens: float


TABLE = (  # Hoffmann et al. 2022, table 3; also in a lecture
    Row(400e6, 1.92e19, 1 / 29_968, 8.0e9),
    Row(1e9, 1.21e20, 1 / 4_761, 20.2e9),
    Row(10e9, 1.23e22, 1 / 46, 205.1e9),
    Row(67e9, 5.76e23, 1, 1.5e12),
    Row(175e9, 3.85e24, 6.7, 3.7e12),
    Row(280e9, 9.90e24, 17.2, 5.9e12),
    Row(520e9, 3.43e25, 59.5, 11.0e12),
    Row(1e12, 1.27e26, 221.3, 21.2e12),
    Row(10e12, 1.30e28, 22515.9, 216.2e12),
)


class Law(NamedTuple):
    """L(N, D) = floor + a / N^alpha + b / D^beta, in nats per token."""

    floor: float
    a: float
    alpha: float
    b: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        return self.floor + self.a / parameters**self.alpha + self.b / tokens**self.beta


HOFFMANN = Law(1.69, 406.4, 0.34, 410.7, 0.28)  # as printed, section 3.3 and appendix D.3
# with the digits of its TeX source, which Besiroglu et al. quote
HOFFMANN_TEX = Law(1.6934, 406.4, 0.3392, 410.7, 0.2849)
BESIROGLU = Law(1.8172, 482.01, 0.3478, 2085.43, 0.3658)  # the same data, fitted again


class Budget(NamedTuple):
    """A model and the text it is trained on."""

    parameters: float
    tokens: float

    @property
    def training(self) -> float:
        """FLOPs."""
        return training_flops(self.parameters, self.tokens)

    @property
    def ratio(self) -> float:
        """Tokens for each parameter."""
        return self.tokens / self.parameters


def training_flops(parameters: float, tokens: float) -> float:
    """6 N D: attention's own products are not counted."""
    _positive(parameters=parameters, tokens=tokens)
    return 6 * parameters * tokens


def by_rule(compute: float, ratio: float = RATIO) -> Budget:
    """The model that a budget is for at so many tokens a parameter."""
    _positive(compute=compute, ratio=ratio)
    n = math.sqrt(compute / (6 * ratio))
    return Budget(n, ratio * n)


def by_law(compute: float, law: Law) -> Budget:
    """The model of the least loss that a budget can train."""
    _positive(compute=compute)
    both = law.alpha + law.beta
    scale = (law.alpha * law.a / (law.beta * law.b)) ** (1 / both)
    n = scale * (compute / 6) ** (law.beta / both)
    return Budget(n, compute / 6 / n)


def tokens_for(loss: float, parameters: float, law: Law) -> float:
    """Tokens that bring so many parameters to a loss; inf where no number of tokens does."""
    _positive(loss=loss, parameters=parameters)
    left = loss - law.floor - law.a / parameters**law.alpha
    return (law.b / left) ** (1 / law.beta) if left > 0 else math.inf


def lifetime_flops(plan: Budget, used: float) -> float:
    """FLOPs of training, and of `used` tokens read or written afterwards: 6 N D + 2 N used."""
    if not used >= 0:
        raise ValueError(f"used={used} must be at least 0")
    return plan.training + 2 * plan.parameters * used


def cheapest(loss: float, used: float, law: Law) -> Budget:
    """The model of this loss whose training and use take the fewest FLOPs.

    The cost has one minimum in log N: a search by thirds finds it to 9 digits.  Raises ValueError
    for a loss that no model reaches.
    """
    if not loss > law.floor:
        raise ValueError(f"loss={loss} must be above {law.floor}, which no model goes below")

    def cost(log_n: float) -> float:
        n = math.exp(log_n)
        tokens = tokens_for(loss, n, law)
        return math.inf if tokens == math.inf else lifetime_flops(Budget(n, tokens), used)

    low = math.log(law.a / (loss - law.floor)) / law.alpha  # the fewest parameters that reach it
    high = low + math.log(1e9)
    while high - low > 1e-9:
        third = (high - low) / 3
        if cost(low + third) < cost(high - third):
            high -= third
        else:
            low += third
    n = math.exp((low + high) / 2)
    return Budget(n, tokens_for(loss, n, law))


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not number > 0:
            raise ValueError(f"{name}={number!r} must be above 0")
