"""Public tests of lab04: what lab.check runs.  Properties, and numbers to check by hand.

w is a weight [N, K], x its inputs [..., K]; a mask is True where a weight is kept.
"""

import math

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_number,
    expect_same,
    expect_tensor,
    expect_tuple,
)

FLOAT32 = 2.0**-24  # relative error of one float32 rounding


def a_mask(value, shape, call):
    return expect_tensor(value, call, torch.bool, shape)


def same_mask(mask, right, what):
    seen, right = mask.int().tolist(), torch.as_tensor(right).int().tolist()
    assert seen == right, f"{what}: the mask is {seen}, expected {right}"


# ---- exercise 1: magnitude masks -------------------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="0.1, -0.2 | 5, -6 at one half: by layer the first row goes, by row 0.1 and 5 go",
    cause="scope ignored or swapped, columns in place of rows, the highest zeroed, no abs, or a "
    "mask that is True where a weight goes",
)
def test_masks_by_hand(student, rng):
    w = torch.tensor([[0.1, -0.2], [5.0, -6.0]])
    for scope, right in (("layer", [[0, 0], [1, 1]]), ("row", [[0, 1], [0, 1]])):
        mask = a_mask(student.magnitude_mask(w, 0.5, scope), w.shape, "magnitude_mask")
        same_mask(mask, right, f"w {w.tolist()} by {scope}")
        mask = a_mask(student.keep_share(w, 0.5, scope), w.shape, "keep_share")
        same_mask(mask, [[1, 0], [1, 0]], f"keep_share of signed scores {w.tolist()} by {scope}")
    turned = w.flip(0, 1).contiguous()
    mask = a_mask(student.magnitude_mask(turned, 0.5, "row"), w.shape, "magnitude_mask")
    same_mask(mask, [[1, 0], [1, 0]], f"w {turned.tolist()} by row")


@exercise(
    "ex1",
    points=2,
    invariant="exactly int(n * sparsity) scores go, those that are lowest; all or none at 1 and 0",
    cause="a threshold among equal scores, round in place of int, or a share of the layer counted "
    "in rows",
)
def test_as_many_as_asked(student, rng):
    for shape in ((3, 10), (5, 7), (1, 1), (7, 1)):
        for s in (torch.randn(shape, generator=rng), torch.ones(shape)):
            for scope in ("row", "layer"):
                for sparsity in (0.0, 0.29, 0.5, 0.75, 1.0, 0, 1):
                    mask = a_mask(student.keep_share(s, sparsity, scope), shape, "keep_share")
                    rows = mask if scope == "row" else mask.reshape(1, -1)
                    values = s if scope == "row" else s.reshape(1, -1)
                    gone, right = (~rows).sum(1), int(rows.shape[1] * sparsity)
                    assert (gone == right).all(), (
                        f"scores {list(shape)}, sparsity {sparsity} by {scope}: {gone.tolist()} "
                        f"went, expected {right} of {rows.shape[1]}"
                    )
                    lowest = values.masked_fill(~rows, math.inf).amin(1)
                    highest = values.masked_fill(rows, -math.inf).amax(1)
                    assert (highest <= lowest).all(), (
                        f"sparsity {sparsity} by {scope}: a score of {highest.max():.3g} went "
                        f"although {lowest.min():.3g} stayed"
                    )


def drive_transposed(student, w):
    """Runs beside the student's code: a weight that is not contiguous."""
    mask = student.magnitude_mask(w.T, 0.5, "layer")
    return mask, student.apply_mask(w.T, mask)


@exercise(
    "ex1",
    points=1,
    invariant="0 wherever the mask is False, also in place of inf and NaN; all else as it was",
    cause="w * mask, where NaN * 0 is NaN; another dtype; or view on a transposed weight",
)
def test_zeros_under_the_mask(student, rng):
    w = torch.tensor([[1.0, -8.0], [5.0, 2.0], [-3.0, 7.0]])
    value = student.drive(drive_transposed, w)
    mask, new = expect_tuple(value, (torch.Tensor, torch.Tensor), "magnitude_mask, apply_mask")
    same_mask(mask, [[0, 1, 0], [1, 0, 1]], "a transposed weight")
    expect_same(new, torch.tensor([[0.0, 5.0, 0.0], [-8.0, 0.0, 7.0]]), "a transposed weight")
    w = torch.tensor([[1.5, -2.0, math.inf], [math.nan, 0.25, -3.0]])
    mask = torch.tensor([[True, False, False], [False, True, True]])
    for dtype in (torch.float32, torch.bfloat16):
        new = student.apply_mask(w.to(dtype), mask)
        right = torch.tensor([[1.5, 0.0, 0.0], [0.0, 0.25, -3.0]]).to(dtype)
        expect_same(new, right, "apply_mask(w, mask)")


