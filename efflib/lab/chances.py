"""Decoding that rolls dice, tested without luck: every way that chance may answer, and its weight.

Student functions get two functions, coin and pick, and no random numbers.  `ways` runs them once
for every answer that the two may give, so a distribution is an exact sum in float64.  `Model`
stands for a language model whose distributions are a table; it keeps a cache and counts calls.

All of these run in the test, and are called by the student's code: what they take is bounded by
what the test asked, before anything of it is kept.
"""

import itertools
import math

import torch

MAX_WAYS = 50_000  # that wait: the lists of a test lie in the grader's own memory


def judged_chance(chance):
    """A chance that a coin was given, as a float from 0 to 1; fails for what is none."""
    if isinstance(chance, torch.Tensor):
        assert chance.numel() == 1, f"coin was called with a tensor of {chance.numel()} numbers"
    chance = float(chance)
    assert -1e-6 <= chance <= 1 + 1e-6, (
        f"coin was called with {chance:.4g}; a chance is from 0 to 1: min(1, p / q)"
    )
    return min(1.0, max(0.0, chance))


def judged_row(probabilities, vocab):
    """What pick was given, float64 [vocab]; fails for what is no distribution of so many tokens."""
    ok = isinstance(probabilities, torch.Tensor) and probabilities.ndim == 1
    assert ok, "pick takes probabilities [V]"
    assert len(probabilities) == vocab, (
        f"pick was called with {len(probabilities)} probabilities; there are {vocab} tokens"
    )
    row = probabilities.double()
    good = bool((row >= -1e-6).all()) and abs(float(row.sum()) - 1) < 1e-5
    shown = [float(f"{x:.6g}") for x in row[:8].tolist()]
    more = " ..." if vocab > 8 else ""
    assert good, f"pick was called with {shown}{more}, which is no distribution"
    return row


def ways(run, vocab, most):
    """[(probability, run(coin, pick))] for every way that coin and pick may answer.

    vocab: the number of tokens that pick chooses from; most: calls of coin and pick that a run can
    have a use for.
    """
    found, scripts = [], [[]]
    while scripts:
        script, taken, weight = scripts.pop(), [], [1.0]

        def choose(chances, script=script, taken=taken, weight=weight):
            assert len(taken) < most, (
                f"coin and pick were called more than {most} times: does the loop end?"
            )
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
            return answer

        def coin(chance, choose=choose):
            chance = judged_chance(chance)
            return choose([1 - chance, chance]) == 1

        def pick(probabilities, choose=choose):
            return choose(judged_row(probabilities, vocab).tolist())

        value = run(coin, pick)
        found.append((weight[0], value))
    return found


def calls_of_round(g):
    """Coins and picks of a round of g proposals: a coin for each, a pick from each row at most."""
    return 2 * g + 1


def calls_of_loop(new, gamma):
    """The same of a loop in which every round gives one token, and of its proposals."""
    proposals = (min(gamma, left - 1) for left in range(1, new + 1))
    return sum(g + calls_of_round(g) for g in proposals)


def recorded(answer, most):
    """(coin, asked): a coin that gives answer(chance), and the chances that it was asked so far."""
    asked = []

    def coin(chance):
        asked.append(judged_chance(chance))
        assert len(asked) <= most, f"coin was called more than {most} times"
        return answer(asked[-1])

    return coin, asked


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


def unlike(p, q):
    """Sets the first rows of two models of two tokens, so that no two rows of one are alike.

    Drawn ones may be, or have a zero where a mistake would show.
    """
    for model, rows in ((p, ((5, 5), (7, 3), (2, 8))), (q, ((9, 1), (4, 6), (6, 4)))):
        for text, row in zip(((), (0,), (1,)), rows, strict=True):
            model[text] = torch.tensor(row, dtype=torch.float64) / 10


def chance_of(p, text):
    """The probability that the model p writes this text."""
    return math.prod(float(p[text[:i]][text[i]]) for i in range(len(text)))


