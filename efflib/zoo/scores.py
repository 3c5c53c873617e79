"""Perplexity from the losses of tokens: the base, texts of unequal length, windows that overlap.

    perplexity      b ^ ( sum over all tokens of -log_b p / number of all tokens )
    bits per byte   sum over all tokens of -log_2 p / bytes of the text

Any base b will do, as long as it is the same in both places: with log_2 in the exponent of e (a
slide has that) 8.0 becomes e^3 = 20.1, with ln in that of 2 it becomes 4.2.  `mixed_bases` says
what becomes of a perplexity.

Texts of unequal length: the mean runs over tokens.  The mean of the texts' perplexities is another
number, never smaller than the exponential of the mean of their mean losses, and a text of ten
tokens counts in it as much as one of ten thousand.

Windows: a model sees so many tokens at a time, so a long text is read in passes.  With a stride of
the window each pass begins blind; with a smaller one each token has at least window - stride in
front of it, for window / stride times the work.  `efflib.zoo.evaluation` reads the zoo's text so.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from efflib.checks import expect_whole


class Pass(NamedTuple):
    """One pass over a text: it reads tokens [start, end) and scores [first, end)."""

    start: int
    end: int
    first: int


def nats(losses: Sequence[Tensor], base: float = math.e) -> tuple[float, int]:
    """(sum of -ln p, number of tokens) of all texts, from their losses [tokens] in any base."""
    if not base > 1:
        raise ValueError(f"base={base} must be above 1")
    sums = [text.double().sum().item() * math.log(base) for text in losses]
    return math.fsum(sums), sum(text.numel() for text in losses)


def perplexity(losses: Sequence[Tensor], base: float = math.e) -> float:
    """Of all tokens of all texts.  losses: -log_base p, a tensor [tokens] for each text.

    Raises ValueError without a token, and for a base of at most 1.
    """
    total, tokens = nats(losses, base)
    if not tokens:
        raise ValueError("perplexity of no tokens")
    return math.exp(total / tokens)


def bits_per_byte(losses: Sequence[Tensor], text_bytes: int, base: float = math.e) -> float:
    """Bits that all tokens cost together, for each byte of their text."""
    expect_whole(1, text_bytes=text_bytes)
    return nats(losses, base)[0] / math.log(2) / text_bytes


def mean_of_perplexities(losses: Sequence[Tensor], base: float = math.e) -> float:
    """What one gets who averages texts instead of tokens: kept for comparison."""
    return sum(perplexity([text], base) for text in losses) / len(losses)


def mixed_bases(value: float, inside: float = 2.0, outside: float = math.e) -> float:
    """outside ^ (mean of -log_inside p) where the perplexity is `value`."""
    return value ** (math.log(outside) / math.log(inside))


def strided_passes(tokens: int, window: int, stride: int) -> list[Pass]:
    """Passes that score every token of a text but the first exactly once.

    The first reads up to `window` tokens; each further one scores the next `stride`, or what is
    left, behind as many as the window has room for.  Raises ValueError unless 1 <= stride < window.
    """
    expect_whole(tokens=tokens)
    expect_whole(1, stride=stride)
    expect_whole(stride + 1, window=window)
    if tokens < 2:
        return []
    ends = [min(end, tokens) for end in range(window, tokens + stride, stride)] or [tokens]
    firsts = [1, *ends[:-1]]
    return [Pass(max(0, end - window), end, first) for end, first in zip(ends, firsts, strict=True)]
