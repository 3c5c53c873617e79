"""What models write: a prompt continued, and the share of it that is Python."""

import ast
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from efflib import zoo
from efflib.models import Llama
from efflib.zoo import writing
from efflib.zoo.tokenizer import VOCAB_SIZE, load_tokenizer
from efflib.zoo.writing import PROMPTS, is_unfinished, parses, without_unfinished_end

DEF = "def f(x):\n"
WRONG_TODAY_AND_TOMORROW = (
    "def f(:\n    pass\n",
    "def f():\n    x = 'abc\n",  # no line break in a plain string
    "def f():\n    return (x\n    y = 1\n",
    "def f():\n        x = 1\n    y = 2\n",
    "def f():\n    try:\n        x\n    y = 1\n",
    "x = 1\0\n",
)
UNFINISHED = (
    "def f():\n",
    "def f():\n    if x:\n        # why\n",
    "def f():\n    try:\n        x = 1\n",
    "def f():\n    '''abc\n",
    "x = [1,\n\n2,\n",
    "@cache\n",
    "x = 1 + \\\n",
)


class Writes(nn.Module):
    """A model that continues every prompt with one text, then with line breaks."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.device_of = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(vocab_size=VOCAB_SIZE)
        tokenizer = load_tokenizer()
        self.script, self.rest = tokenizer.encode(text).ids, tokenizer.encode("\n").ids[0]

    def forward(self, ids, cache):
        self.at = 0 if ids.shape[1] > 1 else self.at + 1  # a prompt starts the text anew
        token = self.script[self.at] if self.at < len(self.script) else self.rest
        logits = torch.full((*ids.shape, VOCAB_SIZE), -1e9)
        logits[..., token] = 0.0
        return logits


@pytest.mark.parametrize("text", UNFINISHED)
def test_the_input_that_ends_too_early_is_unfinished(text):
    assert is_unfinished(text)


@pytest.mark.parametrize("text", [*WRONG_TODAY_AND_TOMORROW, "x = 1\n", DEF + "    return x\n", ""])
def test_what_is_wrong_or_complete_is_not_unfinished(text):
    assert not is_unfinished(text)


@pytest.mark.parametrize(
    "end",
    [
        "    y = x +",  # the last line, whatever is in it
        "    y = x",  # and when it could be complete: xs?
        "    y = [x,\n        1,\n",
        "    if x:\n        # a comment is no body\n",
        '    """Return\n    the\n',
        "    try:\n        y = 1\n    except KeyError:\n",
        "def g():\n",
    ],
)
def test_only_the_unfinished_end_goes(end):
    body = DEF + "    x = x + 1\n"
    kept = without_unfinished_end(body + end)
    assert kept == body
    assert parses(body + end, DEF)


@pytest.mark.parametrize("text", WRONG_TODAY_AND_TOMORROW)
def test_a_mistake_before_the_end_stays(text):
    assert without_unfinished_end(text + "y = 2\nz") == text + "y = 2\n"
    assert not parses(text + "y = 2\nz", "")


def test_a_sample_of_which_nothing_is_finished_does_not_count():
    assert not parses(DEF + '    """Once upon a time\n    there was', DEF)
    assert not parses(DEF + "\n\n", DEF)
    assert parses(DEF + "    pass\n\n", DEF)


def test_every_prompt_can_be_continued():
    for prompt in PROMPTS:
        assert is_unfinished(prompt + "\n"), prompt
        indent = " " * (8 if "class" in prompt else 4)
        ast.parse(f"{prompt}\n{indent}pass\n")
    assert len(set(PROMPTS)) == len(PROMPTS)


def test_a_sample_is_the_prompt_and_what_the_model_writes():
    text = zoo.sample(Writes("\n    return x"), "def f(x):", tokens=20)
    assert text.rstrip("\n") == "def f(x):\n    return x"
    assert zoo.sample(Writes("anything"), "def f(x):", tokens=0) == "def f(x):"


def test_the_share_counts_what_parses():
    assert zoo.parses_share(Writes("\n        pass\n"), n=20) == 1.0
    assert zoo.parses_share(Writes("\n        return )\n"), n=20) == 0.0
    # Eight columns are right in the methods, and in a function; four only in a function.
    functions = sum("class" not in prompt for prompt in PROMPTS) / len(PROMPTS)
    assert zoo.parses_share(Writes("\n    pass\n"), n=20) == pytest.approx(functions)


def test_the_share_draws_n_samples_from_all_prompts(monkeypatch):
    seen = []

    def recorded(model, prompt, tokens, n, seed):
        seen.append((prompt, n, seed))
        return [prompt] * n

    monkeypatch.setattr(writing, "continuations", recorded)
    assert zoo.parses_share(None, n=23, seed=1) == 0.0
    assert [prompt for prompt, _, _ in seen] == list(PROMPTS)
    assert [n for _, n, _ in seen] == [3, 3, 3] + 7 * [2]
    zoo.parses_share(None, n=10, seed=2)
    assert len({seed for _, _, seed in seen}) == 20  # no two calls draw alike
    with pytest.raises(ValueError, match="n=0"):
        zoo.parses_share(None, n=0)


def test_the_seed_decides_and_greedy_needs_none():
    torch.manual_seed(0)
    model = zoo.load("draft")
    texts = [zoo.sample(model, PROMPTS[0], 12, seed) for seed in (None, None, 1, 1, 2)]
    assert texts[0] == texts[1] and texts[2] == texts[3]
    assert len({*texts}) == 3
    assert all(text.startswith(PROMPTS[0]) for text in texts)
    with pytest.raises(ValueError, match="a prompt is text, got 3"):
        zoo.sample(model, 3)


def test_the_target_writes_more_python_than_chance():
    target = zoo.load("target")
    torch.manual_seed(0)
    chance = Llama(target.config).eval()
    assert zoo.parses_share(chance, n=20, tokens=48) == 0.0
    # Seen: 0.30 of 100 at 96 tokens. Of 20 at that share, fewer than 2 come once in 130.
    assert zoo.parses_share(target, n=20, tokens=48) >= 0.1
