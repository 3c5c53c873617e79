"""Windows of the course's text, as stories and labs read them."""

from typing import NamedTuple

import torch
from torch import Tensor

from efflib.zoo import corpus
from efflib.zoo.tokenizer import BEGIN_ID, text_ids


class Scale(NamedTuple):
    """How much text a story reads: windows of LENGTH tokens."""

    windows: int  # held-out windows that perplexities are measured on
    calibration: int  # training windows that a technique may look at
    steps: int  # of fine-tuning, or tokens to generate
    length: int = 256


FULL = Scale(windows=64, calibration=32, steps=400)
QUICK = Scale(windows=12, calibration=8, steps=100)


def windows(split: corpus.Split, held_out: bool, scale: Scale, seed: int) -> Tensor:
    """Evenly spaced windows of text, begin token first; each seed reads other ones.

    As many as `scale.windows` (held out) or `scale.calibration` (training text). [n, 1 + length]
    """
    text = text_ids(split, held_out)
    n = scale.windows if held_out else scale.calibration
    generator = torch.Generator().manual_seed(seed)
    room = (len(text) - scale.length) / n
    shift = torch.rand(1, generator=generator)
    starts = ((torch.arange(n) + shift) * room).long()
    pieces = text[starts[:, None] + torch.arange(scale.length)]
    return torch.cat([torch.full((n, 1), BEGIN_ID), pieces], dim=1)