@exercise(
    "ex1",
    points=1,
    invariant="another scope, and a sparsity that is not from 0 to 1: ValueError from keep_share "
    "and magnitude_mask; else a mask",
    cause="no check, a check in one function alone, or else for every other scope",
)
def test_what_is_refused(student, rng):
    s = torch.rand(2, 4, generator=rng)
    for name in ("keep_share", "magnitude_mask"):
        function = getattr(student, name)
        for sparsity, scope in (
            (0.5, "column"),
            (0.5, "Row"),
            (-0.1, "row"),
            (1.1, "layer"),
            (1 + 2.0**-50, "row"),
            (math.nan, "row"),
            (math.inf, "layer"),
        ):
            expect_error(
                ValueError,
                lambda f=function, a=sparsity, b=scope: f(s, a, b),
                f"{name}, sparsity {sparsity}, scope {scope!r}",
            )
        a_mask(function(s, 0.5, "row"), s.shape, name)


# ---- exercise 2: the score of a weight -------------------------------------------------------


def norms_of(student, x):
    return expect_tensor(student.input_norms(x), "input_norms(x)", torch.float32, x.shape[-1:])


def scores_of(student, w, norms):
    return expect_tensor(student.scores(w, norms), "scores(w, norms)", torch.float32, w.shape)


@exercise(
    "ex2",
    points=2,
    invariant="w = 1, 0.1 and the tokens (0.1, 30), (-0.2, 40): the scores are 0.2236 and 5",
    cause="the squared norm, a mean, the largest value, the norm over channels, no size of w or "
    "its square",
)
def test_scores_by_hand(student, rng):
    w, x = torch.tensor([[1.0, -0.1]]), torch.tensor([[0.1, 30.0], [-0.2, 40.0]])
    s = scores_of(student, w, norms_of(student, x))
    expect_close(s, torch.tensor([[0.05**0.5, 5.0]]), what="a score", rtol=8 * FLOAT32)


@exercise(
    "ex2",
    points=2,
    invariant="a score is the norm of the change of the output without this weight",
    cause="not that of all tokens, a floor under silent channels, or norms of an earlier call",
)
def test_a_score_is_the_change(student, rng):
    w = torch.randn(3, 5, generator=rng)
    x = torch.randn(2, 6, 5, generator=rng) * torch.tensor([0.01, 1.0, 0.0, 30.0, 5.0])
    s = scores_of(student, w, norms_of(student, x))
    exact = torch.empty(3, 5, dtype=torch.float64)
    for i in range(3):
        for j in range(5):
            without = w.double().clone()
            without[i, j] = 0
            exact[i, j] = (x.double() @ (w.double() - without).T).norm()
    # 12 squares summed, a root and a product, each rounded
    expect_close(s, exact, what="a score", rtol=24 * FLOAT32)
    cases = ((x[:1], "one text"), (3 * x, "larger inputs"), (x.view(2, 2, 3, 5), "4 dimensions"))
    for case, what in cases:
        again = scores_of(student, 2 * w, norms_of(student, case))
        exact = 2 * w.abs().double() * case.double().flatten(0, -2).norm(dim=0)
        expect_close(again, exact, what=f"a score of 2 w and {what}", rtol=24 * FLOAT32)


@exercise(
    "ex2",
    points=1,
    invariant="3000 tokens of 1 in bfloat16 have the norm 54.772, which is no number of bfloat16; "
    "nor is 1.0546875 squared",
    cause="squares, sum or root in the dtype of x: bfloat16 has 8 bits",
)
def test_many_tokens_of_bfloat16(student, rng):
    x = torch.randn(3000, 4, generator=rng).bfloat16()
    x[:, 0], x[:, 1] = 1.0, 1.0078125
    x[:, 2] = 1.0546875  # its square is halfway between two numbers of bfloat16
    norms = norms_of(student, x)
    expect_close(norms, x.double().norm(dim=0), what="a norm", rtol=3000 * FLOAT32)
    w = torch.tensor([[1.0078125, 1.0, -3.0]]).bfloat16()
    s = scores_of(student, w, torch.tensor([1.0078125, 64.5, 1 / 3]))
    right = torch.tensor([[1.0078125**2, 64.5, 1.0]])
    expect_close(s, right, what="scores of a bfloat16 weight", rtol=4 * FLOAT32)


