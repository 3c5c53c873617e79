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

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from efflib.checks import expect_dims, expect_integers, expect_whole, expect_within
from efflib.models.cache import Cache, KVCache
from efflib.models.llama import Llama
from efflib.models.rotary import at_least_fp32


class Sampling(NamedTuple):
    """How the next token is drawn; None switches a filter off."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def checked(self) -> "Sampling":
        """Itself; raises ValueError that names a value out of range."""
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature={self.temperature} must be >= 0 and finite")
        if self.top_k is not None:
            expect_whole(1, top_k=self.top_k)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p} must be in (0, 1]")
        return self


GREEDY = Sampling(temperature=0.0)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """logits [..., V] with everything below the k-th largest at -inf.  Needs k >= 1."""
    expect_whole(1, k=k)
    smallest_kept = logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < smallest_kept, float("-inf"))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """logits [..., V] with everything outside the nucleus at -inf.

    A token is outside when those more likely than it already hold p or more.
    """
    if not 0 < p <= 1:
        raise ValueError(f"p={p} must be in (0, 1]")
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
    expect_dims("[..., V]", logits=logits)
    if logits.isnan().any():
        raise ValueError(f"logits {tuple(logits.shape)} hold NaN: no token is the most likely one")
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
    """One token per row of probabilities [..., V]. [...] int64

    Raises ValueError for a row that is no distribution: negative, infinite, NaN, or all 0.
    """
    expect_dims("[..., V]", probabilities=probabilities)
    flat = probabilities.reshape(-1, probabilities.shape[-1])
    try:
        tokens = torch.multinomial(flat, 1, generator=generator)
    except RuntimeError as error:
        raise ValueError(f"cannot draw from {tuple(probabilities.shape)}: {error}") from error
    return tokens.view(probabilities.shape[:-1])


def expect_prompt(
    model: Llama, prompt: Tensor, max_new_tokens: int, rows: int | None = None
) -> None:
    """Raises ValueError unless prompt is ids [B, T] of the model; rows: what B has to be."""
    expect_whole(max_new_tokens=max_new_tokens)
    expect_dims("[B, T]", prompt=prompt)
    expect_within(prompt=prompt, stop=model.config.vocab_size)
    if rows is not None and len(prompt) != rows:
        raise ValueError(f"the prompt must be [{rows}, T], got {tuple(prompt.shape)}")


def left_padded(prompts: Sequence[Tensor], pad_id: int = 0) -> tuple[Tensor, Tensor]:
    """Prompts [T_i] as one batch: ids [B, T] that end together, and lengths [B], for `stream`."""
    if not prompts:
        raise ValueError("no prompts: need at least one [T]")
    for i, prompt in enumerate(prompts):
        expect_dims("[T]", **{f"prompts[{i}]": prompt})
    longest = max(map(len, prompts))
    rows = [F.pad(prompt, (longest - len(prompt), 0), value=pad_id) for prompt in prompts]
    return torch.stack(rows), torch.tensor([len(p) for p in prompts], device=prompts[0].device)


def stream(
    model: Llama,
    prompt: Tensor,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
    cache: Cache | None = None,
    lengths: Tensor | None = None,
) -> Iterator[Tensor]:
    """Yield the next token of every row, [B], as soon as it is known.

    prompt [B, T >= 1]. A row that has produced `eos_id` repeats it; the stream ends when every row
    has, or after max_new_tokens. The cache, a new `KVCache` unless given, is fed the prompt and
    then each token, the last one never.
    lengths [B]: only the last so many ids of a row are its prompt, as of `left_padded`. What is
    before is not seen, and each row goes on as it would alone.

    Raises:
        ValueError: at the call, for what does not fit; lengths need a cache that is empty and does
            not choose positions itself.
    """
    sampling.checked()
    expect_prompt(model, prompt, max_new_tokens)
    cache = KVCache() if cache is None else cache
    if lengths is not None:
        _expect_lengths(prompt, lengths, cache)
    return _tokens(model, prompt, max_new_tokens, sampling, generator, eos_id, cache, lengths)


def _expect_lengths(prompt: Tensor, lengths: Tensor, cache: Cache) -> None:
    expect_integers(lengths=lengths)
    rows, longest = prompt.shape
    if lengths.shape != (rows,) or not 1 <= int(lengths.min()) <= int(lengths.max()) <= longest:
        raise ValueError(
            f"lengths must be [{rows}], each from 1 to {longest}, got {lengths.tolist()}"
        )
    if cache.length or getattr(cache, "keeps_raw_keys", False):
        kind = type(cache).__name__
        raise ValueError(f"lengths need an empty cache of plain positions, got a {kind}")


@torch.no_grad()
def _tokens(
    model: Llama,
    fed: Tensor,
    max_new_tokens: int,
    sampling: Sampling,
    generator: torch.Generator | None,
    eos_id: int | None,
    cache: Cache,
    lengths: Tensor | None,
) -> Iterator[Tensor]:
    """What `stream` yields; fed [B, T] is what the model reads next."""
    done = torch.zeros(len(fed), dtype=torch.bool, device=fed.device)
    padding = None if lengths is None else fed.shape[1] - lengths  # [B]
    for _ in range(max_new_tokens):
        places = {} if padding is None else _places(padding, cache.length, fed.shape[1])
        logits = model(fed, cache=cache, **places)[:, -1]  # [B, V]
        token = draw(filtered_probabilities(logits, sampling), generator)  # [B]
        if eos_id is not None:
            token = token.masked_fill(done, eos_id)
            done = done | (token == eos_id)
        yield token
        if eos_id is not None and done.all():
            return
        fed = token[:, None]


def _places(padding: Tensor, past: int, new: int) -> dict[str, Tensor]:
    """positions [B, T] and mask [B, 1, T, S] of `new` tokens behind `past`, padding left out.

    Padding sees itself, so that no softmax is over nothing; nothing else sees it.
    """
    i = torch.arange(past, past + new, device=padding.device)
    j = torch.arange(past + new, device=padding.device)
    seen = (j <= i[:, None]) & (j >= padding[:, None, None])  # [B, T, S]
    seen = seen | (j == i[:, None])
    return {"positions": (i - padding[:, None]).clamp(min=0), "mask": seen[:, None]}


def generate(
    model: Llama,
    prompt: Tensor,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    generator: torch.Generator | None = None,
    eos_id: int | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """The prompt and its continuation, ids [B, T + n] with n <= max_new_tokens; see `stream`."""
    new = stream(model, prompt, max_new_tokens, sampling, generator, eos_id, lengths=lengths)
    return torch.cat([prompt, *(token[:, None] for token in new)], dim=1)
