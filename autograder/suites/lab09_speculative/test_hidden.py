"""Hidden tests of lab09: exact sums over every path, counted calls, and rounds of the real pair.

Chance goes through coin and pick; `ways` tries all of their answers and weighs them.  Only the last
test of exercise 2 draws samples: what it allows is derived there.
"""

import itertools
import math

import torch

from efflib.lab import exercise, expect_close, expect_tensor
from efflib.lab.chances import (
    chance_of,
    distributions,
    expect_distribution,
    no_coin,
    surely,
    table,
    ways,
    written,
)

EXACT = 1e-9  # sums of some hundred products of float64


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=5,
    invariant="proposals up to the first that differs from the target's choice, and that choice",
    cause="agreements behind a wrong guess counted, rows off by one, or the own token forgotten",
)
def test_all_small_rounds(student, rng):
    for g in (0, 1, 2, 3):
        for own in itertools.product(range(2), repeat=g + 1):
            logits = torch.rand(g + 1, 4, generator=rng)
            logits[torch.arange(g + 1), torch.tensor(own)] += 1.0
            for proposed in itertools.product(range(3), repeat=g):
                n = next((i for i in range(g) if proposed[i] != own[i]), g)
                tokens = student.verify_greedy(torch.tensor(proposed, dtype=torch.int64), logits)
                expect_tensor(tokens, "verify_greedy(...)", torch.int64, (n + 1,))
                assert tokens.tolist() == list(own[: n + 1]), "other tokens"


@exercise(
    "ex1",
    points=4,
    invariant="many proposals, negative and infinite logits, bfloat16; equal logits: the first",
    cause="another rule for equal logits, logits rounded before they are compared, a limit on g, "
    "or something kept from the last call",
)
def test_long_and_strange_rounds(student, rng):
    for g, dtype in ((40, torch.float32), (7, torch.bfloat16), (12, torch.float64)):
        own = torch.randint(0, 30, (g + 1,), generator=rng)
        logits = torch.full((g + 1, 30), -5.0)
        logits[torch.arange(g + 1), own] = -1.0
        logits[:, 29] = torch.where(own == 29, -1.0, -math.inf)
        logits = logits.to(dtype)
        for n in (0, g // 2, g):
            proposed = own[:-1].clone()
            if n < g:
                proposed[n] = (proposed[n] + 1) % 30
            tokens = student.verify_greedy(proposed, logits)
            expect_tensor(tokens, "verify_greedy(...)", torch.int64, (n + 1,))
            assert torch.equal(tokens, own[: n + 1]), "other tokens"
    own = torch.randint(0, 9, (4,), generator=rng)
    close = torch.full((4, 9), 0.3, dtype=torch.float64)
    close[torch.arange(4), own] += 1e-13
    tokens = student.verify_greedy(own[:-1].clone(), close)
    assert torch.equal(tokens, own), "logits that differ in float64 alone"
    flat = torch.zeros(3, 5)
    for proposed, right in (([0, 0], [0, 0, 0]), ([0, 4], [0, 0]), ([1, 0], [0])):
        tokens = student.verify_greedy(torch.tensor(proposed), flat)
        assert tokens.tolist() == right, "equal logits"


# ---- exercise 2 ------------------------------------------------------------------------------


@exercise(
    "ex2",
    points=2,
    invariant="the residual in both dtypes: sum 1, 0 where p <= q, p where nothing is left",
    cause="0 / 0, a sum that is not 1, a constant added against division by 0, or another dtype",
)
def test_residuals(student, rng):
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        for _ in range(6):
            p, q = (distributions(rng, 12).to(dtype) for _ in range(2))
            r = expect_tensor(student.residual(p, q), "residual", dtype, (12,))
            rest = (p.double() - q.double()).clamp(min=0)
            expect_close(r, rest / rest.sum(), what="residual", atol=bound)
            assert bool((r[p <= q] == 0).all()), "where p <= q the residual is 0"
        for row in (p, torch.eye(3, dtype=dtype)[1]):
            expect_close(student.residual(row, row), row, what="residual of equal rows", atol=bound)
    near = torch.tensor([0.5, 0.5 - 2e-6, 2e-6], dtype=torch.float64)
    r = student.residual(near, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))
    expect_close(r, torch.tensor([0.0, 0.0, 1.0]), what="rows that nearly agree", atol=1e-9)