@exercise(
    "ex2",
    points=1,
    invariant="in every row int(K * sparsity) go, those with the lowest scores of the row",
    cause="the lowest of the layer, magnitudes in place of scores, negative weights taken for low, "
    "the norms along the wrong dimension, a threshold among equal scores, or the mask of an "
    "earlier call",
)
def test_masks_of_rows(student, rng):
    w = torch.tensor([[1.0, 2.0, 3.0, 4.0], [100.0, 200.0, 300.0, 400.0]])
    norms = torch.tensor([9.0, 1.0, 1.0, 1.0])
    mask = a_mask(student.wanda_mask(w, norms, 0.5), w.shape, "wanda_mask")
    same_mask(mask, [[1, 0, 0, 1], [1, 0, 0, 1]], "norms 9, 1, 1, 1")
    mask = a_mask(student.wanda_mask(-w, norms.flip(0), 0.5), w.shape, "wanda_mask")
    same_mask(mask, [[0, 0, 1, 1], [0, 0, 1, 1]], "norms 1, 1, 1, 9 and negative weights")
    square = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # norms could be taken for those of rows
    mask = a_mask(student.wanda_mask(square, torch.tensor([5.0, 1.0]), 0.5), (2, 2), "wanda_mask")
    same_mask(mask, [[1, 0], [1, 0]], "a square weight")
    w, norms = torch.randn(3, 8, generator=rng), torch.ones(8)
    norms[[1, 4, 6]] = 0.0  # silent channels: equal scores, of which not all go
    for sparsity, zeros in ((0.25, 2), (0.5, 4), (1.0, 8), (0.0, 0)):
        mask = a_mask(student.wanda_mask(w, norms, sparsity), w.shape, "wanda_mask")
        gone = (~mask).sum(1).tolist()
        assert gone == [zeros] * 3, (
            f"three silent channels of 8, sparsity {sparsity}: {gone} went in the rows, expected "
            f"{zeros} in each"
        )


# ---- exercise 3: n of m ----------------------------------------------------------------------


@exercise(
    "ex3",
    points=2,
    invariant="5, 1, 4, 2 | 0, 7, 8, 9: at 2:4 the places 0, 2 | 2, 3 stay, at 1:4 only 0 | 3",
    cause="n zeros in place of n kept, the lowest kept, or groups that run down columns",
)
def test_groups_by_hand(student, rng):
    s = torch.tensor([[5.0, 1.0, 4.0, 2.0, 0.0, 7.0, 8.0, 9.0]])
    for n, m, right in (
        (2, 4, [1, 0, 1, 0, 0, 0, 1, 1]),
        (1, 4, [1, 0, 0, 0, 0, 0, 0, 1]),
        (3, 4, [1, 0, 1, 1, 0, 1, 1, 1]),
        (4, 8, [1, 0, 0, 0, 0, 1, 1, 1]),
        (1, 2, [1, 0, 1, 0, 0, 1, 0, 1]),
    ):
        mask = a_mask(student.nm_mask(s, n, m), s.shape, "nm_mask")
        same_mask(mask, [right], f"{n}:{m}")
    mask = a_mask(student.nm_mask(s.flip(1), 2, 4), s.shape, "nm_mask")
    same_mask(mask, [[1, 1, 0, 0, 0, 1, 0, 1]], "2:4 of the same row from behind")


@exercise(
    "ex3",
    points=2,
    invariant="every group keeps exactly n, also of equal scores; a 2:4 mask fits 2:4 and 4:8",
    cause="a threshold, scores by their size, groups over the ends of rows, or places of one group "
    "used for all",
)
def test_exactly_n_of_every_m(student, rng):
    for s in (torch.randn(3, 24, generator=rng), torch.zeros(3, 24)):
        for n, m in ((2, 4), (1, 4), (4, 8), (0, 4), (4, 4), (2, 3), (1, 1), (24, 24)):
            mask = a_mask(student.nm_mask(s, n, m), s.shape, "nm_mask")
            groups, values = mask.reshape(-1, m), s.reshape(-1, m)
            kept = groups.sum(1)
            assert (kept == n).all(), f"{n}:{m}: groups keep {kept.tolist()}, expected {n}"
            if 0 < n < m:
                low = values.masked_fill(~groups, math.inf).amin(1)
                high = values.masked_fill(groups, -math.inf).amax(1)
                for i in (high > low).nonzero().flatten().tolist():
                    kept = values[i][groups[i]].tolist()
                    raise AssertionError(f"{n}:{m} keeps {kept} of {values[i].tolist()}")


