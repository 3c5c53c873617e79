"""Hidden tests of lab11: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission, until no code is nearly a tie.
"""

import math

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.lab.again import changed, held_results, refused
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama

F64, I64 = torch.float64, torch.int64
EXACT = 1e-9  # relative; float64 to the condition of the matrices here, some 1e3
CLEAR = 1e-3  # of a step: so far is every code from a tie
LOOSE = 1e-4  # relative; float64 to a condition of 1e10, by whatever algorithm


def inputs(rng, k, tokens=0, alike=1.0):
    """Tokens [T, K] whose channels go together and are of unlike size."""
    own, shared = (torch.randn(tokens or 4 * k, n, generator=rng, dtype=F64) for n in (k, 2))
    mixed = own + alike * shared @ torch.randn(2, k, generator=rng, dtype=F64)
    size = torch.rand(k, generator=rng, dtype=F64)
    return mixed * (0.3 + 2 * size)


def mean_square(x):
    h = x.double().T @ x.double() / len(x)
    return (h + h.T) / 2  # symmetric bit by bit: code may ask for that


def with_damping(h, damping):
    h, dead = h.clone(), h.diagonal() == 0
    h[dead, dead] = 1.0
    return h + damping * h.diagonal().mean() * torch.eye(len(h), dtype=F64), dead


def grid(w, bits):
    """(scale, zero, how far zero is from a tie) of rows."""
    low, high = w.amin(1, keepdim=True).clamp(max=0), w.amax(1, keepdim=True).clamp(min=0)
    scale = (high - low) / (2**bits - 1)
    scale[scale == 0] = 1.0
    return scale, torch.round(-low / scale), clear(-low / scale)


def clear(t):
    """The least distance of numbers from a tie of rounding."""
    return ((t % 1) - 0.5).abs().min().item()


def brute(w, h, bits, damping=0.01, order=None, group=None, when=None, given=None):
    """(codes, scale, zero, clearance): every column by the inverse of what is left of H.

    when(j): how many columns' repairs the grid of the group that begins at j has seen; given: grids
    [N, K] instead.
    """
    n, k = w.shape
    order = torch.arange(k) if order is None else order
    h, dead = with_damping(h, damping)
    w = w.double().masked_fill(dead, 0.0)[:, order]
    h = h[order][:, order]
    seen, codes, grids, far = [w.clone()], torch.zeros(n, k, dtype=I64), [], 1.0
    for j in range(k):
        if given is not None:
            scale, zero = (part[:, order][:, j : j + 1] for part in given)
        elif j % group == 0:
            scale, zero, off = grid(seen[when(j)][:, j : j + group], bits)
            grids.append((scale, zero))
            far = min(far, off)
        t = w[:, j : j + 1] / scale + zero
        code = t.round().clamp(0, 2**bits - 1)
        far = min(far, clear(t))
        codes[:, j : j + 1] = code.long()
        inverse = torch.linalg.inv(h[j:, j:])
        e = w[:, j : j + 1] - (code - zero) * scale
        w = w.clone()
        w[:, j:] -= e * inverse[0] / inverse[0, 0]
        seen.append(w)
    if given is not None:
        return codes, None, None, far
    scale, zero = (torch.cat(parts, 1) for parts in zip(*grids, strict=True))
    return codes, scale, zero, far


def clear_case(make):
    """The first of the drawn cases whose codes nothing but a real mistake changes."""
    for _ in range(200):
        *case, far = make()
        if far > CLEAR:
            return case
    raise RuntimeError("no case without a tie was drawn")


