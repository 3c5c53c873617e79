"""Public tests of lab09: what lab.check runs.

Chance goes through two functions, coin and pick.  `ways` runs a function once for every way that
they may answer, and gives each way with its probability: so distributions are exact, in float64.
"""

import itertools

import torch

from efflib.lab import exercise, expect_close, expect_tensor
from efflib.lab.chances import (
    calls_of_loop,
    calls_of_round,
    certain_rows,
    chance_of,
    distributions,
    expect_distribution,
    no_coin,
    recorded,
    surely,
    table,
    unlike,
    ways,
    written,
)

EXACT = 1e-9  # sums of some hundred products of float64


# ---- exercise 1 ------------------------------------------------------------------------------


def said(choices, vocab=10):
    """Logits [g + 1, V] whose largest are at the choices."""
    return 0.5 * torch.eye(vocab)[choices] - 1


def greedy(student, proposed, logits):
    tokens = student.verify_greedy(torch.tensor(proposed, dtype=torch.int64), logits)
    expect_tensor(tokens, "verify_greedy(...)", torch.int64)
    assert tokens.ndim == 1, f"verify_greedy returned the shape {list(tokens.shape)}"
    return tokens.tolist()


@exercise(
    "ex1",
    points=4,
    invariant="proposed 3 1 4, own choices 3 1 5 9: the round gives 3 1 5",
    cause="agreements counted anywhere, the target's own token or the bonus forgotten, or rows "
    "off by one",
)
def test_greedy_by_hand(student, rng):
    for proposed, own, right in (
        ([3, 1, 4], [3, 1, 5, 9], [3, 1, 5]),
        ([3, 1, 4], [2, 1, 4, 7], [2]),
        ([3, 1, 4], [3, 1, 4, 2], [3, 1, 4, 2]),
        ([3, 1, 4], [3, 7, 4, 2], [3, 7]),
        ([5], [5, 5], [5, 5]),
        ([0], [1, 0], [1]),
    ):
        tokens = greedy(student, proposed, said(own))
        assert tokens == right, f"proposed {proposed}, own {own}: {tokens}, expected {right}"


@exercise(
    "ex1",
    points=2,
    invariant="without proposals a round gives one token; of equal logits the first counts",
    cause="a loop that never runs, the last of equal logits, or logits rounded before they are "
    "compared",
)
def test_greedy_ends(student, rng):
    tokens = greedy(student, [], said([6]))
    assert tokens == [6], f"no proposals: {tokens}, expected [6]"
    flat = torch.zeros(2, 4)
    flat[0, 2] = flat[0, 3] = 1.0
    for proposed, right in (([2], [2, 0]), ([3], [2])):
        tokens = greedy(student, proposed, flat)
        assert tokens == right, f"2 and 3 are equal, {proposed} proposed: {tokens}, not {right}"
    close = torch.zeros(2, 4, dtype=torch.float64)
    close[0, 1] = close[1, 2] = 1e-12
    tokens = greedy(student, [1], 1 + close)
    assert tokens == [1, 2], f"float64 logits that differ by 1e-12: {tokens}, expected [1, 2]"


# ---- exercise 2 ------------------------------------------------------------------------------


@exercise(
    "ex2",
    points=2,
    invariant="r is what is missing: q r' + kept = p for every token, and r sums to 1",
    cause="r = p, or p - q not cut at 0 or not divided by its sum; 0 / 0 where p = q, or p "
    "returned where little is missing",
)
def test_residual(student, rng):
    p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.6, 0.1, 0.1])
    r = expect_tensor(student.residual(p, q), "residual(p, q)", torch.float32, (4,))
    expect_close(r, torch.tensor([0.75, 0.0, 0.25, 0.0]), what="residual", atol=1e-6)
    for _ in range(3):
        p, q = distributions(rng, 6), distributions(rng, 6)
        r = expect_tensor(student.residual(p, q), "residual(p, q)", torch.float64, (6,))
        kept = torch.minimum(p, q)
        expect_close(kept + (1 - kept.sum()) * r, p, what="kept or redrawn", atol=EXACT)
        expect_close(float(r.sum()), 1.0, what="the sum of the residual", atol=EXACT)
    expect_close(student.residual(p, p), p, what="residual(p, p)", atol=EXACT)
    near, q = (torch.tensor(row).double() for row in ([0.5, 0.499, 0.001], [0.5, 0.5, 0.0]))
    right = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    expect_close(student.residual(near, q), right, what="residual of rows 0.001 apart", atol=1e-6)


