"""Decoding that rolls dice, tested without luck: every way that chance may answer, and its weight.

Student functions get two functions, coin and pick, and no random numbers.  `ways` runs them once
for every answer that the two may give, so a distribution is an exact sum in float64.  `Model`
stands for a language model whose distributions are a table; it keeps a cache and counts calls.
"""

import itertools
import math

import torch

# the lists of a test lie in the grader's own memory; the labs' rows have a few tokens
MAX_ROW, MAX_WAYS = 10_000, 50_000


def ways(run):
    """[(probability, run(coin, pick))] for every way that coin and pick may answer."""
    found, scripts = [], [[]]
    while scripts:
        script, taken, weight = scripts.pop(), [], [1.0]

        def choose(chances, script=script, taken=taken, weight=weight):
            if len(taken) < len(script):
                answer = script[len(taken)]
            else:
                answer, *others = [i for i, c in enumerate(chances) if c > 1e-12]
                assert len(scripts) + len(others) < MAX_WAYS, (
                    "coin and pick could answer in too many ways: is it the right row?"
                )
                scripts.extend([*taken, other] for other in others)
            taken.append(answer)
            weight[0] *= chances[answer]
            assert len(taken) < 200, "coin and pick were called 200 times: does the loop end?"
            return answer

        def coin(chance, choose=choose):
            chance = float(chance)
            assert -1e-6 <= chance <= 1 + 1e-6, (
                f"coin was called with {chance:.4g}; a chance is from 0 to 1: min(1, p / q)"
            )
            chance = min(1.0, max(0.0, chance))
            return choose([1 - chance, chance]) == 1

        def pick(probabilities, choose=choose):
            assert isinstance(probabilities, torch.Tensor) and probabilities.ndim == 1, (
                "pick takes probabilities [V]"
            )
            assert len(probabilities) <= MAX_ROW, f"pick got a row of {len(probabilities)}"
            row = probabilities.double()
            good = bool((row >= -1e-6).all()) and abs(float(row.sum()) - 1) < 1e-5
            assert good, f"pick was called with {row.tolist()}, which is no distribution"
            return choose(row.tolist())

        value = run(coin, pick)
        found.append((weight[0], value))
    return found


def distributions(rng, *shape):
    """Random distributions [..., V] in float64, some of their entries 0."""
    rows = torch.rand(*shape, generator=rng, dtype=torch.float64) ** 2 + 0.02
    rows = rows * (torch.rand(*shape, generator=rng) > 0.25)
    rows[..., 0] += 0.1
    return rows / rows.sum(-1, keepdim=True)


def table(rng, vocab, depth):
    """A model: {text behind the prompt: distribution [V]}."""
    texts = [t for n in range(depth + 1) for t in itertools.product(range(vocab), repeat=n)]
    return {text: distributions(rng, vocab) for text in texts}


def chance_of(p, text):
    """The probability that the model p writes this text."""
    return math.prod(float(p[text[:i]][text[i]]) for i in range(len(text)))


def expect_distribution(emitted, p, vocab, length, bound, what):
    """emitted: [(probability, tokens)], shorter ones go on with p; compared with p's own."""
    seen = dict.fromkeys(itertools.product(range(vocab), repeat=length), 0.0)
    for weight, tokens in emitted:
        begun = tuple(tokens[:length])
        for rest in itertools.product(range(vocab), repeat=length - len(begun)):
            reach = math.prod(float(p[begun + rest[:i]][token]) for i, token in enumerate(rest))
            seen[begun + rest] += weight * reach
    for text, share in seen.items():
        right = chance_of(p, text)
        assert abs(share - right) <= bound, (
            f"{what}: the tokens {list(text)} come with probability {share:.5f}, not {right:.5f} "
            f"(too much by {share - right:.2g}, rounding would be {bound:.0g})"
        )


class Model:
    """read(start, tokens), with a cache that holds what was read, right or wrong."""

    def __init__(self, prompt, rows, name):
        self.prompt, self.rows, self.name = list(prompt), rows, name
        self.cache, self.calls = [], []

    def read(self, start, tokens):
        assert isinstance(tokens, list) and tokens, f"the {self.name} was given {tokens!r} to read"
        assert type(start) is int and 0 <= start <= len(self.cache), (
            f"the {self.name} has read {len(self.cache)} tokens; a call began at {start}"
        )
        again = start < len(self.cache) and self.cache[start] == tokens[0]
        self.calls.append((start, len(tokens), again))
        self.cache = self.cache[:start] + [int(t) for t in tokens]
        n = len(self.prompt)
        texts = [self.cache[: i + 1] for i in range(start, len(self.cache))]
        flat = torch.full_like(self.rows[()], 1 / len(self.rows[()]))
        out = []
        for text in texts:  # inside the prompt any row will do: nobody needs it
            known = len(text) >= n and text[:n] == self.prompt
            out.append(self.rows.get(tuple(text[n:]), flat) if known else flat)
        return torch.stack(out)


def written(student, p, q, prompt, new, gamma, coin, pick):
    """(tokens, target, draft) of one run."""
    target, draft = Model(prompt, p, "target"), Model(prompt, q, "draft")
    value = student.speculate(target.read, draft.read, prompt, new, gamma, coin, pick)
    good = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], list)
    assert good, f"speculate must return (list, int), it returned {type(value).__name__}"
    tokens, passes = value
    assert len(tokens) == new, f"{new} tokens were asked for, {len(tokens)} came"
    assert all(type(t) is int for t in tokens) and type(passes) is int, "tokens and passes are ints"
    assert passes == len(target.calls), f"{passes} passes reported, {len(target.calls)} seen"
    return tokens, target, draft


def certain_rows(text, vocab, depth):
    """A model that writes this text, whatever stands before, and token 0 behind it."""
    one = torch.eye(vocab, dtype=torch.float64)
    texts = [t for n in range(depth + 1) for t in itertools.product(range(vocab), repeat=n)]
    return {t: one[text[len(t)] if len(t) < len(text) else 0] for t in texts}


def surely(chances):
    """The answer of a chance that is none."""
    return int(torch.as_tensor(chances).argmax())


def no_coin(chance):
    return float(chance) > 0.5
