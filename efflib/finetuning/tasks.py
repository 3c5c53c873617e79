"""Three small tasks on real text, which the zoo's models learn in seconds.

    C++       windows of the headers that torch carries, which no model of the zoo has read
    format    a function's head from the standard library, then the same as a line of JSON:
                  def split(self, text):      {"name": "split", "args": ["self", "text"]}
              what counts are the tokens of the JSON
    label     a piece of 12 tokens and a digit: 0 for C++, 1 for Python, 2 for English
              what counts is the digit

Each has three parts, which no file is in two of: "training", "sweep" (for learning rates) and
"held out".  The models have read the Python and the English when they were trained; the C++, the
JSON and the digits they have not.
"""

import json
import re
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from efflib.checks import expect_whole
from efflib.zoo import corpus
from efflib.zoo.evaluation import logits_of
from efflib.zoo.headers import PARTS, headers, pieces
from efflib.zoo.tokenizer import BEGIN_ID, load_tokenizer

TASKS = ("C++", "format", "label")
LENGTH = 40  # ids of an example, begin token not counted
PIECE = 12  # tokens of a text that gets a label
KINDS = ("C++", "Python", "English")  # the labels 0 to 2
BATCH = {"C++": 8, "format": 8, "label": 24}  # examples a step: about 320 tokens
HEAD = re.compile(r"def (\w+)\(([^()=*:\n]*)\):")  # no defaults, no stars, no annotations


class Examples(NamedTuple):
    """Texts of one length, and which of their tokens count."""

    ids: Tensor  # [n, 1 + T] int64, begin token first
    scored: Tensor  # [n, T] bool: whether ids[:, 1:] is to be predicted there


class Score(NamedTuple):
    """How well the tokens that count are predicted."""

    loss: float  # mean of -ln p, nats
    right: float  # share of them that are the likeliest (for labels: likeliest digit)


def examples(task: str, part: str, n: int, seed: int) -> Examples:
    """n examples of a part, drawn with the seed.  Raises ValueError for other names, or n < 1."""
    expect_whole(1, n=n)
    if task not in TASKS or part not in PARTS:
        raise ValueError(f"{task=} must be one of {TASKS}, {part=} one of {tuple(PARTS)}")
    if task == "C++":
        ids = pieces(headers(part), n, LENGTH, seed)
        return Examples(ids, torch.ones(n, LENGTH, dtype=torch.bool))
    texts, answers = _formats(part) if task == "format" else _labels(part)
    generator = torch.Generator().manual_seed(seed)
    if task == "format":
        chosen = torch.randint(len(texts), (n,), generator=generator).tolist()
        pairs = [(texts[i], answers[i]) for i in chosen]
    else:
        kinds = torch.randint(len(KINDS), (n,), generator=generator).tolist()
        places = torch.rand(n, generator=generator).tolist()
        pairs = [_piece(texts[k], p) for k, p in zip(kinds, places, strict=True)]
        pairs = [(piece, answers[k]) for piece, k in zip(pairs, kinds, strict=True)]
    return _padded(pairs)


def _piece(text: list[int], place: float) -> list[int]:
    start = int(place * (len(text) - PIECE))
    return text[start : start + PIECE]


def _padded(pairs: list[tuple[list[int], list[int]]]) -> Examples:
    """Question and answer behind one another, newlines behind, which do not count."""
    longest = max(len(q) + len(a) for q, a in pairs)
    (newline,) = load_tokenizer().encode("\n").ids
    ids = torch.full((len(pairs), 1 + longest), newline)
    ids[:, 0] = BEGIN_ID
    scored = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for i, (question, answer) in enumerate(pairs):
        end = len(question) + len(answer)
        ids[i, 1 : 1 + end] = torch.tensor(question + answer)
        scored[i, len(question) : end] = True
    return Examples(ids, scored)


def _documents(split: corpus.Split, part: str) -> list[str]:
    """The part's files of the standard library, or of its manual."""
    found = sorted(corpus.documents(split, held_out=False).items())
    return [text for i, (_, text) in enumerate(found) if i % 5 in PARTS[part]]


@cache
def _formats(part: str) -> tuple[list[list[int]], list[list[int]]]:
    """Heads of functions, and their JSON, as ids."""
    heads, lines = [], []
    for text in _documents("code", part):
        for name, inside in HEAD.findall(text):
            args = [arg.strip() for arg in inside.split(",") if arg.strip()]
            heads.append(f"def {name}({', '.join(args)}):\n")
            lines.append(json.dumps({"name": name, "args": args}) + "\n")
    encode = load_tokenizer().encode_batch
    both = zip(encode(heads), encode(lines), strict=True)
    fit = [(h.ids, a.ids) for h, a in both if len(h.ids) + len(a.ids) <= LENGTH]
    return [h for h, _ in fit], [a for _, a in fit]


@cache
def _labels(part: str) -> tuple[list[list[int]], list[list[int]]]:
    """The text of every kind, its files behind one another, and its digit, as ids."""
    encode = load_tokenizer().encode_batch
    texts = [headers(part).tolist()]
    for split in ("code", "prose"):
        texts.append([i for e in encode(_documents(split, part)) for i in e.ids])
    return texts, [e.ids for e in encode(["0", "1", "2"])]


@torch.no_grad()
def score(model: nn.Module, of: Examples) -> Score:
    """Loss and share of right tokens of a model that gives logits [n, T, V] for ids [n, T]."""
    logits = logits_of(model, of.ids[:, :-1])[of.scored].float()  # [scored tokens, V]
    targets = of.ids[:, 1:][of.scored]
    loss = F.cross_entropy(logits, targets).item()
    if of.scored.sum(1).eq(1).all():  # one token for each: a label, so among labels
        labels = torch.tensor([answer[0] for answer in _labels("held out")[1]])
        found = labels[logits[:, labels].argmax(-1)]
    else:
        found = logits.argmax(-1)
    return Score(loss, (found == targets).double().mean().item())
