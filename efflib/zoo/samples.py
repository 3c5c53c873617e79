"""Batches of training text, for calibration and for fine-tuning."""

import torch
from torch import Tensor

from efflib.checks import expect_whole
from efflib.zoo import corpus
from efflib.zoo.tokenizer import BEGIN_ID, text_ids


def calibration(split: corpus.Split, n: int, length: int, seed: int = 0) -> Tensor:
    """Ids [n, length] of training text: each row `<s>` and then length - 1 tokens of one place.

    The places are drawn uniformly, with replacement, by `seed`; they are never held-out text.

    Raises:
        ValueError: unless n >= 1 and 2 <= length <= the split's length.
    """
    text = text_ids(split, held_out=False)
    expect_whole(n=n, length=length)
    if n < 1 or not 2 <= length <= len(text):
        raise ValueError(f"need n >= 1 and 2 <= length <= {len(text)}, got n={n}, length={length}")
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - length + 2, (n, 1), generator=generator)
    ids = text[starts + torch.arange(length - 1)]
    return torch.cat([torch.full((n, 1), BEGIN_ID), ids], dim=1)
