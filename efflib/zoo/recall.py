"""Texts with a fact far back: what perplexity over all tokens does not show.

    def turn_value_line(self, value):      the first line: a name of three words, drawn
    ...                                    `gap` tokens of held-out code
    result = turn_value_line               the name again: its second and third word are asked for

Each word is one token, so a name is five: word _ word _ word. The three words are drawn, so nothing
but the first line tells the second and third. The control has another name there.
"""

import torch
from torch import Tensor

from efflib.checks import expect_whole
from efflib.zoo.tokenizer import BEGIN_ID, load_tokenizer, text_ids

WORDS = [-3, -1]  # where the second and third word stand at the end of a text
LETTERS = (4, 7)  # of a word


def words() -> list[int]:
    """Entries of the vocabulary that are a word in small letters, of LETTERS letters."""
    vocabulary = load_tokenizer().get_vocab()
    low, high = LETTERS
    fits = (i for t, i in vocabulary.items() if t.isascii() and t.isalpha() and t.islower()
            and low <= len(t) <= high)  # fmt: skip
    return sorted(fits)


def name_texts(texts: int, gap: int, seed: int) -> tuple[Tensor, Tensor]:
    """(ids, the same with another name in the first line), each [texts, T] int64."""
    expect_whole(1, texts=texts)
    expect_whole(gap=gap)
    tokenizer, known, code = load_tokenizer(), words(), text_ids("code", held_out=True)
    generator = torch.Generator().manual_seed(seed)
    before, after = tokenizer.encode("def ").ids, tokenizer.encode("(self, value):\n").ids
    again, joint = tokenizer.encode("\n\nresult = ").ids, tokenizer.token_to_id("_")
    shift = torch.rand(1, generator=generator).item()
    rows: list[list[int]] = []
    blank: list[list[int]] = []
    for i in range(texts):
        six = [known[n] for n in torch.randperm(len(known), generator=generator)[:6].tolist()]
        name, other = ([a, joint, b, joint, c] for a, b, c in (six[:3], six[3:]))
        start = int((i + shift) / texts * (len(code) - gap))
        end = [*after, *code[start : start + gap].tolist(), *again, *name]
        rows.append([BEGIN_ID, *before, *name, *end])
        blank.append([BEGIN_ID, *before, *other, *end])
    return torch.tensor(rows), torch.tensor(blank)
