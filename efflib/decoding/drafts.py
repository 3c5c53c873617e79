"""Where proposals come from: a small model, or the text itself.

A draft is any object with the two methods of `Draft`. What it proposes may be as wrong as it likes:
it decides how fast speculation is, not what comes out.

- `ModelDraft`: a model that writes on alone, one pass per proposal. It may stop early where it is
  unsure: a proposal that is likely to be refused costs a pass and wins nothing.
- `LookupDraft`: what followed the last time that the text ended like this (prompt lookup,
  Saxena, 2023; "n-gram" in vLLM). No model, no pass.

Whether to propose a token must not depend on which token was drawn, or what is accepted would be
a selection: `ModelDraft` looks at the distribution, and stops behind the token.

Where implementations differ: transformers stops at a drawn token of low probability, 0.4 by
default, and lets g follow what was accepted (`next_gamma`); vLLM's n-gram takes the first match of
the longest n, here as in transformers the longest n counts first; of several matches transformers
takes the first, and this the last, since what was written just now is most like what comes.
"""

from typing import Protocol

import torch
from torch import Tensor

from efflib.checks import expect_dims, expect_whole
from efflib.decoding.sampling import GREEDY, Sampling, draw, filtered_probabilities
from efflib.models.cache import KVCache
from efflib.models.llama import Llama

Proposals = tuple[Tensor, Tensor | None]


class Draft(Protocol):
    """What the loop of `speculative_generate` needs of a draft."""

    def propose(self, ids: Tensor, gamma: int) -> Proposals:
        """At most gamma tokens [g] after ids [1, T], and the rows [g, V] they were drawn from.

        None in place of the rows: each proposal was certain.
        """
        ...

    def keep(self, length: int) -> None:
        """What was proposed from position `length` on did not become text."""
        ...


def propose(
    draft: Llama,
    ids: Tensor,
    gamma: int,
    cache: KVCache,
    sampling: Sampling,
    generator: torch.Generator | None,
    sure: float = 0.0,
) -> Proposals:
    """Up to gamma >= 0 tokens after ids [1, T], and what they were drawn from: [g], [g, V].

    The cache may lag behind: it is first fed what it lacks of ids. The last proposal is not fed.
    Greedy proposals are certain: None in place of the rows. After a token whose distribution has
    no probability of `sure` or more, nothing else is proposed.
    """
    expect_whole(gamma=gamma)
    tokens, rows, fed = [], [], ids[:, cache.length :]
    for _ in range(gamma):
        logits = draft(fed, cache=cache)[:, -1]  # [1, V]
        if sampling.temperature == 0:  # no distribution is needed: most of a small draft's time
            fed = logits.argmax(-1, keepdim=True)  # [1, 1]
            unsure = sure > 0 and float(logits[0].softmax(-1)[fed[0, 0]]) < sure
        else:
            q = filtered_probabilities(logits, sampling)  # [1, V]
            fed = draw(q, generator)[None]  # [1, 1]
            rows.append(q)
            unsure = sure > 0 and float(q.max()) < sure
        tokens.append(fed[0])
        if unsure:
            break
    found = torch.cat(tokens) if tokens else ids.new_zeros(0)
    return found, torch.cat(rows) if rows else None


class ModelDraft:
    """A small model of the same vocabulary, with a cache of its own."""

    def __init__(
        self,
        model: Llama,
        sampling: Sampling = GREEDY,
        generator: torch.Generator | None = None,
        sure: float = 0.0,
    ) -> None:
        if not 0 <= sure <= 1:
            raise ValueError(f"sure={sure} must be in [0, 1]")
        self.model, self.sampling, self.generator, self.sure = model, sampling, generator, sure
        self.cache = KVCache()

    def propose(self, ids: Tensor, gamma: int) -> Proposals:
        return propose(self.model, ids, gamma, self.cache, self.sampling, self.generator, self.sure)

    def keep(self, length: int) -> None:
        self.cache.truncate(length)


def lookup(ids: Tensor, gamma: int, longest: int = 3) -> Tensor:
    """What followed the last n tokens of ids [T] where they stood before: up to gamma of it. [g]

    n is `longest` or, if those never stood before, smaller; of several places the last one counts.
    Nothing, if even the last token is new.
    """
    expect_whole(gamma=gamma)
    expect_whole(1, longest=longest)
    expect_dims("[T]", ids=ids)
    for n in range(min(longest, len(ids) - 1), 0, -1):
        places = ids[:-1].unfold(0, n, 1)  # [T - n, n], the tail itself left out
        found = (places == ids[-n:]).all(-1).nonzero()  # [matches, 1]
        if len(found):
            start = int(found[-1]) + n
            return ids[start : start + gamma]
    return ids[:0]


class LookupDraft:
    """`lookup` in the text so far."""

    def __init__(self, longest: int = 3) -> None:
        expect_whole(1, longest=longest)
        self.longest = longest

    def propose(self, ids: Tensor, gamma: int) -> Proposals:
        return lookup(ids[0], gamma, self.longest), None

    def keep(self, length: int) -> None:
        """Nothing is kept."""


class FirstOf:
    """The proposals of the first draft that has any: a lookup, say, and a model where it fails."""

    def __init__(self, *drafts: Draft) -> None:
        if not drafts:
            raise ValueError("no drafts: need at least one")
        self.drafts = drafts

    def propose(self, ids: Tensor, gamma: int) -> Proposals:
        for draft in self.drafts:
            tokens, rows = draft.propose(ids, gamma)
            if len(tokens):
                break
        return tokens, rows

    def keep(self, length: int) -> None:
        for draft in self.drafts:
            draft.keep(length)


def next_gamma(gamma: int, proposed: int, accepted: int, most: int = 16) -> int:
    """Two more after a round in which everything was accepted, one less else; 1 to `most`.

    The rule of transformers ("heuristic"): draft lengths that follow how hard the text is.
    """
    return max(1, min(most, gamma + 2 if accepted == proposed else gamma - 1))
