"""Choosing the next token, and generation with the key and value cache.

    p = top_p(top_k(softmax(logits / temperature))),   each filter renormalised
    greedy: temperature 0, all the mass on the largest logit

- temperature < 1 sharpens the distribution, > 1 flattens it;
- top-k (Fan et al., 2018, section 5.1) keeps the k largest logits;
- top-p, or nucleus (Holtzman et al., 2020, section 3.1), keeps the smallest set of most likely
  tokens whose probabilities sum to at least p.

All of it is one function, `filtered_probabilities`: speculative decoding needs the distribution
that is really sampled from, for the draft as for the target.

Where implementations differ: the order (here temperature, top-k, top-p, as transformers; top-p
before top-k keeps other tokens), ties at the k-th logit (all kept here, as in transformers, so
more than k may stay; a top-k that gathers k indices drops some by position), and whether the
token that crosses p is kept (it is, so at least one always stays).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.models.cache import Cache, KVCache
from efflib.models.llama import Llama, at_least_fp32


class Sampling(NamedTuple):
    """How the next token is drawn; None switches a filter off."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def checked(self) -> "Sampling":
        """Itself; raises ValueError that names a value out of range."""
        if not self.temperature >= 0:
            raise ValueError(f"temperature={self.temperature} must be >= 0")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k={self.top_k} must be at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]")
        return self


GREEDY = Sampling(temperature=0.0)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """logits [..., V] with everything below the k-th largest at -inf."""
    smallest_kept = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < smallest_kept, float("-inf"))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """logits [..., V] with everything outside the nucleus at -inf.

    A token is outside when those more likely than it already hold p or more.
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities  # the mass of the more likely tokens
    outside = before >= p
    outside[..., 0] = False  # whatever rounding does, the most likely token stays
    return logits.masked_fill(outside.scatter(-1, order, outside), float("-inf"))


def filtered_probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that the next token is drawn from. [..., V] -> [..., V], sums to 1

    In fp32, or in the dtype of the logits where that is wider.
    """
    temperature, top_k, top_p = sampling.checked()
    logits = logits.to(at_least_fp32(logits.dtype))
    if temperature == 0:
        return F.one_hot(logits.argmax(dim=-1), logits.shape[-1]).to(logits.dtype)
    logits = logits / temperature
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    return logits.softmax(dim=-1)


def draw(probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One token per row of probabilities [..., V]. [...] int64"""
    flat = probabilities.flatten(0, -2)
    return torch.multinomial(flat, 1, generator=generator).view(probabilities.shape[:-1])


@torch.no_grad()
def stream(
    model: Llama,
    prompt: Tensor,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
    cache: Cache | None = None,
) -> Iterator[Tensor]:
    """Yield the next token of every row, [B], as soon as it is known.

    prompt [B, T >= 1], rows of one length. A row that has produced `eos_id` repeats it; the
    stream ends when every row has, or after max_new_tokens. The cache, a new `KVCache` unless
    given, is fed the prompt and then each token, the last one never.
    """
    if prompt.ndim != 2 or prompt.shape[1] == 0:
        raise ValueError(f"prompt must be [B, T >= 1], got shape {tuple(prompt.shape)}")
    cache = KVCache() if cache is None else cache
    fed = prompt
    done = torch.zeros(len(prompt), dtype=torch.bool, device=prompt.device)
    for _ in range(max_new_tokens):
        logits = model(fed, cache=cache)[:, -1]  # [B, V]
        token = draw(filtered_probabilities(logits, sampling), generator)  # [B]
        if eos_id is not None:
            token = token.masked_fill(done, eos_id)
            done = done | (token == eos_id)
        yield token
        if done.all():
            return
        fed = token[:, None]


def generate(
    model: Llama,
    prompt: Tensor,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
) -> Tensor:
    """The prompt and its continuation, ids [B, T + n] with n <= max_new_tokens; see `stream`."""
    new = list(stream(model, prompt, max_new_tokens, sampling, generator, eos_id))
    return torch.cat([prompt, *(token[:, None] for token in new)], dim=1)