def round_of(student, proposed, q, p, coin, pick):
    tokens = student.verify(torch.tensor(proposed, dtype=torch.int64), q, p, coin, pick)
    expect_tensor(tokens, "verify(...)", torch.int64)
    assert tokens.ndim == 1 and 1 <= len(tokens) <= len(proposed) + 1, (
        f"{len(proposed)} proposals: verify returned the shape {list(tokens.shape)}"
    )
    return tokens.tolist()


def emitted_by(student, p, q, vocab, g):
    """[(probability, tokens)] of a round of g proposals, from q and judged by p."""
    found = []
    for proposed in itertools.product(range(vocab), repeat=g):
        reach = chance_of(q, proposed)
        if reach == 0:
            continue
        rows_q = torch.stack([q[proposed[:i]] for i in range(g)]) if g else torch.zeros(0, vocab)
        rows_p = torch.stack([p[proposed[:i]] for i in range(g + 1)])

        def run(coin, pick, proposed=proposed, rows_q=rows_q, rows_p=rows_p):
            return round_of(student, list(proposed), rows_q, rows_p, coin, pick)

        seen = ways(run, vocab, calls_of_round(g))
        found += [(reach * weight, tuple(tokens)) for weight, tokens in seen]
    return found


@exercise(
    "ex2",
    points=3,
    invariant="over every path, the tokens of a round are distributed as the target's own",
    cause="a rejection that draws from p or q, the residual of another row, a coin of another "
    "chance, no bonus token; where it is off by very little, another dtype or a constant added",
)
def test_a_round_loses_nothing(student, rng):
    for vocab, g in ((3, 1), (2, 2)):
        p, q = table(rng, vocab, g + 1), table(rng, vocab, g)
        if g == 1:  # behind a refused 2 come 0 and 1 as 3 to 1, while in p they stand as 5 to 3
            p[()], q[()] = (torch.tensor(r).double() / 10 for r in ([5, 3, 2], [2, 2, 6]))
        emitted = emitted_by(student, p, q, vocab, g)
        what = f"{g} proposals, {vocab} tokens"
        expect_distribution(emitted, p, vocab, g + 1, EXACT, what)


@exercise(
    "ex2",
    points=1,
    invariant="what the target never says is never kept; equal distributions keep everything",
    cause="p / q the wrong way round, a residual of another row, or a strict comparison that loses "
    "proposals",
)
def test_never_and_always(student, rng):
    def rounds(proposed, q, p):
        def run(coin, pick):
            return round_of(student, proposed, q, p, coin, pick)

        return ways(run, p.shape[1], calls_of_round(len(proposed)))

    p, q = torch.tensor([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])
    for _, tokens in rounds([0], q, p):
        assert tokens == [1], f"the target never says 0, always 1; the round gave {tokens}"
    p = distributions(rng, 3, 4)
    for _, tokens in rounds([0, 0], p[:2], p):
        assert tokens[:2] == [0, 0] and len(tokens) == 3, f"p = q: the round gave {tokens}"
    seen = rounds([], torch.zeros(0, 4, dtype=torch.float64), p[:1])
    share = sum(weight for weight, tokens in seen if tokens == [0])
    expect_close(share, float(p[0, 0]), what="no proposals: the chance of token 0", atol=EXACT)


# ---- exercise 3 ------------------------------------------------------------------------------