def emitted_by(student, p, q, vocab, g):
    """[(probability, tokens)] of a round of g proposals, from q and judged by p."""
    found = []
    for proposed in itertools.product(range(vocab), repeat=g):
        reach = chance_of(q, proposed)
        if reach == 0:
            continue
        rows_q = torch.stack([q[proposed[:i]] for i in range(g)])
        rows_p = torch.stack([p[proposed[:i]] for i in range(g + 1)])

        def run(coin, pick, proposed=proposed, rows_q=rows_q, rows_p=rows_p):
            tokens = student.verify(torch.tensor(proposed), rows_q, rows_p, coin, pick)
            return tuple(expect_tensor(tokens, "verify", torch.int64).tolist())

        found += [(reach * weight, tokens) for weight, tokens in ways(run)]
    return found


@exercise(
    "ex2",
    points=4,
    invariant="over every path, for good, bad and certain drafts: the target's own distribution",
    cause="a rejection that draws from p or q or the residual of another row, a coin of another "
    "chance, the proposals behind a refused one looked at, or no bonus",
)
def test_rounds_of_all_drafts(student, rng):
    for vocab, g in ((2, 3), (4, 1), (3, 2)):
        p = table(rng, vocab, g + 1)
        good = {text: 0.7 * row + 0.3 * torch.full_like(row, 1 / vocab) for text, row in p.items()}
        sure = {text: torch.eye(vocab, dtype=torch.float64)[draw(rng, 0, vocab - 1)] for text in p}
        for q in (good, table(rng, vocab, g), sure, p):
            emitted = emitted_by(student, p, q, vocab, g)
            expect_distribution(emitted, p, vocab, g + 1, EXACT, "a round")
        assert all(len(tokens) == g + 1 for _, tokens in emitted), "q = p: all are kept, and one"


def drive_rounds(student, proposed, q, p, uniform):
    """Runs beside the student's code: rounds whose chance comes from given numbers in [0, 1)."""
    import torch

    first = []
    for guesses, numbers in zip(proposed, uniform, strict=True):
        left = iter(numbers.tolist())

        def coin(chance, left=left):
            return next(left) < float(chance)

        def pick(row, left=left):
            sums = row.double().cumsum(0)
            at = torch.searchsorted(sums, next(left) * sums[-1], right=True)
            return min(int(at), len(row) - 1)

        first.append(student.verify(guesses, q, p, coin, pick)[0].item())
    return first


@exercise(
    "ex2",
    points=3,
    invariant="2000 rounds of the course's own pair: the first token is distributed as p",
    cause="what passes for small vocabularies only, or a residual that is lost in float32",
)
def test_rounds_of_the_real_pair(student, rng):
    """False alarm: K = 4 classes of tokens, chosen by p and q alone, n = 2000 rounds.  By Hoeffding
    the share of a class is off by t or more with probability at most 2 exp(-2 n t^2): with
    t = 0.0631 a right solution fails in fewer than 1e-6 of all draws.

    Power: class 0 is where q > p.  Where a rejection (probability e) draws from p, its share is too
    large by e p(class 0); where everything is kept, by e.  Of 128 places in texts that the target
    samples the one with the largest e p(class 0) is taken: at 0.14 such a solution passes with
    probability below 1e-10.  (The corpus would take seconds: it is tokenised as a whole.)"""
    from efflib import zoo
    from efflib.decoding.sampling import Sampling, generate

    target, guess = zoo.load("target"), zoo.load("draft")
    n, bound = 2000, 0.0631
    with torch.no_grad():
        ids = generate(target, torch.full((16, 1), zoo.BEGIN_ID), 16, Sampling(1.0), rng)
        p, q = (m(ids)[:, 8:-1].softmax(-1).flatten(0, 1) for m in (target, guess))  # [128, V]
    over = q > p
    best = (((q - p) * over).sum(-1) * (p * over).sum(-1)).argmax()
    p, q = p[best], q[best]
    numbers = torch.rand(n, 3, generator=rng, dtype=torch.float64)
    guesses = torch.multinomial(q, n, replacement=True, generator=rng)[:, None]
    first = student.drive(drive_rounds, guesses, q[None], torch.stack([p, p]), numbers)
    ints = len(first) == n and all(isinstance(t, int) for t in first)
    assert ints and all(0 <= t < len(p) for t in first), "no tokens"
    seen = torch.bincount(torch.tensor(first), minlength=len(p)).double() / n
    top = torch.zeros_like(p, dtype=torch.bool).index_fill(0, (p - q).argmax(), True)
    for tokens in (q > p, q > 2 * p, top, ~top & (q <= p)):
        off = abs(float(seen[tokens].sum()) - float(p[tokens].double().sum()))
        assert off < bound, "the shares are not those of the target"


