"""Hidden tests of lab09: exact sums over every path, counted calls, and rounds of the real pair.

Chance goes through coin and pick; `ways` tries all of their answers and weighs them.  Only the last
test of exercise 2 draws samples: what it allows is derived there.
"""

import itertools
import math
from fractions import Fraction

import torch

from efflib.lab import exercise, expect_close, expect_same, expect_tensor
from efflib.lab.again import held
from efflib.lab.cases import every_pair
from efflib.lab.chances import (
    Model,
    calls_of_loop,
    calls_of_round,
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
TYPES = (torch.float32, torch.float64)


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def drive_strided(student, name, tensors, *rest):
    """Runs beside the student's code, where alone a view stays one: every second element of wider
    rows."""
    import torch

    wide = [torch.cat([t, t.new_zeros(*t.shape[:-1], 1)], -1) for t in tensors]
    views = [torch.stack([t, t], -1)[..., :-1, 0] for t in wide]
    return getattr(student, name)(*views, *rest)


def drive_rewritten(student, name, before, after, others):
    """Runs beside the student's code: name(list, *others) of a list that held other numbers before,
    when it was asked about for the first time."""
    own = list(before)
    getattr(student, name)(own, *others)
    own[:] = after
    return getattr(student, name)(own, *others)


def drive_two(student, name, first, second):
    """Runs beside the student's code, where what was returned could change: two calls' results, and
    what the first gives once more when its caller has written into both."""
    import copy

    import torch

    function = getattr(student, name)
    held = [function(*copy.deepcopy(args)) for args in (first, second)]
    found = [x.clone() if isinstance(x, torch.Tensor) else list(x) for x in held]
    for value in held:
        if isinstance(value, list):
            value.append(9)
        elif 0 not in value.stride():
            value.zero_()
    return [*found, function(*first)]


def sure_round(own, proposed, vocab, dtype=torch.float32):
    """(proposed, q, p) of a round in which p says `own` and q `proposed`, both surely."""
    own, proposed = torch.tensor(own), torch.tensor(proposed, dtype=torch.int64)
    p, q = (torch.nn.functional.one_hot(t, vocab).to(dtype) for t in (own, proposed))
    return proposed, q, p


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=3,
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
    points=2,
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


@exercise(
    "ex1",
    points=2,
    invariant="vocabularies and rounds of any size, in every float dtype; logits that differ by "
    "little, near 0 and far from it; views",
    cause="ids in the dtype of the logits, a limit on g or on ids, logits changed before they are "
    "compared (softmax), or a layout that is taken for granted",
)
def test_sizes_and_magnitudes(student, rng):
    for vocab, own, dtype in (
        (2048, [1501, 2047, 1501], torch.bfloat16),
        (2049, [2047, 2045, 0], torch.float16),
        (130_000, [129_999, 40_001], torch.bfloat16),
        (300, [255, 256] + [(7 * i) % 300 for i in range(399)], torch.float32),
        (3, [i % 3 for i in range(258)], torch.bfloat16),  # which has no 257
        (1, [0, 0, 0], torch.float64),
    ):
        own = torch.tensor(own)
        logits = torch.zeros(len(own), vocab, dtype=dtype)
        logits[torch.arange(len(own)), own] = 1.0
        tokens = student.verify_greedy(own[:-1].clone(), logits)
        expect_same(tokens, own, "verify_greedy(...), everything right")
        if vocab > 1:
            last = int(own[-2])  # the ids beside it, and what 16 bits take for it
            for near in {(last + 1) % vocab, (last - 1) % vocab, (last - 65_536) % vocab} - {last}:
                wrong = torch.cat([own[:-2], torch.tensor([near])])
                tokens = student.verify_greedy(wrong, logits)
                expect_same(tokens, own[:-1], "verify_greedy(...), the last one wrong")
    for low, high, dtype in (
        (0.0, 1e-9, torch.float32),
        (-1e-8, 0.0, torch.float32),
        (2e4, 20000.002, torch.float32),
        (-1e-30, 1e-30, torch.float32),
        (-6e4, 6e4, torch.float16),
        (-math.inf, -6e4, torch.float16),
        (-math.inf, -1e30, torch.float32),
        (-math.inf, torch.finfo(torch.float32).min, torch.float32),
        (-math.inf, torch.finfo(torch.bfloat16).min, torch.bfloat16),
        (1e30, 2e30, torch.bfloat16),
        (1e-30, 2e-30, torch.bfloat16),
        (1e300, 2e300, torch.float64),
    ):
        logits = torch.tensor([[low, high, low], [low, low, high]], dtype=dtype)
        tokens = student.verify_greedy(torch.tensor([1]), logits)
        expect_same(tokens, torch.tensor([1, 2]), "verify_greedy(...), close or large logits")
    for dtype in (torch.float32, torch.bfloat16):
        flat = torch.full((2, 130_000), -math.inf, dtype=dtype)
        flat[0, [40_001, 129_999]] = 1.0
        flat[1, [300, 301, 2500]] = -3.0
        tokens = student.verify_greedy(torch.tensor([40_001]), flat)
        expect_same(tokens, torch.tensor([40_001, 300]), "verify_greedy(...), equal logits")
    tokens = student.verify_greedy(torch.tensor([0, 1]), torch.full((3, 4), -math.inf))
    expect_same(tokens, torch.tensor([0, 0]), "verify_greedy(...), every logit -inf")
    own = torch.randint(0, 9, (5,), generator=rng)
    logits = torch.rand(5, 9, generator=rng).scatter(1, own[:, None], 2.0)
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        views = [own[:-1].clone(), logits.to(dtype)]
        tokens = student.drive(drive_strided, "verify_greedy", views)
        expect_same(tokens, own, f"verify_greedy(...), of views in {dtype}")
    logits, other = torch.eye(9)[own], torch.eye(9)[(own + 1) % 9]
    calls = [(own[:-1].clone(), logits), ((own[:-1] + 1) % 9, other)]
    for tokens, right in zip(
        student.drive(drive_two, "verify_greedy", *calls), (own, (own + 1) % 9, own), strict=True
    ):
        expect_same(tokens, right, "verify_greedy(...), held while it was called again")


def any_logits(rng, g, vocab, dtype, kind):
    """(proposed [g], logits [g + 1, vocab], right): few levels, so that many logits are equal."""
    size = {"tiny": 2.0**-23, "huge": 2.0**14, "one": 1.0}.get(kind, 0.25)
    levels = torch.randint(-3, 4, (g + 1, vocab), generator=rng).double()
    levels[-1] = -1  # a row without a choice: the first
    if kind == "zeros":
        levels *= 0
    if kind == "-inf":
        levels[torch.rand(levels.shape, generator=rng) < 0.5] = -math.inf
        levels[:, -1] = 0.0
    own = [row.index(max(row)) for row in levels.tolist()]
    n = draw(rng, 0, g)
    proposed = torch.tensor(own[:g], dtype=torch.int64)
    if vocab == 1:
        n = g
    elif n < g:
        proposed[n] = vocab - 1 if own[n] != vocab - 1 else 0
    return proposed, (size * levels).to(dtype), torch.tensor(own[: n + 1])


@exercise(
    "ex1",
    points=2,
    invariant="rounds anywhere in what the card admits: any number of proposals and of tokens, "
    "each dtype, large, tiny, equal and infinite logits, in every layout",
    cause="a mistake where two of these meet, such as no proposal in bfloat16 or equal logits in a "
    "view; or memory that is used again",
)
def test_rounds_anywhere(student, rng):
    types = (*TYPES, torch.bfloat16, torch.float16)
    sizes, kinds = (1, 2, 7, 300), ("tiny", "huge", "one", "zeros", "-inf")
    cases = [
        any_logits(rng, *case) for case in every_pair(rng, (0, 1, 2, 40, 310), sizes, types, kinds)
    ]
    for dtype in types:
        kind = kinds[draw(rng, 0, 2)]
        cases.append(any_logits(rng, draw(rng, 0, 2), 130_000, dtype, kind))
    calls = [("verify_greedy", proposed, logits) for proposed, logits, _ in cases]
    for (*_, right), results in zip(cases, held(student, rng, calls), strict=True):
        for tokens in results:
            expect_same(tokens, right, "verify_greedy(...), among other rounds")


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
        above = torch.nextafter(p, torch.full_like(p, 2))  # by rounding: nothing is missing
        expect_close(student.residual(p, above), p, what="nothing missing", atol=bound)
        one = torch.ones(1, dtype=dtype)
        expect_same(student.residual(one, one), one, "residual of one token")
        p, q = (distributions(rng, 2048).to(dtype) for _ in range(2))
        r = student.drive(drive_strided, "residual", [p, q])
        rest = (p.double() - q.double()).clamp(min=0)
        expect_close(r, rest / rest.sum(), what="residual of views", atol=bound)
        if dtype == torch.float64:  # in float32 it would be off by 1e-8
            p, q = (distributions(rng, 130_000) for _ in range(2))
            rest = (p - q).clamp(min=0)
            r = student.residual(p, q)
            expect_close(r, rest / rest.sum(), what="the residual of 130,000 tokens", rtol=1e-10)
            little = 2.0**-41 * torch.tensor([1.0, -1.0] * 8192, dtype=dtype)  # 2^-28 in all
            r = student.residual(2.0**-14 + little, torch.full_like(little, 2.0**-14))
            right = (little > 0) / torch.tensor(8192.0, dtype=dtype)
            expect_close(r, right, what="the residual where each lacks little", rtol=1e-9)
        half = torch.tensor([0.5, 0.5, 0.0], dtype=dtype)
        # powers of two: exact in both dtypes, however the missing part is computed
        right = torch.tensor([0.0, 0.0, 1.0], dtype=dtype)
        for less in (11, 12, 19, 21, 24, *((30, 36, 39) if dtype == torch.float64 else ())):
            near = half + torch.tensor([0.0, -(2.0**-less), 2.0**-less], dtype=dtype)
            r = student.residual(near, half)
            expect_close(r, right, what="rows that nearly agree", atol=bound)
        for less in (30, 36, 39) if dtype == torch.float32 else ():  # the sum is 1 in float32
            near = half + torch.tensor([0.0, 0.0, 2.0**-less], dtype=dtype)
            r = student.residual(near, half)
            expect_close(r, right, what="float32 rows that nearly agree", atol=bound)
        # one token lacks much, one 2^-34 of that: both are exact
        row = torch.tensor([0.5, 2.0**-36, 0.5], dtype=dtype)
        r = student.residual(row, torch.tensor([0.25, 0.0, 0.75], dtype=dtype))
        expect_close(
            float(r[1]), 2.0**-34, what="the residual of a token that lacks little", rtol=1e-4
        )
        calls = [(half, right), (half, half.flip(0))]  # nothing in common; the first token alone
        held = student.drive(drive_two, "residual", *calls)
        for r, row in zip(held, (half, torch.eye(3, dtype=dtype)[0], half), strict=True):
            expect_close(r, row, what="residual, held while it was called again", atol=bound)
        expect_residual_of_next_to_nothing(student, dtype)


def subnormal(dtype):
    """A number of which one half is a number, too, and 1 / x is infinite."""
    return 2.0**-140 if dtype == torch.float32 else 2.0**-1060


def expect_residual_of_next_to_nothing(student, dtype):
    """So little is missing that it may count as nothing: p, or what is exact, but no NaN."""
    p = torch.tensor([1.0, subnormal(dtype), 0.0], dtype=dtype)
    r = student.residual(p, torch.eye(3, dtype=dtype)[0])
    expect_tensor(r, "residual", dtype, (3,))
    good = (r >= 0) & (r <= 1 + 8 * torch.finfo(dtype).eps)
    assert bool(good.all()), "the residual where next to nothing is missing has no chances"


def eighths(rng, rows, vocab):
    """[rows, vocab] float64 distributions that float32 holds: eighths of one at up to 8 tokens."""
    places = torch.randint(vocab, (rows, 8), generator=rng)
    eight = torch.full((rows, 8), 0.125, dtype=torch.float64)
    return torch.zeros(rows, vocab, dtype=torch.float64).scatter_add(1, places, eight)


def any_round(rng, g, vocab, dtype, where):
    """(proposed, q, p, chance of the one that is refused or 2, right tokens, row to pick from).

    Proposal i is kept with its own chance, (i + 1) / 256, but of one token alone there is no doubt.
    """
    q, p = eighths(rng, g, vocab), eighths(rng, g + 1, vocab)
    proposed = torch.tensor([int(row.argmax()) for row in q], dtype=torch.int64)
    n = {"first": 0, "middle": g // 2, "none": g}[where] if vocab > 1 else g
    for i, token in enumerate(proposed.tolist() if vocab > 1 else ()):
        p[i] = 0.0
        p[i, token] = q[i, token] * (i + 1) / 256
        other = (token + draw(rng, 1, vocab - 1)) % vocab
        p[i, other] += 1 - p[i, token]
    row = p[-1]
    if n < g:
        row = (p[n] - q[n]).clamp(min=0)
        row = row / row.sum()
    right = torch.cat([proposed[:n], torch.zeros(1, dtype=torch.int64)])
    return (proposed, q.to(dtype), p.to(dtype), (n + 1) / 256 if n < g else 2.0), right, row


def drive_any_rounds(student, rounds, ways):
    """Runs beside the student's code: of each round (proposed, q, p, the chance that is refused),
    laid in memory as `ways` says, the tokens, read at the end, the coins' chances, the rows that
    were picked from, and whether the arguments are as they were."""
    import torch

    def lay(x, way):
        if way == 1:
            return x.repeat_interleave(2, -1)[..., ::2]
        return x.mT.contiguous().mT if way == 2 and x.dim() == 2 else x.clone()

    found = []
    for (*given, no), own in zip(rounds, ways, strict=True):
        asked, rows = [], []

        def coin(chance, asked=asked, no=no):
            asked.append(float(chance))
            return abs(asked[-1] - no) > 1e-4

        def pick(row, rows=rows):
            rows.append(row.clone())
            return 0

        views = [lay(x, way) for x, way in zip(given, own, strict=True)]
        tokens = student.verify(*views, coin, pick)
        found.append((tokens, asked, rows, all(map(torch.equal, given, views))))
    return [(tokens.clone(), asked, rows, same) for tokens, asked, rows, same in found]


@exercise(
    "ex2",
    points=1,
    invariant="residuals and rounds anywhere in what the card admits: any number of proposals and "
    "of tokens, both dtypes, whichever proposal is refused, in every layout",
    cause="a mistake where two of these meet, such as one token and no proposal; a residual of "
    "another row; or memory that is used again",
)
def test_sampling_anywhere(student, rng):
    calls, rights = [], []
    for dtype, vocab, alike in every_pair(rng, TYPES, (1, 2, 9, 2048), (0, 0.5, 1)):
        p, q = (eighths(rng, 1, vocab)[0] for _ in range(2))
        q = p.clone() if alike == 1 else (p + q) / 2 if alike else q
        rest = (p - q).clamp(min=0)
        calls.append(("residual", p.to(dtype), q.to(dtype)))
        rights.append(rest / rest.sum() if rest.sum() > 0 else p)
    for (_, p, _), right, results in zip(calls, rights, held(student, rng, calls), strict=True):
        for r in results:
            expect_tensor(r, "residual", p.dtype, p.shape)
            expect_close(r, right, what="residual, among others", rtol=8 * torch.finfo(r.dtype).eps)
    rounds, expected, ways = [], [], []
    dimensions = (0, 1, 2, 7, 210), (1, 2, 9, 2048), TYPES, ("first", "middle", "none")
    cases = every_pair(rng, *dimensions, list(itertools.product(range(3), repeat=3)))
    for dtype in TYPES:
        cases.append([draw(rng, 0, 2), 130_000, dtype, "first", (1, 0, 2)])
    for *case, lie in cases:
        given, *right = any_round(rng, *case)
        rounds.append(given)
        expected.append(right)
        ways.append(lie)
    found = student.drive(drive_any_rounds, rounds, ways)
    for (proposed, _, p, _), (right, row), seen in zip(rounds, expected, found, strict=True):
        tokens, asked, rows, same = seen
        expect_same(tokens, right, f"verify(...), {len(proposed)} proposals, {p.shape[1]} tokens")
        assert same, "verify changed an argument"
        expect_tensor(rows[0], "what is picked from", p.dtype, row.shape)
        eps = torch.finfo(p.dtype).eps
        expect_close(rows[0], row, what="what is picked from", rtol=8 * eps)
        if p.shape[1] > 1:
            chances = [(i + 1) / 256 for i in range(min(len(right), len(proposed)))]
            seen = torch.tensor(asked[: len(chances)])
            expect_close(seen, torch.tensor(chances), what="the coins, in order", rtol=1e-5)


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
            picks = []

            def once(row):
                picks.append(pick(row))
                return picks[-1]

            tokens = student.verify(torch.tensor(proposed), rows_q, rows_p, coin, once)
            assert len(picks) == 1, "a round ends with one pick"
            expect_tensor(tokens, "verify", torch.int64)
            assert tokens.ndim == 1 and len(tokens) <= g + 1, "more than g + 1 tokens"
            return tuple(tokens.tolist())

        seen = ways(run, vocab, calls_of_round(g))
        right = 1.0  # that a round keeps the first i proposals: no exact rule keeps more
        for i, token in enumerate(proposed, start=1):
            right *= min(1.0, float(rows_p[i - 1, token] / rows_q[i - 1, token]))
            kept = sum(weight for weight, tokens in seen if tokens[:i] == proposed[:i])
            expect_close(kept, right, what="the chance that a proposal is kept", atol=EXACT)
        found += [(reach * weight, tokens) for weight, tokens in seen]
    return found


@exercise(
    "ex2",
    points=2,
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


@exercise(
    "ex2",
    points=1,
    invariant="chances near 0 and near 1, rounds of many proposals, large vocabularies, views",
    cause="a proposal refused or kept without its coin, a limit on g or on ids, or a layout that "
    "is taken for granted",
)
def test_small_chances_and_long_rounds(student, rng):
    for row_p, row_q in (
        ([0.497, 0.5025, 0.0005], [0.5, 0.0, 0.5]),
        ([1e-7, 0.0, 1 - 1e-7], [1.0, 0.0, 0.0]),
        ([1 - 1e-6, 1e-6, 0.0], [1.0, 0.0, 0.0]),
        ([0.5, 0.5, 0.0], [1e-7, 1 - 1e-7, 0.0]),
        ([2.5e-21, 0.5, 0.5], [1e-20, 1.0, 0.0]),
    ):
        first, behind = torch.tensor([row_p, [0.25, 0.25, 0.5]], dtype=torch.float64)
        p = {(): first, **{(t,): behind for t in range(3)}}
        q = {(): torch.tensor(row_q, dtype=torch.float64)}
        emitted = emitted_by(student, p, q, 3, 1)
        expect_distribution(emitted, p, 3, 2, EXACT, "small and large chances")
    less = 2.0**-38  # exact; what is below 1e-12 `ways` leaves out, as torch's normalize does
    behind = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    for row_p, row_q, proposed, first in (
        ([less, 1 - less, 0.0], [1.0, 0.0, 0.0], 0, 0),  # hardly ever kept
        ([0.5, 0.5 - less / 2, less / 2], [0.5, 0.5, 0.0], 1, 2),  # hardly ever refused
    ):
        p = torch.stack([torch.tensor(row_p, dtype=torch.float64), behind])
        q = torch.tensor([row_q], dtype=torch.float64)

        def run(coin, pick, p=p, q=q, proposed=proposed):
            return student.verify(torch.tensor([proposed]), q, p, coin, pick).tolist()

        seen = ways(run, 3, calls_of_round(1))
        share = sum(weight for weight, tokens in seen if tokens[:1] == [first])
        # a chance near 1 is rounded by 1e-16, which is 3e-5 of the rest
        expect_close(share, less, what="the chance of an unlikely token", rtol=1e-3)
    sizes = [
        (2048, 6, 6),
        (2048, 6, 5),
        (300, 400, 400),
        (300, 400, 399),
        (300, 70, 69),
        (130_000, 2, 1),
    ]
    for vocab, g, n in sizes:
        dtype = torch.float64 if g in (6, 70) else torch.float32
        own = torch.randint(0, vocab, (g + 1,), generator=rng)
        own[0] = vocab - 1
        proposed = own[:-1].clone()
        if n < g:
            proposed[n] = (proposed[n] + 1) % vocab
        p, q = (torch.nn.functional.one_hot(t, vocab).to(dtype) for t in (own, proposed))
        coin, _ = recorded(no_coin, g)
        tokens = student.drive(drive_strided, "verify", [proposed, q, p], coin, surely)
        expect_same(tokens, own[: n + 1], "verify(...) of sure models")
    for g in (0, 1, 2):
        tokens = student.verify(*sure_round([0] * (g + 1), [0] * g, 1), no_coin, surely)
        expect_same(tokens, torch.zeros(g + 1).long(), "verify(...), one token in all")


def drive_two_rounds(student, first, second, coin, pick):
    """Runs beside the student's code, where what was returned could change: two rounds."""
    held = student.verify(*first, coin, pick)
    return [held, student.verify(*second, coin, pick)]


@exercise(
    "ex2",
    points=1,
    invariant="each proposal has its own coin, in their order, with p / q however small or large",
    cause="coins in another order or of another chance, a small chance refused or a large one kept "
    "without asking, or a result that the next call changes",
)
def test_the_coins_of_a_round(student, rng):
    for dtype in (torch.float64, torch.float32):
        chances = [0.5, 0.25, 0.75, 0.125, 0.0625]  # powers of two and q of 1: exact
        q = torch.tensor([[1.0, 0.0, 0.0]] * 5, dtype=dtype)
        p = torch.tensor([[c, 1 - c, 0.0] for c in [*chances, 0.5]], dtype=dtype)
        proposed = torch.zeros(5, dtype=torch.int64)
        for refused, n in ((0.75, 2), (0.5, 0), (2.0, 5)):
            coin, asked = recorded(lambda chance, no=refused: abs(chance - no) > 0.01, 5)
            tokens = student.verify(proposed, q, p, coin, lambda row: 2)
            expect_same(tokens, torch.tensor([0] * n + [2]), "verify(...), one refused")
            # coins behind the refused one may be asked, and count for nothing
            assert len(asked) > min(n, 4), "a proposal without its coin"
            right = torch.tensor(chances[: len(asked)])
            expect_close(torch.tensor(asked), right, what="the coins", rtol=1e-5)
        rare, little = (2.0**-200, 2.0**-53) if dtype == torch.float64 else (2.0**-90, 2.0**-24)
        for row_p, row_q, token, answer, n in (
            ([rare, 1.0, 0.0], [1.0, 0.0, 0.0], 0, True, 2),
            ([rare / 2, 1.0, 0.0], [rare, 1.0, 0.0], 0, True, 2),
            ([1 - little, little, 0.0], [1.0, 0.0, 0.0], 0, False, 1),
        ):
            p = torch.tensor([row_p, [0.25, 0.25, 0.5]], dtype=dtype)
            q, proposed = torch.tensor([row_q], dtype=dtype), torch.tensor([token])
            coin, asked = recorded(lambda chance, answer=answer: answer, 1)
            tokens = student.verify(proposed, q, p, coin, surely)
            assert len(tokens) == n and asked, "not what the coin said, or not asked"
            chance = float(p[0, token] / q[0, token])
            # logarithms may stand between: of 2^-200 they are 139, rounded
            expect_close(asked[0], chance, what="the coin", rtol=400 * torch.finfo(dtype).eps)
        expect_rounds_of_next_to_nothing(student, dtype)
        # a token that is proposed again, hardly less likely, has a coin of its own
        p = torch.tensor([[1 - 2.0**-12, 2.0**-12, 0.0]] * 401, dtype=dtype)
        q, zeros = torch.tensor([[1.0, 0.0, 0.0]] * 400, dtype=dtype), torch.zeros(400).long()
        for n in (1, 3, 251, 399):
            asked, rows = [], []

            def coin(chance, asked=asked, n=n):
                asked.append(chance)
                return len(asked) != n + 1

            def pick(row, rows=rows):
                rows.append(row)
                return 2

            tokens = student.verify(zeros, q, p, coin, pick)
            expect_same(tokens, torch.tensor([0] * n + [2]), f"verify(...), coin {n + 1} says no")
            expect_close(rows[0], torch.tensor([0.0, 1.0, 0.0]), what="what is picked from")
        rows.clear()
        student.verify(zeros[:1], q[:1], p[:2], lambda chance: True, pick)
        expect_same(rows[0], p[1], "what is picked from where all are kept: the last row of p")
    rounds = [sure_round([2, 1, 0], [2, 1], 3), sure_round([0, 2, 1], [0, 2], 3)]
    held = student.drive(drive_two_rounds, *rounds, no_coin, surely)
    for tokens, own in zip(held, ([2, 1, 0], [0, 2, 1]), strict=True):
        expect_same(tokens, torch.tensor(own), "verify(...), held while it was called again")


def expect_rounds_of_next_to_nothing(student, dtype):
    """A chance of 0 where q is subnormal; a refusal where what is missing is, perhaps of p then."""
    tiny, rows = subnormal(dtype), []

    def pick(row):
        rows.append(row)
        return 1

    less = torch.finfo(dtype).eps / 2
    for row_p, row_q, answer in (
        ([0.0, 1.0, 0.0], [tiny, 1.0, 0.0], no_coin),
        ([1 - less, tiny, 0.0], [1.0, 0.0, 0.0], lambda chance: False),
    ):
        p = torch.tensor([row_p, [0.25, 0.25, 0.5]], dtype=dtype)
        q = torch.tensor([row_q], dtype=dtype)
        coin, _ = recorded(answer, 1)
        tokens = student.verify(torch.tensor([0]), q, p, coin, pick)
        expect_same(tokens, torch.tensor([1]), "verify(...), refused where chances are tiny")
        assert bool(rows[-1].isfinite().all()), "what is picked from holds NaN or infinity"


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
    points=2,
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
    points=2,
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
    for vocab in (2048, 130_000):
        p, q = (distributions(rng, vocab).float() for _ in range(2))
        right = math.fsum(min(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
        rate = student.drive(drive_strided, "acceptance_rate", [p, q])
        # so many positive float32 numbers, added in whatever order
        expect_close(rate, right, what="the rate of float32 rows", atol=vocab * 2.0**-24)
    p, q = distributions(rng, 2048), distributions(rng, 2048)
    right = math.fsum(min(a, b) for a, b in zip(p.tolist(), q.tolist(), strict=True))
    expect_close(student.acceptance_rate(p, q), right, what="the rate in float64", atol=1e-12)
    near = torch.tensor([0.5 + 2.0**-20, 0.5 - 2.0**-20], dtype=torch.float64)
    rate = student.acceptance_rate(near, torch.full_like(near, 0.5))
    expect_close(rate, 1 - 2.0**-20, what="the rate of rows that nearly agree", atol=1e-9)
    p = torch.tensor([1 - 2.0**-40, 2.0**-40], dtype=torch.float64)
    q = torch.tensor([0.0, 1.0], dtype=torch.float64)
    rate = student.acceptance_rate(p, q)  # as 1 minus a half of |p - q| it is rounded by 2^-52
    expect_close(rate, 2.0**-40, what="a very small rate", atol=4 * 2.0**-52)
    p = torch.tensor([1 - 1e-8, 1e-8], dtype=torch.float64)
    q = torch.tensor([0.0, 1.0], dtype=torch.float64)
    for a, b in ((p, q), (q, p)):
        expect_close(student.acceptance_rate(a, b), 1e-8, what="a small rate", rtol=1e-6)


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
    for less in (1e-7, 1e-8, 1e-9):  # the closed formula is off by 2^-53 / (401 less)
        right = -math.expm1(401 * math.log1p(-less)) / less
        seen = student.expected_tokens(1 - less, 400)
        expect_close(float(seen), right, what="expected tokens near a = 1", rtol=1e-8)
    for a, gamma, right in (
        *(
            (1.0, 400, 401),
            (0.999, 400, (1 - 0.999**401) / 0.001),
            (0.5, 200, 2),
            (0.0, 99, 1),
        ),  # (no more: some will call themselves)
        *((1e-8, 3, 1 + 1e-8), (1e-10, 3, 1 + 1e-10)),
    ):
        seen = float(student.expected_tokens(a, gamma))
        expect_close(seen, float(right), what="expected tokens", rtol=1e-12)


@exercise(
    "ex3",
    points=2,
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
    for (a, c, w, most), right in (
        ((0.0, 0.0, 0.0, 9), 0),  # all equal: the smallest
        ((1.0, 0.1, 0.0, 40), 40),  # everything accepted: the longest
        ((1.0, 0.25, 0.0, 300), 300),
        ((1.0, 0.25, 0.0, 400), 400),
        ((0.5, 0.001, 0.0, 30), 8),  # ahead of 9 by 3e-5
        ((0.5, 0.5, 0.0, 9), 0),  # 1 and 1.5 / 1.5, both without rounding
        ((0.5, 0.25, 0.25, 9), 0),
        ((0.5, 0.0, 0.0, 30), 30),  # ahead of 29 by 1e-9
        ((0.5, 0.0, 0.0, 45), 45),  # ahead of 44 by 3e-14; sums of powers of two are exact
        ((0.5, 1e-8, 1e-8, 60), 24),  # 2^-25 (1 - 48e-8) against 2e-8 (2 - 2^-24)
        ((1.0, 1e4, 0.0, 5), 0),
        ((1.0, 1.0, 1.0, 0), 0),
    ):
        assert student.best_gamma(a, c, w, most) == right, "another gamma is best"
    for gamma in (0, 1, 300):
        seen = (student.speedup(a, gamma, 0.25, 0.25) for a in (0.0, 1.0))
        for speed, tokens in zip(seen, (1, gamma + 1), strict=True):
            expect_close(float(speed), tokens / (1 + gamma / 2), what="speed-up", rtol=1e-12)
    for c, w in ((1e-8, 0.0), (0.0, 1e-8), (1e4, 0.0), (0.0, 1e4), (3.0, 2.0), (1e9, 0.0)):
        seen = student.speedup(0.5, 3, c, w)
        expect_close(float(seen), 1.875 / (1 + 3 * (c + w)), what="speed-up", rtol=1e-12)


def exact_speeds(a, c, w, most):
    """(tokens of a round, speed-up) of 0 to most proposals, as fractions."""
    a, c, w = map(Fraction, (a, c, w))
    tokens, rows = Fraction(0), []
    for g in range(most + 1):
        tokens += Fraction(1) if g == 0 else Fraction(float(a) ** g)
        rows.append((tokens, tokens / (1 + g * (c + w))))
    return rows


@exercise(
    "ex3",
    points=2,
    invariant="all four anywhere in what the card admits: 0, 1 and what lies between, free and "
    "dear drafts, no proposal and hundreds; rows of both dtypes and any length, in every layout",
    cause="a mistake where two of these meet, such as a = 0 with a free draft",
)
def test_numbers_anywhere(student, rng):
    some = (0.0, 1e-8, draw(rng, 1, 1023) / 1024, 1.0)
    costs = (0.0, draw(rng, 1, 255) / 256, 3.0, 1e4)
    for a, gamma, c, w in every_pair(rng, some, (0, 1, 4, 300), costs, costs):
        tokens, speed = exact_speeds(a, c, w, gamma)[-1]
        what = f"a = {a:g}, gamma = {gamma}, c = {c:g}, w = {w:g}"
        seen = float(student.expected_tokens(a, gamma))
        expect_close(seen, float(tokens), what=f"expected tokens, {what}", rtol=1e-9)
        seen = float(student.speedup(a, gamma, c, w))
        expect_close(seen, float(speed), what=f"speed-up, {what}", rtol=1e-9)
    cases = every_pair(rng, some, (0, 1, 30, 400), costs, costs)
    cases += [(a, 30, c, w) for a, c, w in itertools.product(some, costs, costs)]
    for _ in range(12):  # the best lies within
        a, c, w = 1 - draw(rng, 1, 100) / 1024, draw(rng, 1, 60) / 2048, draw(rng, 0, 30) / 2048
        cases.append((a, draw(rng, 100, 400), c, w))
    for a, most, c, w in cases:
        speeds = [float(speed) for _, speed in exact_speeds(a, c, w, most)]
        what = f"best_gamma({a:g}, {c:g}, {w:g}, {most})"
        best = student.best_gamma(a, c, w, most)
        assert type(best) is int and 0 <= best <= most, f"{what} is no int from 0 to {most}"
        assert speeds[best] >= max(speeds) * (1 - 1e-12), f"{what}: another is faster"
    calls = []
    for dtype, vocab, alike in every_pair(rng, TYPES, (1, 2, 300, 130_000), (True, False)):
        p = eighths(rng, 1, vocab)[0].to(dtype)
        q = p.clone() if alike else eighths(rng, 1, vocab)[0].to(dtype)
        calls.append(("acceptance_rate", p, q))
    for (_, p, q), results in zip(calls, held(student, rng, calls), strict=True):
        for rate in results:
            assert type(rate) is float, "acceptance_rate: not a float"
            right = float(torch.minimum(p, q).double().sum())  # eighths: exact in every order
            expect_close(rate, right, what=f"the rate of {len(p)} tokens", atol=1e-6)


# ---- exercise 4 ------------------------------------------------------------------------------


def mean_passes(p, q, new, gamma, text=()):
    """Mean passes of the target for `new` tokens behind this text, by the rule of exercise 2."""
    if new == 0:
        return 0.0
    g = min(gamma, new - 1)

    def rest(text, kept):
        """Of the rounds behind this one, which has kept so many proposals: they end this text."""
        last = kept == g
        ends = p[text] if last else (p[text] - q[text]).clamp(min=0)
        total = 0.0
        for token, chance in enumerate(ends.tolist()):
            total += chance * mean_passes(p, q, new - kept - 1, gamma, (*text, token))
        for token, chance in enumerate([] if last else torch.minimum(p[text], q[text]).tolist()):
            total += chance * rest((*text, token), kept + 1)
        return total

    return 1.0 + rest(text, 0)


@exercise(
    "ex4",
    points=4,
    invariant="over every path, what is written is the target's own text, whatever the draft, in "
    "as many passes as rounds of gamma proposals take in the mean",
    cause="rows off by one, a cache that is not rolled back, verify given rows of another round or "
    "another q than the proposals were drawn from, or a round that proposes fewer than it could",
)
def test_all_that_may_be_written(student, rng):
    for vocab, length, new, gamma in ((2, 1, 3, 2), (2, 3, 4, 1), (3, 2, 3, 3), (2, 2, 2, 2)):
        prompt = [draw(rng, 0, vocab - 1) for _ in range(length)]
        p, other = table(rng, vocab, new), table(rng, vocab, new)
        if vocab == 2:
            unlike(p, other)
        else:  # a draft that is unsure
            other[()] = torch.tensor([4, 3, 3], dtype=torch.float64) / 10
        near = {text: 0.8 * row + 0.2 / vocab for text, row in p.items()}
        for q in (other, near):

            def run(coin, pick, p=p, q=q, prompt=prompt, new=new, gamma=gamma):
                tokens, target, _ = written(student, p, q, prompt, new, gamma, coin, pick)
                return tuple(tokens), len(target.calls)

            seen = ways(run, vocab, calls_of_loop(new, gamma))
            passes = sum(weight * count for weight, (_, count) in seen)
            right = mean_passes(p, q, new, gamma)
            expect_close(passes, right, what="the mean number of passes", atol=EXACT)
            emitted = [(weight, tokens) for weight, (tokens, _) in seen]
            expect_distribution(emitted, p, vocab, new, EXACT, "the loop")


def expect_calls(student, text, guesses, prompt, gamma, vocab=3, kinds=("sure", "sure")):
    """One run of two models whose rarest tokens are drawn: the text, and every call, by the card's
    rules. kinds: of the target's rows and of the draft's, see row_of."""
    p, q = certain_path(text, guesses, vocab, kinds)
    new = len(text)
    tokens, *models = written(student, p, q, prompt, new, gamma, no_coin, rarest)
    assert tokens == text, "another text"

    def kept(done, g):
        return next((i for i in range(g) if guesses[done + i] != text[done + i]), g)

    expect_calls_of(models, len(prompt), new, gamma, kept)


def expect_calls_of(models, first, new, gamma, kept):
    """The calls of target and draft by the card's rules; kept(done, g): how many of g proposals
    behind `done` tokens are."""
    target, draft = ([call[:2] for call in model.calls] for model in models)
    asked, guessed = [], []  # (start, number of tokens) of both models' calls
    done, begin, has = 0, 0, 0  # begin, has: what both have read and is right
    while done < new:
        here, g = first + done, min(gamma, new - done - 1)
        for i in range(g):
            guessed.append((has, here + i - has))
            has = here + i
        asked.append((begin, here + g - begin))
        done += kept(done, g) + 1
        begin = first + done - 1
        has = min(has, begin)
    assert target == asked, "the target's calls"
    assert len(draft) == len(guessed), "the number of the draft's calls"
    assert draft == guessed, "what the draft's calls read"


@exercise(
    "ex4",
    points=3,
    invariant="every call begins where the cache ends to be right, reads what is lacking, and no "
    "call is made that is of no use",
    cause="tokens read twice, a draft that reads its last proposal, proposals that cannot be used, "
    "or a pass too many at the end",
)
def test_calls_are_counted(student, rng):
    sizes = [(1, 1, 1), (1, 5, 1), (2, 1, 3), (9, 1, 1), (9, 2, 2), (9, 9, 1), (5, 3, 4)]
    for new, gamma, length in sizes:
        text = [draw(rng, 0, 2) for _ in range(new)]
        prompt = [draw(rng, 0, 2) for _ in range(length)]
        for wrong in (set(), {0}, {1, 2}, {gamma}, {gamma - 1}, {draw(rng, 0, new)}):
            guesses = [(t + 1) % 3 if i in wrong else t for i, t in enumerate(text)]
            expect_calls(student, text, guesses, prompt, gamma)


@exercise(
    "ex4",
    points=2,
    invariant="long texts and prompts, many tokens, drafts that are never right: every round "
    "follows the same rules",
    cause="a limit on rounds, on gamma or on the prompt, proposals given up behind refusals or by "
    "an unsure draft, a token that nobody picked, or one that is taken for the end of the text",
)
def test_long_runs(student, rng):
    for new, gamma, length, right in (
        *((12, 2, 1, False), (40, 3, 2, False), (40, 12, 1, True), (40, 70, 3, True)),
        *((6, 2, 20, True), (6, 2, 20, False), (4, 3, 4990, True), (100, 90, 3, True)),
        *((400, 400, 2, True), (400, 1, 1, False)),
    ):
        text = [(1 + 7 * i) % 11 for i in range(new)]
        guesses = text if right else [(t + 1) % 11 for t in text]
        prompt = [(3 * i) % 11 for i in range(length)]
        expect_calls(student, text, guesses, prompt, gamma, 11)
    # one token only, and rounds that are refused and kept in turn, to the end
    guesses = [4 if i % 5 in (1, 2, 4) else 7 for i in range(400)]
    expect_calls(student, [4] * 400, guesses, [4], 2, 11)
    for n, gamma in ((12, 5), (40, 20), (300, 280)):  # one token, again and again
        expect_calls(student, [4] * n, [4] * n, [4, 4], gamma, 11)
    for new, gamma in ((1, 3), (5, 2), (7, 7)):  # one token is all there is
        expect_calls(student, [0] * new, [0] * new, [0], gamma, 1)
    for new, gamma in ((4, 2), (3, 1), (7, 3)):  # refused by rounding, and perhaps picked again
        rows = torch.tensor([[math.nextafter(0.5, 0.0), 0.5], [0.5, 0.5]], dtype=torch.float64)
        coin, asked = recorded(lambda chance: False, 99)
        _, *models = written(student, *map(Always, rows), [1, 0], new, gamma, coin, first)
        expect_calls_of(models, 2, new, gamma, lambda done, g, asked=asked: 0 if asked else g)
    texts, models = ([1, 0, 2], [0, 2, 1]), []
    for text in texts:
        p, q = certain_path(text, text)
        target, draft = Model([1], p, "target", 9), Model([1], q, "draft", 9)
        models.append((target.read, draft.read, [1], 3, 2))
    held = student.drive(drive_two_texts, *models, no_coin, surely)
    for (tokens, passes), text in zip(held, texts, strict=True):
        assert (tokens, passes) == (text, 1), "a text held while another was written"
    text = [2047, 1024, 0, 255, 256, 257, 1501]
    expect_calls(student, text, [*text[:3], 3, *text[4:]], [2046, 300], 3, 2048)
    # a draft that is as unsure as can be; two models that are nearly sure of what is not drawn
    text = [(1 + 7 * i) % 11 for i in range(20)]
    guesses = [11 if i % 6 == 4 else t for i, t in enumerate(text)]
    for kinds in (("sure", "even"), ("rare", "rare")):
        expect_calls(student, text, guesses, [3], 7, 100, kinds)
    expect_calls(student, text[:4], text[:4], [3], 3, 130_000, ("sure", "even"))
    text, prompt = [129_998, 70_000, 65_536, 3], [65_535, 129_999, 70_001]
    expect_calls(student, text, [text[0], 4_464, *text[2:]], prompt, 2, 130_000)


class Always(dict):
    """The same row behind every text."""

    def __init__(self, row):
        super().__init__({(): row})

    def get(self, text, other=None):
        return self[()]


def first(chances):
    """The first token that is ever drawn."""
    return int((torch.as_tensor(chances) > 1e-13).nonzero()[0])


def row_of(word, vocab, kind):
    """[vocab] chances. "sure": of this token; "even": all are alike, and it is the rarest; "rare":
    it is next to never drawn, the last token nearly always."""
    row = torch.zeros(vocab, dtype=torch.float64)
    if kind == "even":
        row += (1 - 0.9 / vocab) / (vocab - 1)
    elif kind == "rare":
        row[-1] = 1 - 2.0**-38  # 1e-12 may count as nothing
    row[word] = {"sure": 1.0, "even": 0.9 / vocab, "rare": 2.0**-38}[kind]
    return row


def rarest(chances):
    """The token that is drawn least often, of those that ever are."""
    row = torch.as_tensor(chances)
    return int(torch.where(row > 1e-13, row, 2.0).argmin())


def certain_path(text, guesses, vocab=3, kinds=("sure", "sure")):
    """(p, q) that write text and guesses, whatever stands before, if what is rarest is drawn."""

    class Rows(dict):
        def __init__(self, words, kind):
            super().__init__()
            self.words, self.kind = words, kind

        def __missing__(self, place):
            word = self.words[place] if place < len(self.words) else 0
            self[place] = row_of(word, vocab, self.kind)
            return self[place]

        def get(self, text, other=None):
            return self[len(text)]

    p, q = (Rows(*both) for both in zip((text, guesses), kinds, strict=True))
    p[()] = q[()] = torch.zeros(vocab, dtype=torch.float64)  # a Model asks it how many tokens
    return p, q


def drive_two_texts(student, first, second, coin, pick):
    """Runs beside the student's code, where what was returned could change: two texts."""
    held = student.speculate(*first, coin, pick)
    return [held, student.speculate(*second, coin, pick)]


# ---- exercise 5 ------------------------------------------------------------------------------

# (place, length, longest) of endings of a text of 300 tokens that stood before
LONG = ((0, 2, 2), (0, 40, 40), (0, 40, 9), (11, 9, 9), (290, 10, 12), (100, 20, 30), (3, 1, 3))


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
    large = [1500 + (37 * i) % 547 for i in range(300)]  # ids from 1500 to 2046, all different
    cases += [(large + large[k : k + m], 99, most) for k, m, most in LONG]
    # n tokens stood at the beginning, n - 1 of them stood later
    for n in (5, 9, 17, 33, 70, 120, 200):
        tail = large[:n]
        cases += [(tail + [3, 4] + tail[1:] + [5, 6] + tail, 2, most) for most in (n, n - 1, 99)]
    cases += [([2047 - t for t in large[:57]] + [3, 3], 9, 9), (large[:60] + large[1:50], 5, 9)]
    cases += [([100, 100, 5, 1001, 5, 100], 3, 1), ([100, 5, 1001, 100, 5], 3, 2)]
    cases += [([130_000, 256, 0, 151_935, 130_000], 9, 1), ([1, 256, 2, 0, 1], 2, 1)]
    cases += [([k + 1, 2, 1], 3, 1) for k in (256, 1024, 32_768, 65_536, 100_000)]
    cases += [([*range(1, 4990), 1, 2], 3, 2), ([*large, large[0]], 400, 1)]
    cases += [([2**32 + 3, 8, 3], 3, 1), ([2**40, 7, 2_000_000, 2**40], 3, 1)]
    cases += [([1, 3, 2, 4, 9, 1, 2, 3, 4], 3, 4), ([5, 2, 2, 5, 9, 5, 1, 3, 5], 3, 4)]
    cases += [([-3, 8, 3], 3, 1), ([-3, 8, 3, 9, -3], 3, 1)]
    cases += [([2**48 + 5, 8, 5], 3, 1), ([2**60 + 1, 8, 2**60], 3, 1), ([-1, 8, -2], 3, 1)]
    parts = [0, 1, 2, 255, 256, 257, 65_536, 65_537, 2**24, 2**32, 2**40 + 1, 2**56]  # of bytes
    cases += [([parts[draw(rng, 0, 11)] for _ in range(12)], 3, 2) for _ in range(40)]
    cases += [([1, 256**k, 0], 2, 1) for k in range(1, 8)]
    for filler in (-1, 0, 1, -2, -100, 2**31 - 1):  # of texts made longer at either end
        cases += [([5, 7, 5, 9, filler, 5], 3, longest) for longest in (2, 3, 9)]
        cases += [([5, filler, 7, 5, 8, 5], 3, 2), ([5, 7, 9, filler], 3, 3), ([filler, 5], 3, 2)]
    for prime in (2**31 - 1, 10**9 + 7, 10**9 + 9, 998_244_353, 2**61 - 1):  # of hashes
        cases += [([prime + 1, 9, 1], 2, 1), ([prime, 9, 0], 2, 1)]
    wide = [1500 + (37 * i) % 547 for i in range(500)]
    cases += [(wide[:400] + [3, 4] + wide[1:400] + [5, 6] + wide[:400], 400, 400)]
    cases += [([9, *range(10, 600), 9], 400, 400)]  # slices of each n cost n x its length
    cases += [([7, 8] * 20, 400, 50), ([1], 0, 1), ([1, 1], 1, 1), ([1, 1], 0, 1)]
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
        ints = type(seen) is list and all(type(token) is int for token in seen)
        assert ints and seen == right, "another lookup"
    held = student.drive(drive_two, "lookup", ([1, 2, 1], 1, 1), ([1, 3, 1], 1, 1))
    assert held == [[2], [3], [2]], "a lookup held while another was asked for"
    found = student.drive(drive_rewritten, "lookup", [1, 2, 4, 1], [1, 3, 4, 1], (1, 1))
    assert found == [3], "a lookup in a text of which a token was written anew"
    held = student.drive(drive_two, "lookup", ([1, 2], 1, 1), ([1, 3], 1, 1))
    assert held == [[], [], []], "nothing found, held and written into"


def drive_first_row_gone(student, proposed, vocab):
    """Runs beside the student's code: the other rows, when the first has been written into."""
    q = student.certain(proposed, vocab)
    q[0].zero_()
    return q[1:].clone()


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

        emitted = ways(run, vocab, calls_of_round(g))
        expect_distribution(emitted, p, vocab, g + 1, EXACT, "a round of certain proposals")
    for proposed, vocab in (
        *(([300], 2048), ([2047, 0, 256, 2047], 2048), ([4499, 256], 4500), ([0, 0], 1)),
        *(([], 1), ([], 300), (list(range(300)), 300), ([2049, 4001, 4001, 2051], 4500)),
    ):
        proposed = torch.tensor(proposed, dtype=torch.int64)
        right = torch.zeros(len(proposed), vocab).scatter(1, proposed[:, None], 1.0)
        expect_same(student.certain(proposed, vocab), right, "certain(...)")
        views = student.drive(drive_strided, "certain", [proposed], vocab)
        expect_same(views, right, "certain(...) of a view")
    left = student.drive(drive_first_row_gone, torch.tensor([3, 3]), 5)
    expect_same(left, torch.eye(5)[[3]], "certain(...), rows behind one that was written into")
    two = [(torch.tensor([a]), 3) for a in (1, 2)]
    rows = torch.eye(3)[[1, 2, 1]]
    for q, row in zip(student.drive(drive_two, "certain", *two), rows, strict=True):
        expect_same(q, row[None], "certain(...), held while it was called again")


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
    shapes = [(random_tree(rng, n, 4)[1], draw(rng, 0, 5)) for n in (1, 2, 7, 15)]
    shapes += [(list(range(-1, 8)), 0), ([-1] + [0] * 6, 1), ([-1, 0, 1, 0, 3, 2, 1], 2)]
    shapes += [
        (list(range(-1, 249)), 100),
        (list(range(-1, 399)), 0),  # and no more: powers of a matrix of float64 are right as well
        ([-1] + [0] * 69, 3),
        ([-1, 0, 0, 1, 2], 1000),
        *(([-1, 0, 0, 1, 2], past) for past in (256, 257, 2049, 4097, 4990)),
        ([-1], 0),
    ]
    alike = [list(range(-1, 5)), [-1] + [0] * 5, [-1, 0, 0, 1, 1, 2]]  # of one size
    shapes += [(parents, past) for past in (2, 3) for parents in alike]
    for parents, past in shapes:
        mask = student.tree_mask(parents, past)
        expect_tensor(mask, "tree_mask", torch.bool, (len(parents), past + len(parents)))
        deep = student.depths(parents)
        whole = isinstance(deep, list) and all(type(d) is int for d in deep)
        assert whole and len(deep) == len(parents), "depths is no list of an int for each node"
        for node in range(len(parents)):
            path, at = set(), node
            while at >= 0:
                path.add(at)
                at = parents[at]
            right = [True] * past + [j in path for j in range(len(parents))]
            assert mask[node].tolist() == right, "a node sees something else"
            assert deep[node] == len(path) - 1, "another depth"
    assert student.depths(list(range(-1, 399))) == list(range(400)), "another depth"
    held = student.drive(drive_two, "depths", *((parents,) for parents in alike[:2]))
    chain, star = list(range(6)), [0] + [1] * 5
    assert held == [chain, star, chain], "depths held while others were asked for"
    held = student.drive(drive_two, "tree_mask", *((parents, 0) for parents in alike[:2]))
    chain = torch.ones(6, 6).tril().bool()
    star = torch.eye(6).bool().index_fill(1, torch.tensor(0), True)
    for mask, right in zip(held, (chain, star, chain), strict=True):
        expect_same(mask, right, "tree_mask(...), held in another call")


def drive_walk(student, tokens, parents, p, coin, pick):
    """Runs beside the student's code: a walk, of which p is every second element of wider rows, and
    one that ends at once, made while the first is held and again when its path was written into."""
    import torch

    wide = torch.cat([p, p.new_zeros(len(p), 3)], 1)
    held = student.walk(tokens, parents, torch.stack([wide, wide], 2)[:, :-3, 1], coin, pick)
    student.walk(tokens[:1], parents[:1], p[:1], coin, pick)[0].append(1)
    return [held, student.walk(tokens[:1], parents[:1], p[:1], coin, pick)]


def expect_walks(student, tokens, parents, rows, vocab):
    """[(probability, tokens)] of every walk; each node is reached with the target's own chance."""

    def run(coin, pick):
        picks = []

        def once(row):
            picks.append(pick(row))
            return picks[-1]

        path, token = student.walk(tokens, parents, rows, coin, once)
        assert len(picks) == 1, "a walk ends with one pick"
        assert path[0] == 0 and type(token) is int, "a path from node 0, and an int"
        good = all(parents[b] == a for a, b in itertools.pairwise(path))
        assert good, "no path of the tree"
        return path, token

    seen, chances = ways(run, vocab, 2 * len(tokens) - 1), [1.0]
    for node, parent in enumerate(parents[1:], start=1):
        chances.append(chances[parent] * float(rows[parent, tokens[node]]))
        reached = sum(weight for weight, (path, _) in seen if node in path)
        expect_close(reached, chances[node], what="the chance that a node is reached", atol=EXACT)
    return [(weight, (*(tokens[n] for n in path[1:]), token)) for weight, (path, token) in seen]


@exercise(
    "ex6",
    points=3,
    invariant="over every path, walks on random trees are distributed as the target's own",
    cause="a second child judged by p as it was, what is left not renormalised, or a refused child "
    "picked",
)
def test_walks_on_random_trees(student, rng):
    trees = [([0, 0, 1, 2, 0, 1, 2], [-1, 0, 0, 0, 1, 1, 1], 3)]  # siblings, whatever is drawn
    trees += [([0, 1, 0, 2], [-1, 0, 1, 0], 3)]  # a child behind the child of another
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
        emitted = expect_walks(student, tokens, parents, rows, vocab)
        expect_distribution(emitted, p, vocab, depth, EXACT, "a walk")


@exercise(
    "ex6",
    points=2,
    invariant="stars of many children, deep chains, unlikely children, large ids: every child of "
    "the node is judged",
    cause="a limit on children, on depth or on ids, unlikely children skipped, or a search that "
    "ends where other nodes stand between",
)
def test_large_trees(student, rng):
    star = [-1] + [0] * 8
    row = [0.03, 0.4, 0.001, 0.1, 0.2, 0.069, 0.1, 0.05, 1e-7, 0.05]
    row = torch.tensor(row, dtype=torch.float64)
    rows = torch.stack([row / row.sum()] * 9)
    for tokens in ([9, 0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 7, 6, 5, 4, 3, 2, 0]):
        expect_walks(student, tokens, star, rows, 10)
    # siblings far apart, and each with a child of its own between
    parents, tokens = [-1, 0, 1, 0, 3, 0, 5, 0, 7], [0, 1, 1, 2, 2, 3, 3, 0, 0]
    expect_walks(student, tokens, parents, distributions(rng, 9, 4), 4)
    sure = torch.eye(2048)
    for wide, deep, ids in ((8, 1, 0), (1, 399, 1501), (199, 2, 1024), (2, 40, 0)):
        parents, tokens, at = [-1], [2047], 0
        says = []  # behind each node: the token of the last child of the last
        for _ in range(deep):
            children = range(len(parents), len(parents) + wide)
            says += [(at, ids + wide - 1)]
            parents += [at] * wide
            tokens += [ids + i for i in range(wide)]
            at = children[-1]
        rows = sure[[dict([*says, (at, 2046)]).get(node, 7) for node in range(len(parents))]]
        coin, _ = recorded(no_coin, len(parents))
        value, short = student.drive(drive_walk, tokens, parents, rows, coin, surely)
        assert value == ([0, *(a for a, _ in says[1:]), at], 2046), "another walk"
        assert short == ([0], surely(rows[0])), "a walk behind one whose path was written into"
    # a deep chain between two other children of node 0: numbers are no depths, and no ends
    parents, tokens = [-1, 0, 0, *range(2, 396), 0], [0, 5, 1] + [1, 2, 3] * 131 + [1, 6]
    rows = sure[[1, 7, *tokens[3:-1], 2046, 7]]
    coin, _ = recorded(no_coin, len(parents))
    value, _ = student.drive(drive_walk, tokens, parents, rows, coin, surely)
    assert value == ([0, *range(2, 397)], 2046), "another walk"
    # powers of two: what is left is exact, however it is divided
    small = torch.tensor([[0.5, 0.5 - 2.0**-20, 2.0**-20, 0.0]] * 4, dtype=torch.float64)
    expect_walks(student, [0, 0, 1, 2], [-1, 0, 0, 0], small, 4)
    ids = [0, 129_999, 40_000, 70_000]  # 1 and 2 stand behind node 0, 3 behind node 2
    rows = torch.zeros(4, 130_000)
    rows[[0, 1, 2, 3], [40_000, 0, 70_000, 129_999]] = 1.0
    value = student.walk(ids, [-1, 0, 0, 2], rows, no_coin, surely)
    assert value == ([0, 2, 3], 129_999), "a vocabulary of 130,000 tokens"
    value = student.walk([0], [-1], torch.ones(1, 1), no_coin, surely)
    assert value == ([0], 0), "a vocabulary of one token"
    value = student.walk([0, 0], [-1, 0], torch.ones(2, 1), lambda chance: True, surely)
    assert value == ([0, 1], 0), "a vocabulary of one token, and a child"
    found = student.drive(drive_rewritten, "depths", [-1, 0, 1, 2], [-1, 0, 0, 1], ())
    assert found == [0, 1, 1, 2], "depths of a list that held another tree before"


def expect_children_in_order(student):
    """Children of node 0 whose numbers do not follow one another; the others stand in chains."""
    children = [1, 2, 8, 10, 64, 70, 79]
    parents = [-1, *(0 if node in children else node - 1 for node in range(1, 80))]
    tokens = [children.index(node) if node in children else 7 for node in range(80)]
    row = torch.tensor([1, 2, 3, 4, 5, 6, 7, 36]).double() / 64
    never, asked = recorded(lambda chance: False, 7)
    path, _ = student.walk(tokens, parents, row.expand(80, 8), never, surely)
    assert path == [0], "all were refused"
    right = [float(row[i] / row[i:].sum()) for i in range(7)]
    asked, right = (torch.tensor(x, dtype=torch.float64) for x in (asked, right))
    expect_close(asked, right, what="the coins, in the order of the numbers", rtol=1e-12)


@exercise(
    "ex6",
    points=1,
    invariant="children are judged in the order of their numbers, by coins of what is left",
    cause="another order, all children judged although one was kept, or a coin for node 0",
)
def test_the_coins_of_a_walk(student, rng):
    p = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 5, dtype=torch.float64)
    tokens, parents = [0, 1, 3, 0, 2], [-1, 0, 0, 0, 1]
    never, asked = recorded(lambda chance: False, 3)
    path, _ = student.walk(tokens, parents, p, never, surely)
    assert path == [0], "all were refused"
    right = torch.tensor([0.2, 0.4 / 0.8, 0.1 / 0.4], dtype=torch.float64)
    expect_close(torch.tensor(asked, dtype=torch.float64), right, what="the coins", atol=1e-9)
    always, asked = recorded(lambda chance: True, 2)
    path, token = student.walk(tokens, parents, p, always, lambda row: 1)
    assert path == [0, 1, 4] and token == 1 and len(asked) == 2, "each first child was kept"
    expect_children_in_order(student)
    # powers of two: what is left is exact, and nearly nothing
    small = torch.tensor([[0.5, 0.5 - 2.0**-38, 2.0**-38, 0.0]] * 4, dtype=torch.float64)
    surest, _ = recorded(lambda chance: chance > 1 - 2.0**-42, 3)
    path, _ = student.walk([3, 0, 1, 2], [-1, 0, 0, 0], small, surest, surely)
    assert path == [0, 3], "behind two that were refused the third child is all that is left"
    for dtype, less in ((torch.float64, 2.0**-38), (torch.float32, 2.0**-20)):
        rare = torch.tensor([[2.0**-90, 1.0]] * 2, dtype=dtype)
        coin, _ = recorded(lambda chance: True, 1)
        path, _ = student.walk([1, 0], [-1, 0], rare, coin, surely)
        assert path == [0, 1], "an unlikely child was not kept, though the coin said so"
        likely = torch.tensor([[1 - less, less]] * 2, dtype=dtype)
        coin, _ = recorded(lambda chance: False, 1)
        value = student.walk([1, 0], [-1, 0], likely, coin, surely)
        assert value == ([0], 1), "a likely child was kept, though the coin said no"
        less = torch.finfo(dtype).eps / 2  # what is left may count as nothing: see residual
        likely = torch.tensor([[1 - less, less]] * 2, dtype=dtype)
        coin, _ = recorded(lambda chance: False, 1)
        path, _ = student.walk([1, 0], [-1, 0], likely, coin, surely)
        assert path == [0], "a likely child was kept, though the coin said no"
    # nine are refused, in sums that float32 rounds; of what is left, 100 in 2^25, one has 67
    parts = [3901719, 3310787, 3126763, 3779245, 3348857, 3939079, 3756531, 3745739, 4645612]
    row = torch.tensor([*parts, 67, 33]).double() / 2**25
    for dtype in TYPES:
        never, asked = recorded(lambda chance: False, 10)
        rows = row.to(dtype).expand(11, 11)
        student.walk([0, *range(10)], [-1] + [0] * 10, rows, never, surely)
        expect_close(float(asked[9]), 0.67, what="the coin of an unlikely child", rtol=1e-4)
    for vocab in (300, 3000):
        row = 0.9 * distributions(rng, vocab) + 0.1 / vocab
        never, asked = recorded(lambda chance: False, 20)
        student.walk([0, *range(20)], [-1] + [0] * 20, row.expand(21, vocab), never, surely)
        right = [float(row[i] / row[i:].sum()) for i in range(20)]
        asked = torch.tensor(asked, dtype=torch.float64)
        expect_close(asked, torch.tensor(right, dtype=torch.float64), what="the coins", rtol=1e-11)