def number(value, what):
    assert type(value) in (int, float), f"{what} is of type {type(value).__name__}, not a number"
    return value


@exercise(
    "ex3",
    points=2,
    invariant="the rate is the sum of the smaller ones: 0.6 for the rows of the cell",
    cause="p / q summed, 0 / 0 where both are 0, the rate of one token only, or a tensor returned",
)
def test_rate(student, rng):
    p, q = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.2, 0.6, 0.1, 0.1])
    for a, b in ((p, q), (q, p)):
        rate = number(student.acceptance_rate(a, b), "acceptance_rate(p, q)")
        expect_close(rate, 0.6, what="the rate", atol=1e-6)
    for a, b in (([0.5, 0.5, 0.0], [0.25, 0.75, 0.0]), ([0.0, 0.25, 0.75], [1.0, 0.0, 0.0])):
        rate = number(student.acceptance_rate(torch.tensor(a), torch.tensor(b)), "acceptance_rate")
        expect_close(rate, 0.75 * (a[0] > 0), what=f"the rate of {a} and {b}", atol=1e-6)
    p, q = distributions(rng, 9), distributions(rng, 9)
    right = sum(float(b) * min(1.0, float(a / b)) for a, b in zip(p, q, strict=True) if b > 0)
    seen = number(student.acceptance_rate(p, q), "acceptance_rate(p, q)")
    expect_close(seen, right, what="the rate", atol=EXACT)


@exercise(
    "ex3",
    points=2,
    invariant="a = 0.5: 1, 1.5, 1.75 tokens with 0, 1, 2 proposals; a = 1 gives gamma + 1",
    cause="the bonus token forgotten, one power too few, or a division by 1 - a",
)
def test_tokens_of_a_round(student, rng):
    for a, gamma, right in (
        *((0.5, 0, 1), (0.5, 1, 1.5), (0.5, 2, 1.75), (0.8, 3, 2.952)),
        *((0.0, 0, 1), (0.0, 5, 1), (1.0, 0, 1), (1.0, 5, 6), (0.999, 2, 2.997001)),
    ):
        seen = number(student.expected_tokens(a, gamma), f"expected_tokens({a}, {gamma})")
        expect_close(seen, float(right), what=f"expected_tokens({a}, {gamma})", atol=EXACT)


@exercise(
    "ex3",
    points=2,
    invariant="a = 0.5, c = 0.1, w = 0.05: S is 1, 1.304, 1.346, 1.293 for gamma 0 to 3, best 2",
    cause="w or c left out or counted once, the target's pass left out, or `most` left out of the "
    "search",
)
def test_speed_by_hand(student, rng):
    for gamma, tokens in ((0, 1), (1, 1.5), (2, 1.75), (3, 1.875)):
        seen = number(student.speedup(0.5, gamma, 0.1, 0.05), "speedup(...)")
        what = f"speedup(0.5, {gamma}, 0.1, 0.05)"
        expect_close(seen, tokens / (1 + 0.15 * gamma), what=what, atol=EXACT)
    for (a, c, w, most), right in (
        ((0.5, 0.1, 0.05, 9), 2),
        ((0.5, 0.1, 0.05, 1), 1),
        ((0.1, 0.3, 0.0, 9), 0),
        ((0.9, 0.0, 0.0, 7), 7),
        ((0.0, 0.0, 0.0, 5), 0),  # all equal: the smallest
        ((0.5, 0.1, 0.05, 0), 0),
        ((0.5, 0.05, 0.4, 9), 1),
    ):
        best = student.best_gamma(a, c, w, most)
        assert type(best) is int, f"best_gamma returned {type(best).__name__}, not an int"
        assert best == right, f"best_gamma({a}, {c}, {w}, {most}) is {best}, expected {right}"


# ---- exercise 4 ------------------------------------------------------------------------------