# ---- exercise 3 ------------------------------------------------------------------------------


@exercise(
    "ex3",
    points=3,
    invariant="the rate is the chance that the rule of exercise 2 keeps a token; 1 for equal rows",
    cause="zeros in q or p, a rate of one token, or something other than a Python float",
)
def test_rates(student, rng):
    for vocab in (1, 2, 7, 300):
        p, q = distributions(rng, vocab), distributions(rng, vocab)
        right = math.fsum(min(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
        for a, b in ((p, q), (q, p)):
            rate = student.acceptance_rate(a, b)
            assert type(rate) is float, "not a float"
            expect_close(rate, right, what="the rate", atol=1e-9)
        expect_close(student.acceptance_rate(p, p), 1.0, what="the rate of equal rows", atol=1e-9)
    one = torch.eye(3)
    assert student.acceptance_rate(one[0], one[1]) == 0, "nothing in common"


@exercise(
    "ex3",
    points=3,
    invariant="expected tokens: all rounds of up to 9 proposals, added up one by one",
    cause="the bonus token, a power too many or too few, or a = 1",
)
def test_expected_by_counting(student, rng):
    for a in (0.0, 0.07, 0.5, 0.93, 0.999999, 1.0, draw(rng, 1, 99) / 100):
        for gamma in (0, 1, 2, 5, 9):
            mean = sum((k + 1) * a**k * (1 - a) for k in range(gamma)) + (gamma + 1) * a**gamma
            seen = student.expected_tokens(a, gamma)
            expect_close(float(seen), mean, what="expected tokens", rtol=1e-9)


@exercise(
    "ex3",
    points=3,
    invariant="every gamma from 0 to most was tried; of equal speed-ups the smallest counts",
    cause="a search that ends early, without `most` or 0, or that ignores c, w or a",
)
def test_best_lengths(student, rng):
    for _ in range(25):
        a, c, w = (draw(rng, 0, 100) / 100 for _ in range(3))
        c, w, most = c / 4, w / 8, draw(rng, 0, 30)
        speeds = [sum(a**i for i in range(g + 1)) / (1 + g * (c + w)) for g in range(most + 1)]
        best = student.best_gamma(a, c, w, most)
        assert type(best) is int and 0 <= best <= most, "no gamma from 0 to most"
        assert speeds[best] >= max(speeds) * (1 - 1e-12), "another gamma is faster"
        for g in (0, most):
            seen = student.speedup(a, g, c, w)
            expect_close(float(seen), speeds[g], what="speed-up", rtol=1e-9)
    assert student.best_gamma(0.0, 0.0, 0.0, 9) == 0, "equal: the smallest"
    assert student.best_gamma(1.0, 0.1, 0.0, 40) == 40, "everything accepted: the longest"


# ---- exercise 4 ------------------------------------------------------------------------------


@exercise(
    "ex4",
    points=5,
    invariant="over every path, what is written is the target's own text, whatever the draft",
    cause="rows off by one, a cache that is not rolled back, or verify given rows of another round",
)
def test_all_that_may_be_written(student, rng):
    for vocab, length, new, gamma in ((2, 1, 3, 2), (2, 3, 4, 1), (3, 2, 2, 3), (2, 2, 2, 2)):
        prompt = [draw(rng, 0, vocab - 1) for _ in range(length)]
        p = table(rng, vocab, new)
        near = {text: 0.8 * row + 0.2 / vocab for text, row in p.items()}
        for q in (table(rng, vocab, new), near):

            def run(coin, pick, p=p, q=q, prompt=prompt, new=new, gamma=gamma):
                return tuple(written(student, p, q, prompt, new, gamma, coin, pick)[0])

            expect_distribution(ways(run), p, vocab, new, EXACT, "the loop")


@exercise(
    "ex4",
    points=4,
    invariant="every call begins where the cache ends to be right, reads what is lacking, and no "
    "call is made that is of no use",
    cause="tokens read twice, a draft that reads its last proposal, proposals that cannot be used, "
    "or a pass too many at the end",
)
def test_calls_are_counted(student, rng):
    for _ in range(8):
        new, gamma = draw(rng, 1, 9), draw(rng, 1, 5)
        text = [draw(rng, 0, 2) for _ in range(new)]
        guesses = [t if draw(rng, 0, 2) else (t + 1) % 3 for t in text]
        prompt = [draw(rng, 0, 2) for _ in range(draw(rng, 1, 4))]
        p, q = certain_path(text, guesses)
        tokens, target, draft = written(student, p, q, prompt, new, gamma, no_coin, surely)
        assert tokens == text, "another text"
        rounds, done, first = [], 0, len(prompt)
        drafted = 0
        while done < new:
            g = min(gamma, new - done - 1)
            right = next((i for i in range(g) if guesses[done + i] != text[done + i]), g)
            rounds.append((first + done - (done > 0), g + 1 if done else first + g))
            drafted += g
            done += right + 1
        starts = [(0 if i == 0 else start, n) for i, (start, n) in enumerate(rounds)]
        assert [(s, n) for s, n, _ in target.calls] == starts, "the target's calls"
        assert len(draft.calls) == drafted, "the number of the draft's calls"
        assert not any(again for _, _, again in draft.calls), "the draft read a token twice"
        most = sum(n for _, n, _ in draft.calls)
        assert most <= first + new + drafted, "the draft read too much"


def certain_path(text, guesses, vocab=3):
    """(p, q) that write text and guesses, whatever stands before."""
    one = torch.eye(vocab, dtype=torch.float64)

    class Rows(dict):
        def __init__(self, words):
            super().__init__()
            self.words = words

        def __getitem__(self, text):
            return one[self.words[len(text)] if len(text) < len(self.words) else 0]

        def get(self, text, other=None):
            return self[text]

    return Rows(text), Rows(guesses)


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=5,
    invariant="lookups in all short texts and in random ones of few tokens, against the definition",
    cause="the tail finds itself, another place than the last, n that goes the wrong way, a part "
    "of a number found, or too many tokens",
)
def test_lookups(student, rng):
    short = [list(t) for n in range(1, 6) for t in itertools.product(range(2), repeat=n)]
    cases = [(text, 3, 3) for text in short]  # all of them, so that no mistake needs luck
    for _ in range(40):
        text = [draw(rng, 0, 2) for _ in range(draw(rng, 1, 14))]
        cases.append((text, draw(rng, 0, 5), draw(rng, 1, 5)))
    ones = [0, 1, 11, 111]  # tokens are numbers and no letters
    cases += [([ones[t] for t in text], gamma, longest) for text, gamma, longest in cases]
    cases += [([111, 0, 11, 0, 1], 3, 2), ([11, 0, 1], 2, 1)]
    for text, gamma, longest in cases:
        right = []
        for n in range(longest, 0, -1):
            places = [
                i + n
                for i in range(len(text) - n)
                if n < len(text) and text[i : i + n] == text[-n:]
            ]
            if places:
                right = text[places[-1] :][:gamma]
                break
        seen = student.lookup(text, gamma, longest)
        assert type(seen) is list and seen == right, "another lookup"


@exercise(
    "ex5",
    points=4,
    invariant="rounds of proposals that nobody drew are distributed as the target's own",
    cause="q that is p, or equal for all tokens, or something kept from the last call",
)
def test_rounds_of_certain_proposals(student, rng):
    for vocab, g in ((3, 2), (4, 1), (3, 2), (3, 2)):
        p = table(rng, vocab, g + 1)
        proposed = [draw(rng, 0, vocab - 1) for _ in range(g)]
        q = student.certain(torch.tensor(proposed), vocab)
        expect_tensor(q, "certain", torch.float32, (g, vocab))
        other = student.certain(torch.tensor([(t + 1) % vocab for t in proposed]), vocab)
        expect_close(other.sum(-1), torch.ones(g), what="the sums of rows, after another call")
        rows = torch.stack([p[tuple(proposed[:i])] for i in range(g + 1)])

        def run(coin, pick, q=q, rows=rows, proposed=proposed, g=g):
            kept, last = g, rows[g]
            for i, token in enumerate(proposed):
                chance = min(1.0, float(rows[i, token] / q[i, token]))
                if not coin(chance):
                    rest = (rows[i] - q[i]).clamp(min=0)
                    kept, last = i, rest / rest.sum()
                    break
            return (*proposed[:kept], pick(last))

        emitted = ways(run)
        expect_distribution(emitted, p, vocab, g + 1, EXACT, "a round of certain proposals")


# ---- exercise 6 ------------------------------------------------------------------------------


def random_tree(rng, nodes, vocab):
    """(tokens, parents) in which the children of a node differ."""
    tokens, parents = [draw(rng, 0, vocab - 1)], [-1]
    while len(tokens) < nodes:
        parent, token = draw(rng, 0, len(tokens) - 1), draw(rng, 0, vocab - 1)
        if all((a, b) != (parent, token) for a, b in zip(parents, tokens, strict=True)):
            parents.append(parent)
            tokens.append(token)
    return tokens, parents


@exercise(
    "ex6",
    points=3,
    invariant="masks and depths of random trees, chains and stars, against the way to the root",
    cause="only the parent seen, siblings seen, the text left out, or chains of some depth only",
)
def test_masks_of_random_trees(student, rng):
    shapes = [random_tree(rng, n, 4)[1] for n in (1, 2, 7, 15)]
    shapes += [list(range(-1, 8)), [-1] + [0] * 6]
    for parents in shapes:
        past = draw(rng, 0, 5)
        mask = student.tree_mask(parents, past)
        expect_tensor(mask, "tree_mask", torch.bool, (len(parents), past + len(parents)))
        deep = student.depths(parents)
        for node in range(len(parents)):
            path, at = set(), node
            while at >= 0:
                path.add(at)
                at = parents[at]
            right = [True] * past + [j in path for j in range(len(parents))]
            assert mask[node].tolist() == right, "a node sees something else"
            assert deep[node] == len(path) - 1, "another depth"


@exercise(
    "ex6",
    points=4,
    invariant="over every path, walks on random trees are distributed as the target's own",
    cause="a second child judged by p as it was, what is left not renormalised, or a refused child "
    "picked",
)
def test_walks_on_random_trees(student, rng):
    trees = [([0, 0, 1, 2, 0, 1, 2], [-1, 0, 0, 0, 1, 1, 1], 3)]  # siblings, whatever is drawn
    trees += [(*random_tree(rng, n, vocab), vocab) for n, vocab in ((5, 3), (6, 2), (4, 4), (7, 3))]
    for tokens, parents, vocab in trees:
        texts = [()]
        for node in range(1, len(tokens)):
            texts.append((*texts[parents[node]], tokens[node]))
        depth = max(map(len, texts)) + 1
        if vocab**depth > 300:
            continue
        p = {text: 0.9 * row + 0.1 / vocab for text, row in table(rng, vocab, depth).items()}
        rows = torch.stack([p[text] for text in texts])

        def run(coin, pick, tokens=tokens, parents=parents, rows=rows):
            path, token = student.walk(tokens, parents, rows, coin, pick)
            assert path[0] == 0 and type(token) is int, "a path from node 0, and an int"
            good = all(parents[b] == a for a, b in itertools.pairwise(path))
            assert good, "no path of the tree"
            return (*(tokens[node] for node in path[1:]), token)

        expect_distribution(ways(run), p, vocab, depth, EXACT, "a walk")


@exercise(
    "ex6",
    points=2,
    invariant="children are judged in the order of their numbers, by coins of what is left",
    cause="another order, all children judged although one was kept, or a coin for node 0",
)
def test_the_coins_of_a_walk(student, rng):
    p = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 5, dtype=torch.float64)
    tokens, parents = [0, 1, 3, 0, 2], [-1, 0, 0, 0, 1]
    asked = []

    def never(chance):
        asked.append(float(chance))
        return False

    path, _ = student.walk(tokens, parents, p, never, lambda row: int(row.argmax()))
    assert path == [0], "all were refused"
    right = torch.tensor([0.2, 0.4 / 0.8, 0.1 / 0.4], dtype=torch.float64)
    expect_close(torch.tensor(asked, dtype=torch.float64), right, what="the coins", atol=1e-9)
    asked.clear()
    path, token = student.walk(tokens, parents, p, lambda c: not asked.append(c), lambda row: 1)
    assert path == [0, 1, 4] and token == 1 and len(asked) == 2, "each first child was kept"
