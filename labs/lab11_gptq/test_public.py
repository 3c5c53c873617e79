"""Public tests of lab11: what lab.check runs.  Properties, numbers to check by hand, brute force.

w is a weight [N, K], h the mean of x^T x over tokens [K, K].  The brute force takes an inverse for
every column, and draws inputs until no code of it is nearly a tie: float32 finds the same codes.
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
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama

F64, I64 = torch.float64, torch.int64
EXACT = 1e-9  # relative; float64 to the condition of the matrices here, some 1e3
CLEAR = 1e-3  # of a step: so far is every code from a tie


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


def three(value, w, group, call):
    kinds = (torch.Tensor,) * 3
    codes, scale, zero = expect_tuple(value, kinds, call)
    groups = (len(w), math.ceil(w.shape[1] / group))
    expect_tensor(codes, f"codes of {call}", I64, tuple(w.shape))
    for part, name in ((scale, "scale"), (zero, "zero")):
        expect_tensor(part, f"{name} of {call}", F64, groups)
    return codes, scale, zero


# ---- exercise 1: the Hessian of a layer ------------------------------------------------------


def added(student, h, seen, x, what="add_tokens"):
    h, seen = expect_tuple(student.add_tokens(h, seen, x), (torch.Tensor, int), what)
    return expect_tensor(h, what, F64, (x.shape[-1],) * 2), seen


@exercise(
    "ex1",
    points=2,
    invariant="the tokens (1, 2) and (3, 0): H = (5, 1 | 1, 2); with (0, -2) besides, a third of "
    "(10, 2 | 2, 8)",
    cause="a sum in place of a mean, x x^T, the mean of two means, or tokens not counted",
)
def test_hessian_by_hand(student, rng):
    nothing = torch.zeros(2, 2, dtype=F64)
    h, seen = added(student, nothing, 0, torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
    assert seen == 2, f"{seen} tokens, expected 2"
    expect_close(h, torch.tensor([[5.0, 1.0], [1.0, 2.0]], dtype=F64), what="H", rtol=EXACT)
    h, seen = added(student, h, seen, torch.tensor([[[0.0, -2.0]]]))
    assert seen == 3, f"{seen} tokens, expected 3"
    right = torch.tensor([[10.0, 2.0], [2.0, 8.0]], dtype=F64) / 3
    expect_close(h, right, what="H", rtol=EXACT)


@exercise(
    "ex1",
    points=1,
    invariant="H does not depend on how tokens are cut into batches, some of them empty",
    cause="batches that weigh the same, whatever their size, or a division by 0",
)
def test_batches(student, rng):
    x = inputs(rng, 5, 37).float()
    right, size = mean_square(x), x.double().square().mean()
    for sizes in ((37,), (1, 36), (0, 20, 17), (30, 0, 7), (1,) * 37):
        h, seen = torch.zeros(5, 5, dtype=F64), 0
        for part in x.split(sizes):
            h, seen = added(student, h, seen, part)
        assert seen == 37, f"batches of {sizes}: {seen} tokens"
        expect_close(h, right, what=f"H by batches of {sizes}", atol=EXACT * size)
    for part in (x[:4], x[4:8]):  # two calls that differ by their numbers alone
        h, seen = added(student, torch.zeros(5, 5, dtype=F64), 0, part)
        expect_close(h, mean_square(part), what="H of 4 tokens", atol=EXACT * size)
    b = x[:36].bfloat16().view(2, 3, 6, 5)
    h, seen = added(student, torch.zeros(5, 5, dtype=F64), 0, b)
    expect_close(h, mean_square(b.view(36, 5)), what="H of bfloat16", atol=EXACT * size)
    h, seen = added(student, torch.zeros(5, 5, dtype=F64), 0, x[:0])
    assert seen == 0 and not h.any(), "no token at all: H is not 0"


@exercise(
    "ex1",
    points=2,
    invariant="H = (4, 0, 1 | 0, 0, 0 | 1, 0, 1) and damping 0.5: the diagonal is 5, 2, 2",
    cause="damping times the trace or not times the mean, the mean without the dead channel's 1, "
    "another entry than the diagonal, or dead where H is only small",
)
def test_damping_by_hand(student, rng):
    h = torch.tensor([[4.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]], dtype=F64)
    new, dead = expect_tuple(student.damped(h, 0.5), (torch.Tensor,) * 2, "damped")
    right = torch.tensor([[5.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 0.0, 2.0]], dtype=F64)
    expect_close(new, right, what="H", rtol=EXACT)
    expect_same(dead, torch.tensor([False, True, False]), "dead")
    new, dead = student.damped(2 * h + torch.diag(h[1] + 3), 0.5)
    right, _ = with_damping(2 * h + torch.diag(h[1] + 3), 0.5)
    expect_close(new, right, what="another H", rtol=EXACT)
    expect_same(dead, torch.tensor([False] * 3), "dead channels of another H")
    new, dead = student.damped(1e-12 * torch.eye(2, dtype=F64), 0.0)
    expect_close(new, 1e-12 * torch.eye(2, dtype=F64), what="a small H", rtol=EXACT)
    expect_same(dead, torch.tensor([False, False]), "dead channels of a small H")
    for bad, damping in ((h[:2], 0.5), (h, -0.1), (h, math.nan), (h, math.inf)):
        expect_error(
            ValueError,
            lambda a=bad, d=damping: student.damped(a, d),
            f"damped, h {list(bad.shape)}, damping {damping}",
        )


@exercise(
    "ex1",
    points=1,
    invariant="e H e^T is the mean of (x W^T - x V^T)^2, for each output",
    cause="a sum over outputs, the diagonal of H alone, a root, or a difference in bfloat16",
)
def test_output_error(student, rng):
    x, w, v = inputs(rng, 6), torch.randn(3, 6, generator=rng), torch.randn(3, 6, generator=rng)
    for a, b in ((w, v), (w.bfloat16(), v), (w, v.double())):
        error = student.output_error(a, b, mean_square(x))
        expect_tensor(error, "output_error", F64, (3,))
        right = (x @ (a.double() - b.double()).T).square().mean(0)
        expect_close(error, right, what="the error of an output", rtol=EXACT)


# ---- exercise 2: one weight changed, the others repaired -------------------------------------


def changed(student, w, h, j, v, free):
    value = student.change_one(w, h, j, v, free)
    w_new, cost = expect_tuple(value, (torch.Tensor,) * 2, "change_one")
    expect_tensor(w_new, "w of change_one", F64, tuple(w.shape))
    return w_new, expect_tensor(cost, "cost of change_one", F64, (len(w),))


@exercise(
    "ex2",
    points=2,
    invariant="w = (1, 1), H = (2, 1 | 1, 2), the first becomes 0.6: the other becomes 1.2, and it "
    "costs 0.24; with nothing free 0.32",
    cause="the sign of the repair, H in place of its inverse, no division by the diagonal entry, "
    "half the cost, or weights repaired that are not free",
)
def test_one_change_by_hand(student, rng):
    w = torch.tensor([[1.0, 1.0]], dtype=F64)
    h = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=F64)
    v = torch.tensor([0.6], dtype=F64)
    for free, right, price in (((0, 1), 1.2, 0.24), ((1, 1), 1.2, 0.24), ((1, 0), 1.0, 0.32)):
        w_new, cost = changed(student, w, h, 0, v, torch.tensor(free) == 1)
        what = f"with free = {[bool(f) for f in free]} the"
        expect_close(w_new, torch.tensor([[0.6, right]], dtype=F64), what=f"{what} row", rtol=EXACT)
        expect_close(cost, torch.tensor([price], dtype=F64), what=f"{what} cost", rtol=EXACT)
    w_new, cost = changed(student, w, h, 1, v, torch.tensor([True, True]))
    right = torch.tensor([[1.2, 0.6]], dtype=F64)
    expect_close(w_new, right, what="the row, the second changed,", rtol=EXACT)


@exercise(
    "ex2",
    points=3,
    invariant="where weights are free, e H is 0: no other repair is better; the rest is as it was",
    cause="entries of the inverse of the whole H, though some weights stay: it needs the inverse "
    "of what may move",
)
def test_nothing_is_better(student, rng):
    h = mean_square(inputs(rng, 7, alike=2.0))
    w = torch.randn(3, 7, generator=rng)
    for j, free in (
        (2, [1] * 7),
        (0, [0, 1, 0, 1, 1, 0, 1]),
        (6, [1, 1, 0, 0, 1, 0, 1]),
        (3, [0] * 7),
    ):
        free = torch.tensor(free) == 1
        v = torch.randn(3, generator=rng, dtype=F64)
        w_new, cost = changed(student, w, h, j, v, free)
        stays, follows = ~free, free.clone()
        stays[j] = follows[j] = False
        e = w.double() - w_new
        near = EXACT * (w.double()[:, j].abs() + v.abs()).max()  # w - e is v to rounding
        expect_close(w_new[:, j], v, what=f"column {j}", atol=near)
        expect_close(w_new[:, stays], w.double()[:, stays], what="a weight that is not free")
        size = EXACT * e.abs().max() * h.abs().max()
        expect_close(
            (e @ h)[:, follows],
            torch.zeros(3, int(follows.sum()), dtype=F64),
            what="e H at a free weight",
            atol=size,
        )
        expect_close(cost, (e @ h * e).sum(1), what="the cost", rtol=EXACT)


@exercise(
    "ex2",
    points=1,
    invariant="H = (2, 1 | 1, 2): a change of 1 costs 2 alone and 1.5 repaired; with a diagonal H "
    "both are its entries",
    cause="the diagonal of the inverse, not one over it, or the two exchanged",
)
def test_prices(student, rng):
    h = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=F64)
    d = torch.diag(torch.tensor([3.0, 0.5, 8.0], dtype=F64))
    for a, alone, repaired in (
        (h, [2.0, 2.0], [1.5, 1.5]),
        (2 * h, [4.0, 4.0], [3.0, 3.0]),
        (d, [3.0, 0.5, 8.0], [3.0, 0.5, 8.0]),
    ):
        value = expect_tuple(student.prices(a), (torch.Tensor,) * 2, "prices")
        for seen, right, name in zip(value, (alone, repaired), ("alone", "repaired"), strict=True):
            expect_tensor(seen, name, F64, (len(a),))
            expect_close(seen, torch.tensor(right, dtype=F64), what=name, rtol=EXACT)


# ---- exercise 3: column by column ------------------------------------------------------------


def codes_of(student, *args):
    w = args[0]
    return expect_tensor(student.gptq(*args), "gptq", I64, tuple(w.shape))


@exercise(
    "ex3",
    points=2,
    invariant="U^T U H = 1, U is 0 below its diagonal and positive on it",
    cause="the lower factor, the factor of H itself, or U U^T",
)
def test_factor(student, rng):
    for k in (1, 2, 9):
        h = mean_square(inputs(rng, k))
        u = expect_tensor(student.inverse_factor(h), "inverse_factor", F64, (k, k))
        one = torch.eye(k, dtype=F64)
        expect_close(u.T @ u @ h, one, what="U^T U H", atol=EXACT)
        assert not u.tril(-1).any(), "U has something below its diagonal"
        expect_at_most(-u.diagonal(), -1e-12, "minus the diagonal of U")
    for bad in (torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=F64), torch.zeros(2, 2, dtype=F64)):
        expect_error(ValueError, lambda b=bad: student.inverse_factor(b), f"h {bad.tolist()}")


@exercise(
    "ex3",
    points=2,
    invariant="w = (0.6, 1.6), whole numbers, H = (2, 1 | 1, 2): 0.6 becomes 1, so 1.6 becomes 1.4 "
    "and then 1; with a diagonal H it is rounding, 1 and 2",
    cause="the sign of the repair, no repair, the wrong row of the factor, the first column "
    "repaired and not the ones behind, or codes that leave the grid",
)
def test_two_columns_by_hand(student, rng):
    w = torch.tensor([[0.6, 1.6]])
    h = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=F64)
    scale, zero = torch.ones(1, 1, dtype=F64), torch.zeros(1, 1, dtype=F64)
    codes = codes_of(student, w, h, scale, zero, 4, 0.0)
    expect_same(codes, torch.tensor([[1, 1]]), "codes")
    codes = codes_of(student, w, torch.diag(h.diagonal()), scale, zero, 4, 0.0)
    expect_same(codes, torch.tensor([[1, 2]]), "codes with a diagonal H")
    codes = codes_of(student, w, h, scale, zero, 4, 1e9)
    expect_same(codes, torch.tensor([[1, 2]]), "codes with a damping of 1e9")
    codes = codes_of(student, w, torch.diag(h.diagonal()), scale, zero, 1, 0.0)
    expect_same(codes, torch.tensor([[1, 1]]), "codes of 1 bit with a diagonal H")


def given_case(rng, n, k, bits, damping, dead=()):
    def make():
        x, w = inputs(rng, k, alike=2.0), torch.randn(n, k, generator=rng)
        x[:, list(dead)] = 0.0
        h, (scale, zero, _) = mean_square(x), grid(w.double(), bits)
        wide = (scale.expand(n, k), zero.expand(n, k))
        codes, _, _, far = brute(w, h, bits, damping, given=wide)
        return w, h, scale, zero, codes, far

    return clear_case(make)


@exercise(
    "ex3",
    points=2,
    invariant="each column is repaired as exercise 2 has it, by those behind it alone",
    cause="U_jj^2, the inverse of the whole H for every column, columns repaired that are done, "
    "errors of the weights as they came, damping left out, or another column's grid",
)
def test_columns_against_inverses(student, rng):
    for n, k, bits, damping in (
        (6, 12, 2, 0.01),
        (6, 12, 2, 0.5),
        (1, 1, 4, 0.01),
        (6, 10, 2, 0.0),
    ):
        w, h, scale, zero, right = given_case(rng, n, k, bits, damping)
        for factor in (1.0, 7.0):  # all of H larger changes nothing
            codes = codes_of(student, w, factor * h, scale, zero, bits, damping)
            expect_same(codes, right, f"codes of {n} x {k}, {bits} bits, damping {damping}")
    w, h, scale, zero, right = given_case(rng, 3, 6, 3, 0.05, dead=(1, 4))
    codes = codes_of(student, w, h, scale, zero, 3, 0.05)
    expect_same(codes, right, "codes with two dead channels")

    def own_grids():
        x, w = inputs(rng, 8, alike=2.0), torch.randn(3, 8, generator=rng)
        h, (scale, zero, _) = mean_square(x), grid(w.double(), 3)
        scale = scale * (0.5 + torch.rand(3, 8, generator=rng, dtype=F64))
        zero = zero.expand(3, 8).contiguous()
        codes, _, _, far = brute(w, h, 3, given=(scale, zero))
        return w, h, scale, zero, codes, far

    w, h, scale, zero, right = clear_case(own_grids)
    codes = codes_of(student, w, h, scale, zero, 3, 0.01)
    expect_same(codes, right, "codes with a grid for each weight")


# ---- exercise 4: blocks and groups -----------------------------------------------------------


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


@exercise(
    "ex4",
    points=2,
    invariant="with one group for each row, codes are those of exercise 3, whatever the block",
    cause="columns behind the block not updated, updated twice or with one block too few, or a "
    "last block that is shorter",
)
def test_blocks_change_nothing(student, rng):
    w, h, *right = group_case(rng, 3, 10, 3, 10, lambda j: 0)
    for block in (1, 3, 4, 10, 64):
        for grids in ("fresh", "lazy", "static"):
            value = student.gptq_blocked(w, h, 3, block, 10, grids, 0.01)
            seen = three(value, w, 10, "gptq_blocked")
            same_three(seen, right, f"block {block}, {grids}, one group")


@exercise(
    "ex4",
    points=3,
    invariant="the grid of a group sees the repairs of all columns before (fresh), of finished "
    "blocks (lazy), or none (static)",
    cause="repairs that wait for the end of the block left out of fresh grids, the grid of a "
    "group taken from one block, or groups counted from the block's beginning",
)
def test_when_a_grid_is_fixed(student, rng):
    for block, group in ((4, 4), (4, 2), (2, 4), (3, 5), (12, 4), (1, 4)):
        kinds = {"fresh": lambda j: j, "lazy": lambda j, b=block: j // b * b, "static": lambda j: 0}
        for grids, when in kinds.items():
            w, h, *right = group_case(rng, 3, 12, 3, group, when)
            value = student.gptq_blocked(w, h, 3, block, group, grids, 0.01)
            seen = three(value, w, group, "gptq_blocked")
            same_three(seen, right, f"block {block}, group {group}, {grids}")


@exercise(
    "ex4",
    points=1,
    invariant="1 row of 4: 6 updates without blocks, 4 in blocks of 2; ValueError for what is not "
    "known",
    cause="a column counted behind itself, columns behind the block counted for each of its "
    "columns, or a last block of full length",
)
def test_updates(student, rng):
    for n, k, block, right in (
        (1, 4, 4, 6),
        (1, 4, 1, 6),
        (1, 4, 2, 4),
        (3, 5, 2, 3 * 6),
        (2, 4, 9, 12),
        (5, 1, 1, 0),
    ):
        seen = student.updates(n, k, block)
        assert type(seen) is int, f"updates returned {type(seen).__name__}, not an int"
        assert seen == right, f"updates({n}, {k}, {block}) is {seen}, expected {right}"
    w, h = torch.randn(2, 4, generator=rng), torch.eye(4, dtype=F64)
    for block, group, grids in ((2, 2, "now"), (0, 2, "fresh"), (2, 0, "static")):
        expect_error(
            ValueError,
            lambda b=block, g=group, s=grids: student.gptq_blocked(w, h, 3, b, g, s, 0.01),
            f"gptq_blocked, block {block}, group {group}, grids {grids!r}",
        )


# ---- exercise 5: the order of the columns ----------------------------------------------------


def ordered(student, w, h, bits, group, static, damping=0.01):
    value = student.gptq_ordered(w, h, bits, group, static, damping)
    *parts, g_idx = expect_tuple(value, (torch.Tensor,) * 4, "gptq_ordered")
    expect_tensor(g_idx, "g_idx", I64, (w.shape[1],))
    return *three(tuple(parts), w, group, "gptq_ordered"), g_idx


def ordered_case(rng, n, k, bits, group, static, damping, dead, dtype):
    """A function that draws (w, h, codes, scale, zero, g_idx, clearance)."""

    def make():
        x, w = inputs(rng, k, alike=2.0), torch.randn(n, k, generator=rng).to(dtype)
        x[:, list(dead)] = 0.0
        w[:, list(dead)] *= 50.0
        h, g_idx = mean_square(x), torch.arange(k) // group
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


def falling(h):
    return torch.tensor(sorted(range(len(h)), key=lambda j: -h[j, j].item()))


@exercise(
    "ex5",
    points=1,
    invariant="channels by falling diagonal entry: 3, 9, 1, 4 gives 1, 3, 0, 2",
    cause="rising order, ranks in place of places, or the order of the inverse",
)
def test_order(student, rng):
    h = torch.diag(torch.tensor([3.0, 9.0, 1.0, 4.0], dtype=F64))
    expect_same(student.act_order(h), torch.tensor([1, 3, 0, 2]), "act_order")
    for diagonal in ([5.0, 5.0, 5.0, 7.0], [0.0, 2.0, 0.0, 2.0]):
        d = torch.tensor(diagonal, dtype=F64)
        order = expect_tensor(student.act_order(torch.diag(d)), "act_order", I64, (4,))
        assert sorted(order.tolist()) == [0, 1, 2, 3], f"{order.tolist()} is no order"
        expect_close(d[order], d.sort(descending=True).values, what="the diagonal in order")


@exercise(
    "ex5",
    points=3,
    invariant="codes come back in the order of the channels; without static, g_idx says which "
    "group a channel fell into, with it groups are neighbours as stored",
    cause="codes left in the new order, the order applied twice in place of its inverse, h not "
    "permuted on both sides, or g_idx of the new order",
)
def test_ordered_against_inverses(student, rng):
    for static in (False, True):
        for group in (4, 5, 12):
            case = ordered_case(rng, 3, 12, 3, group, static, 0.01, (), torch.float32)
            w, h, *right, g_idx = clear_case(case)
            *seen, index = ordered(student, w, h, 3, group, static)
            expect_same(index, g_idx, f"g_idx, groups of {group}, static={static}")
            same_three(seen, right, f"groups of {group}, static={static}")


@exercise(
    "ex5",
    points=2,
    invariant="2 x 4 weights of 3 bits in groups of 2: 24 + 4 (16 + 3) = 100 bits, and 4 indices "
    "of 32 only where g_idx is not 0, 0, 1, 1",
    cause="an index for each weight, one although the order says it all, none at all, groups that "
    "are counted once for all rows, or a last group that is left out",
)
def test_bits_by_hand(student, rng):
    for shape, group, g_idx, right in (
        ((2, 4), 2, [0, 0, 1, 1], 100),
        ((2, 4), 2, [0, 1, 0, 1], 100 + 128),
        ((2, 4), 2, [1, 1, 0, 0], 100 + 128),
        ((1, 5), 2, [0, 0, 1, 1, 2], 15 + 3 * 19),
        ((3, 4), 9, [0, 0, 0, 0], 36 + 3 * 19),
    ):
        seen = student.stored_bits(shape, 3, group, torch.tensor(g_idx), 16, 3, 32)
        assert type(seen) is int, f"stored_bits returned {type(seen).__name__}, not an int"
        assert seen == right, f"{shape} in groups of {group}, {g_idx}: {seen}, expected {right}"
    codes = torch.tensor([[0, 1, 2, 3]])
    scale, zero = torch.tensor([[0.5, 2.0]], dtype=F64), torch.tensor([[1.0, 2.0]], dtype=F64)
    w = student.dequantize(codes, scale, zero, torch.tensor([0, 1, 1, 0]))
    expect_same(w, torch.tensor([[-0.5, -2.0, 0.0, 1.0]]), "dequantize")


# ---- exercise 6: turning a whole model -------------------------------------------------------

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


def orthogonal(rng, n):
    """Not symmetric, so Q and Q^T differ."""
    return torch.linalg.qr(torch.randn(n, n, generator=rng, dtype=F64))[0].contiguous()


@exercise(
    "ex6",
    points=1,
    invariant="Q^T Q = 1 and all entries are 1 / sqrt(n) or minus that; seeds draw the signs",
    cause="no division by sqrt(n), by n in its place, a size that is no power of two, or torch's "
    "own generator",
)
def test_hadamard(student, rng):
    for n in (1, 2, 8, 32):
        drawn = [student.random_rotation(n, seed) for seed in (0, 1, 2, 2)]
        for q in (student.hadamard(n), *drawn):
            expect_tensor(q, f"a matrix of order {n}", F64, (n, n))
            size = torch.full((n, n), n**-0.5, dtype=F64)
            expect_close(q.abs(), size, what="the size of an entry", rtol=EXACT)
            expect_close(q.T @ q, torch.eye(n, dtype=F64), what="Q^T Q", atol=EXACT)
        expect_same(drawn[3], drawn[2], "the same seed")
        if n == 32:
            for a, b in ((0, 1), (0, 2), (1, 2)):
                assert not torch.equal(drawn[a], drawn[b]), f"seeds {a} and {b} give one matrix"
    for n in (0, 3, 6, -2):
        expect_error(ValueError, lambda n=n: student.hadamard(n), f"hadamard({n})")


@exercise(
    "ex6",
    points=2,
    invariant="norms have weight 1, and the logits are the same",
    cause="columns and rows exchanged, the last norm forgotten, or lm_head changed together with "
    "the embedding",
)
def test_norms_absorbed(student, rng):
    model, ids = a_model(rng), torch.randint(20, (2, 6), generator=rng)
    state = state_of(model)
    new = a_state(student.absorb_norms(state), state, "absorb_norms")
    for name, tensor in new.items():
        if "norm" in name:
            expect_close(tensor, torch.ones_like(tensor), what=name)
    right = logits(model, state, ids)
    expect_close(logits(model, new, ids), right, what="a logit", atol=EXACT * right.abs().max())


@exercise(
    "ex6",
    points=2,
    invariant="the residual stream is h Q, and the logits are the same",
    cause="Q and Q^T exchanged, writers turned on the wrong side, a part forgotten: embedding, "
    "head, biases of o_proj and down_proj",
)
def test_model_turned(student, rng):
    for changes in ({}, {"attention_bias": True, "mlp_bias": True}):
        model, ids = a_model(rng, **changes), torch.randint(20, (2, 6), generator=rng)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "norm" in name:
                    p.fill_(1.0)
        state, q = state_of(model), orthogonal(rng, 8)
        new = a_state(student.rotate(state, q), state, "rotate")
        name = "model.embed_tokens.weight"
        expect_close(new[name], state[name] @ q, what="the embedding", atol=EXACT)
        right = logits(model, state, ids)
        expect_close(logits(model, new, ids), right, what="a logit", atol=EXACT * right.abs().max())


@exercise(
    "ex6",
    points=1,
    invariant="3, 0, 0, -4 has the peak 4 / 2.5 = 1.6; n times one number 1; zeros 0",
    cause="max without its size, a sum in place of the mean, all tokens together, or 0 / 0",
)
def test_peaks(student, rng):
    x = torch.tensor([[[3.0, 0.0, 0.0, -4.0], [2.0] * 4], [[0.0] * 4, [-1.0, 0.0, 0.0, 0.0]]])
    for dtype in (torch.float32, torch.bfloat16):
        seen = expect_tensor(student.peaks(x.to(dtype)), "peaks", F64, (2, 2))
        right = torch.tensor([[1.6, 1.0], [0.0, 2.0]], dtype=F64)
        expect_close(seen, right, what="a peak", rtol=EXACT)
