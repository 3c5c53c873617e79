"""Speculative decoding: a small draft proposes g tokens, the target checks them all in one pass.

    accept proposal x_i with probability min(1, p_i(x_i) / q_i(x_i)),
    at the first rejection draw from  norm(max(0, p_i - q_i))  and stop,
    if all g are accepted draw one more, the bonus token, from p_{g+1}.

Every target pass yields 1 to g + 1 tokens, distributed exactly as the target's own. When each
proposal is accepted independently with probability a, the mean is (1 - a^(g+1)) / (1 - a).
Source: Leviathan et al. (2023), Algorithm 1, equation 1 and Theorem 3.5; Chen et al. (2023).

Decoding is one pass over the weights per token, so checking g + 1 tokens costs about as much time
as producing one; the arithmetic grows.

Where implementations differ:

- temperature, top-k and top-p shape both p and q here, before the test. Filtering one of them
  only would sample from something else (or accept less).
- after full acceptance the draft's cache lacks the last proposal, which it never read. gpt-fast
  runs one more draft pass at once; here the next round feeds the draft two tokens.
- the residual is all zero where p <= q everywhere, that is p = q up to rounding; a division
  would give NaN. A rejection then has probability of the order of rounding; it draws from p.
- transformers lengthens g by 2 after full acceptance and shortens it by 1 otherwise; constant
  here unless `adapt` is given (`drafts.next_gamma`), but never more than what is left to generate.
- a proposal that was certain, from a lookup or a greedy draft, has q = 1 at it: it is accepted with
  probability p, and the residual is p without it.

Greedy output is that of plain greedy decoding up to rounding: a pass over g + 1 tokens may sum in
another order than a pass over one, and change the argmax where two logits are almost equal.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_integers, expect_whole
from efflib.decoding.drafts import Draft, ModelDraft
from efflib.decoding.sampling import (
    GREEDY,
    Sampling,
    draw,
    expect_prompt,
    filtered_probabilities,
)
from efflib.models.cache import KVCache
from efflib.models.llama import Llama


class Speculated(NamedTuple):
    """What a run produced and what it took."""

    ids: Tensor  # [1, T + n], prompt included
    passes: int  # of the target, the one that reads the prompt too
    proposed: int
    accepted: int  # proposals that became output

    @property
    def acceptance(self) -> float:
        """Accepted / proposed. Below the per-token rate: a rejection discards the rest unjudged."""
        return self.accepted / self.proposed if self.proposed else 0.0


def expected_tokens(acceptance: float, gamma: int) -> float:
    """Mean tokens per target pass (1 - a^(g+1)) / (1 - a) = 1 + a + ... + a^g."""
    if not 0 <= acceptance <= 1:
        raise ValueError(f"acceptance={acceptance} must be in [0, 1]")
    expect_whole(gamma=gamma)
    return sum(acceptance**i for i in range(gamma + 1))  # also right at a = 1


def acceptance_probability(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p / q) of every token [..., V]; 1 where q is 0, as such a token is never proposed."""
    return torch.where(q > p, p / q, torch.ones_like(p))


def residual(p: Tensor, q: Tensor) -> Tensor:
    """norm(max(0, p - q)) [..., V], what a rejection draws from; p where that is all zero."""
    rest = (p - q).clamp(min=0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / total, p)


def verify_greedy(proposed: Tensor, logits: Tensor) -> Tensor:
    """The tokens one greedy pass yields: the agreeing proposals and the target's next. [1 .. g+1]

    proposed [g]; logits [g+1, V], row i the target's after proposals 0 .. i-1.
    """
    expect_integers(proposed=proposed)
    if proposed.ndim != 1 or logits.ndim != 2 or len(logits) != len(proposed) + 1:
        raise ValueError(
            f"need proposed [g] and logits [g+1, V], got {tuple(proposed.shape)} and "
            f"{tuple(logits.shape)}"
        )
    own = logits.argmax(-1)  # [g+1]
    agree = (own[:-1] == proposed).long().cumprod(0)
    return own[: int(agree.sum()) + 1]


def verify_sampled(
    proposed: Tensor, q: Tensor | None, p: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """The tokens one pass yields, distributed as p. [1 .. g+1]

    proposed [g], each drawn from its row of q [g, V], None where each was certain; p [g+1, V].
    """
    expect_integers(proposed=proposed)
    g = len(proposed)
    if q is None:
        q = F.one_hot(proposed, p.shape[-1]).to(p.dtype)  # [g, V]
    if q.ndim != 2 or p.ndim != 2 or len(q) != g or p.shape != (g + 1, q.shape[1]):
        raise ValueError(
            f"{g} proposals need q [g, V], p [g+1, V]: got {tuple(q.shape)}, {tuple(p.shape)}"
        )
    chances = acceptance_probability(p[:-1], q).gather(1, proposed[:, None])[:, 0]  # [g]
    uniform = torch.rand(g, generator=generator, dtype=chances.dtype, device=p.device)  # in [0, 1)
    n = int((uniform < chances).long().cumprod(0).sum())
    last = p[g] if n == g else residual(p[n], q[n])
    return torch.cat([proposed[:n], draw(last[None], generator)])


@torch.no_grad()
def speculative_generate(
    target: Llama,
    draft: Llama | Draft,
    prompt: Tensor,
    max_new_tokens: int,
    gamma: int = 4,
    sampling: Sampling = GREEDY,
    generator: torch.Generator | None = None,
    adapt: Callable[[int, int, int], int] | None = None,
) -> Speculated:
    """Continue one prompt [1, T] by max_new_tokens of the target's distribution.

    draft: a model, which then proposes with the same sampling; or a `Draft`, new for each text.
    adapt(gamma, proposed, accepted) is the gamma of the next round.

    Raises ValueError for what does not fit, also for a draft of another vocabulary.
    Before each round the target's cache holds all ids but the last, the draft's those or one fewer.
    """
    expect_prompt(target, prompt, max_new_tokens, rows=1)
    expect_whole(1, gamma=gamma)
    if isinstance(draft, Llama):
        draft = ModelDraft(draft, sampling, generator)
    if isinstance(draft, ModelDraft):
        _expect_one_vocabulary(target, draft.model)
    cache, ids, end = KVCache(), prompt, prompt.shape[1] + max_new_tokens
    passes = proposed = accepted = 0
    while ids.shape[1] < end:
        tokens, q = draft.propose(ids, min(gamma, end - ids.shape[1] - 1))  # the pass adds one
        g = len(tokens)
        fed = torch.cat([ids[:, cache.length :], tokens[None]], dim=1)
        logits = target(fed, cache=cache)[0, -g - 1 :]  # [g+1, V]
        if sampling.temperature == 0:
            new = verify_greedy(tokens, logits)
        else:
            p = filtered_probabilities(logits, sampling)
            new = verify_sampled(tokens, q, p, generator)
        ids = torch.cat([ids, new[None]], dim=1)
        for kept in (cache.truncate, draft.keep):  # the newest token was read by neither
            kept(ids.shape[1] - 1)
        passes, proposed, accepted = passes + 1, proposed + g, accepted + len(new) - 1
        if adapt is not None and g:
            gamma = adapt(gamma, g, len(new) - 1)
    return Speculated(ids, passes, proposed, accepted)


def _expect_one_vocabulary(target: Llama, draft: Llama) -> None:
    sizes = target.config.vocab_size, draft.config.vocab_size
    if sizes[0] != sizes[1]:
        raise ValueError(
            "target and draft must have one vocabulary, got {} and {} entries".format(*sizes)
        )