@exercise(
    "ex4",
    points=2,
    invariant="a draft that is always right: 7 tokens with gamma 2 take 3 passes; one that is "
    "never right takes 7",
    cause="no bonus token, a round without any token, more proposals than can be used, or too many "
    "tokens",
)
def test_passes_of_sure_models(student, rng):
    text, wrong = [1, 0, 1, 1, 0, 0, 1], [0, 1, 0, 0, 1, 1, 0]
    p = certain_rows(text, 2, 9)
    for guesses, gamma, passes in ((text, 2, 3), (wrong, 2, 7), (text, 6, 1), (text, 50, 1)):
        q = certain_rows(guesses, 2, 9)
        tokens, target, draft = written(student, p, q, [1, 0], 7, gamma, no_coin, surely)
        assert tokens == text, f"gamma {gamma}: wrote {tokens}, the target says {text}"
        seen = len(target.calls)
        assert seen == passes, f"gamma {gamma}: {seen} passes of the target, expected {passes}"
        if guesses == text:
            proposed = 7 - passes
            assert len(draft.calls) == proposed, (
                f"gamma {gamma}: the draft was called {len(draft.calls)} times, not {proposed}"
            )


@exercise(
    "ex4",
    points=2,
    invariant="over every path, what is written is distributed as the target's own text",
    cause="rows off by one, a rejected token left in a cache, or verify given other rows than the "
    "proposals were drawn from",
)
def test_the_loop_loses_nothing(student, rng):
    for vocab, prompt, new, gamma in ((2, [1, 0], 3, 2), (3, [2], 2, 1)):
        p, q = table(rng, vocab, 4), table(rng, vocab, 4)
        if vocab == 2:
            unlike(p, q)

        def run(coin, pick, p=p, q=q, prompt=prompt, new=new, gamma=gamma):
            return written(student, p, q, prompt, new, gamma, coin, pick)[0]

        seen = ways(run, vocab, calls_of_loop(new, gamma))
        emitted = [(weight, tuple(tokens)) for weight, tokens in seen]
        expect_distribution(emitted, p, vocab, new, EXACT, f"gamma {gamma}, {new} tokens")


def stands(read, text, guesses):
    """Whether this is a beginning of the text, and behind it only what is guessed in this round."""
    right = next((i for i, t in enumerate(read) if text[i] != t), len(read))
    return read[right:] == guesses[right : len(read)]


