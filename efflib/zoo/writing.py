"""What a model writes: `sample` lets it continue a prompt, `parses_share` counts what is Python."""

import ast
import codeop

import torch

from efflib.decoding.sampling import GREEDY, Sampling, generate
from efflib.models.llama import Llama
from efflib.zoo.tokenizer import BEGIN_ID, load_tokenizer

PROMPTS = (  # starts of functions, after a line that says at which indentation
    "import math\n\n\ndef mean(values):",
    "import json\n\n\ndef load_json(path):",
    "import math\n\n\ndef is_prime(n):",
    "import re\n\n\ndef split_words(text, separator=None):",
    "import os\n\n\ndef count_lines(filename):",
    "import datetime\n\n\ndef parse_date(string):",
    "import sys\n\n\ndef main(args=None):",
    "class Node:\n    def __init__(self, name, value=None):",
    "class Stack(list):\n    def push(self, item):",
    "class Connection:\n    def close(self):",
)


def continuations(model: Llama, prompt: str, tokens: int, n: int, seed: int | None) -> list[str]:
    """The prompt and n continuations of it; greedy, so all alike, without a seed."""
    if not isinstance(prompt, str):
        raise ValueError(f"a prompt is text, got {prompt!r}")
    tokenizer = load_tokenizer()
    device = next(model.parameters()).device
    ids = torch.tensor([[BEGIN_ID, *tokenizer.encode(prompt).ids]] * n, device=device)  # [n, T]
    if seed is None:
        ids = generate(model, ids, tokens, GREEDY)
    else:
        ids = generate(model, ids, tokens, Sampling(), torch.Generator(device).manual_seed(seed))
    return [tokenizer.decode(row) for row in ids[:, 1:].tolist()]


def sample(model: Llama, prompt: str, tokens: int = 96, seed: int | None = None) -> str:
    """The prompt and `tokens` tokens that the model continues it with.

    Without a seed greedily, the most likely token each time; with one, drawn at temperature 1.
    """
    return continuations(model, prompt, tokens, 1, seed)[0]


def is_unfinished(text: str) -> bool:
    """Whether the text is no Python yet but the parser's only complaint is that it ends here."""
    if text.endswith("\\\n"):
        return True
    try:
        return codeop.compile_command(text, symbol="exec") is None
    except (SyntaxError, ValueError, OverflowError):  # wrong, whatever would follow
        return False


def without_unfinished_end(text: str) -> str:
    """The text without what only the limit on tokens left unfinished.

    The last line goes if it has no line break; then, as long as the parser says that the input
    ends too early (an open bracket or string, a header without a body, a try without except), the
    last line goes. A mistake before the end is no such complaint, and stays.
    """
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    while lines and is_unfinished("".join(lines)):
        lines.pop()
    return "".join(lines)


def parses(text: str, prompt: str) -> bool:
    """Whether ast.parse accepts the text up to its unfinished end, and that is past the prompt."""
    finished = without_unfinished_end(text)
    try:
        ast.parse(finished)
    except (SyntaxError, ValueError):  # ValueError: a null byte
        return False
    return len(finished.rstrip()) > len(prompt.rstrip())


def parses_share(model: Llama, n: int = 100, tokens: int = 96, seed: int = 0) -> float:
    """The share of n samples, drawn at temperature 1, that are Python; see `parses`.

    Sample i continues PROMPTS[i % 10]; where `tokens` end in the middle of a statement, what is
    before it counts. The share of one model at n = 100 has a standard error of up to 0.05.

    Raises:
        ValueError: if n < 1.
    """
    if n < 1:
        raise ValueError(f"n={n} must be at least 1")
    good = 0
    for i, prompt in enumerate(PROMPTS[:n]):
        count = len(range(i, n, len(PROMPTS)))
        texts = continuations(model, prompt, tokens, count, seed * len(PROMPTS) + i)
        good += sum(parses(text, prompt) for text in texts)
    return good / n
