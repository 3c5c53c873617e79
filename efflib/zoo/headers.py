"""Text that no model of the zoo has seen: the C++ headers that torch carries in include/c10."""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from efflib.zoo.tokenizer import BEGIN_ID, load_tokenizer

PARTS = {"held out": (0,), "sweep": (1,), "training": (2, 3, 4)}  # file numbers modulo 5


@cache
def headers(part: str) -> Tensor:
    """The ids of the part's C++ headers, in the order of their names. [N]"""
    root = Path(torch.__file__).parent / "include" / "c10"
    files = sorted(root.rglob("*.h"))
    if not files:
        raise FileNotFoundError(f"this torch carries no C++ headers in {root}")
    texts = [f.read_text(encoding="utf-8", errors="replace") for f in files]
    chosen = [t for i, t in enumerate(texts) if i % 5 in PARTS[part]]
    return torch.tensor([i for e in load_tokenizer().encode_batch(chosen) for i in e.ids])


def pieces(text: Tensor, n: int, length: int, seed: int) -> Tensor:
    """Windows of text at random places, begin token first. [n, 1 + length]"""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - length, (n, 1), generator=generator)
    begin = torch.full((n, 1), BEGIN_ID)
    return torch.cat([begin, text[starts + torch.arange(length)]], dim=1)