@exercise(
    "ex4",
    points=2,
    invariant="the prompt is read along with the first tokens; nothing that still stands is read "
    "again, and the last proposal not by the draft",
    cause="the whole text read in each call, a cache cut too far or not at all, or a draft that "
    "reads ahead",
)
def test_nothing_is_read_twice(student, rng):
    text, prompt = [1, 0, 1, 1, 0, 0, 1], [1, 0, 0]
    half = [1, 0, 0, 1, 0, 1, 1]  # wrong in the third place, then in the last but one
    early = [0, 0, 1, 1, 1, 0, 1]  # wrong in the first place: the draft reads on behind it
    for guesses, gamma in ((text, 2), (half, 2), (half, 3), (early, 3)):
        p, q = certain_rows(text, 2, 9), certain_rows(guesses, 2, 9)
        _, target, draft = written(student, p, q, prompt, 7, gamma, no_coin, surely)
        for model in (target, draft):
            name = f"gamma {gamma}: the {model.name}"
            assert model.calls[0][0] == 0, f"{name} began at {model.calls[0][0]}"
            for (start, _, again), cache in zip(model.calls, model.texts, strict=True):
                assert not again, f"{name} read the token at {start} twice"
                assert len(cache) <= 10, f"{name} read {len(cache)} tokens of a text of 10"
                assert stands(cache[3:], text, guesses), (
                    f"{name} read on at {start} behind what does not stand there: in its cache is "
                    f"{cache[3:]}, the text is {text}, the draft's guesses are {guesses}. What was "
                    "refused has to go (rollback), and the newest row is the one to pick from"
                )
        first = model.calls[0][1]
        assert first == 3, f"gamma {gamma}: the draft's first call read {first} tokens, not 3"
        first = target.calls[0][1]
        right = 3 + gamma
        assert first == right, f"gamma {gamma}: the target's first call read {first}, not {right}"


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=4,
    invariant="7 1 2 3 1 2 4 1 2: the last 1 2 before stood in front of 4 1 2",
    cause="the tail found itself, another place than the last, a short match before a long one, a "
    "part of a number found, or a text shorter than longest",
)
def test_lookup_by_hand(student, rng):
    text = [7, 1, 2, 3, 1, 2, 4, 1, 2]
    for words, gamma, longest, right in (
        (text, 3, 2, [4, 1, 2]),
        (text, 1, 2, [4]),
        (text, 9, 2, [4, 1, 2]),
        (text, 0, 2, []),
        (text, 3, 1, [4, 1, 2]),
        ([1, 2, 3, 5, 2, 9, 1, 2], 2, 2, [3, 5]),
        ([1, 2, 3, 5, 2, 9, 1, 2], 2, 1, [9, 1]),
        ([1, 2, 3, 5, 2, 9, 1, 2], 2, 5, [3, 5]),
        ([5, 1, 2, 3, 5, 4, 5], 3, 1, [4, 5]),  # the last place, though less stands behind it
        ([21, 7, 1], 2, 3, []),  # tokens are numbers and no letters
        ([6, 6], 3, 3, [6]),
        ([1, 1, 1], 3, 2, [1]),
        ([1, 2, 1, 9, 1, 2, 1, 2, 1], 2, 3, [2, 1]),  # the place may touch the last n tokens
        ([4, 5], 3, 3, []),
        ([4], 3, 3, []),
    ):
        seen = student.lookup(words, gamma, longest)
        assert isinstance(seen, list), f"lookup returned {type(seen).__name__}, not a list"
        assert seen == right, f"lookup({words}, {gamma}, {longest}) is {seen}, expected {right}"


@exercise(
    "ex5",
    points=2,
    invariant="with q of certain, a proposal x is kept with probability p(x)",
    cause="q = p or equal for all tokens, so that what comes out is not p; another dtype or shape; "
    "something kept from the last call",
)
def test_certain_proposals(student, rng):
    q = student.certain(torch.tensor([2, 0]), 4)
    expect_tensor(q, "certain(...)", torch.float32, (2, 4))
    expect_close(q.sum(-1), torch.ones(2), what="the sum of each row")
    empty = student.certain(torch.tensor([], dtype=torch.int64), 4)
    expect_tensor(empty, "certain without proposals", torch.float32, (0, 4))
    p = distributions(rng, 4)
    for token in range(4):
        row = student.certain(torch.tensor([token]), 4)[0].double()
        what = f"{token} proposed, after other calls: the sum of the row"
        expect_close(float(row.sum()), 1.0, what=what, atol=1e-6)
        kept = min(1.0, float(p[token] / row[token])) if row[token] > 0 else 1.0
        what = f"p = {p[token]:.3f}: the chance to keep the proposal {token}"
        expect_close(kept, float(p[token]), what=what, atol=1e-6)


# ---- exercise 6 ------------------------------------------------------------------------------

PARENTS = [-1, 0, 0, 2, 1, 3]


