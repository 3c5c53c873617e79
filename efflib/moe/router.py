"""Which experts a token goes to, and what share each has in the answer.

    s = W_router x                       one logit an expert, [T, E]
    mixtral    softmax over the k largest logits; equal to a softmax over all E, of which the k
               largest are renormalized to a sum of 1
    switch     softmax over all E, the k largest as they are: the gates sum to less than 1, so
               that the router learns through them even where k = 1
    deepseek   sigmoid of each logit; the k largest of sigmoid + bias are chosen, the gates are
               their sigmoids without the bias, renormalized

With k = 1 a renormalized gate is 1 whatever the logits are: no gradient reaches the router.

Sources: Jiang et al., "Mixtral" (2024), section 2.1; Fedus et al., "Switch" (2021), section 2.1;
"DeepSeek-V3" (2024), section 2.1.2, where the bias moves against each expert's load.
"""

from typing import Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from efflib.models.rotary import at_least_fp32

Convention = Literal["mixtral", "switch", "deepseek"]
CONVENTIONS = ("mixtral", "switch", "deepseek")


class Routing(NamedTuple):
    """Where each of T tokens goes: choice 0 is the expert of the largest score."""

    experts: Tensor  # [T, k] int64
    gates: Tensor  # [T, k] float32


def expect_logits(logits: Tensor) -> None:
    """[T, E] with at least one expert; T may be 0.  Raises ValueError."""
    if logits.ndim != 2 or not logits.shape[1]:
        raise ValueError(f"logits must be [T, E] with an expert, got {tuple(logits.shape)}")


def route(
    logits: Tensor, k: int, convention: Convention = "mixtral", bias: Tensor | None = None
) -> Routing:
    """Choose k of E experts for every token.

    Args:
        logits: [T, E], the router's output; computed in float32, or float64 where it is.
        k: experts a token, 1 to E.
        convention: see above.
        bias: [E], added to what is compared and not to the gates; only of "deepseek".

    Of equal scores any may be chosen.

    Raises:
        ValueError: a k out of range, an unknown convention, a bias where there is none.
    """
    expect_logits(logits)
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k={k} must be from 1 to the {logits.shape[1]} experts")
    if convention not in CONVENTIONS:
        raise ValueError(f"convention={convention!r} must be one of {', '.join(CONVENTIONS)}")
    if convention in CONVENTIONS[:2] and bias is not None:
        raise ValueError(f"only 'deepseek' chooses with a bias, not {convention!r}")
    logits = logits.to(at_least_fp32(logits.dtype))
    if convention == "deepseek":
        scores = logits.sigmoid()  # [T, E]
        experts = (scores if bias is None else scores + bias).topk(k, dim=-1).indices
        # a / sum a = softmax(log a), which is right also where every sigmoid is 0 in float32
        return Routing(experts, F.logsigmoid(logits.gather(-1, experts)).softmax(-1))
    if convention == "switch":
        experts = logits.topk(k, dim=-1).indices  # far behind the first all softmaxes are 0
        return Routing(experts, logits.softmax(-1).gather(-1, experts))
    largest, experts = logits.topk(k, dim=-1)
    return Routing(experts, largest.softmax(-1))