@exercise(
    "ex3",
    points=1,
    invariant="fits: at most n values of every group are not zero; 0, 7, 8, 0 | 0, 0, 0, 1 is 2:4",
    cause="exactly n asked for, n zeros in place of n values, a tensor returned, or only the "
    "first group seen",
)
def test_what_fits(student, rng):
    w = torch.tensor([[0.0, 7.0, -8.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
    for n, m, right in ((2, 4, True), (1, 4, False), (4, 8, True), (2, 8, False), (1, 2, True)):
        seen = student.fits(w, n, m)
        assert isinstance(seen, bool), f"fits returned {type(seen).__name__}, not a bool"
        assert seen == right, f"fits(w, {n}, {m}) is {seen}, expected {right}"
    late = torch.zeros(2, 8)
    late[1, 4:7] = torch.tensor([1e-30, -1.0, 2.0])
    assert student.fits(late, 2, 4) is False, "three values in the last group fit 2:4"
    assert student.fits(late, 3, 4) is True, "three values do not fit 3:4"
    assert student.fits(torch.zeros(1, 4), 0, 4) is True, "zeros do not fit 0:4"


@exercise(
    "ex3",
    points=1,
    invariant="n:m that cannot be, and rows that do not divide: ValueError from both functions",
    cause="no check, or only one of n, m and K checked",
)
def test_patterns_that_cannot_be(student, rng):
    s = torch.rand(2, 6, generator=rng)
    a_mask(student.nm_mask(s, 1, 2), s.shape, "nm_mask")
    assert student.fits(s, 2, 2) is True, "fits(w, 2, 2) is not True"
    for n, m in ((2, 4), (3, 2), (-1, 2), (0, 0), (-2, -2), (1, 12)):
        for name in ("nm_mask", "fits"):
            expect_error(
                ValueError,
                lambda name=name, n=n, m=m: getattr(student, name)(s, n, m),
                f"{name}, {n}:{m} in rows of 6",
            )


# ---- exercise 4: 64 bits to 36 ---------------------------------------------------------------


def stored(student, w):
    value = student.compress(w)
    values, places = expect_tuple(value, (torch.Tensor, torch.Tensor), "compress")
    expect_tensor(values, "values", w.dtype, (w.shape[0], w.shape[1] // 2))
    expect_tensor(places, "places", torch.uint8, (w.shape[0], w.shape[1] // 8))
    return values, places


def unpacked(places):
    """Places 0 .. 3, [N, K / 2]."""
    parts = [(places.long() >> shift) & 3 for shift in (0, 2, 4, 6)]
    return torch.stack(parts, -1).flatten(1)


def rebuilt(values, places):
    """The weight [N, K] in float64; fails where two places of a group are equal."""
    at = unpacked(places).reshape(len(values), -1, 2)
    assert (at[..., 0] != at[..., 1]).all(), "two places of one group are equal"
    groups = torch.zeros(*at.shape[:2], 4, dtype=torch.float64)
    return groups.scatter(-1, at, values.double().reshape(at.shape)).flatten(1)


def sparse_weight(rng, n=4, k=16):
    """2:4, with random values at random places."""
    order = torch.rand(n, k // 4, 4, generator=rng).argsort(-1)
    return torch.randn(n, k, generator=rng) * (order < 2).reshape(n, k)


@exercise(
    "ex4",
    points=1,
    invariant="0, 5, 0, -1 | 3, 0, 0, 2 is stored as 5, -1, 3, 2 and the byte 205",
    cause="the first place in the highest bits, places of the row in place of the group, values "
    "sorted by size, or a byte that overflows",
)
def test_storage_by_hand(student, rng):
    values, places = stored(student, torch.tensor([[0.0, 5.0, 0.0, -1.0, 3.0, 0.0, 0.0, 2.0]]))
    assert values.tolist() == [[5, -1, 3, 2]], f"the values are {values.tolist()}"
    assert places.tolist() == [[205]], f"places {unpacked(places).tolist()}, expected 1, 3, 0, 3"
    w = torch.tensor([[1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0]])
    values, places = stored(student, w.bfloat16())
    assert values.tolist() == [[1, 2, 3, 4]], f"the values are {values.tolist()}"
    assert places.tolist() == [[0 + 4 + 32 + 192]], f"the byte of 0, 1, 2, 3 is {places.tolist()}"


@exercise(
    "ex4",
    points=1,
    invariant="what is stored is the weight, also where a group holds one value or none",
    cause="groups with fewer than two values, two equal places, or a row's groups mixed up",
)
def test_the_weight_comes_back(student, rng):
    w = sparse_weight(rng)
    few = w * (torch.rand(w.shape, generator=rng) < 0.5)
    for case in (w, few, torch.zeros(2, 8)):
        back = rebuilt(*stored(student, case))
        expect_close(back, case.double(), what="the weight of the stored values and places")


@exercise(
    "ex4",
    points=1,
    invariant="three values in a group, or K that is no multiple of 8: ValueError",
    cause="the smallest value dropped in silence, only the whole row counted, or K = 12 accepted",
)
def test_what_cannot_be_stored(student, rng):
    w = torch.zeros(2, 16)
    w[0, ::2] = 1.0
    stored(student, w)
    w[1, 12:15] = torch.tensor([1.0, 1e-30, -1.0])
    expect_error(ValueError, lambda: student.compress(w), "three values in the last group")
    expect_error(ValueError, lambda: student.compress(torch.zeros(2, 12)), "K = 12")


@exercise(
    "ex4",
    points=1,
    invariant="the product is that of the weight, for any number of tokens and 520 inputs",
    cause="places without 4 times their group, columns in uint8 (they wrap from 256 on), places "
    "taken to be sorted, a fixed number of tokens, or sums in bfloat16",
)
def test_products(student, rng):
    values, places = torch.tensor([[5.0, -1.0, 3.0, 2.0]]), torch.tensor([[205]]).to(torch.uint8)
    y = student.multiply(values, places, torch.arange(1.0, 9.0))
    expect_same(y, torch.tensor([37.0]), "the product of the example and 1 to 8")
    w = sparse_weight(rng)
    values, places = stored(student, w)
    x = torch.randn(2, 3, 16, generator=rng)
    exact = x.double() @ w.double().T
    y = expect_tensor(student.multiply(values, places, x), "multiply", torch.float32, (2, 3, 4))
    bound = 16 * FLOAT32 * (x.double().abs() @ w.double().abs().T)  # 8 products, summed
    expect_at_most((y - exact).abs(), bound, "the error of the product")
    y = student.multiply(values, places, -2 * x)
    expect_at_most((y + 2 * exact).abs(), 2 * bound, "the error of the product with -2 x")
    turned = values.reshape(4, -1, 2).flip(-1).flatten(1)  # the same weight
    swapped = unpacked(places).reshape(4, -1, 2).flip(-1).reshape(4, -1, 4)
    swapped = (swapped << torch.tensor([0, 2, 4, 6])).sum(-1).to(torch.uint8)
    y = student.multiply(turned.bfloat16(), swapped, x)
    low = w.bfloat16().double()
    expect_at_most(
        (y - x.double() @ low.T).abs(), 2 * bound, "the error with bfloat16 values, turned,"
    )
    w, x = sparse_weight(rng, 2, 520), torch.randn(520, generator=rng)
    y = student.multiply(*stored(student, w), x)
    bound = 520 * FLOAT32 * (w.double().abs() @ x.double().abs())
    expect_at_most((y - w.double() @ x.double()).abs(), bound, "the error with 520 inputs")


@exercise(
    "ex4",
    points=1,
    invariant="inputs that no value of a row meets do not matter to it, also where they are NaN",
    cause="the dense weight built up: 0 times NaN is NaN; or NaN replaced in x",
)
def test_what_is_not_read(student, rng):
    values, places = torch.tensor([[5.0, -1.0, 3.0, 2.0]]), torch.tensor([[205]]).to(torch.uint8)
    x = torch.arange(1.0, 9.0)  # the values meet the inputs 1, 3, 4 and 7
    x[[0, 2, 5, 6]] = math.nan
    y = student.multiply(values, places, x)
    y = expect_tensor(y, "multiply", torch.float32, (1,)).item()
    assert y == 37, f"the product is {y}, expected 37: only inputs that no value meets are NaN"
    x[3] = math.nan
    y = student.multiply(values, places, x).item()
    assert math.isnan(y), f"the product is {y}, expected NaN: a value meets an input that is NaN"


@exercise(
    "ex4",
    points=1,
    invariant="2:4 of [N, K] takes N K / 2 times value_bits + 2 bits; with the zeros anywhere, "
    "`kept` values and a bit for each of the N K weights",
    cause="places or the map forgotten, bits for kept weights in place of all, bytes, or a float",
)
def test_bits(student, rng):
    for shape, bits, right in (((1, 8), 16, 72), ((3, 16), 8, 240), ((4096, 11008), 16, 405798912)):
        seen = expect_number(student.stored_bits(shape, bits), "stored_bits")
        assert isinstance(seen, int), f"stored_bits returned {seen}, not an int"
        assert seen == right, f"{shape} with {bits} bits takes {seen}, expected {right}"
    for shape, kept, bits, right in (
        ((1, 8), 4, 16, 72),
        ((1, 8), 3, 16, 56),
        ((3, 16), 0, 8, 48),
        ((3, 5), 15, 4, 75),
        ((4096, 11008), 4096 * 5504, 16, 405798912),
    ):
        seen = expect_number(student.bitmap_bits(shape, kept, bits), "bitmap_bits")
        assert isinstance(seen, int), f"bitmap_bits returned {seen}, not an int"
        assert seen == right, (
            f"{shape}, {kept} of them not zero, with {bits} bits takes {seen}, expected {right}"
        )


# ---- exercise 5: block by block --------------------------------------------------------------


def drive_blocks(student, states, texts, pattern, frozen):
    """Runs beside the student's code: two blocks with these parameters, pruned.

    Returns (parameters of the new blocks, parameters of those that came in, hooks on both, modules
    with a forward of their own among both, names of parameters that train, modes), or None if no
    list of modules came back.
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
    after = [{k: v.detach().clone() for k, v in b.named_parameters()} for b in pruned]
    before = [{k: v.detach().clone() for k, v in b.named_parameters()} for b in blocks]
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    both = [m for b in [*blocks, *pruned] for m in b.modules()]
    hooks = sum(len(getattr(m, kind)) for m in both for kind in kinds)
    replaced = sum("forward" in vars(m) for m in both)
    trains = [[k for k, v in b.named_parameters() if v.requires_grad] for b in pruned]
    modes = [[m.training for m in b.modules()] for b in pruned]
    return after, before, hooks, replaced, trains, modes


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


def true_blocks(states, texts, pattern, norms_of=true_norms, dense=False, in_turn=False):
    """(parameters of the pruned blocks, the least clearness), norms and runs in float64.

    norms_of another rule, dense: outputs of blocks that are not pruned, and in_turn: linears pruned
    before those behind them are measured, are usual mistakes.
    """
    pruned, least = [], math.inf
    for state in states:
        new = dict(state)
        seen = [linear_inputs(state, x)[0] for x in texts]
        for name in LINEARS:
            if in_turn:
                seen = [linear_inputs(new, x)[0] for x in texts]
            norms = norms_of([call for inputs in seen for call in inputs[name]])
            weight = state[f"{name}.weight"]
            mask, clear = true_mask(weight.double().abs() * norms, pattern)
            new[f"{name}.weight"] = weight.masked_fill(~mask, 0.0)
            least = min(least, clear)
        texts = [linear_inputs(state if dense else new, x)[1] for x in texts]
        pruned.append(new)
    return pruned, least


MISTAKES = {  # name: norms of the inputs of all calls
    "magnitude": lambda calls: torch.ones(calls[0].shape[1]),
    "added norms": lambda calls: sum(x.norm(dim=0) for x in calls),
    "means over each text": lambda calls: sum(x.square().mean(0) for x in calls).sqrt(),
}
ONE_CALL = {  # nothing else where a linear is called once and there is one text
    "the inputs of the last call alone": lambda calls: calls[-1].norm(dim=0),
    "the inputs of the first call alone": lambda calls: calls[0].norm(dim=0),
}


def mistaken_blocks(states, texts, pattern, rules=MISTAKES):
    """{name: what a usual mistake makes of a case}."""
    chosen = dict(rules)
    if len({len(x) for x in texts}) == 1:
        chosen.pop("means over each text")
    made = {k: true_blocks(states, texts, pattern, rule)[0] for k, rule in chosen.items()}
    made["linears pruned one after the other"] = true_blocks(states, texts, pattern, in_turn=True)[
        0
    ]
    if len(states) > 1:
        made["inputs of the dense model"] = true_blocks(states, texts, pattern, dense=True)[0]
    return made


def mistake_of(after, case):
    """Which usual mistake has made these masks of a case (states, texts, pattern), if one has."""
    for name, states in mistaken_blocks(*case, MISTAKES | ONE_CALL).items():
        pairs = [(a[k], b[k]) for a, b in zip(after, states, strict=True) for k in b]
        if all(torch.equal(a == 0, b == 0) for a, b in pairs):
            return f": these are the masks of {name}"
    return ""


def clear_case(rng, pattern, lengths=(5, 9), blocks=2):
    """(states, texts, right states), drawn until no rounding decides about a weight, and every
    usual mistake about some."""
    while True:
        states = [block_state(rng) for _ in range(blocks)]
        texts = [torch.randn(n, 8, generator=rng) for n in lengths]
        right, least = true_blocks(states, texts, pattern)
        told = all(
            any(not a[k].equal(b[k]) for a, b in zip(wrong, right, strict=True) for k in a)
            for wrong in mistaken_blocks(states, texts, pattern).values()
        )
        if told and least > 1 + 1e-4:
            return states, texts, right


def pruned_blocks(student, states, texts, pattern, frozen=()):
    value = student.drive(drive_blocks, states, texts, pattern, list(frozen))
    assert value is not None, "prune_blocks must return a list of new blocks"
    after, before, hooks, replaced, trains, modes = value
    assert len(after) == len(states), f"{len(after)} blocks came back, expected {len(states)}"
    for i, (seen, state) in enumerate(zip(before, states, strict=True)):
        moved = [k for k in state if not torch.equal(seen[k], state[k])]
        assert not moved, f"block {i} that came in has changed in {moved}: prune a copy"
    assert not replaced, f"the forward of {replaced} modules is still replaced"
    return after, hooks, trains, modes


def expect_blocks(after, right, what, case):
    for i, (seen, state) in enumerate(zip(after, right, strict=True)):
        for name, expected in state.items():
            value = expect_tensor(seen[name], name, torch.float32, expected.shape)
            wrong = (value == 0) != (expected == 0)
            assert not wrong.any(), (
                f"{what}: block {i}, {name}: {int(wrong.sum())} weights of {wrong.numel()} are "
                "kept or pruned otherwise than by what the pruned blocks before put out"
                + mistake_of(after, case)
            )
            assert torch.equal(value, expected), f"{what}: block {i}, {name} has other values"


@exercise(
    "ex5",
    points=1,
    invariant="one block, one text: every linear is masked by the inputs that it had before any "
    "was pruned",
    cause="magnitude, only linears at the top of the block, no subclasses, the last call of a "
    "linear that is called twice, linears pruned before all were measured, or more than linears",
)
def test_one_block(student, rng):
    for pattern in (0.5, (2, 4)):
        states, texts, right = clear_case(rng, pattern, lengths=(7,), blocks=1)
        after, *_ = pruned_blocks(student, states, texts, pattern)
        expect_blocks(after, right, f"pattern {pattern}", (states, texts, pattern))


@exercise(
    "ex5",
    points=2,
    invariant="two blocks, two texts: norms over all texts, and the second block is scored on what "
    "the pruned first one puts out",
    cause="inputs of the dense model, norms added in place of squares, the last text, or texts "
    "of one length only",
)
def test_the_second_block_sees_the_first_pruned(student, rng):
    states, texts, right = clear_case(rng, 0.5)
    after, *_ = pruned_blocks(student, states, texts, 0.5)
    expect_blocks(after, right, "two texts of 5 and 9 tokens", (states, texts, 0.5))
    for _ in range(3):  # where the dense outputs and the pruned ones choose otherwise
        states, texts, right = clear_case(rng, 0.75, lengths=(6, 4, 11))
        after, *_ = pruned_blocks(student, states, texts, 0.75)
        expect_blocks(after, right, "75 %, three texts", (states, texts, 0.75))


def drive_kinds(student, weight, bias, mixed, batched, texts):
    """Runs beside the student's code: a block that is a linear, one that mixes tokens, and one
    whose linear reads [1, T, D]."""
    import torch
    from torch import nn

    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8, bias=False)

        def forward(self, x):
            return x + self.linear(x - x.mean(0))

    class Batched(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8, bias=False)

        def forward(self, x):
            return self.linear(x[None])[0]

    blocks = [nn.Linear(8, 8), Mixing(), Batched()]
    with torch.no_grad():
        blocks[0].weight.copy_(weight)
        blocks[0].bias.copy_(bias)
        blocks[1].linear.weight.copy_(mixed)
        blocks[2].linear.weight.copy_(batched)
    first, second, third = student.prune_blocks(blocks, texts, 0.5)
    return first.weight.detach(), second.linear.weight.detach(), third.linear.weight.detach()


@exercise(
    "ex5",
    points=1,
    invariant="a block that is itself a linear is pruned; a block that mixes tokens reads one text "
    "at a time; a linear may read [1, T, D]",
    cause="linears looked for inside a block only, all texts joined to one, or inputs of unlike "
    "length joined without making them [tokens, K] first",
)
def test_blocks_of_other_kinds(student, rng):
    while True:  # until rounding decides nothing, and joined texts something
        w, mixed, batched = torch.randn(3, 8, 8, generator=rng)
        bias, sizes = torch.randn(8, generator=rng), torch.logspace(-1, 1, 8)
        texts = [torch.randn(n, 8, generator=rng) * sizes + n * (n == 9) for n in (5, 9)]
        first, clear = true_mask(w.double().abs() * true_norms(texts).double(), 0.5)
        outputs = [x.double() @ (w * first).double().T + bias for x in texts]
        apart = true_norms([x - x.mean(0) for x in outputs])
        joined = torch.cat(outputs) - torch.cat(outputs).mean(0)
        second, also_clear = true_mask(mixed.double().abs() * apart, 0.5)
        wrong, _ = true_mask(mixed.double().abs() * true_norms([joined]), 0.5)
        outputs = [x + (x - x.mean(0)) @ (mixed * second).double().T for x in outputs]
        third, clear_too = true_mask(batched.double().abs() * true_norms(outputs), 0.5)
        if min(clear, also_clear, clear_too) > 1 + 1e-4 and not second.equal(wrong):
            break
    value = student.drive(drive_kinds, w, bias, mixed, batched, texts)
    seen = expect_tuple(value, (torch.Tensor,) * 3, "the weights of the new blocks")
    expect_same(seen[0], w.masked_fill(~first, 0.0), "the weight of a block that is a linear")
    expect_same(seen[1], mixed.masked_fill(~second, 0.0), "the linear of a block that mixes tokens")
    expect_same(seen[2], batched.masked_fill(~third, 0.0), "the linear that reads [1, T, D]")


@exercise(
    "ex5",
    points=2,
    invariant="blocks that came in stay; new ones carry no hooks, train what trained, keep modes",
    cause="hooks or a replaced forward left behind, no copy, requires_grad lost, or a block or one "
    "of its parts put into another mode",
)
def test_what_stays(student, rng):
    states, texts, right = clear_case(rng, (1, 4))
    frozen = ["first.weight", "scale"]
    after, hooks, trains, modes = pruned_blocks(student, states, texts, (1, 4), frozen)
    expect_blocks(after, right, "1:4", (states, texts, (1, 4)))
    assert hooks == 0, f"{hooks} hooks are left on blocks"
    names = sorted(set(states[0]) - set(frozen))
    for seen in trains:
        assert sorted(seen) == names, f"parameters that train are {sorted(seen)}, expected {names}"
    for i, seen in enumerate(modes):
        own = i % 2 == 1
        right = [own, own, not own, not own, not own]  # the block, a linear, a part with two
        assert seen == right, f"block {i} came back with train modes {seen}, expected {right}"


# ---- exercise 6: units -----------------------------------------------------------------------


@exercise(
    "ex6",
    points=2,
    invariant="w = (1, 2), G = ((4, -1), (-1, 1)): units of one column score 2 and 2, one of two 2",
    cause="the diagonal of G alone (2.83), no root, the root of a negative number, or the norm of "
    "w and G taken apart",
)
def test_units_by_hand(student, rng):
    w, gram = torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, -1.0], [-1.0, 1.0]])
    for size, right in ((1, [2.0, 2.0]), (2, [2.0])):
        s = expect_tensor(student.unit_scores(w, gram, size), "unit_scores", torch.float32)
        expect_close(s, torch.tensor(right), what=f"scores of units of {size}", rtol=8 * FLOAT32)
    w, above = torch.tensor([[1.0, -1.0]]), 1 + 2.0**-20
    gram = torch.tensor([[1.0, above], [above, 1.0]])
    s = student.unit_scores(w, gram, 2)
    expect_close(
        s, torch.zeros(1), what="the score where rounding made a trace of -2e-6", atol=1e-6
    )


@exercise(
    "ex6",
    points=2,
    invariant="a score is the norm of what the unit adds to the output over all tokens",
    cause="columns u, u + 1 in place of u * size and on, or blocks of G of another unit",
)
def test_a_score_is_what_a_unit_adds(student, rng):
    w, x = torch.randn(5, 12, generator=rng), torch.randn(20, 12, generator=rng)
    x[:, 1::2] += x[:, ::2]  # neighbours go together
    x, w = x.double(), w.double()
    for size in (1, 3, 4, 12):
        right = torch.stack(
            [(x[:, u : u + size] @ w[:, u : u + size].T).norm() for u in range(0, 12, size)]
        )
        s = student.unit_scores(w.float(), x.T @ x, size)
        s = expect_tensor(s, "unit_scores", torch.float32, right.shape)
        # the trace is a sum of size^2 N terms of either sign: relative to their sizes
        expect_close(s, right, what=f"scores of units of {size}", rtol=1e-4)


@exercise(
    "ex6",
    points=1,
    invariant="the n highest, in ascending order of their numbers: of 3, 9, 1, 7 the units 1 and 3",
    cause="the lowest, scores by their size, the order of the scores, or a threshold among equals",
)
def test_best_units(student, rng):
    for values, n, right in (
        ([3.0, 9.0, 1.0, 7.0], 2, [1, 3]),
        ([9.0, 3.0, 7.0, 1.0], 3, [0, 1, 2]),
        ([9.0, 3.0, 7.0, 1.0], 2, [0, 2]),
        ([5.0], 1, [0]),
        ([-8.0, 2.0, -1.0], 2, [1, 2]),
    ):
        keep = student.best_units(torch.tensor(values), n)
        expect_same(keep, torch.tensor(right), f"best_units({values}, {n})")
    keep = student.best_units(torch.tensor([2.0, 1.0, 2.0, 2.0]), 2)
    keep = expect_tensor(keep, "best_units of 2, 1, 2, 2", torch.int64, (2,)).tolist()
    assert keep in ([0, 2], [0, 3], [2, 3]), f"the best 2 of 2, 1, 2, 2 are units {keep}"


@exercise(
    "ex6",
    points=1,
    invariant="the smaller layer puts out what the layer puts out with the other units at 0",
    cause="rows of the reader removed, columns of a writer, units of one column only, biases not "
    "cut, or another order than that of keep",
)
def test_removed_is_zeroed(student, rng):
    up, bias, down = (torch.randn(s, generator=rng) for s in ((12, 4), (12,), (3, 12)))
    x = torch.randn(6, 4, generator=rng).double()
    square = torch.randn(12, 12, generator=rng)
    value = student.remove_units([square], square, torch.tensor([1, 2]), 3)
    writers, reader = expect_tuple(value, (list, torch.Tensor), "remove_units")
    expect_same(reader, square[:, 3:9], "the new columns of a square reader")
    expect_same(writers[0], square[3:9], "the new rows of a square writer")
    for size, keep in (
        (1, [0, 5, 11]),
        (3, [2, 0]),
        (3, [1, 3]),
        (4, [1]),
        (2, [0, 1, 2, 3, 4, 5]),
    ):
        value = student.remove_units([up, bias], down, torch.tensor(keep), size)
        writers, reader = expect_tuple(value, (list, torch.Tensor), "remove_units")
        assert len(writers) == 2, f"{len(writers)} writers came back, expected 2"
        places = [size * u + i for u in keep for i in range(size)]
        rows = expect_tensor(writers[0], "the new weight", torch.float32, (len(places), 4))
        ascending = keep != sorted(keep) and up[sorted(places)].equal(rows)
        assert not ascending, f"keep {keep}: the units came back in ascending order, not in keep's"
        expect_same(writers[0], up[places], "the new rows of the weight")
        expect_same(writers[1], bias[places], "the new bias")
        expect_same(reader, down[:, places], "the new columns of the reader")
        hidden = (x @ up.double().T + bias.double()).relu()
        hidden[:, [j for j in range(12) if j not in places]] = 0
        y = (x @ writers[0].double().T + writers[1].double()).relu() @ reader.double().T
        expect_close(y, hidden @ down.double().T, what="the output", rtol=1e-9, atol=1e-9)
