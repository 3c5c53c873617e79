"""SpAtten: tokens and heads that are pruned in a cascade, values not fetched, bits fetched late.

Cascade.  Importance is added up over layers, and what is pruned once is gone in all later layers:

    token j    s_j <- s_j + sum over heads h and queries t of p[h, t, j]     (probabilities)
    head h     s_h <- s_h + sum over tokens and channels of |out[h, t, :]|

Local value pruning: of the probabilities of a query and head only the largest fetch their value;
the others count as 0, and nothing is divided by what is left.

Progressive quantization: a code of `bits` bits lies in two pieces, of which the high one is read
first.  Rough scores are off by at most e, and then no set of keys gains or loses more than

    shift = g(min(1 - top, a*)),  g(a) = a E / (a E + 1 - a) - a,  E = e^(2e),  a* = 1/(1 + e^e)

of the probability (g(a*) = tanh(e / 2)), where top is the largest rough probability: derived in the
chapter.  So the low piece is needed only where the softmax is flat.
Source: Wang, Zhang and Han, "SpAtten" (2021), sections III and IV.

Where it differs: the paper compares top itself with a threshold that is tuned.  The authors'
program for LLMs sums scores before their softmax, once a dialogue turn, and has no cascade.
Head h of one layer has nothing to do with head h of the next, which the sum over layers ignores:
`benchmarks/lab12_tables.py heads` exchanges heads without changing the model's function.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from efflib.attention.maps import probabilities
from efflib.checks import expect_dims, expect_whole
from efflib.models.rotary import at_least_fp32


def keep_best(score: Tensor, alive: Tensor, keep: int) -> Tensor:
    """Of the alive the `keep` with the largest score, of equal ones the later. [..., N] bool"""
    expect_whole(1, keep=keep)
    rated = score.masked_fill(~alive, -torch.inf).flip(-1)
    order = rated.argsort(dim=-1, descending=True, stable=True)[..., :keep]
    chosen = torch.zeros_like(alive).scatter(-1, alive.shape[-1] - 1 - order, True)
    return chosen & alive


def cascade_tokens(p: Tensor, score: Tensor, alive: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """(score, alive) [B, S] after a layer with p [B, H, S, S]; only alive queries count."""
    got = (p * alive[:, None, :, None]).sum((1, 2)) * alive
    score = score + got.to(score)
    return score, keep_best(score, alive, keep)


def cascade_heads(out: Tensor, score: Tensor, alive: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """(score, alive) [B, H] after a layer whose heads put out [B, H, T, d]."""
    score = score + (out.abs().sum((2, 3)) * alive).to(score)
    return score, keep_best(score, alive, keep)


def pruned_values(p: Tensor, v: Tensor, keep: int) -> Tensor:
    """p v with the `keep` largest p of every query and head; p [B, H, T, S], v [B, Hkv, S, d]."""
    kept = keep_best(p, torch.ones_like(p, dtype=torch.bool), keep)
    return (p * kept) @ v.repeat_interleave(p.shape[1] // v.shape[1], dim=1)


class Cascade:
    """An attention for one pass over ids [B, T]: what is pruned stays pruned in later layers.

    The first `prompt` tokens may be pruned, by what their own queries look at; later tokens only
    look.  tokens, heads: how many are kept behind each layer.  values: of local value pruning.
    choose(p, score, alive, keep) in place of `cascade_tokens`: a control.
    """

    def __init__(
        self,
        prompt: int,
        tokens: Sequence[int],
        heads: Sequence[int] | None = None,
        values: int | None = None,
        choose: Callable = cascade_tokens,
    ) -> None:
        self.prompt, self.tokens, self.heads, self.values = prompt, tokens, heads, values
        self.choose = choose
        self.layer, self.alive, self.score = 0, None, None
        self.alive_heads = self.score_heads = None
        self.history: list[Tensor] = []  # alive [B, prompt] in each layer

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if self.alive is None:
            self.alive = torch.ones(q.shape[0], self.prompt, dtype=torch.bool)
            self.score = torch.zeros(q.shape[0], self.prompt)
            self.alive_heads = torch.ones(q.shape[:2], dtype=torch.bool)
            self.score_heads = torch.zeros(q.shape[:2])
        self.history.append(self.alive)
        later = torch.ones(q.shape[0], k.shape[2] - self.prompt, dtype=torch.bool)
        seen = torch.cat([self.alive, later], 1)[:, None, None]  # [B, 1, 1, S]
        own = torch.eye(q.shape[2], dtype=torch.bool)  # a query that is gone looks at itself
        p = probabilities(q, k, mask & (seen | own)) * self.alive_heads[..., None, None]
        n, i = self.prompt, self.layer
        out = pruned_values(p, v, k.shape[2] if self.values is None else self.values)
        self.score, self.alive = self.choose(
            p[:, :, :n, :n], self.score, self.alive, self.tokens[i]
        )
        if self.heads is not None:
            self.score_heads, self.alive_heads = cascade_heads(
                out, self.score_heads, self.alive_heads, self.heads[i]
            )
        self.layer += 1
        return out


# ---- progressive quantization -----------------------------------------------------------------


class Pieces(NamedTuple):
    """A code is high 2^low + rest, its value code scale.  high, rest [..., d], scale [..., 1]."""

    high: Tensor
    rest: Tensor
    scale: Tensor
    low: int


def split_bits(k: Tensor, bits: int, low: int) -> Pieces:
    """Symmetric codes of every key by itself, in two pieces; rest is from 0 to 2^low - 1."""
    expect_whole(2, bits=bits)
    expect_whole(low=low)
    if low >= bits:
        raise ValueError(f"low={low} must be below bits={bits}")
    k = k.double()
    scale = k.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    scale = torch.where(scale == 0, 1.0, scale)
    codes = torch.round(k / scale).long()
    high = codes >> low
    return Pieces(high, codes - (high << low), scale, low)


def rough_scores(q: Tensor, pieces: Pieces) -> tuple[Tensor, Tensor]:
    """(scores, how far off at most) [B, H, T, S] of q [B, H, T, d] from the high pieces alone."""
    half = (2**pieces.low - 1) / 2
    middle = (pieces.high * 2**pieces.low + half) * pieces.scale  # [B, Hkv, S, d]
    group = q.shape[1] // middle.shape[1]
    middle, scale = (x.repeat_interleave(group, 1) for x in (middle, pieces.scale))
    q = q.double() * q.shape[-1] ** -0.5
    error = q.abs().sum(-1, keepdim=True) * half * scale.transpose(-1, -2)
    return q @ middle.transpose(-1, -2), error


def worst_shift(top: Tensor, error: Tensor) -> Tensor:
    """The most probability that any set of keys can gain, if every score is off by <= error.

    top: the largest of the known probabilities; error >= 0.  Both float64, of one shape.
    """
    rest = 1 - top
    narrow = torch.sigmoid(torch.logit(rest) + 2 * error) - rest  # all but the top gain
    return torch.where(rest <= torch.sigmoid(-error), narrow, torch.tanh(error / 2))


def progressive(
    q: Tensor, k: Tensor, mask: Tensor, bits: int, low: int, tolerance: float
) -> tuple[Tensor, Tensor]:
    """(p [B, H, T, S], whether the low bits were read [B, H, T]).

    A row is rough where `worst_shift` is at most the tolerance, and of all `bits` elsewhere.
    """
    expect_dims("[B, H, T, d]", q=q)
    pieces = split_bits(k, bits, low)
    scores, error = rough_scores(q, pieces)
    p = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    error = error.masked_fill(~mask, 0.0).amax(-1)
    fetched = worst_shift(p.amax(-1), error) > tolerance
    whole = (pieces.high * 2**low + pieces.rest) * pieces.scale
    exact = probabilities(q.double(), whole, mask)
    return torch.where(fetched[..., None], exact, p).to(at_least_fp32(q.dtype)), fetched
