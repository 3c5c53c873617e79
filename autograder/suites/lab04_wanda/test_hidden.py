"""Hidden tests of lab04: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.  Where a rounding could decide about a mask, they are
drawn until it does not.
"""

import itertools
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
from efflib.lab.again import again, changed, held, refused
from efflib.lab.cases import every_pair

FLOAT32 = 2.0**-24  # relative error of one float32 rounding


def lowest(scores, zeros):
    """For each list: which places go, one after the other, with distinct scores."""
    masks = []
    for row in scores.tolist():
        gone = set(sorted(range(len(row)), key=row.__getitem__)[:zeros])
        masks.append([i not in gone for i in range(len(row))])
    return torch.tensor(masks)


def distinct(rng, *shape):
    """Scores no two of which are equal, also in bfloat16: 1 to 255, signs at random."""
    n = math.prod(shape)
    values = (torch.randperm(255, generator=rng)[:n] + 1).float()
    return (values * (2 * torch.randint(2, (n,), generator=rng) - 1)).reshape(shape)


def close_and_far(rng, *shape):
    """(name, ranks, scores) of any size and distance: neighbours among float32, tiny, large."""
    ranks = torch.rand(math.prod(shape), generator=rng).argsort()
    steps = 1 + ranks * 2.0**-23  # one float32 apart
    beside = torch.where(ranks < len(ranks) - 1, 1.9375 + ranks * 2.0**-23, 3.75)
    spread = 10.0 ** (ranks * (12.0 / len(ranks)) - 8)  # 1e-8 to 1e4
    low_and_tiny = torch.where(2 * ranks < len(ranks), ranks - 1e4, 1e-8 * (1.0 + ranks))
    for name, s in (
        ("one float32 apart", steps),
        ("some 1e-8", 1e-8 * (1.0 + ranks)),
        ("one float32 apart at 1e-8", 2.0**-27 * steps),
        ("one float32 apart beside a large one", beside),  # divided by it many would be equal
        ("some 1e4", 1e4 * (1.0 + ranks / 256)),
        ("one float32 apart at 1e4", 2.0**13 * steps),
        ("from 1e-8 to 1e4", spread),
        ("below 0", -2.0 + ranks * 2.0**-23),
        ("some 1e-8, half of them -1e4, far below 0", low_and_tiny),
    ):
        yield name, ranks.reshape(shape).float(), s.float().reshape(shape)


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="those that go are the lowest int(n * sparsity) of the row or of the layer, however "
    "close, small or large the scores are",
    cause="a share that is rounded otherwise, columns, an order that fits one shape only, or "
    "scores that are rounded, shifted or scaled before they are compared",
)
def test_masks_against_sorting(student, rng):
    for shape in ((4, 7), (1, 11), (9, 1), (6, 20), (8, 8)):
        s = distinct(rng, *shape)
        s[0, 0] = 0.0  # neither below negative scores nor above all
        for sparsity in (0.07, 0.29, 0.5, 0.6, 0.99):
            row = student.keep_share(s, sparsity, "row")
            right = lowest(s, int(shape[1] * sparsity))
            expect_same(row, right, f"by row, {sparsity}")
            layer = student.keep_share(s, sparsity, "layer")
            right = lowest(s.reshape(1, -1), int(s.numel() * sparsity)).reshape(shape)
            expect_same(layer, right, f"by layer, {sparsity}")
            right = lowest(s.abs(), int(shape[1] * sparsity))
            expect_same(student.magnitude_mask(s, sparsity, "row"), right, "magnitude")
    scores, weights = [], []  # (what, which stay, arguments)
    for name, ranks, s in close_and_far(rng, 4, 12):
        # a rounding that makes two neighbours equal shows only between them: so many shares
        for scope, lists, n in (("row", ranks, 12), ("layer", ranks.reshape(1, -1), 48)):
            for zeros in range(1, 12):
                gone = zeros if scope == "row" else 4 * zeros + zeros % 4
                right, share = lowest(lists, gone).reshape(4, 12), (gone + 0.5) / n
                scores.append((f"scores {name}, by {scope}", right, (s, share, scope)))
                if "below 0" not in name:
                    w = s * (1 - 2 * torch.randint(2, (4, 12), generator=rng))
                    weights.append((f"weights {name}, by {scope}", right, (w, share, scope)))
    for function, cases in (("keep_share", scores), ("magnitude_mask", weights)):
        masks = student.many(function, [(arguments, {}) for _, _, arguments in cases])
        for mask, (what, right, _) in zip(masks, cases, strict=True):
            expect_same(mask, right, what)
    # a layer of many rows and columns, its scores one float32 apart
    ranks = torch.rand(8000, generator=rng).argsort().reshape(80, 100)
    for scope, lists in (("row", ranks), ("layer", ranks.reshape(1, -1))):
        right = lowest(lists, lists.shape[1] // 2).reshape(80, 100)
        mask = student.keep_share(1 + ranks * 2.0**-23, 0.5, scope)
        expect_same(mask, right, f"8000 scores, by {scope}")
    right = lowest(ranks.reshape(1, -1), 987).reshape(80, 100)  # 987.648
    mask = student.keep_share(1 + ranks * 2.0**-23, 0.123456, "layer")
    expect_same(mask, right, "0.123456 of 8000 scores")
    w = torch.randn(2, 4, generator=rng)
    off = (1 + 1e-6, -1e-6, *BESIDE, math.inf, -math.inf, math.nan)
    calls = [(name, w, x, s) for name in ("keep_share", "magnitude_mask") for x in off
             for s in ("row", "layer")]  # fmt: skip
    refused(student, [*calls, ("keep_share", w, 0.5, "both"), ("magnitude_mask", w, 0.5, "col")])
    for name, scope in (("keep_share", "ro"), ("magnitude_mask", ""), ("keep_share", "rows"),
                        ("keep_share", " row"), ("magnitude_mask", "layer ")):  # fmt: skip
        expect_error(
            ValueError,
            lambda name=name, scope=scope: getattr(student, name)(torch.ones(2, 4), 0.5, scope),
            f"{name}, scope {scope!r}",
        )


@exercise(
    "ex1",
    points=2,
    invariant="never more than int(n * sparsity) scores go, however many are equal",
    cause="a threshold: all equal scores go, or none",
)
def test_equal_scores(student, rng):
    for levels in (1, 2, 4):
        s = torch.randint(levels, (5, 16), generator=rng).float()
        for sparsity in (0.25, 0.5, 0.7):
            for scope, n in (("row", 16), ("layer", 80)):
                mask = expect_tensor(student.keep_share(s, sparsity, scope), "mask", torch.bool)
                gone = (~mask.reshape(-1, n)).sum(1)
                assert (gone == int(n * sparsity)).all(), f"{gone.tolist()} went"
                kept = s.reshape(-1, n).masked_fill(~mask.reshape(-1, n), math.inf).amin(1)
                lost = s.reshape(-1, n).masked_fill(mask.reshape(-1, n), -math.inf).amax(1)
                assert (lost <= kept).all(), "a higher score went"
                sign = 1 - 2 * torch.randint(2, s.shape, generator=rng)
                mask = student.magnitude_mask(s * sign, sparsity, scope)
                gone = (~expect_tensor(mask, "mask", torch.bool, s.shape).reshape(-1, n)).sum(1)
                assert (gone == int(n * sparsity)).all(), f"{gone.tolist()} weights went"
    for sparsity in (0.29, 0.57, 0.58):  # 100 times each is hardly below a whole number
        for shape, scope, n in (
            ((1, 100), "row", 100),
            ((3, 300), "row", 300),  # bfloat16 counts to 256
            ((9, 100), "layer", 900),
        ):
            for dtype in (torch.float32, torch.bfloat16):
                s = torch.randn(shape, generator=rng).to(dtype)
                mask = student.keep_share(s, sparsity, scope)
                rows = expect_tensor(mask, "mask", torch.bool, shape).reshape(-1, n)
                gone = (~rows).sum(1)
                assert (gone == int(n * sparsity)).all(), f"{gone.tolist()} of {n} went"
                lost = s.reshape(-1, n).masked_fill(rows, -math.inf).amax(1)
                kept = s.reshape(-1, n).masked_fill(~rows, math.inf).amin(1)
                assert (lost <= kept).all(), f"a higher score of {n} went"
    for sparsity, stays in ((0, True), (0.9, True), (1, False), (1.0, False)):
        for scope in ("row", "layer"):
            for shape in ((1, 1), (1, 3)) if sparsity != 0.9 else ((1, 1),):
                mask = student.magnitude_mask(torch.full(shape, -2.0), sparsity, scope)
                expect_same(mask, torch.full(shape, stays), f"{list(shape)} at {sparsity}")


def drive_views(student, w, sparsity, scope):
    """Runs beside the student's code: a weight that is not contiguous."""
    mask = student.magnitude_mask(w.T, sparsity, scope)
    return mask, student.apply_mask(w.T, mask), student.keep_share(w.T, sparsity, scope)


@exercise(
    "ex1",
    points=2,
    invariant="bfloat16 weights and views are masked like others, in their own dtype",
    cause="view on a transposed weight, or a result in float32",
)
def test_bfloat16_and_views(student, rng):
    w = distinct(rng, 12, 5)
    for case in (w, w.bfloat16()):
        for scope in ("row", "layer"):
            flat = case.T.abs().double() if scope == "row" else case.T.abs().double().reshape(1, -1)
            right = lowest(flat, int(flat.shape[1] * 0.5)).reshape(5, 12)
            value = student.drive(drive_views, case, 0.5, scope)
            mask, new, signed = expect_tuple(value, (torch.Tensor,) * 3, "drive_views")
            expect_same(mask, right, f"the mask by {scope}")
            flat = case.T.double() if scope == "row" else case.T.double().reshape(1, -1)
            kept = lowest(flat, int(flat.shape[1] * 0.5)).reshape(5, 12)
            expect_same(signed, kept, f"keep_share of a view by {scope}")
            expect_same(new, torch.where(right, case.T, 0.0), "the masked weight")


@exercise(
    "ex1",
    points=2,
    invariant="what a mask keeps is kept bit by bit, what it does not is 0, in either dtype",
    cause="a product, arithmetic that rounds, or weights that are scaled",
)
def test_what_a_mask_keeps(student, rng):
    w = torch.randn(6, 8, generator=rng) * torch.logspace(-30, 30, 8)
    mask = torch.rand(6, 8, generator=rng) < 0.5
    for dtype in (torch.float32, torch.bfloat16):
        bad = w.to(dtype).masked_fill(~mask & (w > 0), math.nan)
        bad = bad.masked_fill(~mask & (w < -1), -math.inf)
        new = student.apply_mask(bad, mask)
        expect_same(new, torch.where(mask, w.to(dtype), 0.0), "apply_mask")
    special = torch.tensor([[math.nan, math.inf, -math.inf, -0.0, 1e-45, 3.3e38]])
    for dtype in (torch.float32, torch.bfloat16):
        kept = special.to(dtype)
        for mask in (
            torch.ones(1, 6).bool(),
            torch.tensor([[True, True, True, True, False, False]]),
        ):
            new = student.apply_mask(kept, mask)
            expect_same(
                new, kept.masked_fill(~mask, 0.0), "inf, NaN and -0.0 where the mask is True"
            )
            negative = new.signbit()[0, 3].item()
            assert negative, "-0.0 under True came back as 0.0"
    calls = []
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        w, mask = distinct(rng, 4, 6).to(dtype), torch.rand(4, 6, generator=rng) < 0.5
        calls += [("keep_share", w, 0.5, scope) for scope in ("row", "layer")]
        calls += [("magnitude_mask", w, 0.5, scope) for scope in ("row", "layer")]
        calls.append(("apply_mask", w, {"whole": mask}))
    again(student, calls)
    changed(student, calls[:5], calls[-5:])
    for dtype, bits in (  # NaN is many numbers, of either sign
        (torch.float32, torch.tensor([[0x7FC12345, -0x3EDCBB, 0x7F800000, 1]], dtype=torch.int32)),
        (torch.bfloat16, torch.tensor([[0x7FC5, -0x3F, 0x7F80, 1]], dtype=torch.int16)),
    ):
        new = student.apply_mask(bits.view(dtype), torch.ones(1, 4).bool())
        expect_tensor(new, "apply_mask", dtype, (1, 4))
        expect_same(new.view(bits.dtype), bits, f"the bits of what a mask keeps, {dtype}")
    for all_of in (torch.ones(2, 3).bool(), torch.zeros(2, 3).bool()):
        w = torch.randn(2, 3, generator=rng)
        expect_same(student.apply_mask(w, all_of), w * all_of, "a mask of one kind")


TYPES = (torch.float32, torch.bfloat16)
BESIDE = (math.nextafter(0.0, -1.0), -1e-17, math.nextafter(1.0, 2.0))  # not from 0 to 1
KINDS = ("any", "few", "one float32 apart", "far apart", "equal", "all zeros", "zeros and signs")


def any_scores(rng, shape, kind, dtype, size):
    """Scores [N, K], of which neighbours may be equal, close or far apart."""
    ranks = torch.rand(math.prod(shape), generator=rng).argsort().reshape(shape)
    s = torch.randn(shape, generator=rng)
    if kind == "few":
        s = (2 * s).round()
    if kind == "one float32 apart":
        s = (1 + ranks % 4000 * 2.0**-23) * (2 * draw(rng, 0, 1) - 1)
    if kind == "far apart":
        s = s.sign() * 10.0 ** (12 * torch.rand(shape, generator=rng) - 8) / size
    if kind == "equal":
        s = torch.full(shape, 2.0 * draw(rng, 0, 1) - 1)
    if kind == "all zeros":
        s = 0 * s
    if kind == "zeros and signs":
        s = s * (torch.rand(shape, generator=rng) < 0.4)
        s = torch.where(s == 0, torch.where(ranks % 2 == 0, 0.0, -0.0), s)
    return (size * s).to(dtype)


def any_share(rng, n):
    """A share of n: of whole numbers of them, or of a little more or less, or all, or none."""
    share = draw(rng, 0, n) / n
    beside = [math.nextafter(share, to) for to in (0.0, 1.0)]
    return [share, *beside, min((draw(rng, 0, n) + 0.5) / n, 1.0)][draw(rng, 0, 3)]


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def expect_lowest(mask, s, gone, n, what):
    """The mask leaves out `gone` of every n, none of them higher than one that stays."""
    rows = expect_tensor(mask, what, torch.bool, tuple(s.shape)).reshape(-1, n)
    s = s.double().reshape(-1, n)
    counts = (~rows).sum(1)
    assert (counts == gone).all(), f"{what}: {counts.unique().tolist()} went, expected {gone}"
    lost = s.masked_fill(rows, -math.inf).amax(1)
    kept = s.masked_fill(~rows, math.inf).amin(1)
    assert (lost <= kept).all(), f"{what}: a higher score went"


def bits_of(x):
    return x.contiguous().view({2: torch.int16, 4: torch.int32}[x.element_size()])


def expect_masked(new, w, mask, what):
    expect_tensor(new, what, w.dtype, tuple(w.shape))
    assert bits_of(new)[mask].equal(bits_of(w)[mask]), f"{what}: what is kept has other bits"
    assert (new[~mask] == 0).all(), f"{what}: what goes is not 0"


@exercise(
    "ex1",
    points=1,
    invariant="all three functions, anywhere in what the card admits: any shape, size and dtype, "
    "equal and close scores, shares at and beside every whole number, inf, NaN and -0.0, views, "
    "and results stay when others are asked for",
    cause="a corner where two others meet, such as bfloat16 beside equal scores, or one column by "
    "layer; a share that is rounded; memory that is used again",
)
def test_anywhere_in_masks(student, rng):
    shapes = ((1, 1), (1, 9), (7, 1), (6, 11), (3, 300), (70, 33))
    sizes, scopes, calls, checks = (2.0**-27, 1.0, 2.0**13), ("row", "layer"), [], []
    three = list(itertools.product(TYPES, scopes, sizes))
    shares = (0, 1, 0.0, 1.0)
    for shape, kind, (dtype, scope, size), share in every_pair(
        rng, shapes, KINDS, three, ("ends", None, None)
    ):
        share = shares[draw(rng, 0, 3)] if share == "ends" else share
        s, n = any_scores(rng, shape, kind, dtype, size), math.prod(shape)
        n = n if scope == "layer" else shape[1]
        share = any_share(rng, n) if share is None else share
        what = f"{list(shape)}, {kind}, in {dtype}, {share!r} by {scope}"
        calls += [("keep_share", s, share, scope), ("magnitude_mask", s, share, scope)]
        checks += [(expect_lowest, t, int(n * share), n, what) for t in (s, s.abs())]
        w = s.clone()
        special = torch.tensor([math.nan, -math.nan, math.inf, -math.inf, -0.0, 3e38, 1e-45])
        places = torch.rand(shape, generator=rng) < 0.5
        w[places] = special[torch.randint(0, 7, (int(places.sum()),), generator=rng)].to(dtype)
        mask = torch.rand(shape, generator=rng) < (0.0, 0.5, 1.0)[draw(rng, 0, 2)]
        calls.append(("apply_mask", w, mask))
        checks.append((expect_masked, w, mask, f"apply_mask of {list(shape)} in {dtype}"))
    powers = torch.tensor([0, 11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6]).reshape(3, 4)
    for dtype, (scope, n) in itertools.product(TYPES, (("row", 4), ("layer", 12))):
        s = (2.0 ** -(30.0 + powers)).to(dtype)  # which float16 cannot tell apart
        calls.append(("keep_share", s, 0.5, scope))
        checks.append((expect_lowest, s, n // 2, n, f"tiny scores in {dtype} by {scope}"))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    off, calls = (*BESIDE, -1, 2, math.nan, math.inf), []
    for name, shape, dtype, (share, scope) in every_pair(
        rng,
        ("keep_share", "magnitude_mask"),
        shapes[:4],
        TYPES,
        [
            *((share, scope) for share in off for scope in scopes),
            *((share, scope) for share in (0, 0.5, 1) for scope in ("", "Row", "rows", "layer ")),
        ],
    ):
        w = draw(rng, 0, 1) * torch.randn(shape, generator=rng)
        calls.append((name, w.to(dtype), share, scope))
    refused(student, calls)


# ---- exercise 2 ------------------------------------------------------------------------------


@exercise(
    "ex2",
    points=2,
    invariant="a score is what zeroing one weight changes in the output",
    cause="another power of the norm or of the weight, or a factor that depends on the row",
)
def test_scores_against_layers(student, rng):
    for n, k, tokens in ((4, 6, 9), (1, 5, 1), (7, 1, 30), (131, 3, 2)):
        w, x = torch.randn(n, k, generator=rng), torch.randn(tokens, k, generator=rng)
        x = x * torch.logspace(-2, 2, k)
        norms = expect_tensor(student.input_norms(x), "input_norms", torch.float32, (k,))
        s = expect_tensor(student.scores(w, norms), "scores", torch.float32, (n, k))
        # zeroing w_ij changes output i by w_ij x_j, and no other
        change = (w.double()[:, None, :] * x.double()[None]).norm(dim=1)
        expect_close(s, change, what="a score", rtol=(2 * tokens + 8) * FLOAT32)


def drive_norms(student, x, w, norms):
    """Runs beside the student's code: inputs and weights that are not contiguous."""
    views = student.input_norms(x.transpose(0, 1)), student.scores(w.T, norms)
    return *views, student.wanda_mask(w.T, norms, 0.5)


@exercise(
    "ex2",
    points=3,
    invariant="norms do not depend on how tokens are arranged, and are exact for long texts, tiny "
    "and large inputs",
    cause="the first dimension alone summed, the mean of norms of texts, squares or sums in "
    "bfloat16, something added to the squares, or view on inputs that are not contiguous",
)
def test_norms_of_any_arrangement(student, rng):
    x = torch.randn(3, 4, 5, 6, generator=rng)
    right = x.double().reshape(-1, 6).norm(dim=0)
    for case in (x, x.reshape(12, 5, 6), x.reshape(60, 6), x.reshape(3, 2, 2, 5, 6)):
        for factor in (1.0, 2.0**-27, 2.0**13):
            norms = student.input_norms(case * factor)
            norms = expect_tensor(norms, "input_norms", torch.float32, (6,))
            expect_close(norms, factor * right, what="the norms", rtol=64 * FLOAT32)
    w, sizes = torch.randn(6, 4, generator=rng), torch.rand(6, generator=rng)
    value = student.drive(drive_norms, x, w, sizes)
    norms, s, mask = expect_tuple(value, (torch.Tensor,) * 3, "views")
    expect_close(norms, right, what="the norms of a view", rtol=64 * FLOAT32)
    exact = w.T.abs().double() * sizes.double()
    expect_close(s, exact, what="the scores of a view", rtol=4 * FLOAT32)
    lost = exact.masked_fill(expect_tensor(mask, "mask", torch.bool, (4, 6)), 0.0).amax(1)
    assert ((~mask).sum(1) == 3).all(), "the mask of a view"
    kept = exact.masked_fill(~mask, math.inf).amin(1)
    expect_at_most(lost, (1 + 8 * FLOAT32) * kept, "a score of a view that went")
    for factor in (2.0**-27, 2.0**13):
        s = student.scores(factor * w.T, factor * sizes)
        expect_close(s, factor**2 * exact, what="tiny or large scores", rtol=4 * FLOAT32)
    ones = torch.full((3000, 1), 1.0546875).bfloat16()
    right = ones.double().norm(dim=0)
    for case in (ones, ones.reshape(3, 1000, 1)):
        norms = expect_tensor(student.input_norms(case), "input_norms", torch.float32, (1,))
        expect_close(norms, right, what="3000 equal tokens", rtol=3000 * FLOAT32)
    long = torch.randn(20011, 3, generator=rng).bfloat16()
    long[-1] = 200.0  # no token is left out, however they are cut
    norms = expect_tensor(student.input_norms(long), "input_norms", torch.float32, (3,))
    expect_close(norms, long.double().norm(dim=0), what="20011 tokens", rtol=20011 * FLOAT32)
    norms = student.input_norms(long[:20010].reshape(2, 10005, 3))
    expect_close(norms, long[:20010].double().norm(dim=0), what="two texts", rtol=20011 * FLOAT32)
    many = torch.ones(70_001, 1)
    many[-1] = 1000.0
    norms = student.input_norms(many)
    expect_close(norms, many.double().norm(dim=0), what="70,001 tokens", rtol=1e-2)
    silent = torch.zeros(4, 2)
    silent[:, 1] = 2.0
    expect_close(student.input_norms(silent), torch.tensor([0.0, 4.0]), what="a silent channel")
    expect_close(student.input_norms(0 * silent), torch.zeros(2), what="silent channels alone")
    one = student.input_norms(torch.tensor([[-3.0]]))
    expect_close(one, torch.tensor([3.0]), what="one token of one channel")
    s = student.scores(torch.tensor([[-2.0]]), one)
    expect_close(s, torch.tensor([[6.0]]), what="the score of one weight")
    s = student.scores(torch.tensor([[-2.0, 1.0]]), torch.tensor([0.0, 2e4]))
    expect_close(s, torch.tensor([[0.0, 2e4]]), what="a score", rtol=4 * FLOAT32)
    expect_close(student.scores(w.T, torch.zeros(6)), torch.zeros(4, 6), what="scores of silence")


@exercise(
    "ex2",
    points=3,
    invariant="each row is compared alone: as many go in each, and a silent channel goes first",
    cause="rows compared with each other, the magnitude's order, norms that are not used, a "
    "threshold among equal scores, or scores rounded to the dtype of w before they are compared",
)
def test_rows_compared_alone(student, rng):
    for dtype in (torch.float32, torch.bfloat16):
        for sparsity in (0.3, 0.5, 0.75):
            order = torch.rand(6, 16, generator=rng).argsort(1)
            norms = torch.logspace(-1.5, 1.5, 16)[torch.randperm(16, generator=rng)]
            # scores of a row are factors of 1.2 apart: no rounding decides
            sign = 1 - 2 * torch.randint(2, (6, 16), generator=rng)
            w = (sign * torch.rand(6, 1, generator=rng) * 100 * 1.2**order / norms).to(dtype)
            mask = student.wanda_mask(w, norms, sparsity)
            expect_same(mask, lowest(order.float(), int(16 * sparsity)), f"sparsity {sparsity}")
    w, norms = torch.ones(3, 8), torch.ones(8)
    norms[5], w[:, 5] = 0.0, 1e6
    mask = expect_tensor(student.wanda_mask(w, norms, 1 / 8), "wanda_mask", torch.bool, (3, 8))
    assert not mask[:, 5].any() and int(mask.sum()) == 21, "the silent channel stayed"
    for name, ranks, s in close_and_far(rng, 1, 16):  # w is 1: the norms alone decide
        if "below 0" not in name:
            rows = 2.0 ** (torch.arange(40) % 3)[:, None].expand(40, 16)  # exact
            for w in (rows, -rows.bfloat16()):
                for zeros in range(1, 16):
                    right = lowest(ranks, zeros).expand(40, 16)
                    mask = student.wanda_mask(w, s[0], zeros / 16)
                    expect_same(mask, right, f"norms {name}, w {w.dtype}")
    for name, ranks, s in close_and_far(rng, 1, 64):
        if "below 0" not in name:
            mask = student.wanda_mask(-torch.ones(131, 64).bfloat16(), s[0], 0.5)
            expect_same(mask, lowest(ranks, 32).expand(131, 64), f"64 norms {name}, in bfloat16")
    norms = torch.ones(8)
    norms[torch.randperm(8, generator=rng)[:5]] = 0.0
    for sizes in (norms, torch.zeros(8)):
        for sparsity, zeros in ((0.25, 2), (0.5, 4), (1.0, 8), (1, 8), (0.0, 0), (0, 0)):
            mask = student.wanda_mask(torch.randn(4, 8, generator=rng), sizes, sparsity)
            mask = expect_tensor(mask, "wanda_mask", torch.bool, (4, 8))
            assert ((~mask).sum(1) == zeros).all(), f"sparsity {sparsity} among equal scores"
    for sparsity, stays in ((0.9, True), (1.0, False)):
        mask = student.wanda_mask(torch.tensor([[-2.0]]), torch.ones(1), sparsity)
        expect_same(mask, torch.tensor([[stays]]), "the mask of one weight")
    calls, wide = [], 1.5 ** torch.arange(8)
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        x, w = distinct(rng, 2, 3, 8).to(dtype), distinct(rng, 4, 8).to(dtype)
        norms = wide[torch.randperm(8, generator=rng)]
        calls += [("input_norms", x), ("input_norms", x[0]), ("scores", w, {"whole": norms})]
        calls.append(("wanda_mask", w, {"whole": norms}, 0.5))
    again(student, calls)
    changed(student, calls[:4], calls[-4:])
    off = (1 + 1e-6, -1e-6, *BESIDE, math.inf)
    refused(student, [("wanda_mask", w, y, x) for x in off for y in (norms, 0 * norms)])
    for sparsity in (1.5, -0.5, math.nan):
        expect_error(
            ValueError,
            lambda a=sparsity: student.wanda_mask(torch.ones(2, 4), torch.ones(4), a),
            f"wanda_mask, sparsity {sparsity}",
        )


def any_tokens(rng, lead, k, kind, dtype, size):
    """x [*lead, k], with channels of sizes of their own."""
    x = torch.randn(*lead, k, generator=rng)
    if kind == "channels":
        x = x * 10.0 ** torch.randint(-4, 4, (k,), generator=rng)
    if kind == "silent":
        x[..., torch.randperm(k, generator=rng)[: (k + 1) // 2]] = -0.0
    if kind == "one large":
        x.view(-1, k)[draw(rng, 0, math.prod(lead) - 1)] = 300.0
    if kind == "equal":
        x = torch.full((*lead, k), -1.0546875)
    return (size * (0 * x if kind == "zeros" else x)).to(dtype)


def expect_norms(norms, x, what):
    expect_tensor(norms, what, torch.float32, x.shape[-1:])
    rows = x.double().reshape(-1, x.shape[-1])
    # squares are rounded, and each sum of them, and a root halves what is off
    expect_close(norms, rows.norm(dim=0), what=what, rtol=(len(rows) + 8) / 2 * FLOAT32)


def expect_scores(s, w, norms, what):
    expect_tensor(s, what, torch.float32, tuple(w.shape))
    expect_close(s, w.double().abs() * norms.double(), what=what, rtol=3 * FLOAT32)


def exact_case(rng, shape, decides, dtype, size):
    """(w, norms) whose products are exact in float32, also where they are close."""
    n, k = shape
    ranks = 1 + torch.rand(n, k, generator=rng).argsort(1) % 2000 * 2.0**-23
    sign = 1 - 2 * torch.randint(2, (n, k), generator=rng)
    if decides == "norms" or dtype is torch.bfloat16 and decides == "w":
        return (sign * 2.0 ** torch.arange(n)[:, None] * 2.0**-3).to(dtype), size * ranks[0]
    if decides == "w":
        return sign * ranks, size * 2.0 ** torch.full((k,), draw(rng, -3, 3))
    w, norms = (torch.randint(0, top, (m, k), generator=rng) for top, m in ((127, n), (255, 1)))
    norms[0, torch.rand(k, generator=rng) < 0.2] = 0  # silent channels
    return (sign * w).to(dtype), size * (norms[0] * (decides != "nothing")).float()


@exercise(
    "ex2",
    points=1,
    invariant="all three functions, anywhere in what the card admits: tokens in any arrangement, "
    "each argument in its dtype, size and view, silent channels, scores that are equal and close, "
    "shares at and beside every whole number, and results stay when others are asked for",
    cause="a corner where two others meet, such as bfloat16 beside a view of large numbers, or one "
    "row and silence; memory that is used again",
)
def test_anywhere_in_scores(student, rng):
    leads, widths = ((1,), (9,), (700,), (2, 3), (1, 1), (2, 1, 4)), (1, 5, 40)
    kinds = ("any", "channels", "silent", "one large", "equal", "zeros")
    sizes, calls, checks = (2.0**-27, 1.0, 2.0**13), [], []
    for lead, k, kind, dtype, size in every_pair(rng, leads, widths, kinds, TYPES, sizes):
        x = any_tokens(rng, lead, k, kind, dtype, size)
        calls.append(("input_norms", x))
        checks.append((expect_norms, x, f"norms of {list(x.shape)} in {dtype}, {kind}"))
    shapes, shares = ((1, 1), (1, 7), (6, 1), (5, 12), (9, 130)), (0, 1, 0.0, 1.0, None, None, None)
    decide = ("w", "norms", "both", "nothing")
    for shape, decides, kind, of_norms, dtype, size, other, share in every_pair(
        rng, shapes, decide, kinds, kinds, TYPES, sizes, sizes, shares
    ):
        w = any_tokens(rng, shape[:1], shape[1], kind, dtype, size)
        norms = any_tokens(rng, (1,), shape[1], of_norms, torch.float32, other)[0].abs()
        calls.append(("scores", w, norms))
        checks.append((expect_scores, w, norms, f"scores of {list(shape)} in {dtype}, {kind}"))
        w, norms = exact_case(rng, shape, decides, dtype, other)
        share = any_share(rng, shape[1]) if share is None else share
        calls.append(("wanda_mask", w, norms, share))
        s, what = w.double().abs() * norms.double(), f"{list(shape)} in {dtype}, {decides} decides"
        checks.append((expect_lowest, s, int(shape[1] * share), shape[1], f"{what}, {share!r}"))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    calls = []
    for shape, dtype, share in every_pair(
        rng, shapes, TYPES, (*BESIDE, -1, 2, math.nan, -math.inf)
    ):
        w = (draw(rng, 0, 1) * torch.randn(shape, generator=rng)).to(dtype)
        calls.append(("wanda_mask", w, torch.rand(shape[1], generator=rng), share))
    refused(student, calls)


# ---- exercise 3 ------------------------------------------------------------------------------


@exercise(
    "ex3",
    points=3,
    invariant="the n highest of every m neighbours stay, however close, small or large they are",
    cause="zeros counted, groups across rows, scores taken by their size, or rounded, shifted or "
    "scaled before they are compared",
)
def test_groups_against_sorting(student, rng):
    for n, m in ((2, 4), (1, 4), (3, 4), (4, 8), (1, 2), (5, 6), (0, 3), (12, 12), (1, 1)):
        s = distinct(rng, 5, 24)
        right = lowest(s.reshape(-1, m), m - n).reshape(5, 24)
        expect_same(student.nm_mask(s, n, m), right, f"{n}:{m}")
        expect_same(student.nm_mask(s.bfloat16(), n, m), right, f"{n}:{m} in bfloat16")
    for name, ranks, s in close_and_far(rng, 3, 16):
        for n, m in ((2, 4), (1, 4), (4, 8), *((n, 16) for n in range(1, 16))):
            right = lowest(ranks.reshape(-1, m), m - n).reshape(3, 16)
            expect_same(student.nm_mask(s, n, m), right, f"{n}:{m} of scores {name}")
    # few large groups: who compares every two of 300 takes a second of a processor
    ranks = torch.rand(600, generator=rng).argsort().reshape(1, 600)
    right = lowest(ranks.reshape(-1, 300), 210).reshape(1, 600)
    expect_same(student.nm_mask(1 + ranks * 2.0**-23, 90, 300), right, "90:300")
    for n, k in ((120, 8), (1, 960)):
        ranks = torch.rand(960, generator=rng).argsort().reshape(n, k)
        right = lowest(ranks.reshape(-1, 4), 2).reshape(n, k)
        expect_same(student.nm_mask(1 + ranks * 2.0**-23, 2, 4), right, f"2:4 of [{n}, {k}]")
        w = torch.where(right, 1.0, 0.0)
        assert student.fits(w, 2, 4) is True, f"a weight [{n}, {k}] of 2:4 does not fit"
        w[-1, -4:] = 1.0
        assert student.fits(w, 2, 4) is False, f"a weight [{n}, {k}] with 4 of 4 fits"


def drive_groups(student, s, n, m):
    """Runs beside the student's code: scores that are not contiguous."""
    return student.nm_mask(s.T, n, m), student.fits(s.T, n, m)


@exercise(
    "ex3",
    points=2,
    invariant="exactly n stay of equal scores, of negative ones, and in views",
    cause="a threshold, zeros taken for the lowest, or view on a transposed weight",
)
def test_equal_scores_in_groups(student, rng):
    for s in (torch.full((4, 16), -1.0), torch.randint(2, (4, 16), generator=rng).float()):
        for n, m in ((2, 4), (1, 4), (4, 8), (3, 4)):
            mask = expect_tensor(student.nm_mask(s, n, m), "nm_mask", torch.bool, (4, 16))
            assert (mask.reshape(-1, m).sum(1) == n).all(), f"{n}:{m} of equal scores"
    s = distinct(rng, 16, 5)
    value = student.drive(drive_groups, s, 2, 4)
    mask, fit = expect_tuple(value, (torch.Tensor, bool), "drive_groups")
    expect_same(mask, lowest(s.T.reshape(-1, 4), 2).reshape(5, 16), "a view")
    assert fit is False, "a dense view fits 2:4"
    calls = []
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        s = distinct(rng, 4, 8).to(dtype)
        mask = torch.rand(4, 2, 4, generator=rng).argsort(-1).flatten(1) < 2
        calls += [("nm_mask", s, 2, 4), ("nm_mask", s, 1, 4), ("fits", s, 2, 4)]
        calls += [("fits", torch.where(mask, s, 0), n, 4) for n in (1, 2)]
    again(student, calls)
    changed(student, calls[:2], calls[-5:-3])
    dense, sparse = ("fits", s, 2, 4), ("fits", torch.where(mask, s, 0), 2, 4)
    changed(student, [dense, sparse], [sparse, dense])
    refused(student, [(name, s.T, 2, 3) for name in ("nm_mask", "fits")])


@exercise(
    "ex3",
    points=3,
    invariant="a weight fits if no group has more than n values that are not zero",
    cause="means over groups, values below some size taken for zero, or negative ones",
)
def test_fits_just_or_not(student, rng):
    for value, n, right in ((3.0, 0, False), (-0.0, 0, True), (3.0, 1, True)):
        seen = student.fits(torch.tensor([[value]]), n, 1)
        assert seen is right, f"one weight and {n}:1"
        mask = student.nm_mask(torch.tensor([[value]]), n, 1)
        expect_same(mask, torch.tensor([[n == 1]]), f"one score and {n}:1")
    wide = torch.ones(2, 600).bfloat16()  # bytes count to 255, and bfloat16 to 256
    for n, fit in ((600, True), (599, False), (256, False), (88, False)):
        assert student.fits(wide, n, 600) is fit, f"600 values and {n}:600"
    assert student.fits(torch.full((1, 1), 1e-45), 0, 1) is False, "1e-45 is not zero"
    for n, m in (
        (5, 4),
        (8, 4),
        (9, 8),
        (9, 4),
        (-1, 4),
        (2, 0),
        (0, 0),
        (2, -4),
        (-4, -4),
        (3, 3),
    ):
        for name in ("fits", "nm_mask"):
            expect_error(
                ValueError,
                lambda name=name, n=n, m=m: getattr(student, name)(torch.ones(2, 8), n, m),
                f"{name}, {n}:{m} of rows of 8",
            )
    opposite = torch.tensor([[1.0, -1.0, 0.0, 0.0]])
    assert student.fits(opposite, 0, 4) is False, "1, -1, 0, 0 fit 0:4"
    for n, m in ((2, 4), (1, 4), (4, 8), (3, 6)):
        order = torch.rand(6, 24 // m, m, generator=rng).argsort(-1)
        w = torch.where(order < n, -torch.rand(order.shape, generator=rng) - 0.1, 0.0).flatten(1)
        for case in (w, w.bfloat16(), torch.zeros(1, 24), -torch.zeros(1, 24), w * 1e-30, w * 1e4):
            assert student.fits(case, n, m) is True, f"a weight of {n}:{m} does not fit"
        for dtype in (torch.float32, torch.bfloat16):
            last = w.clone().to(dtype)
            last[-1, -m:] = 1.0
            assert student.fits(last, n, m) is False, f"{m} of {m} in the last group fit {n}:{m}"
        row, group = (int(torch.randint(limit, (), generator=rng)) for limit in (6, 24 // m))
        place = int((order[row, group] == n).nonzero())
        more = w.clone()
        more[row, group * m + place] = 1e-20
        assert student.fits(more, n, m) is False, f"{n + 1} of {m} fit {n}:{m}"
        assert student.fits(more, n + 1, m) is True, f"{n + 1} of {m} do not fit {n + 1}:{m}"


def fitting(rng, groups, n, m, more, place, dtype, size):
    """w of [groups, m] values, at most n in each that are not 0; `more` in the one at `place`."""
    counts = torch.randint(0, n + 1, (groups, 1), generator=rng)
    counts[round(place * (groups - 1))] = min(max(n + more, 0), m)
    order = torch.rand(groups, m, generator=rng).argsort(1)
    w = torch.randn(groups, m, generator=rng).to(dtype)
    w = torch.where(w == 0, torch.ones_like(w), w) * size
    w[:, ::2] = w[:, ::2].sign() * 1e-38 if draw(rng, 0, 1) else w[:, ::2]
    zeros = torch.where(order % 2 == 0, 0.0, -0.0).to(dtype)
    return torch.where(order < counts, w, zeros), bool((counts <= n).all())


@exercise(
    "ex3",
    points=1,
    invariant="both functions, anywhere in what the card admits: any n and m, number of groups, "
    "dtype and size, equal and close scores, one value too many in any group, views, and results "
    "stay when others are asked for",
    cause="a corner where two others meet, such as bfloat16 beside equal scores, or m = 1 in a "
    "view; memory that is used again",
)
def test_anywhere_in_groups(student, rng):
    patterns = [(0, 1), (1, 1), (1, 2), (2, 4), (1, 4), (3, 4), (4, 8), (0, 5), (5, 5), (2, 3)]
    patterns += [(12, 24), (24, 24), (0, 24)]
    sizes, calls, checks = (2.0**-27, 1.0, 2.0**13), [], []
    rows = ((1, 1), (1, 3), (2, 1), (40, 3))
    cases = every_pair(rng, patterns, rows, KINDS, TYPES, sizes, (-1, 0, 1), (0.0, 0.5, 1.0))
    for (n, m), (row, groups), kind, dtype, size, more, place in cases:
        s = any_scores(rng, (row, groups * m), kind, dtype, size)
        calls.append(("nm_mask", s, n, m))
        checks.append((expect_lowest, s, m - n, m, f"{n}:{m} of {list(s.shape)} in {dtype}"))
        w, right = fitting(rng, row * groups, n, m, more, place, dtype, size)
        calls.append(("fits", w.reshape(row, -1), n, m))
        checks.append((expect_fit, right, f"{list(s.shape)} in {dtype} and {n}:{m}"))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    # bytes count to 255 and bfloat16 to 256; one call each, for a loop over pairs takes a second
    for n, dtype in ((265, TYPES[0]), (265, TYPES[1]), (draw(rng, 1, 299), TYPES[draw(rng, 0, 1)])):
        s = any_scores(rng, (1, 300), KINDS[draw(rng, 0, 6)], dtype, 1.0)
        expect_lowest(student.nm_mask(s, n, 300), s, 300 - n, 300, f"{n}:300 in {dtype}")
        w, right = fitting(rng, 3, n, 300, draw(rng, 0, 1), 0.5, dtype, 1.0)
        expect_fit(student.fits(w.reshape(1, 900), n, 300), right, f"{n}:300 in {dtype}")
    for place in range(9):  # one value too many in each of 3 x 3 groups
        w, _ = fitting(rng, 9, 2, 4, 1, place / 8, TYPES[draw(rng, 0, 1)], 1.0)
        expect_fit(student.fits(w.reshape(3, 12), 2, 4), False, f"group {place} of 9 and 2:4")
    calls = []
    wrong = ((5, 4), (-1, 4), (1, 0), (0, 0), (0, -4), (-4, -4), (1, 5), (0, 16), (8, 9), (9, 8))
    for name, (n, m), row, dtype in every_pair(rng, ("nm_mask", "fits"), wrong, (1, 3), TYPES):
        w = draw(rng, 0, 1) * torch.randn(row, 8, generator=rng)
        calls.append((name, w.to(dtype), n, m))
    for w in (torch.ones(1, 1), torch.zeros(1, 1)):
        calls += [("fits", w, 1, 2), ("nm_mask", w, 2, 1), ("fits", w, 2, 1)]
    refused(student, calls)


def expect_fit(value, right, what):
    assert value is right, f"{what}: {value}, expected {right}"


# ---- exercise 4 ------------------------------------------------------------------------------


def unpacked(places):
    parts = [(places.long() >> shift) & 3 for shift in (0, 2, 4, 6)]
    return torch.stack(parts, -1).flatten(1)


def packed(at):
    quads = at.reshape(len(at), -1, 4) << torch.tensor([0, 2, 4, 6])
    return quads.sum(-1).to(torch.uint8)


def rebuilt(values, places):
    at = unpacked(places).reshape(len(values), -1, 2)
    assert (at[..., 0] != at[..., 1]).all(), "two places of one group are equal"
    groups = torch.zeros(*at.shape[:2], 4, dtype=torch.float64)
    return groups.scatter(-1, at, values.double().reshape(at.shape)).flatten(1)


def stored(student, w):
    value = student.compress(w)
    values, places = expect_tuple(value, (torch.Tensor, torch.Tensor), "compress")
    expect_tensor(values, "values", w.dtype, (w.shape[0], w.shape[1] // 2))
    expect_tensor(places, "places", torch.uint8, (w.shape[0], w.shape[1] // 8))
    return values, places


def drive_compress_view(student, w):
    """Runs beside the student's code: a weight that is not contiguous."""
    return student.compress(w.T)


def drive_multiply_view(student, values, places, x):
    """Runs beside the student's code: inputs that are not contiguous."""
    return student.multiply(values, places, x.transpose(0, 1))


@exercise(
    "ex4",
    points=2,
    invariant="all pairs of places, and groups with one value or none, come back as they were",
    cause="places out of order, zeros dropped, bytes that overflow, or view on a transposed weight",
)
def test_every_pair_of_places(student, rng):
    pairs = [(a, b) for b in range(4) for a in range(b)] + [(a, a) for a in range(4)]
    w = torch.zeros(10, 32)
    for i, (a, b) in enumerate(pairs):
        for g in range(8):
            w[i, 4 * g + a], w[i, 4 * g + b] = torch.randn(2, generator=rng)
    w[9, :16] = 0
    w[9, 16:] = -0.0
    for case in (w, w.bfloat16(), -w, 1e-8 * w, 1e4 * w):
        values, places = stored(student, case)
        expect_close(rebuilt(values, places), case.double(), what="the weight")
        at = unpacked(places).reshape(10, -1, 2)[:6]
        assert (at[..., 0] < at[..., 1]).all(), "places are not in the order of the row"
    for n, k in ((300, 8), (1, 1032)):
        order = torch.rand(n, k // 4, 4, generator=rng).argsort(-1)
        large = torch.where(order < 2, torch.randn(order.shape, generator=rng), 0.0).flatten(1)
        expect_close(rebuilt(*stored(student, large)), large.double(), what=f"[{n}, {k}]")
    value = student.drive(drive_compress_view, w.T.contiguous())
    values, places = expect_tuple(value, (torch.Tensor, torch.Tensor), "compress")
    expect_close(rebuilt(values, places), w.double(), what="a view")


@exercise(
    "ex4",
    points=3,
    invariant="products of any stored weight are right, its values in any order within a group",
    cause="places taken to be sorted, sums in the dtype of bfloat16 values, or one shape of x only",
)
def test_products_of_any_storage(student, rng):
    for n, k, dims in (
        (5, 24, (4,)),
        (3, 8, (2, 3)),
        (1, 16, ()),
        (1, 16, (2, 3)),
        (2, 16, (2, 1, 1, 3)),
        (2, 8, (1031,)),  # no token is left out, however they are cut
        (7, 40, (1, 1)),
        (300, 16, (2, 1, 2)),
        (2, 1032, (2,)),
    ):
        at = torch.rand(n, k // 4, 4, generator=rng).argsort(-1)[..., :2].flatten(1)
        values, x = torch.randn(n, k // 2, generator=rng), torch.randn(*dims, k, generator=rng)
        for case in (values, values.bfloat16()):
            w = rebuilt(case, packed(at))
            y = student.multiply(case, packed(at), x)
            expect_tensor(y, "multiply", torch.float32, (*dims, n))
            bound = (k + 8) * FLOAT32 * (x.double().abs() @ w.abs().T)
            expect_at_most((y - x.double() @ w.T).abs(), bound, "the error of a product")
            for small, large in ((2.0**-27, 2.0**13), (2.0**13, 2.0**-27)):
                y = student.multiply(case * small, packed(at), x * large)
                off = (y / (small * large) - x.double() @ w.T).abs()
                expect_at_most(off, bound, "the error with tiny and large numbers")
            y = student.multiply(case, packed(at), 0 * x)
            expect_close(y, torch.zeros(*dims, n), what="the product with zeros")
    # a long row of which only the end is not zero
    far = torch.zeros(1, 16_500)
    far[:, -8:] = torch.randn(1, 8, generator=rng)
    places = packed(torch.tensor([[0, 3, 1, 2]]).repeat(1, 4125))
    x = torch.randn(33_000, generator=rng)
    right = x.double() @ rebuilt(far, places).T
    y = student.multiply(far, places, x)
    expect_close(y, right, what="a row of 33,000 inputs", atol=32 * FLOAT32 * x.abs().max().item())
    x = torch.randn(3, 2, 1032, generator=rng)
    y = student.drive(drive_multiply_view, values, packed(at), x)
    y = expect_tensor(y, "multiply", torch.float32, (2, 3, n))
    exact, w = x.transpose(0, 1).double(), rebuilt(values, packed(at))
    bound = (k + 8) * FLOAT32 * (exact.abs() @ w.abs().T)
    expect_at_most((y - exact @ w.T).abs(), bound, "the error with a view")


@exercise(
    "ex4",
    points=1,
    invariant="inputs that no value of a row meets do not matter to it, NaN and inf included",
    cause="a dense weight built up: 0 times NaN is NaN",
)
def test_inputs_that_are_not_read(student, rng):
    at = torch.tensor([[0, 1] * 4, [2, 3] * 4, [0, 1] * 2 + [2, 3] * 2])
    values = torch.randn(3, 8, generator=rng)
    x = torch.randn(4, 16, generator=rng)
    bad = x.clone()
    bad[:, 2::4], bad[:, 3::4] = math.nan, math.inf
    y = expect_tensor(student.multiply(values, packed(at), bad), "multiply", torch.float32, (4, 3))
    exact = x.double() @ rebuilt(values, packed(at)).T
    expect_close(y[:, 0], exact[:, 0], what="a row that reads no NaN", rtol=1e-3, atol=1e-5)
    assert y[:, 1].isnan().all(), "a row that reads NaN is not NaN"
    bad = x.clone()
    bad[:, 2::4], bad[:, 3::4] = math.inf, 1.0
    y = expect_tensor(student.multiply(1e-3 * values.abs(), packed(at), bad), "multiply")
    assert (y[:, 1:] == math.inf).all(), "a row that reads inf is not inf"


@exercise(
    "ex4",
    points=2,
    invariant="what does not fit is refused, what only just fits is not; bits are counted exactly",
    cause="sums of a row, exactly two asked for, or bytes in place of bits",
)
def test_limits_and_bits(student, rng):
    for _ in range(4):
        order = torch.rand(3, 6, 4, generator=rng).argsort(-1)
        w = torch.where(order < 2, torch.randn(order.shape, generator=rng), 0.0)
        stored(student, w.flatten(1))
        row, group = (int(torch.randint(limit, (), generator=rng)) for limit in (3, 6))
        w[row, group, int((order[row, group] == 2).nonzero())] = 1e-10
        expect_error(ValueError, lambda w=w: student.compress(w.flatten(1)), "three of four")
        w[row, group] = torch.tensor([1.0, -1.0, 2.0, -2.0])
        expect_error(ValueError, lambda w=w: student.compress(w.flatten(1)), "four of four")
        w[row, group] = torch.tensor([1.0, -1.0, 1e-30, 0.0])
        expect_error(ValueError, lambda w=w: student.compress(w.flatten(1)), "one of them 1e-30")
        w[row, group] = torch.tensor([1.0, -1.0, 0.0, 1e-45])
        expect_error(ValueError, lambda w=w: student.compress(w.flatten(1)), "one of them 1e-45")
    for k in (4, 12, 6):
        expect_error(ValueError, lambda k=k: student.compress(torch.zeros(2, k)), f"K = {k}")
    full = torch.randn(2, 8, generator=rng)
    refused(student, [("compress", full), ("compress", full.bfloat16()), ("compress", full[:, :6])])
    calls = []
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        mask = torch.rand(3, 4, 4, generator=rng).argsort(-1).flatten(1) < 2
        w = torch.where(mask, distinct(rng, 3, 16), 0.0).to(dtype)
        at = torch.rand(3, 4, 4, generator=rng).argsort(-1)[..., :2].flatten(1)
        values, x = torch.randn(3, 8, generator=rng).to(dtype), torch.randn(3, 16, generator=rng)
        calls.append(("compress", w))
        for rows in (x, x[0]):
            calls.append(("multiply", {"whole": values}, {"whole": packed(at)}, rows))
    again(student, calls)
    changed(student, calls[:3], calls[-3:])
    for n, k, bits in (
        (1, 8, 4),
        (2, 8, 1),
        (2, 8, 2),
        (2, 8, 3),
        (5, 16, 8),
        (3, 24, 5),
        (7, 64, 16),
        (100000, 80000, 32),
    ):
        seen = student.stored_bits((n, k), bits)
        assert seen == n * k * (bits + 2) // 2, f"({n}, {k}) with {bits} bits"
        for kept in (0, 1, n * k // 3, n * k):
            seen = student.bitmap_bits((n, k), kept, bits)
            assert seen == kept * bits + n * k, f"({n}, {k}), {kept} not zero, with {bits} bits"
    for kept in range(78):  # a share of 77 is no number of a computer, and N K no number of bytes
        seen = student.bitmap_bits((7, 11), kept, 4)
        assert seen == kept * 4 + 77, f"(7, 11), {kept} not zero, with 4 bits"


def any_sparse(rng, n, k, counts, dtype, size):
    """[n, k] of groups of four with `counts` values that are not 0, or any number up to 2."""
    groups = n * k // 4
    of_group = torch.randint(0, 3, (groups, 1), generator=rng) if counts is None else counts
    order = torch.rand(groups, 4, generator=rng).argsort(1)
    values = (torch.randn(groups, 4, generator=rng) * size).to(dtype)
    values = torch.where(values == 0, torch.ones_like(values), values)
    few = torch.rand(groups, 4, generator=rng) < 0.1
    values = torch.where(few, torch.tensor(1e-40).to(dtype), values)
    zeros = torch.where(order % 2 == 0, 0.0, -0.0).to(dtype)
    return torch.where(order < of_group, values, zeros).reshape(n, k)


def expect_stored(result, w, what):
    values, places = expect_tuple(result, (torch.Tensor, torch.Tensor), what)
    n, k = w.shape
    expect_tensor(values, f"values, {what}", w.dtype, (n, k // 2))
    expect_tensor(places, f"places, {what}", torch.uint8, (n, k // 8))
    at = unpacked(places).reshape(n, -1, 2)
    two = (values.reshape(n, -1, 2) != 0).all(-1)  # a zero may stand on either side of its value
    in_order = (at[..., 0] < at[..., 1]) | ~two
    assert in_order.all(), f"{what}: values are not in the order of the row"
    expect_same(rebuilt(values, places), w.double(), what)


def any_product(rng, n, k, lead, kind, dtype, size, other):
    """(values, places, x): values in any order, some equal to 0 but where x is not finite."""
    at = torch.rand(n, k // 4, 4, generator=rng).argsort(-1)[..., :2].flatten(1)
    values = size * (torch.rand(n, k // 2, generator=rng) + 0.5)
    values *= 1 - 2 * torch.randint(2, values.shape, generator=rng)
    x = other * torch.randn(*lead, k, generator=rng)
    if kind == "zeros":
        values *= torch.rand(values.shape, generator=rng) < 0.5
    if kind == "nothing":
        values *= 0
    if kind in ("nan", "inf"):  # in one place that few rows read, and in all that nobody does
        read = torch.zeros(k).scatter_(0, (at + torch.arange(k // 2) // 2 * 4).flatten(), 1.0) > 0
        x[..., ~read] = math.nan if kind == "nan" else -math.inf
        x[..., draw(rng, 0, k - 1)] = math.nan if kind == "nan" else math.inf
    return values.to(dtype), packed(at), x


def expect_multiplied(y, values, places, x, what):
    n, half = values.shape
    expect_tensor(y, what, torch.float32, (*x.shape[:-1], n))
    inputs = x.double()[..., unpacked(places) + torch.arange(half) // 2 * 4]  # [..., n, K/2]
    products = inputs * values.double()
    right, parts = products.sum(-1), products.abs().sum(-1)
    good = right.isfinite()
    assert y[~good].isnan().equal(right[~good].isnan()), f"{what}: NaN is elsewhere"
    assert (y == right)[right.isinf()].all(), f"{what}: infinity is elsewhere"
    off = (y.double() - right).abs()[good]
    expect_at_most(off, (half + 2) * FLOAT32 * parts[good], f"the error of {what}")


@exercise(
    "ex4",
    points=1,
    invariant="all four functions, anywhere in what the card admits: any shape, groups of two, one "
    "and no values, any order of values, each argument in its dtype, size and view, NaN and inf "
    "beside what is read, three values in any group; bits of any shape",
    cause="a corner where two others meet, such as a group of zeros in a bfloat16 view, or one "
    "token beside NaN; memory that is used again",
)
def test_anywhere_in_storage(student, rng):
    shapes, sizes = ((1, 8), (1, 24), (5, 8), (3, 16), (9, 520)), (2.0**-27, 1.0, 2.0**13)
    counts, calls, checks = (0, 1, 2, None), [], []
    for (n, k), count, dtype, size in every_pair(rng, shapes, counts, TYPES, sizes):
        w = any_sparse(rng, n, k, count, dtype, size)
        calls.append(("compress", w))
        checks.append((expect_stored, w, f"[{n}, {k}] in {dtype} with {count} of four"))
    leads, kinds = (
        ((), (1,), (4,), (2, 3), (1, 1), (2, 1, 2)),
        ("any", "zeros", "nothing", "nan", "inf"),
    )
    for (n, k), lead, kind, dtype, size, other in every_pair(
        rng, shapes, leads, kinds, TYPES, sizes, sizes
    ):
        case = any_product(rng, n, k, lead, kind, dtype, size, other)
        calls.append(("multiply", *case))
        checks.append((expect_multiplied, *case, f"[{n}, {k}] in {dtype}, x {[*lead, k]}, {kind}"))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    calls = []
    for (n, k), dtype, more, place, size in every_pair(
        rng, shapes, TYPES, (3, 4), (0.0, 0.5, 1.0), (1e-40, 1.0, 2.0**13)
    ):
        groups = any_sparse(rng, n, k, None, dtype, 1.0).reshape(-1, 4)
        at = round(place * (len(groups) - 1))
        groups[at] = torch.where(torch.rand(4, generator=rng).argsort() < more, size, 0.0)
        calls.append(("compress", groups.reshape(n, k)))
    calls += [
        ("compress", torch.zeros(n, k)) for n, k in ((1, 1), (2, 4), (1, 12), (8, 10), (2, 7))
    ]
    refused(student, calls)
    check_bits(student, rng)


def check_bits(student, rng):
    # no more rows than a loop over them takes
    rows, widths, bits = (1, 7, 80_001), (8, 24, 2**15, 80_000), (1, 3, 4, 8, 16, 32)
    for n, k, value_bits, share in every_pair(rng, rows, widths, bits, (0.0, 0.3, 0.5, 1.0)):
        seen = student.stored_bits((n, k), value_bits)
        assert type(seen) is int, f"stored_bits returned {seen!r}"
        assert seen == n * k // 2 * (value_bits + 2), f"stored_bits(({n}, {k}), {value_bits})"
        k = max(1, k - draw(rng, 0, 7))
        kept = min(n * k, int(share * n) * k + draw(rng, 0, 1))
        seen = student.bitmap_bits((n, k), kept, value_bits)
        assert type(seen) is int, f"bitmap_bits returned {seen!r}"
        right = kept * value_bits + n * k
        assert seen == right, f"bitmap_bits(({n}, {k}), {kept}, {value_bits})"
    odd = ((80_001, 65 * 10**9 + 7), 10**15, 32)  # no float64
    for shape, kept, value_bits in (((1, 1), 1, 4), ((1, 1), 0, 32), ((1, 70), 3, 1), odd):
        right = kept * value_bits + math.prod(shape)
        assert student.bitmap_bits(shape, kept, value_bits) == right, f"{shape}, {kept}"


# ---- exercise 5 ------------------------------------------------------------------------------


def drive_blocks(student, states, texts, pattern, frozen):
    """Runs beside the student's code: blocks with these parameters, pruned.

    Returns (parameters and buffers of the new blocks, parameters of those that came in, hooks and
    gradients on both, modules with a forward of their own among both, names of parameters that
    train, modes, addresses of the parameters of both), or None if no list of modules came back.
    """
    import torch
    from torch import nn

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8, bias=False)

        def forward(self, x):
            return self.down(torch.relu(self.up(x)))

    class Special(nn.Linear):
        pass

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.first = nn.Parameter(torch.ones(1, 8)), Special(8, 8)
            self.inner = Inner()

        def forward(self, x):
            x = x + self.first(x * self.scale)
            x = x + self.first(x)
            return x + self.inner(x)

    blocks = []
    for state in states:
        block = Block().train(len(blocks) % 2 == 1)
        block.inner.train(len(blocks) % 2 == 0)  # a part in another mode than its block
        block.load_state_dict(state)
        for name in frozen:
            block.get_parameter(name).requires_grad_(False)
        blocks.append(block)
    pruned = student.prune_blocks(blocks, texts, pattern)
    if not isinstance(pruned, list | nn.ModuleList | tuple):
        return None
    if not all(isinstance(block, Block) for block in pruned):
        return None
    after = [dict(b.named_parameters()) | dict(b.named_buffers()) for b in pruned]
    after = [{k: v.detach().clone() for k, v in own.items()} for own in after]
    before = [{k: v.detach().clone() for k, v in b.named_parameters()} for b in blocks]
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    both = [m for b in [*blocks, *pruned] for m in b.modules()]
    hooks = sum(len(getattr(m, kind)) for m in both for kind in kinds)
    hooks += sum(p.grad is not None for m in both for p in m.parameters())
    replaced = sum("forward" in vars(m) for m in both)
    trains = [
        [k for k, v in b.named_parameters() if v.requires_grad and not v.is_inference()]
        for b in pruned
    ]
    modes = [[m.training for m in b.modules()] for b in pruned]
    where = [[p.data_ptr() for b in own for p in b.parameters()] for own in (blocks, pruned)]
    return after, before, hooks, replaced, trains, modes, where


LINEARS = ("first", "inner.up", "inner.down")


def block_state(rng):
    shapes = {"first.weight": (8, 8), "inner.up.weight": (12, 8), "inner.down.weight": (8, 12)}
    state = {k: torch.randn(s, generator=rng) / 2 for k, s in shapes.items()}
    sizes = torch.logspace(-1, 1, 8)[torch.randperm(8, generator=rng)]
    biases = {"first.bias": torch.randn(8, generator=rng), "inner.up.bias": torch.zeros(12)}
    return {**state, **biases, "scale": sizes[None]}


def linear_inputs(state, x):
    """({linear: inputs of its calls}, the output) of the block of `drive_blocks`, float64."""
    s = {k: v.double() for k, v in state.items()}
    x = x.double()
    once = x * s["scale"]
    x = x + once @ s["first.weight"].T + s["first.bias"]
    inputs = {"first": [once, x]}  # it is called twice
    x = x + x @ s["first.weight"].T + s["first.bias"]
    hidden = (x @ s["inner.up.weight"].T + s["inner.up.bias"]).relu()
    y = x + hidden @ s["inner.down.weight"].T
    return {**inputs, "inner.up": [x], "inner.down": [hidden]}, y


def true_mask(scores, pattern):
    """(mask, how clear it is: the least ratio of the lowest kept to the highest zeroed)."""
    rows = scores.reshape(-1, pattern[1]) if isinstance(pattern, tuple) else scores
    kept = pattern[0] if isinstance(pattern, tuple) else None
    zeros = int(rows.shape[1] * pattern) if kept is None else pattern[1] - kept
    order = rows.argsort(1)
    mask = torch.ones(rows.shape, dtype=torch.bool).scatter(1, order[:, :zeros], False)
    ranked = rows.gather(1, order)
    clear = math.inf
    if 0 < zeros < rows.shape[1]:
        clear = (ranked[:, zeros] / ranked[:, zeros - 1]).nan_to_num(0.0).min().item()
    return mask.reshape(scores.shape), clear


def true_norms(calls):
    return torch.cat(calls).norm(dim=0)


def true_blocks(states, texts, pattern, norms_of=true_norms, dense=False):
    """(parameters of the pruned blocks, the least clearness), norms and runs in float64.

    norms_of another rule, and dense: outputs of blocks that are not pruned, are usual mistakes.
    """
    pruned, least = [], math.inf
    for state in states:
        new = dict(state)
        seen = [linear_inputs(state, x)[0] for x in texts]
        for name in LINEARS:
            norms = norms_of([call for inputs in seen for call in inputs[name]])
            weight = state[f"{name}.weight"]
            mask, clear = true_mask(weight.double().abs() * norms, pattern)
            new[f"{name}.weight"] = weight.masked_fill(~mask, 0.0)
            least = min(least, clear)
        texts = [linear_inputs(state if dense else new, x)[1] for x in texts]
        pruned.append(new)
    return pruned, least


def mistaken_blocks(states, texts, pattern):
    """What usual mistakes make of a case: magnitude, norms added, means of texts, dense inputs."""
    rules = [
        lambda calls: torch.ones(calls[0].shape[1]),
        lambda calls: sum(x.norm(dim=0) for x in calls),
    ]
    if len({len(x) for x in texts}) > 1:
        rules.append(lambda calls: sum(x.square().mean(0) for x in calls).sqrt())
    made = [true_blocks(states, texts, pattern, rule)[0] for rule in rules]
    return made + [true_blocks(states, texts, pattern, dense=True)[0]] * (len(states) > 1)


def clear_case(rng, pattern, lengths=(5, 9), blocks=2):
    """(states, texts, right states), drawn until no rounding decides about a weight, and every
    usual mistake about some."""
    while True:
        states = [block_state(rng) for _ in range(blocks)]
        texts = [torch.randn(n, 8, generator=rng) for n in lengths]
        right, least = true_blocks(states, texts, pattern)
        told = all(
            any(not a[k].equal(b[k]) for a, b in zip(wrong, right, strict=True) for k in a)
            for wrong in mistaken_blocks(states, texts, pattern)
        )
        if told and least > 1 + 1e-4:
            return states, texts, right


def pruned_blocks(student, states, texts, pattern, frozen=()):
    value = student.drive(drive_blocks, states, texts, pattern, list(frozen))
    assert value is not None, "prune_blocks must return a list of new blocks"
    after, before, hooks, replaced, trains, modes, where = value
    assert len(after) == len(states), f"{len(after)} blocks came back, expected {len(states)}"
    for i, (seen, state) in enumerate(zip(before, states, strict=True)):
        moved = [k for k in state if not torch.equal(seen[k], state[k])]
        assert not moved, f"block {i} that came in has changed in {moved}: prune a copy"
    assert not replaced, f"the forward of {replaced} modules is still replaced"
    came, new = where
    assert not set(came) & set(new), "new blocks share parameters with those that came in"
    return after, hooks, trains, modes


def expect_blocks(after, right, what):
    for i, (seen, state) in enumerate(zip(after, right, strict=True)):
        more = sorted(set(seen) - set(state))
        assert not more, f"{what}: block {i} holds {more}, which it did not before"
        for name, expected in state.items():
            value = expect_tensor(seen[name], name, torch.float32, expected.shape)
            wrong = (value == 0) != (expected == 0)
            assert not wrong.any(), (
                f"{what}: block {i}, {name}: {int(wrong.sum())} weights of {wrong.numel()} are "
                "kept or pruned otherwise than by what the pruned blocks before put out"
            )
            assert torch.equal(value, expected), f"{what}: block {i}, {name} has other values"


@exercise(
    "ex5",
    points=2,
    invariant="every block is scored on what the pruned ones before it put out, over all texts",
    cause="inputs of the dense model, one text forgotten, or means of texts of unlike length",
)
def test_three_blocks_against_float64(student, rng):
    for pattern in (0.5, (2, 4), 0.8, (1, 2)):
        states, texts, right = clear_case(rng, pattern, lengths=(3, 10, 6), blocks=3)
        after, *_ = pruned_blocks(student, states, texts, pattern)
        expect_blocks(after, right, f"pattern {pattern}")
    states, texts, right = clear_case(rng, 0.5, lengths=(1, 6), blocks=3)
    after, *_ = pruned_blocks(student, states, texts, 0.5)
    expect_blocks(after, right, "a text of one token")


@exercise(
    "ex5",
    points=1,
    invariant="everything or nothing may go: 0, 1, (0, 4), (4, 4); biases stay also then",
    cause="biases of empty rows zeroed, a pair taken for whatever is no float, or a share of 0 or "
    "1 left out",
)
def test_all_or_nothing(student, rng):
    states = [block_state(rng) for _ in range(2)]
    texts = [torch.randn(n, 8, generator=rng) for n in (1, 4)]
    for pattern, empty in (
        (1.0, True),
        (1, True),
        ((0, 4), True),
        (0.0, False),
        (0, False),
        ((4, 4), False),
    ):
        right = [dict(state) for state in states]
        for state in right:
            state |= {f"{n}.weight": state[f"{n}.weight"] * (not empty) for n in LINEARS}
        after, *_ = pruned_blocks(student, states, texts, pattern)
        expect_blocks(after, right, f"pattern {pattern}")
    for w, x in ((torch.ones(4, 8), torch.zeros(3, 8)), (torch.zeros(4, 8), torch.ones(3, 8))):
        (new,) = student.drive(drive_linears, [w], [x], 0.5)  # all scores are 0
        gone = (expect_tensor(new, "the new weight", torch.float32, (4, 8)) == 0).sum(1)
        assert (gone == (4 if w.any() else 8)).all(), f"{gone.tolist()} of 8 weights are 0"


def drive_dimensions(student, weights, texts):
    """Runs beside the student's code: linears of one name that read three and four dimensions,
    the second of them what the tokens of a text have together."""
    import torch
    from torch import nn

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            # names that code for whole models leaves out
            self.lm_head = nn.Sequential(nn.Linear(6, 6, bias=False))
            self.embed_norm = nn.Sequential(nn.Linear(6, 6, bias=False))
            self.drop = nn.Dropout()

        def forward(self, x):
            y = self.drop(self.lm_head(x[None])[0])
            y = y - y.cumsum(0)
            four = self.embed_norm
            return four(y[None, None])[0, 0] + four(y[:, None, None]).flatten(0, 2)

    block = Wide().eval()
    with torch.no_grad():
        block.lm_head[0].weight.copy_(weights[0])
        block.embed_norm[0].weight.copy_(weights[1])
    (pruned,) = student.prune_blocks([block], texts, 0.5)
    three, four = pruned.lm_head[0].weight, pruned.embed_norm[0].weight
    return three.detach(), four.detach(), pruned.training


def drive_linears(student, weights, texts, pattern):
    """Runs beside the student's code: blocks that are one linear each, without a bias; more and
    more deeply inside of others."""
    import torch
    from torch import nn

    blocks = [nn.Linear(w.shape[1], len(w), bias=False) for w in weights]
    with torch.no_grad():
        for block, w in zip(blocks, weights, strict=True):
            block.weight.copy_(w)
    for i in range(len(blocks)):
        for _ in range(i):
            blocks[i] = nn.Sequential(blocks[i])
    pruned = student.prune_blocks(blocks, texts, pattern)
    return [next(block.parameters()).detach() for block in pruned]


@exercise(
    "ex5",
    points=1,
    invariant="what a linear reads may have more than two dimensions, and texts of like or unlike "
    "length; two linears may have one name in parts of their own, and inputs that are close differ",
    cause="inputs [1, T, K] of several texts joined without making them [tokens, K] first, texts "
    "of one length stacked, linears kept by the end of their name, or inputs that are rounded",
)
def test_inputs_of_any_dimensions(student, rng):
    for lengths in ((5, 9), (1, 7, 2), (6, 6)):
        while True:  # until rounding decides nothing, and a stack of texts something
            weights = torch.randn(2, 6, 6, generator=rng)
            texts = [torch.randn(n, 6, generator=rng) for n in lengths]
            three = [x.double() for x in texts]
            four = [x @ weights[0].double().T for x in three]
            four = [y - y.cumsum(0) for y in four]
            right, clear = [], math.inf
            for w, inputs in zip(weights, (three, four), strict=True):
                norms = torch.cat(inputs).norm(dim=0)
                mask, own = true_mask(w.double().abs() * norms, 0.5)
                right, clear = [*right, w.masked_fill(~mask, 0.0)], min(clear, own)
            stack = (
                torch.stack([x @ weights[0].double().T for x in three]) if lengths[0] == 6 else None
            )
            told = True
            if stack is not None:
                norms = (stack - stack.cumsum(0)).flatten(0, 1).norm(dim=0)
                other, _ = true_mask(weights[1].double().abs() * norms, 0.5)
                told = not other.equal(mask)
            if told and clear > 1 + 1e-4:
                break
        for factor in (1.0, 2.0**-30, 2.0**14):  # no bias: the same masks
            value = student.drive(drive_dimensions, weights, [factor * x for x in texts])
            *seen, training = expect_tuple(value, (torch.Tensor, torch.Tensor, bool), "new block")
            for own, weight in zip(seen, right, strict=True):
                expect_same(own, weight, f"texts of {lengths} tokens")
            assert not training, "a block in eval mode came back in train mode"
    ranks = torch.rand(16, generator=rng).argsort()
    text = (1 + ranks * 2.0**-12)[None]  # as it stands after a block that is the identity, too
    right = torch.where(ranks < 8, 0.0, torch.ones(16, 16))
    value = student.drive(drive_linears, [torch.eye(16), torch.ones(16, 16)], [text], 0.5)
    assert isinstance(value, list) and len(value) == 2, "prune_blocks must return two blocks"
    expect_same(value[0], torch.eye(16), "the identity")
    expect_same(value[1], right, "inputs 2^-12 apart")
    # the last block, what is large in the last text or the last token, and equal tokens count
    low, high = torch.arange(32) < 16, torch.arange(32) >= 16
    eyes = [torch.eye(32)] * 9 + [torch.ones(32, 32)]
    right = high.float().expand(32, 32)
    for texts in (
        [1.0 + low.expand(3, 32)] * 6 + [99.0 * high.expand(1, 32)],
        [torch.cat([1.0 + low.expand(1200, 32), 99.0 * high.expand(1, 32)])],
        [torch.cat([2.0 * low[None], 1.0 * high.expand(9, 32)]), 2.0 * low[None]],
    ):
        for pattern in (0.5, (16, 32)):
            value = student.drive(drive_linears, eyes, texts, pattern)
            assert isinstance(value, list) and len(value) == 10, "another number of blocks"
            expect_same(value[9], right, "the last of ten blocks")
    value = student.drive(drive_linears, [torch.ones(1, 32)], [1.0 + high.expand(2, 32)], 0.5)
    expect_same(value[0], right[:1], "a linear of one output")


def drive_training(student, weights, texts):
    """Runs beside the student's code: a block with a BatchNorm in train mode, pruned once with each
    of the weights.

    Returns for each (the new weight, what has changed in the block that came in, which parameters
    of the new one a step of training reaches).
    """
    from torch import nn

    block, found = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)), []
    for weight in weights:
        block[1].weight.data.copy_(weight)
        before = {k: v.clone() for k, v in block.state_dict().items()}
        (new,) = student.prune_blocks([block], texts, 0.5)
        moved = [k for k, v in block.state_dict().items() if not v.equal(before[k])]
        pruned, y = new[1].weight.detach().clone(), new(texts[0]).square().sum()
        if y.requires_grad:
            y.backward()
        reached = [k for k, p in new.named_parameters() if p.grad is not None]
        found.append((pruned, moved, reached))
    return found


def drive_with_gradients(student, texts):
    """Runs beside the student's code: whether each parameter of a block that comes in keeps its
    gradient."""
    import torch
    from torch import nn

    block = nn.Sequential(nn.Linear(8, 8))
    for p in block.parameters():
        p.grad = torch.ones_like(p)
    student.prune_blocks([block], texts, 0.5)
    return [p.grad is not None and bool((p.grad == 1).all()) for p in block.parameters()]


@exercise(
    "ex5",
    points=2,
    invariant="biases, norms, modes, gradients and the blocks that came in stay as they were, "
    "buffers included, texts run in the mode of each part, and new blocks can be trained",
    cause="hooks left behind, copies that come too late, everything that is a matrix masked, "
    "passes through the block that came in, or gradients that stay switched off",
)
def test_all_else_stays(student, rng):
    least = 1.0
    while least <= 1 + 1e-4:  # with one text alone rounding, or channels that are 0, may not decide
        states, texts, right = clear_case(rng, 0.25)
        alone, least = true_blocks(states, texts[:1], 0.25)
    frozen = ["inner.down.weight", "first.bias"]
    after, hooks, trains, modes = pruned_blocks(student, states, texts, 0.25, frozen)
    expect_blocks(after, right, "25 %")
    assert hooks == 0, "hooks or gradients are left"
    assert all(set(t) == set(states[0]) - set(frozen) for t in trains), "requires_grad has changed"
    for i, seen in enumerate(modes):
        own = i % 2 == 1  # the block and a linear; a part with two is in the other mode
        assert seen == [own, own, not own, not own, not own], "modes have changed"
    kept = student.drive(drive_with_gradients, texts)
    assert kept == [True, True], "the gradients of a block that came in are other ones"
    _, _, trains, _ = pruned_blocks(student, states, texts, 0.25, list(states[0]))
    assert trains == [[], []], "blocks of which nothing trains have parameters that do"
    again, *_ = pruned_blocks(student, states, texts[:1], 0.25, frozen)
    expect_blocks(again, alone, "a second call, with one text")
    # statistics of the text make both inputs alike, those that are kept leave the first larger
    weight, size = torch.tensor([[1.0, 2.0], [-2.0, 1.0]]), torch.tensor([[100.0, 1.0]])
    weights = [weight, weight.flip(1)]
    texts = [size * torch.tensor([[1.0], [-1.0]]).repeat(n, 1) for n in (1, 3)]
    for w, found in zip(weights, student.drive(drive_training, weights, texts), strict=True):
        new, moved, reached = expect_tuple(found, (torch.Tensor, list, list), "drive_training")
        assert not moved, f"{moved} of the block that came in have changed: run a copy"
        expect_same(new, w.masked_fill(w.abs() < 2, 0.0), "the weight behind a BatchNorm")
        right = ["0.weight", "0.bias", "1.weight", "1.bias"]
        assert reached == right, f"training the new block reaches {reached}, expected {right}"


def drive_twice(student, weight, texts, sparsity):
    """Runs beside the student's code: a block that calls its one linear twice, in train mode."""
    import torch
    from torch import nn

    class Special(nn.Linear):
        pass

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"linear": Special(6, 6, bias=False)})
            self.table = nn.Parameter(torch.ones(6, 6))
            self.words = nn.Embedding(6, 6)  # its weight is no linear's
            nn.init.ones_(self.words.weight)

        def forward(self, x):
            words = self.words(torch.zeros(len(x), dtype=torch.int64))
            return self.parts["linear"](self.parts["linear"](x) + self.table[0] * words)

    block = Twice()
    with torch.no_grad():
        block.parts["linear"].weight.copy_(weight)
    (pruned,) = student.prune_blocks([block], texts, sparsity)
    table = pruned.table.detach() * pruned.words.weight.detach()
    return pruned.parts["linear"].weight.detach(), table, pruned.training


@exercise(
    "ex5",
    points=2,
    invariant="all inputs of a linear count, also of a second call in one pass, and of subclasses",
    cause="a dictionary that keeps the last call, names looked up at the top only, or type() used",
)
def test_a_linear_that_is_called_twice(student, rng):
    for sparsity in (0.5, 0.34):
        while True:  # until rounding decides nothing, and every usual mistake something
            w = torch.randn(6, 6, generator=rng)
            texts = [torch.randn(t, 6, generator=rng) for t in (4, 7)]
            inputs = torch.cat(texts).double()
            both = torch.cat([inputs, inputs @ w.double().T + 1])
            right, clear = true_mask(w.double().abs() * both.norm(dim=0), sparsity)
            mistakes = (inputs.norm(dim=0), both[11:].norm(dim=0), torch.ones(6))
            others = [true_mask(w.double().abs() * norms, sparsity)[0] for norms in mistakes]
            if clear > 1 + 1e-4 and not any(right.equal(other) for other in others):
                break
        value = student.drive(drive_twice, w, texts, sparsity)
        seen, table, training = expect_tuple(value, (torch.Tensor, torch.Tensor, bool), "blocks")
        expect_same(seen, w.masked_fill(~right, 0.0), "the weight of a linear called twice")
        expect_same(table, torch.ones(6, 6), "a matrix that is no linear's")
        assert training, "a block in train mode came back in eval mode"


def drive_mixed_blocks(student, cases):
    """Runs beside the student's code: of each case the weights of all linears of the new blocks,
    in the order of their names, biases, modes, what trains, and all parameters that came in."""
    from torch import nn

    class Special(nn.Linear):
        pass

    class Mixing(nn.Module):  # the tokens of a text are added up, and one linear is called twice
        def __init__(self, weights):
            super().__init__()
            up, down, bias = weights
            self.up = nn.ModuleList([Special(up.shape[1], len(up))])
            self.down = nn.Sequential(
                nn.Linear(down.shape[1], len(down), bias=False), nn.Dropout(0)
            )
            self.up[0].weight.data, self.up[0].bias.data = up.clone(), bias.clone()
            self.down[0].weight.data = down.clone()

        def forward(self, x):
            once = self.up[0](x.cumsum(0))
            return x + self.down((once + self.up[0](x[None])[0])[:, None]).squeeze(1)

    def plain(weights):
        block = nn.Linear(weights[0].shape[1], len(weights[0]))
        block.weight.data, block.bias.data = weights[0].clone(), weights[1].clone()
        return block

    found = []
    for states, texts, pattern, mode, frozen in cases:
        blocks = [Mixing(state) if len(state) == 3 else plain(state) for state in states]
        for block in blocks:
            block.train(mode == "train").requires_grad_(not frozen)
            if mode == "mixed" and len(list(block.children())):
                block.down.train()
        new = student.prune_blocks(blocks, texts, pattern)
        found.append(
            [
                [[p.detach().clone() for p in b.parameters()] for b in each]
                + [[m.training for b in each for m in b.modules()]]
                + [[p.requires_grad for b in each for p in b.parameters()]]
                for each in (blocks, new)
            ]
        )
    return found


def mixed_case(rng, kinds, lengths, pattern, size, width):
    """(states, texts, right parameters of each block), drawn until no rounding decides."""
    while True:
        states, least = [], math.inf
        for kind in kinds:
            shapes = [(width, width)] * (1 + (kind == "mixing")) + [(width,)]
            states.append([torch.randn(shape, generator=rng) for shape in shapes])
            states[-1][-1] = size * states[-1][-1]  # the bias
        texts = [size * torch.randn(n, width, generator=rng) for n in lengths]
        xs, right = [x.double() for x in texts], []
        for state in states:
            one = (state[0].double(), state[-1].double())
            read = [[x.cumsum(0), x] if len(state) == 3 else [x] for x in xs]
            inputs, new = [torch.cat([x for both in read for x in both])], []
            if len(state) == 3:
                inputs.append(
                    torch.cat([sum(x @ one[0].T + one[1] for x in both) for both in read])
                )
            for w, x in zip(state, inputs, strict=False):
                mask, clear = true_mask(w.double().abs() * x.norm(dim=0), pattern)
                new.append(w.masked_fill(~mask, 0.0))
                least = min(least, clear)
            first = new[0].double()
            outputs = [sum(x @ first.T + one[1] for x in both) for both in read]
            if len(state) == 3:
                outputs = [x + y @ new[1].double().T for x, y in zip(xs, outputs, strict=True)]
            xs = outputs
            order = (0, 2, 1) if len(state) == 3 else (0, 1)  # weight, bias, weight
            parts = [*new, state[-1]]
            right.append([parts[i] for i in order])
        if least > 1 + 1e-4:
            return states, texts, right


@exercise(
    "ex5",
    points=1,
    invariant="blocks, anywhere in what the card admits: one to three of two kinds, one text and "
    "several, of one token and many, any share and pair, texts of any size, any mode, frozen",
    cause="a corner where two others meet, such as one token beside a block that is a linear, or a "
    "pair beside frozen weights; what is kept from another call",
)
def test_anywhere_in_blocks(student, rng):
    kinds = (("mixing",), ("linear",), ("linear", "mixing", "linear"), ("mixing",) * 2)
    lengths = ((1,), (5,), (1, 1), (70, 1, 4), (3, 3, 3, 3))
    patterns = (0, 1, 0.0, 1.0, 0.5, 0.67, (2, 4), (0, 2), (4, 4), (3, 8))
    modes, cases, rights = ("train", "eval", "mixed"), [], []
    for kind, many, pattern, size, mode, frozen in every_pair(
        rng, kinds, lengths, patterns, (2.0**-24, 1.0, 2.0**14), modes, (True, False)
    ):
        states, texts, right = mixed_case(rng, kind, many, pattern, size, 8)
        cases.append((states, texts, pattern, mode, frozen))
        rights.append(right)
    found = student.drive(drive_mixed_blocks, cases)
    for (states, texts, pattern, *_), right, (old, new) in zip(cases, rights, found, strict=True):
        what = f"{len(states)} blocks, {len(texts)} texts, pattern {pattern}"
        assert len(new) == len(right) + 2, f"{what}: another number of blocks"
        assert old[-2:] == new[-2:], f"{what}: modes, or what trains, have changed"
        for state, before in zip(states, old, strict=False):
            order = (0, 2, 1) if len(state) == 3 else (0, 1)
            for i, part in zip(order, before, strict=True):
                expect_same(part, state[i], f"what came in, {what}")
        for expected, seen in zip(right, new, strict=False):
            for one, part in zip(expected, seen, strict=True):
                expect_same(part, one, f"parameters of a new block, {what}")


# ---- exercise 6 ------------------------------------------------------------------------------


@exercise(
    "ex6",
    points=2,
    invariant="scores are the norms of what units add, for inputs that go together",
    cause="the diagonal of G, blocks that are strided, or the sizes of w and x multiplied",
)
def test_scores_against_outputs(student, rng):
    for n, k, size in (
        (100, 4, 1),
        (2, 100, 1),
        (4, 12, 1),
        (3, 12, 4),
        (1, 8, 2),
        (6, 10, 5),
        (2, 6, 6),
        (1, 1, 1),
    ):
        mix = torch.eye(k) + torch.randn(k, k, generator=rng) / k**0.5
        w, x = torch.randn(n, k, generator=rng), torch.randn(40, k, generator=rng) @ mix
        x = x.double()
        parts = [slice(u, u + size) for u in range(0, k, size)]
        right = torch.stack([(x[:, p] @ w[:, p].double().T).norm() for p in parts])
        for gram in (x.T @ x, (x.T @ x).float()):
            s = student.unit_scores(w, gram, size)
            s = expect_tensor(s, "unit_scores", torch.float32, right.shape)
            # gram and sums in float32: of terms whose sizes are at most a few hundred times the sum
            expect_close(s, right, what=f"units of {size}", rtol=1e-3)
            for factor in (2.0**-27, 2.0**13):
                s = student.unit_scores(factor * w, factor**2 * gram, size)
                s = expect_tensor(s, "unit_scores", torch.float32, right.shape)
                expect_close(s, factor**2 * right, what="tiny or large units", rtol=1e-3)


@exercise(
    "ex6",
    points=2,
    invariant="a unit that adds nothing scores 0, whatever rounding makes of its trace; one that "
    "adds little does not",
    cause="the root of a negative number: NaN; or little taken for nothing",
)
def test_traces_below_zero(student, rng):
    w = torch.tensor([[1.0, -1.0, 1.0, -1.0, 2.0, 0.0]])
    gram = torch.zeros(6, 6)
    gram[:2, :2] = torch.tensor([[1.0, 1.0 + 2**-20], [1.0 + 2**-20, 1.0]])  # the trace is -2^-19
    gram[4:, 4:] = torch.tensor([[4.0, 0.0], [0.0, 9.0]])
    s = expect_tensor(student.unit_scores(w, gram, 2), "unit_scores", torch.float32, (3,))
    expect_close(s, torch.tensor([0.0, 0.0, 4.0]), what="a score", atol=1e-6)
    below = 1 - 2.0**-21  # the trace is 2^-20, and exact in float32, in any order of its terms
    gram[:2, :2] = torch.tensor([[1.0, below], [below, 1.0]])
    for no_w, no_gram in ((0 * w, gram), (w, 0 * gram)):
        s = student.unit_scores(no_w, no_gram, 2)
        expect_close(s, torch.zeros(3), what="scores of nothing but zeros")
    for factor in (1.0, 2.0**-20):
        s = student.unit_scores(w, factor**2 * gram, 2)
        expect_close(
            s, factor * torch.tensor([2.0**-10, 0.0, 4.0]), what="a score", rtol=8 * FLOAT32
        )


@exercise(
    "ex6",
    points=2,
    invariant="best_units are the n highest in ascending order",
    cause="scores sorted, the lowest taken, an order that is right by luck, a threshold, or scores "
    "that are rounded, shifted or scaled before they are compared",
)
def test_units_in_order(student, rng):
    for total, n in ((9, 4), (20, 1), (20, 19), (6, 6)):
        s = distinct(rng, 1, total)[0]
        right = torch.tensor(sorted(sorted(range(total), key=lambda i: -s[i].item())[:n]))
        expect_same(student.best_units(s, n), right, f"{n} of {total}")
        equal = torch.randint(3, (total,), generator=rng).float()
        keep = expect_tensor(student.best_units(equal, n), "best_units", torch.int64, (n,))
        assert (keep.diff() > 0).all(), "units are not in ascending order"
        expect_same(equal[keep].sort().values, equal.sort().values[-n:], "scores of the best units")
    keep = expect_tensor(student.best_units(torch.zeros(5), 3), "best_units", torch.int64, (3,))
    assert (keep.diff() > 0).all(), "units are not in ascending order"
    expect_same(student.best_units(torch.tensor([-1.0]), 1), torch.tensor([0]), "one unit")
    for name, ranks, s in close_and_far(rng, 1, 24):
        for n in range(1, 24):
            right = (ranks[0] >= 24 - n).nonzero().flatten()
            expect_same(student.best_units(s[0], n), right, f"{n} of 24 scores {name}")
    calls = []
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        w, x = (torch.randn(n, 6, generator=rng) for n in (4, 9))
        gram, s = x.double().T @ x.double(), distinct(rng, 1, 6)[0]
        grams = [gram.to(torch.float32 if dtype is torch.float32 else torch.float64)]
        calls += [("unit_scores", w, {"whole": g}, 2) for g in grams]
        calls.append(("best_units", {"whole": s}, 3))
        writers = [torch.randn(n, generator=rng).to(dtype) for n in ((6, 3), (6,))]
        keep = {"whole": torch.randperm(3, generator=rng)[:2]}
        calls.append(("remove_units", writers, torch.randn(4, 6, generator=rng), keep, 2))
    again(student, calls)
    changed(student, calls[:3], calls[-3:])
    ranks = torch.rand(3000, generator=rng).argsort()
    right = (ranks >= 1500).nonzero().flatten()
    expect_same(student.best_units(1 + ranks * 2.0**-23, 1500), right, "1500 of 3000")


def drive_unit_views(student, w, gram, square, keep, size):
    """Runs beside the student's code: weights that are not contiguous."""
    new, columns = student.remove_units([square.T], square.T, keep, size)
    return student.unit_scores(w.T, gram, size), new[0], columns


@exercise(
    "ex6",
    points=2,
    invariant="what stays are the rows and columns of the kept units, in the order of keep",
    cause="keep sorted, a slice of the wrong length, writers of one kind only, columns of a square "
    "writer, or view on weights that are not contiguous",
)
def test_any_order_of_units(student, rng):
    for size, units in ((1, 7), (2, 6), (5, 3), (2, 40)):
        k = size * units
        writers = [torch.randn(k, d, generator=rng) for d in (3, 5, 1, 2, 4, k)]
        writers.append(torch.randn(k, generator=rng).bfloat16())
        reader = torch.randn(4, k, generator=rng)
        for n in (1, units - 1, units):
            keep = torch.randperm(units, generator=rng)[:n]
            places = [size * int(u) + i for u in keep for i in range(size)]
            value = student.remove_units(writers, reader, keep, size)
            new, columns = expect_tuple(value, (list, torch.Tensor), "remove_units")
            assert len(new) == 7, f"{len(new)} writers came back"
            for seen, w in zip(new, writers, strict=True):
                expect_same(seen, w[places], "a writer")
            expect_same(columns, reader[:, places], "the reader")
        writers, reader = [writers[2].bfloat16()], reader[:1].bfloat16()
        value = student.remove_units(writers, reader, keep[:1], size)
        new, columns = expect_tuple(value, (list, torch.Tensor), "remove_units")
        first = slice(size * int(keep[0]), size * int(keep[0]) + size)
        expect_same(new[0], writers[0][first], "a bfloat16 writer")
        expect_same(columns, reader[:, first], "a bfloat16 reader of one output")
        square = torch.randn(k, k, generator=rng)
        value = student.remove_units([square], square, torch.tensor([units - 1]), size)
        new, columns = expect_tuple(value, (list, torch.Tensor), "remove_units")
        expect_same(columns, square[:, k - size :], "a square reader")
        expect_same(new[0], square[k - size :], "a square writer")
        w, gram = torch.randn(k, 4, generator=rng), torch.eye(k)
        value = student.drive(drive_unit_views, w, gram, square, torch.tensor([units - 1]), size)
        s, rows, columns = expect_tuple(value, (torch.Tensor,) * 3, "views")
        right = w.double().reshape(units, -1).norm(dim=1)  # inputs that are orthonormal
        expect_close(s, right, what="the scores of a view", rtol=1e-5)
        expect_same(rows, square.T[k - size :], "a writer that is a view")
        expect_same(columns, square.T[:, k - size :], "a reader that is a view")


def any_units(rng, n, size, units, kind, dtype, small, large):
    """(w, gram): inputs that are as they come, go together, cancel one another, or are silent."""
    k = size * units
    x = torch.randn(9, k, generator=rng, dtype=torch.float64)
    x = x * 10.0 ** torch.randint(-3, 3, (units, 1), generator=rng).repeat_interleave(size)[:k]
    if kind == "alike":
        x = x[:, :1] * (1 + 1e-4 * torch.randn(k, generator=rng))
    if kind == "silent":
        x[:, torch.rand(units, generator=rng).repeat_interleave(size) < 0.5] = 0.0
    w = torch.randn(n, k, generator=rng)
    if kind == "cancel":  # what is left of a unit is rounding, of either sign
        x = x[:, :1].expand(-1, k).contiguous()
        w = w[:, :1] * (-1.0) ** torch.arange(k)
    x = large * x
    return small * w, (x.T @ x).to(dtype)


def expect_units(s, w, gram, size, what):
    units = w.shape[1] // size
    expect_tensor(s, what, torch.float32, (units,))
    right, parts = [], []
    for u in range(units):
        place = slice(u * size, u * size + size)
        part, block = w[:, place].double(), gram[place, place].double()
        right.append((part @ block @ part.T).trace().clamp(min=0))
        parts.append((part.abs() @ block.abs() @ part.abs().T).trace())
    right, parts = torch.stack(right), torch.stack(parts)
    # G, products and sums in float32; then a root, which halves, and its square, which doubles
    bound = (len(w) + size * size + 8) * FLOAT32 * parts + 4 * FLOAT32 * right
    expect_at_most((s.double().square() - right).abs(), bound, f"the square's error, {what}")


def expect_best(keep, s, n, what):
    expect_tensor(keep, what, torch.int64, (n,))
    assert (keep.diff() > 0).all(), f"{what}: not in ascending order"
    assert keep.min() >= 0 and keep.max() < len(s), f"{what}: {keep.tolist()}"
    left = torch.ones(len(s), dtype=torch.bool)
    left[keep] = False
    assert n == len(s) or s[left].max() <= s[keep].min(), f"{what}: a higher score was left out"


def expect_removed(result, writers, reader, keep, size, what):
    new, columns = expect_tuple(result, (list, torch.Tensor), what)
    places = torch.tensor([u * size + i for u in keep.tolist() for i in range(size)])
    assert len(new) == len(writers), f"{what}: {len(new)} writers came back"
    for seen, w in zip(new, writers, strict=True):
        expect_tensor(seen, f"a writer, {what}", w.dtype, (len(places), *w.shape[1:]))
        assert bits_of(seen).equal(bits_of(w[places])), f"{what}: a writer"
    expect_tensor(columns, f"the reader, {what}", reader.dtype, (len(reader), len(places)))
    assert bits_of(columns).equal(bits_of(reader[:, places])), f"{what}: the reader"


@exercise(
    "ex6",
    points=1,
    invariant="all three functions, anywhere in what the card admits: any sizes and numbers of "
    "units and of writers, each argument in a dtype, size and view of its own, inputs that go "
    "together or cancel, equal and close scores, any order, and results stay",
    cause="a corner where two others meet, such as one unit beside a gram in float32, or a "
    "bfloat16 bias in a view; memory that is used again",
)
def test_anywhere_in_units(student, rng):
    ways, sizes, calls, checks = (1, 2, 13), (2.0**-27, 1.0, 2.0**13), [], []
    kinds, grams = ("any", "alike", "silent", "cancel"), (torch.float32, torch.float64)
    for n, size, units, kind, dtype, small, large in every_pair(
        rng, (1, 2, 30), ways, (1, 2, 9), kinds, grams, sizes, (2.0**-13, 1.0, 2.0**6)
    ):
        w, gram = any_units(rng, n, size, units, kind, dtype, small, large)
        calls.append(("unit_scores", w, gram, size))
        checks.append((expect_units, w, gram, size, f"{units} units of {size}, {kind}, {dtype}"))
    counts = list(itertools.product((1, 2, 9, 64, 700), (0.0, 0.3, 0.5, 1.0)))
    for (total, share), kind, size in every_pair(rng, counts, KINDS, sizes):
        s = any_scores(rng, (total,), kind, torch.float32, size)
        n = min(total, max(1, round(share * total) - draw(rng, 0, 1)))
        calls.append(("best_units", s, n))
        checks.append((expect_best, s, n, f"{n} of {total}, {kind}"))
    for size, units, share, count, n, dtype, other in every_pair(
        rng, (*ways, 5), (1, 2, 40), (0.0, 0.5, 1.0), (1, 2, 5), (1, 4), TYPES, TYPES
    ):
        k, keep = size * units, torch.randperm(units, generator=rng)[: max(1, round(share * units))]
        widths = [((k, 3), (k,), (k, k), (k, 1))[draw(rng, 0, 3)] for _ in range(count)]
        both = [(dtype, other)[draw(rng, 0, 1)] for _ in range(count - 1)]
        writers = [
            torch.randn(shape, generator=rng).to(one)
            for shape, one in zip(widths, [dtype, *both], strict=True)
        ]
        reader = torch.randn(n, k, generator=rng).to(other)
        calls.append(("remove_units", writers, reader, keep, size))
        what = f"{len(keep)} of {units} units of {size}, {count} writers"
        checks.append((expect_removed, writers, reader, keep, size, what))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