@exercise(
    "ex6",
    points=2,
    invariant="parents -1 0 0 2 1 3: depths 0 1 1 2 2 3, and node 5 sees 0, 2, 3 and itself",
    cause="siblings or all earlier nodes seen, the text before or the node itself not seen",
)
def test_mask_by_hand(student, rng):
    seen = student.depths(PARENTS)
    assert isinstance(seen, list) and seen == [0, 1, 1, 2, 2, 3], f"depths are {seen}"
    right = [[0], [0, 1], [0, 2], [0, 2, 3], [0, 1, 4], [0, 2, 3, 5]]
    for past in (0, 1, 3):
        mask = student.tree_mask(PARENTS, past)
        expect_tensor(mask, f"tree_mask(..., {past})", torch.bool, (6, past + 6))
        for node, row in enumerate(mask.tolist()):
            sees = [j - past for j, yes in enumerate(row) if yes and j >= past]
            assert all(row[:past]), f"node {node} does not see all of the text before"
            assert sees == right[node], f"node {node} sees {sees}, expected {right[node]}"
    seen = student.depths([-1, 0, 1, 0])
    assert seen == [0, 1, 2, 1], f"parents -1 0 1 0: depths are {seen}, expected [0, 1, 2, 1]"
    mask = student.tree_mask([-1], 2)
    assert expect_tensor(mask, "tree_mask([-1], 2)", torch.bool, (1, 3)).all(), "node 0 alone"


def walked(student, tokens, parents, p, coin, pick):
    """The tokens behind the text that one walk gives."""
    value = student.walk(tokens, parents, p, coin, pick)
    assert isinstance(value, tuple) and len(value) == 2, "walk must return (path, token)"
    path, token = value
    assert isinstance(path, list) and path[:1] == [0], f"the path is {path}; it begins at node 0"
    good = type(token) is int and all(type(node) is int for node in path)
    assert good, "path and token must be ints"
    for before, node in itertools.pairwise(path):
        assert parents[node] == before, f"the path {path} is none of the tree {parents}"
    return (*(tokens[node] for node in path[1:]), token)


def rows_of(p, tokens, parents):
    """p [N, V], row i behind node i."""
    texts = [()]
    for node in range(1, len(parents)):
        texts.append((*texts[parents[node]], tokens[node]))
    return torch.stack([p[text] for text in texts])


@exercise(
    "ex6",
    points=3,
    invariant="over every path, what a walk gives is distributed as the target's own",
    cause="a second child judged by p as it was, what is left not renormalised, or the refused "
    "children still in what is picked from",
)
def test_a_walk_loses_nothing(student, rng):
    for tokens, parents, vocab in (
        ([0, 1], [-1, 0], 3),
        ([0, 2, 0], [-1, 0, 0], 3),
        ([0, 1, 2, 0, 2, 1], [-1, 0, 0, 1, 1, 2], 3),
    ):
        p = table(rng, vocab, 3)
        rows = rows_of(p, tokens, parents)

        def run(coin, pick, tokens=tokens, parents=parents, rows=rows):
            return walked(student, tokens, parents, rows, coin, pick)

        what = f"tokens {tokens}, parents {parents}"
        seen = ways(run, vocab, 2 * len(tokens) - 1)
        expect_distribution(seen, p, vocab, 3, EXACT, what)


@exercise(
    "ex6",
    points=1,
    invariant="a child that the target surely says is kept, one that it never says is not; "
    "children are judged in the order of their numbers",
    cause="the children of a refused node are judged, the walk ends at the first refusal, or "
    "another order",
)
def test_sure_walks(student, rng):
    one = torch.eye(4)
    p = one[[2, 3, 1, 0, 3, 2]]  # behind node 0 comes 2, which is node 2; behind that 1, node 3
    tokens = [0, 1, 2, 1, 3, 0]
    value = student.walk(tokens, PARENTS, p, no_coin, surely)
    assert value == ([0, 2, 3, 5], 2), f"the walk gave {value}, expected ([0, 2, 3, 5], 2)"
    value = student.walk([0], [-1], p[:1], no_coin, surely)
    assert value == ([0], 2), f"node 0 alone: {value}, expected ([0], 2)"
    never, asked = recorded(lambda chance: False, 2)
    row = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 3)
    student.walk([2, 0, 3], [-1, 0, 0], row, never, surely)
    right = torch.tensor([0.1, 0.4 / 0.9])
    expect_close(torch.tensor(asked), right, what="coins of nodes 1 and 2, both refused", atol=1e-5)