def two_calls(student, name, first, second):
    """Both results of two calls of one shape that are alive together."""
    return held_results(student, name, [first, second])


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=3,
    invariant="H is the mean of x^T x over all tokens, however they are arranged and cut",
    cause="batches that weigh the same, tokens in the first dimension only, or float32",
)
def test_tokens_of_any_arrangement(student, rng):
    for k, shapes, scale in (
        (6, ((4,), (2, 3), (1, 2, 2), (2, 1, 1, 2), (0,), (3, 0)), 1.0),
        (1, ((5,), (1, 1)), 1e-8),
        (9, ((3,), (50,)), 1e4),
        (4, ((1,),), 1.0),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            h, seen, rows = torch.zeros(k, k, dtype=F64), 0, []
            for shape in shapes:
                tokens = math.prod(shape)
                x = (scale * inputs(rng, k, max(1, tokens))).to(dtype)[:tokens]
                rows.append(x)
                value = student.add_tokens(h, seen, x.reshape(*shape, k))
                h, seen = expect_tuple(value, (torch.Tensor, int), "add_tokens")
                expect_tensor(h, "H", F64, (k, k))
            x = torch.cat(rows)
            assert seen == len(x), f"{seen} tokens of {len(x)}"
            expect_close(h, mean_square(x), what="H", atol=EXACT * x.double().square().mean())
    turns = [(torch.zeros(3, 3, dtype=F64), 0)] * 2  # two layers of one shape, in turns
    parts = [inputs(rng, 3, 2), inputs(rng, 3, 4), inputs(rng, 3, 5), inputs(rng, 3, 1)]
    for i, x in enumerate(parts):
        value = student.add_tokens(*turns[i % 2], x)
        turns[i % 2] = expect_tuple(value, (torch.Tensor, int), "add_tokens")
    for i, (h, _) in enumerate(turns):
        right = mean_square(torch.cat(parts[i::2]))
        expect_close(h, right, what=f"H of layer {i} of two in turns", atol=10 * EXACT)
    nothing = torch.zeros(3, 3, dtype=F64)
    pair = [inputs(rng, 3, 4).float() for _ in range(2)]
    found = two_calls(student, "add_tokens", (nothing, 0, pair[0]), (nothing, 0, pair[1]))
    for (h, seen), x in zip(found, pair, strict=True):
        assert seen == 4, f"{seen} tokens of 4"
        expect_close(h, mean_square(x), what="H of one of two calls", atol=10 * EXACT)
    x = torch.full((3000, 2), 1.0 + 2.0**-12)  # its square is no number of float32
    h, _ = student.add_tokens(torch.zeros(2, 2, dtype=F64), 0, x)
    right = torch.full((2, 2), (1.0 + 2.0**-12) ** 2, dtype=F64)
    expect_close(h, right, what="H of many tokens", rtol=1e-12)
    x = torch.randn(5000, 2, generator=rng)
    h, seen = student.add_tokens(torch.zeros(2, 2, dtype=F64), 0, x)
    expect_close(h, mean_square(x), what="H of 5000 tokens", atol=10 * EXACT)
    value = student.add_tokens(torch.eye(3, dtype=F64), 10**7, torch.zeros(2, 5, 3))
    h, seen = expect_tuple(value, (torch.Tensor, int), "add_tokens")
    assert seen == 10**7 + 10, "tokens of zeros count as well"
    expect_close(h, torch.eye(3, dtype=F64) * (1e7 / (1e7 + 10)), what="H", rtol=EXACT)


def drive_transposed(student, x):
    """Runs beside the student's code: inputs [3, 5, 4] that are not contiguous."""
    import torch

    h, seen = torch.zeros(4, 4, dtype=torch.float64), 0
    return student.add_tokens(h, seen, x.transpose(0, 2))


@exercise(
    "ex1",
    points=1,
    invariant="inputs that are not contiguous give the same",
    cause="view in place of reshape or flatten",
)
def test_views_of_inputs(student, rng):
    x = torch.randn(4, 5, 3, generator=rng)
    value = student.drive(drive_transposed, x)
    h, seen = expect_tuple(value, (torch.Tensor, int), "add_tokens")
    assert seen == 15, f"{seen} tokens of 15"
    expect_close(h, mean_square(x.transpose(0, 2).reshape(15, 4)), what="H", atol=10 * EXACT)


@exercise(
    "ex1",
    points=3,
    invariant="dead is what is exactly 0; its 1 comes first and counts in the mean that damps",
    cause="a threshold, the mean of what came in, damping of dead channels left out, or a factor",
)
def test_damping_of_any_h(student, rng):
    for k, dead, damping, scale in (
        (5, (1, 3), 0.01, 1.0),
        (5, (), 1.0, 1e8),
        (4, (0,), 0.0, 1e-16),
        (1, (), 0.3, 1.0),
        (1, (0,), 0.5, 1.0),
        (6, (0, 1, 2, 3, 4, 5), 0.01, 1.0),
        (3, (2,), 70.0, 1e-16),
        (3, (2,), 1, 1.0),
    ):
        x = inputs(rng, k) * scale**0.5
        x[:, list(dead)] = 0.0
        h = mean_square(x)
        right, silent = with_damping(h, damping)
        value = student.damped(h, damping)
        new, seen = expect_tuple(value, (torch.Tensor, torch.Tensor), "damped")
        expect_tensor(new, "H", F64, (k, k))
        expect_close(new, right, what=f"damped H, damping {damping}", rtol=EXACT)
        expect_same(seen, silent, "dead")
    h = torch.diag(torch.tensor([4.0, 1e-40, 0.0], dtype=F64))  # small beside others, not dead
    new, seen = student.damped(h, 0.0)
    expect_same(seen, torch.tensor([False, False, True]), "dead beside a large channel")
    expect_close(new, with_damping(h, 0.0)[0], what="H of unlike channels", rtol=EXACT)
    h = torch.tensor([[0.0, 1.0], [1.0, 2.0]], dtype=F64)  # what stands beside a 0 does not matter
    new, seen = student.damped(h, 0.25)
    expect_same(seen, torch.tensor([True, False]), "dead, of a diagonal entry alone")
    expect_close(new, with_damping(h, 0.25)[0], what="H with a 0 on its diagonal", rtol=EXACT)
    for shape in ((2, 3), (4,), (2, 2, 2)):
        bad = torch.ones(shape, dtype=F64)
        expect_error(ValueError, lambda b=bad: student.damped(b, 0.01), f"h {list(shape)}")
    one = torch.eye(2, dtype=F64)
    for damping in (-1e-9, -math.inf, math.nan):
        expect_error(ValueError, lambda d=damping: student.damped(one, d), f"damping {damping}")
    pair = [mean_square(inputs(rng, 4)) for _ in range(2)]
    pair[1][2], pair[1][:, 2] = 0.0, 0.0
    found = two_calls(student, "damped", (pair[0], 0.1), (pair[1], 0.1))
    for (new, dead), h in zip(found, pair, strict=True):
        right, silent = with_damping(h, 0.1)
        expect_close(new, right, what="damped H of one of two calls", rtol=EXACT)
        expect_same(dead, silent, "dead of one of two calls")
    w, v, x = (torch.randn(3, 4, generator=rng) for _ in range(3))
    changed(student, *([("add_tokens", h, 5, x), ("damped", h, 0.1)] for h in pair))
    changed(student, *([("output_error", w, v, h)] for h in pair))
    refused(student, [("damped", pair[1], -0.5), ("damped", pair[1][:2].clone(), 0.5)])


@exercise(
    "ex1",
    points=2,
    invariant="the error of each output is the mean over tokens of its squared change",
    cause="the diagonal of H alone, one number for all outputs, or rounding before the difference",
)
def test_error_of_outputs(student, rng):
    for n, k, scale in ((3, 7, 1.0), (1, 1, 1.0), (4, 4, 1e-8), (2, 5, 1e4)):
        x = inputs(rng, k, alike=3.0)
        h = mean_square(x)
        w, v = (scale * torch.randn(n, k, generator=rng) for _ in range(2))
        for a, b in (
            (w, v),
            (w.bfloat16(), v.bfloat16()),
            (w.double() / 3, v),
            (w, v.double() / 3),
            (w, w + scale / 64),
            (w.double(), w.double() * (1 + 1e-9)),
        ):
            error = student.output_error(a, b, h)
            expect_tensor(error, "output_error", F64, (n,))
            e = a.double() - b.double()
            size = e.abs().sum(1).square().max() * h.abs().max()  # terms of both signs are summed
            right = (x @ e.T).square().mean(0)
            expect_close(error, right, what="an error", rtol=EXACT, atol=1e-13 * size)
        same = student.output_error(w, w.clone(), h)
        expect_close(same, torch.zeros(n, dtype=F64), what="the error of no change")
    calls = []
    for _ in range(2):  # of one shape, with nothing in common
        w, v = torch.randn(2, 3, 5, generator=rng)
        calls.append((w, v, mean_square(inputs(rng, 5))))
    for error, (w, v, h) in zip(two_calls(student, "output_error", *calls), calls, strict=True):
        e = w.double() - v.double()
        right = torch.stack([row @ h @ row for row in e])
        expect_close(error, right, what="an error of one of two calls", rtol=1e-7)


# ---- exercise 2 ------------------------------------------------------------------------------


UNLIKE = torch.tensor([1.0, 0.5, 2.0**-16], dtype=F64)  # sizes of channels


def of_unlike_sizes():
    """(H of three channels that go together, the same of sizes UNLIKE: of condition 1e10)"""
    h = (torch.ones(3, 3, dtype=F64) + torch.eye(3, dtype=F64)) / 2
    return h, h * UNLIKE * UNLIKE[:, None]


def nearly_alike(d):
    """H of two channels, condition 2 / d; its inverse is (1, d - 1 | d - 1, 1) / (d (2 - d))."""
    return torch.tensor([[1.0, 1 - d], [1 - d, 1.0]], dtype=F64)


@exercise(
    "ex2",
    points=4,
    invariant="what may follow solves the linear equations of the minimum; the rest stays",
    cause="the inverse of the whole H although some weights stay, the rows of H itself, or the "
    "repair of another column",
)
def test_repair_solves_the_equations(student, rng):
    for n, k, scale in ((3, 8, 1.0), (1, 1, 1.0), (2, 2, 1e-4), (4, 6, 1e4), (1, 7, 1e-20)):
        h = mean_square(inputs(rng, k, alike=2.0)) * scale
        for dtype in (torch.float32, F64):
            w = torch.randn(n, k, generator=rng, dtype=dtype) * scale
            for j in sorted({0, k // 2, k - 1}):
                free = torch.rand(k, generator=rng) < 0.6
                v = torch.randn(n, generator=rng, dtype=F64) * scale
                follow = free.clone()
                follow[j] = False
                e = torch.zeros(n, k, dtype=F64)
                e[:, j] = w[:, j].double() - v
                if follow.any():
                    pull = h[follow, j][:, None] * e[:, j]
                    e[:, follow] = -torch.linalg.solve(h[follow][:, follow], pull).T
                value = student.change_one(w, h, j, v, free)
                w_new, cost = expect_tuple(value, (torch.Tensor,) * 2, "change_one")
                expect_tensor(w_new, "w_new", F64, (n, k))
                size = EXACT * (w.double().abs().max() + e.abs().max())
                expect_close(w_new, w.double() - e, what="a row", atol=size)
                stays = ~follow
                stays[j] = False
                expect_close(w_new[:, stays], w.double()[:, stays], what="what is not free")
                expect_close(w_new[:, j], v, what="the changed column", atol=size)
                expect_tensor(cost, "cost", F64, (n,))
                expect_close(cost, (e @ h * e).sum(1), what="the cost", rtol=EXACT)
    d, t = 1e-3, 0.02  # what follows is nearly alike: a jitter on H would show
    h = torch.eye(3, dtype=F64)
    h[1:, 1:], h[0, 2], h[2, 0] = nearly_alike(d), t, t
    v = torch.tensor([0.6], dtype=F64)
    w_new, _ = student.change_one(torch.ones(1, 3), h, 0, v, torch.ones(3) == 1)
    pull = 0.4 * t / (d * (2 - d))
    right = torch.tensor([[0.6, 1 - pull * (1 - d), 1 + pull]], dtype=F64)
    expect_close(w_new, right, what="a row, inputs nearly alike", atol=EXACT)
    even, h = of_unlike_sizes()  # as large in every output: rows times UNLIKE are those of even
    w_new, _ = student.change_one(torch.zeros(1, 3), h, 0, v, torch.ones(3) == 1)
    row = torch.linalg.inv(even)[0]
    right = 0.6 * row / row[0]
    expect_close(w_new[0] * UNLIKE, right, what="a row, unlike inputs", atol=LOOSE)


@exercise(
    "ex2",
    points=2,
    invariant="no change costs nothing and changes nothing; free[j] does not matter",
    cause="j left out of what is inverted where it is not free, or a cost without the change",
)
def test_free_or_not_at_j(student, rng):
    h, w = mean_square(inputs(rng, 5)), torch.randn(2, 5, generator=rng)
    free = torch.tensor([True, False, True, True, False])
    for j in range(5):
        w_new, cost = student.change_one(w, h, j, w[:, j].double(), free)
        expect_close(w_new, w.double(), what="rows without a change", atol=EXACT)
        expect_close(cost, torch.zeros(2, dtype=F64), what="the cost of no change")
        other = free.clone()
        other[j] = not other[j]
        v = torch.tensor([0.25, -30.0], dtype=F64)
        a, b = (student.change_one(w, h, j, v, f) for f in (free, other))
        for name, one, two in zip(("rows", "cost"), a, b, strict=True):
            expect_close(one, two, what=f"{name} with the other free[j]", rtol=EXACT, atol=EXACT)
        expect_at_most(-a[1][1].item(), -1e-3, "minus the cost of a large change")
        one = torch.stack([w[0, j].double(), v[1]])
        w_new, cost = student.change_one(w, h, j, one, free)
        expect_close(w_new[0], w[0].double(), what="a row beside one that changes", atol=EXACT)
        expect_close(w_new[:, j], one, what="column j, of which one entry changes", atol=40 * EXACT)
        expect_close(cost[1:], b[1][1:], what="the cost of that change", rtol=EXACT)
    calls = [
        (torch.randn(2, 5, generator=rng), mean_square(inputs(rng, 5)), j, v, torch.ones(5) == 1)
        for j in (1, 3)
    ]
    pair = [(w, h, 1, v, free == free) for w, h, *_ in calls]
    changed(student, *([("change_one", *call), ("prices", call[1])] for call in pair))
    found = two_calls(student, "change_one", *calls)
    for (w_new, cost), (w, h, j, v, _) in zip(found, calls, strict=True):
        e = w.double() - w_new
        expect_close(w_new[:, j], v, what="column j of one of two calls", atol=40 * EXACT)
        others = torch.arange(5) != j
        size = EXACT * e.abs().max() * h.abs().max()
        pull = (e @ h)[:, others]
        expect_close(pull, torch.zeros(2, 4, dtype=F64), what="e H of one of two calls", atol=size)
        expect_close(cost, (e @ h * e).sum(1), what="the cost of one of two calls", rtol=EXACT)


@exercise(
    "ex2",
    points=3,
    invariant="prices are those of changes of 1; the more inputs go together, the cheaper a repair",
    cause="an inverse entry in place of one over it, or repairs that are counted at full price",
)
def test_prices_of_changes(student, rng):
    for k, scale in ((6, 1.0), (1, 1.0), (3, 1e-8), (9, 1e8), (40, 1e-12), (40, 1e12)):
        h = mean_square(inputs(rng, k, alike=2.0)) * scale
        value = student.prices(h)
        alone, repaired = expect_tuple(value, (torch.Tensor,) * 2, "prices")
        for seen, name in ((alone, "alone"), (repaired, "repaired")):
            expect_tensor(seen, name, F64, (k,))
        expect_close(alone, h.diagonal(), what="alone", rtol=EXACT)
        for j in range(k):
            rest = torch.arange(k) != j
            least = h[j, j]
            if k > 1:
                least = least - h[j, rest] @ torch.linalg.solve(h[rest][:, rest], h[rest, j])
            expect_close(repaired[j].item(), least.item(), what="repaired", rtol=10 * EXACT)
        apart = h.diagonal().diag()  # another H with the same diagonal: no repair helps
        expect_close(student.prices(apart)[1], h.diagonal(), what="repaired, apart", rtol=EXACT)
    h = nearly_alike(1e-5)
    right = torch.full((2,), 1e-5 * (2 - 1e-5), dtype=F64)
    expect_close(student.prices(h)[1], right, what="repaired, inputs nearly alike", rtol=EXACT)
    apart = nearly_alike(0.5)  # two pairs of channels that have nothing to do with one another
    repaired = student.prices(torch.block_diag(1e8 * apart, 1e-16 * apart))[1]
    right = 0.75 * torch.tensor([1e8, 1e8, 1e-16, 1e-16], dtype=F64)
    expect_close(repaired, right, what="repaired, pairs of unlike size", rtol=LOOSE)
    even, h = of_unlike_sizes()
    right = 1 / torch.linalg.inv(even).diagonal()
    repaired = student.prices(h)[1] / UNLIKE.square()
    expect_close(repaired, right, what="repaired, unlike inputs", rtol=LOOSE)


# ---- exercise 3 ------------------------------------------------------------------------------


def given_case(rng, n, k, bits, damping, dead=(), size=1.0):
    def make():
        x, w = size * inputs(rng, k, alike=2.0), torch.randn(n, k, generator=rng)
        x[:, list(dead)] = 0.0
        h, (scale, zero, _) = mean_square(x), grid(w.double(), bits)
        wide = (scale.expand(n, k), zero.expand(n, k))
        codes, _, _, far = brute(w, h, bits, damping, given=wide)
        return w, h, scale, zero, codes, far

    return clear_case(make)


@exercise(
    "ex3",
    points=2,
    invariant="the upper factor of the inverse, for H of any size",
    cause="float32, a floor under the diagonal, the flipped factor, or no ValueError",
)
def test_factor_of_any_h(student, rng):
    for k, scale in ((1, 4.0), (2, 1e-8), (7, 1e8), (24, 1.0)):
        h = mean_square(inputs(rng, k, alike=1.5)) * scale
        u = expect_tensor(student.inverse_factor(h), "U", F64, (k, k))
        right = torch.linalg.inv(h)
        expect_close(u.T @ u, right, what="U^T U", atol=EXACT * right.abs().max())
        assert not u.tril(-1).any(), "U has something below its diagonal"
        expect_at_most(-u.diagonal() / u.abs().max(), -1e-9, "minus the diagonal of U")
    d = 1e-6
    right = torch.tensor([[1.0, d - 1], [d - 1, 1.0]], dtype=F64) / (d * (2 - d))
    u = student.inverse_factor(nearly_alike(d))
    expect_close(u.T @ u, right, what="U^T U, inputs nearly alike", rtol=1e-15 / d)
    even, h = of_unlike_sizes()
    u, right = student.inverse_factor(h) * UNLIKE, torch.linalg.inv(even)
    expect_close(u.T @ u, right, what="U^T U, unlike inputs", atol=LOOSE * right.abs().max())
    pair = [mean_square(inputs(rng, 5)) for _ in range(2)]
    for u, h in zip(two_calls(student, "inverse_factor", *[(h,) for h in pair]), pair, strict=True):
        one = torch.eye(5, dtype=F64)
        expect_close(u.T @ u @ h, one, what="U^T U H of one of two calls", atol=EXACT)
    two = torch.tensor([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues 3 and -1
    refused(student, [("inverse_factor", two.double())])
    for bad in (
        -torch.eye(3),
        torch.diag(torch.tensor([1.0, 0.0, 1.0])),
        -torch.eye(2),  # its determinant is positive
        torch.block_diag(two, two),  # and so is that of these, and every diagonal entry
    ):
        expect_error(ValueError, lambda b=bad: student.inverse_factor(b.double()), "h")


@exercise(
    "ex3",
    points=4,
    invariant="codes are those of exercise 2, column by column, with the inverse of what is left",
    cause="another column's grid, damping twice or not, repairs of columns that are done, or dead "
    "weights that are rounded",
)
def test_codes_by_brute_force(student, rng):
    for n, k, bits, damping, dead, dtype in (
        (4, 12, 2, 0.01, (), torch.float32),
        (2, 8, 1, 0.1, (3,), F64),
        (3, 7, 3, 0.01, (0, 6), torch.bfloat16),
        (1, 5, 8, 1.0, (), torch.float32),
        (5, 1, 4, 0.01, (), torch.float32),
        (2, 3, 4, 0.01, (0, 1, 2), torch.float32),
        (3, 16, 3, 0.0, (), torch.float32),
        (6, 12, 3, 1.0, (), torch.float32),
    ):
        for own in (False, True):  # a grid of its own for each weight

            def make(n=n, k=k, bits=bits, damping=damping, dead=dead, dtype=dtype, own=own):
                x, w = inputs(rng, k, alike=2.0), torch.randn(n, k, generator=rng).to(dtype)
                x[:, list(dead)] = 0.0
                h, (scale, zero, _) = mean_square(x), grid(w.double(), bits)
                if own:
                    scale = scale * (0.5 + torch.rand(n, k, generator=rng, dtype=F64))
                    other = zero + torch.randint(2, (n, k), generator=rng)
                    zero = other.clamp(max=2**bits - 1)
                given = (scale.expand(n, k), zero.expand(n, k))
                codes, _, _, far = brute(w, h, bits, damping, given=given)
                return w, h, scale, zero, codes, far

            w, h, scale, zero, right = clear_case(make)
            codes = student.gptq(w, h, scale, zero, bits, damping)
            expect_tensor(codes, "codes", I64, (n, k))
            expect_same(codes, right, f"codes of {n} x {k}, {bits} bits, dead {dead}")
    # the 1 of dead channels counts in what damps, however small the others are; and stands there
    # without damping, too
    for damping, size in ((0.5, 0.05), (0.0, 1.0)):
        *args, right = given_case(rng, 8, 12, 3, damping, (0, 5), size)
        codes = student.gptq(*args, 3, damping)
        expect_same(codes, right, f"codes with dead channels, damping {damping}, H of size {size}")
    h = 1e-4 * torch.tensor([[4.0, 2, 0], [2, 4, 0], [0, 0, 0]], dtype=F64)
    one, zero = torch.ones(1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64)
    codes = student.gptq(torch.tensor([[0.4, 0.4, 0.0]]), h, one, zero, 4, 1.0)
    # 0.3336 is added to the diagonal, and 0.4 becomes 0.4002; without the 1 it would be 0.52
    expect_same(codes, torch.zeros(1, 3, dtype=I64), "codes of a small H beside a dead channel")
    pair = [given_case(rng, 3, 6, 3, 0.01)[:4] for _ in range(2)]
    changed(student, *([("gptq", *args, 3, 0.01), ("inverse_factor", args[1])] for args in pair))


@exercise(
    "ex3",
    points=1,
    invariant="small repairs add up in weights of bfloat16, and reach the last of many columns",
    cause="repairs rounded to the dtype of w, or columns behind a block left out",
)
def test_repairs_add_up(student, rng):
    one, zero = torch.ones(1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64)
    w = torch.tensor([[0.375] * 8 + [1.4921875]])  # each of 8 repairs adds about 0.0015
    h = torch.eye(9, dtype=F64)
    h[8, :8] = h[:8, 8] = 0.004
    codes = student.gptq(w.bfloat16(), h, one, zero, 4, 0.0)
    expect_same(codes, torch.tensor([[0] * 8 + [2]]), "codes of bfloat16")
    w, h = torch.zeros(1, 300), torch.eye(300, dtype=F64)
    w[0, 0] = w[0, -1] = 0.4  # the last one becomes 0.4 + 0.5 * 0.4
    h[0, -1] = h[-1, 0] = 0.5
    codes = student.gptq(w, h, one, zero, 2, 0.0)
    expect_same(codes, torch.tensor([[0] * 299 + [1]]), "codes of 300 columns")
    uneven = torch.tensor([[1.0004]], dtype=F64)  # 1 in 16 bits, where the code would be 201
    codes = student.gptq(200.45 * uneven, torch.ones(1, 1, dtype=F64), uneven, zero, 8)
    expect_same(codes, torch.tensor([[200]]), "a code of 8 bits")
    w, scale = torch.tensor([[4e5, 0.0]]), torch.tensor([[1e6, 1.0]], dtype=F64)
    h = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=F64)
    codes = student.gptq(w, h, scale, 0 * scale, 4, 1e5)  # 4e5 / (2 + 2e5) is left over
    expect_same(codes, torch.tensor([[0, 2]]), "codes with a damping of 1e5")


@exercise(
    "ex3",
    points=2,
    invariant="H larger or smaller changes nothing, and a diagonal H gives rounding; weights of "
    "any size; a default of 0.01; ValueError passes through",
    cause="a damping that is not relative, an epsilon, or another default",
)
def test_scales_and_defaults(student, rng):
    for scale_w, scale_h in ((1.0, 1e-40), (1e-8, 1.0), (1e4, 1e12)):
        w, h, scale, zero, right = given_case(rng, 3, 8, 3, 0.01)
        args = (scale_w * w.double(), scale_h * h, scale_w * scale, zero, 3)
        expect_same(student.gptq(*args), right, "codes with the default damping")
        expect_same(student.gptq(*args, damping=0.01), right, "codes with a damping of 0.01")
        plain = torch.round(w.double() / scale + zero).clamp(0, 7).long()
        even = torch.diag(h.diagonal())
        expect_same(student.gptq(w, even, scale, zero, 3, 0.2), plain, "codes, diagonal H")
    cases = [given_case(rng, 3, 6, 3, 0.01) for _ in range(2)]
    calls = [(w, h, scale, zero, 3) for w, h, scale, zero, _ in cases]
    for codes, (*_, right) in zip(two_calls(student, "gptq", *calls), cases, strict=True):
        expect_same(codes, right, "codes of one of two calls")
    one = torch.ones(2, 1, dtype=F64)
    bad = torch.tensor([[1.0, 3.0], [3.0, 1.0]], dtype=F64)
    for dtype in (torch.float32, F64):
        refused(student, [("gptq", torch.ones(2, 2, dtype=dtype), bad, one, 0 * one, 3, 0.0)])
    for h, damping in (
        (torch.ones(2, 2, dtype=F64), -0.1),
        (torch.tensor([[1.0, 3.0], [3.0, 1.0]], dtype=F64), 0.0),
        (torch.ones(2, 3, dtype=F64), 0.01),
    ):
        expect_error(
            ValueError,
            lambda h=h, d=damping: student.gptq(torch.ones(2, 2), h, one, 0 * one, 3, d),
            f"gptq, h {h.tolist()}, damping {damping}",
        )


# ---- exercise 4 ------------------------------------------------------------------------------


def three(value, w, group, call):
    kinds = (torch.Tensor,) * 3
    codes, scale, zero = expect_tuple(value, kinds, call)
    groups = (len(w), math.ceil(w.shape[1] / group))
    expect_tensor(codes, f"codes of {call}", I64, tuple(w.shape))
    for part, name in ((scale, "scale"), (zero, "zero")):
        expect_tensor(part, f"{name} of {call}", F64, groups)
    return codes, scale, zero


def group_case(rng, n, k, bits, group, when, damping=0.01, order=None, dead=()):
    def make():
        x, w = inputs(rng, k, alike=2.0), torch.randn(n, k, generator=rng)
        x[:, list(dead)] = 0.0
        w[:, list(dead)] *= 50.0  # a grid that saw them would be another one
        h = mean_square(x)
        columns = None if order is None else order(h)
        return w, h, *brute(w, h, bits, damping, columns, group, when)

    return clear_case(make)


def same_three(seen, right, what):
    for name, a, b in zip(("codes", "scale", "zero"), seen, right, strict=True):
        expect_close(a, b, what=f"{name}, {what}", rtol=0.0 if name == "codes" else EXACT)


def but_for_rounding(seen, right, group, dead):
    """seen, with right's grids in groups of dead weights that stand for 0.

    A factor is exact to rounding: what live channels leave in such a group may be some 1e-17 in
    place of 0, and has a grid of its own then.
    """
    codes, scale, zero = (part.clone() for part in seen)
    for g in range(scale.shape[1]):
        at = slice(g * group, min((g + 1) * group, codes.shape[1]))
        small = ((codes[:, at] - zero[:, g : g + 1]) * scale[:, g : g + 1]).abs() <= EXACT
        if set(range(at.start, at.stop)) <= set(dead) and small.all():
            codes[:, at], scale[:, g], zero[:, g] = right[0][:, at], right[1][:, g], right[2][:, g]
    return codes, scale, zero


@exercise(
    "ex4",
    points=4,
    invariant="codes and grids of every block, group and kind are those of the brute force",
    cause="a last block or group that is shorter, groups across blocks, dead weights in a grid, or "
    "grids of weights that are rounded already",
)
def test_blocks_and_groups(student, rng):
    kinds = ("fresh", "lazy", "static")
    for n, k, bits, block, group, dead, damping in (
        (3, 13, 2, 4, 3, (), 0.01),
        (2, 10, 3, 3, 7, (0, 4), 0.1),
        (1, 8, 4, 8, 1, (), 0.01),
        (4, 1, 3, 2, 2, (), 0.01),
        (2, 6, 1, 1, 64, (5,), 0.0),
        (2, 16, 2, 5, 2, (), 1.0),
        (1, 5, 8, 100, 2, (), 0.01),
        (2, 7, 3, 3, 2, (2, 3), 0.01),  # a group of dead weights only
        (2, 3, 3, 2, 2, (0, 1, 2), 0.01),
        (2, 9, 8, 4, 2, (), 0.01),
        (2, 9, 20, 4, 3, (1,), 0.01),
    ):
        for grids in kinds:
            when = {"fresh": lambda j: j, "static": lambda j: 0}
            when["lazy"] = lambda j, b=block: j // b * b
            case = group_case(rng, n, k, bits, group, when[grids], damping, dead=dead)
            w, h, *right = case
            for given in (w, w.double()) if dead else (w,):  # a float64 w is no copy
                value = student.gptq_blocked(given, h, bits, block, group, grids, damping)
                seen = three(value, w, group, "gptq_blocked")
                if grids != "static":
                    seen = but_for_rounding(seen, right, group, dead)
                same_three(seen, right, f"{n} x {k}, block {block}, group {group}, {grids}")
    pair = [group_case(rng, 3, 7, 3, 2, lambda j: j) for _ in range(2)]
    calls = [(w, h, 3, 4, 2, "fresh", 0.01) for w, h, *_ in pair]
    changed(student, *([("gptq_blocked", *call)] for call in calls))
    found = two_calls(student, "gptq_blocked", *calls)
    for value, (w, _, *right) in zip(found, pair, strict=True):
        same_three(three(value, w, 2, "gptq_blocked"), right, "one of two calls")
    w, h = torch.zeros(1, 300), torch.eye(300, dtype=F64)
    w[0, 0], w[0, 1], w[0, -1], h[0, -1], h[-1, 0] = 0.4, 1.0, 0.4, 0.5, 0.5
    for block, last in ((400, 0.4), (150, 0.4 + 0.5 * (0.4 - 1 / 3))):
        value = student.gptq_blocked(w.double(), h, 2, block, 290, "lazy", 0.0)
        _, scale, _ = three(value, w, 290, "gptq_blocked")
        right = torch.tensor([[1.0, last]], dtype=F64) / 3
        expect_close(scale, right, what=f"scales of 300 columns, block {block}", atol=1e-7)


@exercise(
    "ex4",
    points=3,
    invariant="fresh grids do not depend on the block; lazy ones are fresh in blocks of 1, and "
    "static in one block; weights in other dtypes and of any size; a default of 0.01",
    cause="lazy and fresh exchanged, a copy that moves along with the weights, or an epsilon",
)
def test_lazy_between_fresh_and_static(student, rng):
    for dtype, scale in ((F64, 1.0), (F64, 1e-8), (F64, 1e4), (torch.bfloat16, 1.0)):

        def make(dtype=dtype):
            # scales by a power of two below, so that all three kinds stay clear of ties
            x, w = inputs(rng, 12, alike=2.0), torch.randn(3, 12, generator=rng).to(dtype)
            h = mean_square(x)
            static = brute(w, h, 2, 0.01, None, 4, lambda j: 0)
            fresh = brute(w, h, 2, 0.01, None, 4, lambda j: j)
            return w, h, static[:3], fresh[:3], min(static[3], fresh[3])

        w, h, static, fresh = clear_case(make)
        for grids, block, right in (
            ("fresh", 12, fresh),
            ("fresh", 5, fresh),
            ("fresh", 1, fresh),
            ("lazy", 1, fresh),
            ("lazy", 12, static),
            ("lazy", 99, static),
            ("static", 5, static),
        ):
            large = (scale * w).to(w.dtype)
            value = student.gptq_blocked(large, scale**5 * h, 2, block, 4, grids)
            codes, own, zero = three(value, w, 4, "gptq_blocked")
            same_three((codes, own / scale, zero), right, f"block {block}, {grids}, times {scale}")
    w, h = torch.randn(2, 4, generator=rng), torch.eye(4, dtype=F64)
    for block, group, grids, damping in (
        (2, 2, "Fresh", 0.01),
        (-1, 2, "static", 0.01),
        (2, -2, "lazy", 0.01),
        (2, -1, "fresh", 0.01),
        (2, 2, "lazy", -1.0),
        (2, 2, "static", math.inf),
    ):
        expect_error(
            ValueError,
            lambda b=block, g=group, s=grids, d=damping: student.gptq_blocked(w, h, 3, b, g, s, d),
            f"gptq_blocked, block {block}, group {group}, grids {grids!r}, damping {damping}",
        )
    bad = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=F64)
    for grids, damping in (("static", 0.0), ("fresh", 0.0), ("now", 0.01), ("lazy", -1.0)):
        for dtype in (torch.float32, F64):
            own = torch.ones(2, 2, dtype=dtype)
            refused(student, [("gptq_blocked", own, bad, 3, 2, 2, grids, damping)])
    for other, damping in ((bad, 0.0), (h[:2], 0.01), (h[:2, :2], math.nan)):
        for grids in ("fresh", "lazy", "static"):
            expect_error(
                ValueError,
                lambda h=other, d=damping, s=grids: student.gptq_blocked(
                    w[:, : h.shape[1]], h, 3, 2, 2, s, d
                ),
                f"gptq_blocked, h {other.tolist()}, damping {damping}",
            )


@exercise(
    "ex4",
    points=2,
    invariant="updates are those that a simulation counts, and an int for weights of real models",
    cause="a last block of full length, columns behind counted for each column, or a float",
)
def test_updates_counted(student, rng):
    for n, k, block in (
        (3, 13, 4),
        (2, 12, 4),
        (7, 10, 3),
        (1, 1, 5),
        (4, 9, 9),
        (4, 9, 8),
        (12345, 6789, 101),
    ):
        count = 0
        for j in range(k):
            stop = min(k, j // block * block + block)
            count += stop - j - 1
            if j == stop - 1:
                count += k - stop
        seen = student.updates(n, k, block)
        assert type(seen) is int, f"updates returned {type(seen).__name__}, not an int"
        assert seen == n * count, f"updates({n}, {k}, {block}) is {seen}, expected {n * count}"
    seen = student.updates(28672, 8192, 128)
    right = 28672 * (64 * 128 * 127 // 2 + 128 * 64 * 63 // 2)
    assert type(seen) is int, f"updates returned {type(seen).__name__}, not an int"
    assert seen == right, "updates of a large weight"


# ---- exercise 5 ------------------------------------------------------------------------------


def falling(h):
    return torch.tensor(sorted(range(len(h)), key=lambda j: -h[j, j].item()))


def ordered(student, w, h, bits, group, static, damping=0.01):
    value = student.gptq_ordered(w, h, bits, group, static, damping)
    *parts, g_idx = expect_tuple(value, (torch.Tensor,) * 4, "gptq_ordered")
    expect_tensor(g_idx, "g_idx", I64, (w.shape[1],))
    return *three(tuple(parts), w, group, "gptq_ordered"), g_idx


def ordered_case(rng, n, k, bits, group, static, damping, dead, dtype, size=1.0):
    """A function that draws (w, h, codes, scale, zero, g_idx, clearance)."""

    def make():
        x, w = inputs(rng, k, alike=2.0), torch.randn(n, k, generator=rng).to(dtype)
        x[:, list(dead)] = 0.0
        w[:, list(dead)] *= 50.0
        h, g_idx = mean_square(size * x), torch.arange(k) // group
        order = falling(h)
        back = order.argsort()
        if not static:
            codes, scale, zero, far = brute(w, h, bits, damping, order, group, lambda j: j)
            return w, h, codes[:, back], scale, zero, g_idx[back], far
        alive = w.double().masked_fill(h.diagonal() == 0, 0.0)
        grids = [grid(part, bits) for part in alive.split(group, 1)]
        scale, zero = (torch.cat([g[i] for g in grids], 1) for i in (0, 1))
        codes, _, _, far = brute(
            w, h, bits, damping, order, given=(scale[:, g_idx], zero[:, g_idx])
        )
        return w, h, codes[:, back], scale, zero, g_idx, min(far, *(g[2] for g in grids))

    return make


@exercise(
    "ex5",
    points=4,
    invariant="codes, grids and g_idx are those of the brute force in act-order",
    cause="codes in the new order, h permuted on one side, grids of the weights as they came where "
    "they are fresh, the order of the damped H, or a last group that is shorter",
)
def test_ordered_by_brute_force(student, rng):
    for n, k, bits, group, static, dead, damping, dtype, size in (
        (3, 11, 2, 4, False, (), 0.01, torch.float32, 1.0),
        (3, 11, 2, 4, True, (), 0.01, torch.bfloat16, 1.0),
        (2, 8, 3, 3, False, (2,), 0.2, F64, 1.0),
        (2, 8, 3, 3, True, (2,), 0.2, torch.float32, 1.0),
        (2, 8, 3, 3, True, (5,), 0.2, F64, 1.0),
        (2, 8, 3, 3, False, (2,), 0.2, F64, 0.01),  # all alive entries are below 1
        (1, 1, 3, 2, False, (), 0.01, torch.float32, 1.0),
        (2, 6, 4, 1, True, (), 0.0, torch.float32, 1.0),
        (2, 6, 1, 9, False, (), 1.0, torch.bfloat16, 1.0),
        (2, 6, 3, 9, True, (), 0.01, torch.float32, 1.0),
        (2, 8, 3, 2, True, (2, 3), 0.01, torch.float32, 1.0),  # a group of dead weights only
        (2, 3, 3, 4, True, (0, 1, 2), 0.01, torch.float32, 1.0),
        (2, 3, 3, 4, False, (0, 1, 2), 0.01, torch.float32, 1.0),
        (2, 8, 8, 3, True, (), 0.01, F64, 1.0),  # beyond 8 bits exercise 3 may round
        (2, 8, 20, 3, False, (), 0.01, torch.float32, 1.0),
    ):
        w, h, *right, g_idx = clear_case(
            ordered_case(rng, n, k, bits, group, static, damping, dead, dtype, size)
        )
        *seen, index = ordered(student, w, h, bits, group, static, damping)
        expect_same(index, g_idx, f"g_idx, {n} x {k}, groups of {group}, static={static}")
        seen = seen if static else but_for_rounding(seen, right, group, dead)
        same_three(seen, right, f"{n} x {k}, groups of {group}, static={static}, dead {dead}")
    pair = [clear_case(ordered_case(rng, 2, 7, 3, 3, True, 0.01, (), F64)) for _ in range(2)]
    changed(
        student,
        *([("gptq_ordered", w, h, 3, 3, True, 0.01), ("act_order", h)] for w, h, *_ in pair),
    )
    w, h = torch.tensor([[0.6, 1.69914, 3.0]]), torch.eye(3, dtype=F64)
    h[:2, :2] = torch.tensor([[2.2, 1.0], [1.0, 2.0]])
    for static in (False, True):  # the second becomes 1.499 without damping, 1.501 with 0.01
        codes, *_ = ordered(student, w, h, 2, 3, static, 0.0)
        expect_same(codes, torch.tensor([[1, 1, 3]]), f"codes without damping, static={static}")


@exercise(
    "ex5",
    points=2,
    invariant="ordering does not depend on the size of H or w, damping is 0.01 unless it is given, "
    "and dead channels come last",
    cause="an order of the damped H, another default, or an epsilon",
)
def test_orders_and_defaults(student, rng):
    for static in (False, True):
        w, h, *right, g_idx = clear_case(
            ordered_case(rng, 2, 9, 3, 4, static, 0.01, (), torch.float32)
        )
        for scale_w, scale_h in ((1.0, 1e-40), (1e-8, 1.0), (1e4, 1e10)):
            value = student.gptq_ordered(scale_w * w.double(), scale_h * h, 3, 4, static)
            *seen, index = expect_tuple(value, (torch.Tensor,) * 4, "gptq_ordered")
            codes, scale, zero = three(tuple(seen), w, 4, "gptq_ordered")
            same_three((codes, scale / scale_w, zero), right, f"static={static}, times {scale_w}")
            expect_same(index, g_idx, "g_idx")
    for k in (1, 5, 40):
        h = mean_square(inputs(rng, k))
        if k > 1:
            h[3], h[:, 3] = 0.0, 0.0
        order = expect_tensor(student.act_order(h), "act_order", I64, (k,))
        expect_same(order, falling(h), "act_order")
        small = expect_tensor(student.act_order(1e-12 * h), "act_order", I64, (k,))
        expect_same(small, falling(h), "act_order of a small H")
    sizes = torch.randperm(6, generator=rng).double()
    pair = [torch.diag(sizes), torch.diag(5 - sizes)]
    found = two_calls(student, "act_order", *[(h,) for h in pair])
    for order, h in zip(found, pair, strict=True):
        expect_same(order, falling(h), "act_order of one of two calls")
    close = torch.tensor([3.0, 1.0, 2.0, 0.0], dtype=F64)
    order = student.act_order(torch.diag(1 + 1e-12 * close))  # one number in float32
    expect_same(order, torch.tensor([0, 2, 1, 3]), "act_order of nearly equal channels")
    bad = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=F64)
    one = torch.eye(2, dtype=F64)
    for h, damping in ((bad, 0.0), (one, -0.5), (one, math.nan), (one, math.inf)):
        for static in (False, True):
            expect_error(
                ValueError,
                lambda h=h, s=static, d=damping: student.gptq_ordered(
                    torch.ones(2, 2), h, 3, 1, s, d
                ),
                f"gptq_ordered, h {h.tolist()}, damping {damping}",
            )
            own = torch.ones(2, 2, dtype=F64)
            refused(student, [("gptq_ordered", own, h, 3, 1, static, damping)])


@exercise(
    "ex5",
    points=2,
    invariant="every code, grid and index is counted once; an index that says nothing is not "
    "stored",
    cause="groups rounded down, one grid for all rows, zeros forgotten, or an index always, never",
)
def test_bits_counted(student, rng):
    for n, k, bits, group, scale_bits, zero_bits, index_bits in (
        (7, 13, 3, 4, 16, 3, 32),
        (1, 1, 1, 1, 32, 8, 7),
        (5, 12, 2, 5, 16, 2, 16),
        (4096, 11008, 4, 128, 16, 4, 32),
        (3, 10, 8, 64, 16, 0, 4),
        (2, 9, 2, 3, 16, 2, 5),
    ):
        groups = (k + group - 1) // group
        plain = n * k * bits + n * groups * (scale_bits + zero_bits)
        known = torch.tensor([j // group for j in range(k)])
        cases = [(known, plain)]
        if groups > 1:
            cases += [(known.flip(0), plain + k * index_bits)]
            late = known.clone()
            late[-1], late[0] = 0, groups - 1
            rising = known.clone()
            rising[group] = 0  # in order, but not of this length
            crossed = known.clone()  # each group's first channel is where it is without an order
            crossed[[-1, 1 % group]] = crossed[[1 % group, -1]]
            unknown = [late, rising]
            unknown += [crossed] if 1 % group and k % group > 1 else []
            cases += [(index, plain + k * index_bits) for index in unknown]
        for g_idx, right in cases:
            seen = student.stored_bits(
                (n, k), bits, group, g_idx, scale_bits, zero_bits, index_bits
            )
            assert type(seen) is int, f"stored_bits returned {type(seen).__name__}, not an int"
            assert seen == right, f"{n} x {k} in groups of {group}: {seen}, expected {right}"


@exercise(
    "ex5",
    points=1,
    invariant="(code - zero) times scale, of each channel's group, float32",
    cause="groups by place and not by g_idx, or the zero added",
)
def test_dequantized(student, rng):
    for n, k, groups, scale_of, top in (
        (3, 7, 3, 1.0, 16),
        (3, 7, 3, 2.0, 256),
        (1, 1, 1, 1e-8, 16),
        (2, 5, 2, 1e5, 16),
    ):
        codes = torch.randint(top, (n, k), generator=rng)
        g_idx = torch.randint(groups, (k,), generator=rng)
        scale = scale_of * (0.1 + torch.rand(n, groups, generator=rng, dtype=F64))
        zero = torch.randint(top // 2, top, (n, groups), generator=rng).double()
        w = student.dequantize(codes, scale, zero, g_idx)
        expect_tensor(w, "dequantize", torch.float32, (n, k))
        right = torch.tensor(
            [
                [(codes[i, j] - zero[i, g_idx[j]]) * scale[i, g_idx[j]] for j in range(k)]
                for i in range(n)
            ]
        )
        expect_close(w, right, what="a weight", rtol=2.0**-22)
    calls = []
    for _ in range(2):
        codes = torch.randint(16, (3, 5), generator=rng)
        scale = 0.1 + torch.rand(3, 2, generator=rng, dtype=F64)
        zero = torch.randint(16, (3, 2), generator=rng).double()
        calls.append((codes, scale, zero, torch.tensor([0, 1, 1, 0, 1])))
    found = two_calls(student, "dequantize", *calls)
    for w, (codes, scale, zero, g_idx) in zip(found, calls, strict=True):
        right = ((codes - zero[:, g_idx]) * scale[:, g_idx]).float()
        expect_close(w, right, what="a weight of one of two calls", rtol=2.0**-22)


# ---- exercise 6 ------------------------------------------------------------------------------


SIZES = {"vocab_size": 20, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2}


def a_model(rng, dtype=F64, **changes):
    """A Llama with random parameters, untied, in eval mode."""
    model = Llama(LlamaConfig(**SIZES | changes)).to(dtype).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.randn(p.shape, generator=rng, dtype=F64)
            p.copy_(1 + values.abs() if "norm" in name else 0.5 * values)
    return model


def state_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def logits(model, state, ids):
    made = Llama(model.config).to(F64).eval()
    made.load_state_dict(state)
    with torch.no_grad():
        return made(ids)


def a_state(value, state, call):
    assert isinstance(value, dict), f"{call} returned {type(value).__name__}, not a dict"
    assert value.keys() == state.keys(), f"{call}: names {sorted(value.keys() ^ state.keys())}"
    for name, tensor in state.items():
        expect_tensor(value[name], f"{name} of {call}", tensor.dtype, tuple(tensor.shape))
    return value


def mixed(state):
    """The same in two dtypes: an embedding in float32, a head in float64, every other tensor."""
    names = sorted(state, key=lambda name: (name == "lm_head.weight", name))
    halves = {name: state[name].float() for name in names[::2] if name != "lm_head.weight"}
    halves["model.embed_tokens.weight"] = state["model.embed_tokens.weight"].float()
    return state | halves


def orthogonal(rng, n):
    """Not symmetric, so Q and Q^T differ."""
    return torch.linalg.qr(torch.randn(n, n, generator=rng, dtype=F64))[0].contiguous()


def drive_seeded(student, n, seed):
    """Runs beside the student's code: what torch's own generator gives after a rotation."""
    import torch

    torch.manual_seed(seed)
    q = student.random_rotation(n, 7)
    return q, torch.rand(3)


def drive_changed(student, name, args):
    """Runs beside the student's code: a result is the caller's own, who changes it."""
    first = getattr(student, name)(*args)
    first *= 3
    return first, getattr(student, name)(*args)


@exercise(
    "ex6",
    points=2,
    invariant="orthogonal, entries of one size, another matrix for another seed; torch's own "
    "generator neither matters nor moves",
    cause="signs of the whole matrix, signs entry by entry, or torch.manual_seed",
)
def test_rotations(student, rng):
    for n in (1, 2, 4, 16, 128, 1024):
        for q in (student.hadamard(n), student.random_rotation(n, 3)):
            expect_tensor(q, f"a matrix of order {n}", F64, (n, n))
            size = torch.full((n, n), n**-0.5, dtype=F64)
            expect_close(q.abs(), size, what="the size of an entry", rtol=EXACT)
            expect_close(q.T @ q, torch.eye(n, dtype=F64), what="Q^T Q", atol=EXACT)
    seeds = (0, 1, 2, 3, 4, 5, 16, 100, 256, 1000, 2**16, 10**6, 2**31, 2**32 - 1)
    drawn = [student.random_rotation(64, seed) for seed in seeds]
    for i, a in enumerate(drawn):
        for b in drawn[:i]:
            assert not torch.equal(a, b), "two seeds, one matrix"
            assert not torch.equal(a, -b), "two seeds differ by one sign only"
    for seed, q in zip(seeds, drawn, strict=True):
        expect_same(student.random_rotation(64, seed), q, f"seed {seed} again")
    # signs are drawn, all of them: of 64 x 91 draws the share of unlike ones is within 0.007 of 1/2
    unlike = [(a * b < 0).double().mean().item() for i, a in enumerate(drawn) for b in drawn[:i]]
    share = sum(unlike) / len(unlike)
    assert abs(share - 0.5) <= 0.1, f"{share:.2f} of the signs of two seeds are unlike, not half"
    for q in drawn:  # with signs of rows no column is even, with signs of columns no row
        even = [(q.sum(way).abs() > 7.99).any() for way in (0, 1)]
        assert not all(even), "a row and a column of one sign: rows in another order are no signs"
    first = None
    for seed in (0, 1):
        value = student.drive(drive_seeded, 32, seed)
        q, after = expect_tuple(value, (torch.Tensor,) * 2, "random_rotation")
        own = torch.Generator().manual_seed(seed)
        expect_close(after, torch.rand(3, generator=own), what="torch.rand after a rotation")
        first = q if first is None else first
        expect_same(q, first, "seed 7")
    for name, args in (("hadamard", [16]), ("random_rotation", [16, 5])):
        first, again = student.drive(drive_changed, name, args)
        expect_close(first, 3 * again, what=f"what was changed after {name}", rtol=EXACT)
        size = torch.full((16, 16), 0.25, dtype=F64)
        expect_close(again.abs(), size, what=f"the size of an entry, {name} again", rtol=EXACT)
    held = two_calls(student, "random_rotation", (64, 16), (64, 256))
    for q, right in zip(held, (drawn[6], drawn[8]), strict=True):
        expect_same(q, right, "random_rotation, one of two calls")
    for n in (12, 20, 5, -4, 1000, 1023, 0):
        for name in ("hadamard", "random_rotation"):
            call = (n,) if name == "hadamard" else (n, 0)
            expect_error(
                ValueError, lambda f=name, a=call: getattr(student, f)(*a), f"{name}, n={n}"
            )


def drive_tied(student, state):
    """Runs beside the student's code: lm_head is the embedding's own tensor."""
    state = dict(state)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return student.absorb_norms(state), state


@exercise(
    "ex6",
    points=2,
    invariant="each reader is multiplied by the norm before it, in float64, in its own dtype; all "
    "else is as it was, also where head and embedding are one tensor",
    cause="q_proj alone, up_proj alone, the norm after a layer, or a head that takes the embedding "
    "along",
)
def test_absorbed_one_by_one(student, rng):
    for dtype, changes in (
        (F64, {}),
        (torch.float32, {"num_hidden_layers": 1}),
        (F64, {"attention_bias": True, "mlp_bias": True, "num_hidden_layers": 11}),
        (None, {}),
        (None, {"num_hidden_layers": 1, "mlp_bias": True}),
    ):
        model = a_model(rng, dtype or F64, **changes)
        state = state_of(model) if dtype else mixed(state_of(model))
        for name in [name for name in state if "norm" in name]:
            state[name][::3] *= -1  # a gain may be of either sign
        if changes.get("num_hidden_layers") == 1:
            state = {"lm_head.weight": state["lm_head.weight"], **state}  # another order of names
        new = a_state(student.absorb_norms(state), state, "absorb_norms")
        readers = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "gate_proj": 1, "up_proj": 1}
        for name, tensor in state.items():
            part, right = name.split(".")[-2], tensor.double()
            if "norm" in part:
                right = torch.ones_like(right)
            elif part == "lm_head":
                right = right * state["model.norm.weight"].double()
            elif part in readers and name.endswith("weight"):
                layer = ".".join(name.split(".")[:3])
                norm = ("input_layernorm", "post_attention_layernorm")[readers[part]]
                right = right * state[f"{layer}.{norm}.weight"].double()
            rtol = EXACT if tensor.dtype == F64 else 0.0  # a product in float64, rounded once
            expect_close(new[name], right.to(tensor.dtype), what=name, rtol=rtol)
    model = a_model(rng)
    state = state_of(model)
    new, after = expect_tuple(student.drive(drive_tied, state), (dict, dict), "absorb_norms")
    embed = state["model.embed_tokens.weight"]
    expect_close(after["model.embed_tokens.weight"], embed, what="the embedding that came in")
    expect_close(new["model.embed_tokens.weight"], embed, what="the new embedding")
    right = embed * state["model.norm.weight"]
    expect_close(new["lm_head.weight"], right, what="the new head", rtol=EXACT)


def drive_turned_tied(student, state, q):
    """Runs beside the student's code: lm_head is the embedding's own tensor."""
    state = dict(state)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return student.rotate(state, q)


@exercise(
    "ex6",
    points=3,
    invariant="what writes the residual stream is turned at its outputs, what reads it at its "
    "inputs; heads and neurons stay as they are",
    cause="Q and Q^T exchanged, biases of q, k, v turned, or writers turned at their inputs",
)
def test_turned_one_by_one(student, rng):
    writers = ("o_proj", "down_proj")
    for dtype, changes in (
        (F64, {"attention_bias": True, "mlp_bias": True}),
        (torch.float32, {"hidden_size": 8, "intermediate_size": 8}),
        (None, {"attention_bias": True, "mlp_bias": True}),
        (F64, {"num_key_value_heads": 4, "num_hidden_layers": 11, "mlp_bias": True}),
    ):
        model = a_model(rng, dtype or F64, **changes)
        state = {n: torch.ones_like(t) if "norm" in n else t for n, t in state_of(model).items()}
        state = state if dtype else mixed(state)
        q = orthogonal(rng, 8)
        new = a_state(student.rotate(state, q), state, "rotate")
        for name, tensor in state.items():
            part, right = name.split(".")[-2], tensor.double()
            if part in writers:
                right = q.T @ right if tensor.ndim == 2 else right @ q
            elif tensor.ndim == 2:
                right = right @ q
            size = EXACT if tensor.dtype == F64 else 2.0**-23 * right.abs().max()
            expect_close(new[name], right, what=name, atol=size)
        ids = torch.randint(20, (2, 7), generator=rng)
        if dtype == F64:
            right = logits(model, state, ids)
            seen = logits(model, new, ids)
            expect_close(seen, right, what="a logit", atol=10 * EXACT * right.abs().max())
    (new,) = expect_tuple((student.drive(drive_turned_tied, state, q),), (dict,), "rotate")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):  # one tensor, turned once
        right = state["model.embed_tokens.weight"] @ q
        expect_close(new[name], right, what=f"{name}, tied", atol=EXACT)


@exercise(
    "ex6",
    points=2,
    invariant="the peak of each token does not depend on its size; from 1 to the root of K",
    cause="squares in bfloat16 or float32, an epsilon under the root, or NaN for a token of zeros",
)
def test_peaks_of_tokens(student, rng):
    for shape, scale in (
        ((6,), 1.0),
        ((2, 3, 5), 1e-37),
        ((2, 3, 5), 1.0),  # other tokens in the same shape
        ((4, 1), 1e30),
        ((1, 7), 1e4),
        ((0, 3), 1.0),
        ((2, 0, 3), 1.0),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            x = (scale * torch.randn(shape, generator=rng)).to(dtype)
            if x.numel() > 14:
                x[0, 1] = 0.0
            seen = expect_tensor(student.peaks(x), "peaks", F64, shape[:-1])
            rows = x.double().reshape(-1, shape[-1]).tolist()
            right = [
                max(map(abs, r)) / math.sqrt(sum(v * v for v in r) / len(r)) if any(r) else 0.0
                for r in rows
            ]
            right = torch.tensor(right, dtype=F64).reshape(shape[:-1])
            expect_close(seen, right, what="a peak", rtol=EXACT)
    pair = [torch.randn(3, 4, generator=rng) for _ in range(2)]
    for seen, x in zip(two_calls(student, "peaks", *[(x,) for x in pair]), pair, strict=True):
        right = x.double().abs().amax(-1) / x.double().square().mean(-1).sqrt()
        expect_close(seen, right, what="a peak of one of two calls", rtol=EXACT)
    for shape in ((3, 4), (4,)):
        silent = expect_tensor(student.peaks(torch.zeros(shape)), "peaks", F64, shape[:-1])
        expect_same(silent, torch.zeros(shape[:-1], dtype=F64), "peaks of tokens of zeros")