def shares(emitted, p, vocab, length):
    """{text: its probability}; emitted: [(probability, tokens)], shorter ones go on with p."""
    seen = dict.fromkeys(itertools.product(range(vocab), repeat=length), 0.0)
    for weight, tokens in emitted:
        begun = tuple(tokens[:length])
        for rest in itertools.product(range(vocab), repeat=length - len(begun)):
            reach = math.prod(float(p[begun + rest[:i]][token]) for i, token in enumerate(rest))
            seen[begun + rest] += weight * reach
    return seen


def expect_distribution(emitted, p, vocab, length, bound, what):
    """Fails unless what was emitted (see shares) is distributed as p."""
    for text, share in shares(emitted, p, vocab, length).items():
        right = chance_of(p, text)
        assert abs(share - right) <= bound, (
            f"{what}: the tokens {list(text)} come with probability {share:.10g}, not {right:.10g} "
            f"(too much by {share - right:.2g}, rounding would be {bound:.0g})"
        )


def stopped(rule, p, q, gamma, verify):
    """The largest error of a text's probability where a rule ends the draft's proposals.

    rule(row, token): whether the token, drawn from row, is proposed, and whether to go on.
    """
    vocab = len(q[()])

    def run(coin, pick):
        proposed, more = [], True
        while more and len(proposed) < gamma:
            row = q[tuple(proposed)]
            token = pick(row)
            kept, more = rule(row, token)
            proposed += [token] if kept else []
            more = more and kept
        begun = [tuple(proposed[:i]) for i in range(len(proposed) + 1)]
        rows_p, rows_q = (torch.stack([model[text] for text in begun]) for model in (p, q))
        guesses = torch.tensor(proposed, dtype=torch.int64)
        return verify(guesses, rows_q[:-1], rows_p, coin, pick).tolist()

    found = shares(ways(run, vocab, gamma + calls_of_round(gamma)), p, vocab, gamma + 1)
    return max(abs(share - chance_of(p, text)) for text, share in found.items())


class Model:
    """read(start, tokens), with a cache that holds what was read, right or wrong.

    most: positions that a call may reach.  calls: (start, number of tokens, whether the first of
    them stood there already); texts: what the cache held after each call.
    """

    def __init__(self, prompt, rows, name, most):
        self.prompt, self.rows, self.name, self.most = list(prompt), rows, name, most
        self.cache, self.calls, self.texts = [], [], []

    def read(self, start, tokens):
        self._check(start, tokens)
        again = start < len(self.cache) and self.cache[start] == tokens[0]
        self.calls.append((start, len(tokens), again))
        self.cache = self.cache[:start] + [int(t) for t in tokens]
        self.texts.append(self.cache)
        n = len(self.prompt)
        flat = torch.full_like(self.rows[()], 1 / len(self.rows[()]))
        out = []
        for end in range(start + 1, len(self.cache) + 1):
            # inside the prompt any row will do: nobody needs it
            known = end >= n and self.cache[:n] == self.prompt
            out.append(self.rows.get(tuple(self.cache[n:end]), flat) if known else flat)
        return torch.stack(out)

    def _check(self, start, tokens):
        has, name = len(self.cache), self.name
        assert isinstance(tokens, list), f"the {name} was given {type(tokens).__name__}, not a list"
        assert tokens, (
            f"the {name} was given [] to read at {start}, and holds {has} tokens: behind a refusal "
            "fewer of them stand in the text, and the others have to go (rollback)"
        )
        assert type(start) is int and 0 <= start <= has, (
            f"the {name} has read {has} tokens; a call began at {start}. What stands between was "
            "never read: behind full acceptance the draft lacks its own last guess"
        )
        reach = start + len(tokens)
        assert reach <= self.most, f"the {name} was given tokens up to position {reach - 1}"
        assert len(self.calls) < self.most**2, f"the {name} was called {len(self.calls)} times"


def written(student, p, q, prompt, new, gamma, coin, pick):
    """(tokens, target, draft) of one run."""
    most = len(prompt) + new + gamma
    target, draft = Model(prompt, p, "target", most), Model(prompt, q, "draft", most)
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
