"""Hidden tests of lab15: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.
"""

import copy
import itertools
import math

import torch
import torch.nn.functional as F

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.lab.again import held, refused
from efflib.lab.cases import every_pair
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama
from efflib.zoo.tokenizer import BEGIN_ID

F64 = torch.float64
FLOAT32 = 2.0**-24  # relative error of one float32 rounding
BFLOAT16 = 2.0**-8
EXACT = 1e-9  # float64, numbers of about 1
FLOOR = 1e-5
SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": True,
}


def whole(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def a_llama(rng, **changes):
    """(config as a dict, a small Llama with opinions, float32, in eval mode)."""
    sizes = SIZES | changes
    model = Llama(LlamaConfig(**sizes)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            values = torch.randn(p.shape, generator=rng)
            p.copy_(1 + 0.1 * values if "norm" in name else 0.5 * values)
    return sizes, model


def state_of(model):
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


# ---- exercise 1 --------------------------------------------------------------------------------


def expect_pair(value, call, shape, scales):
    codes, scale = expect_tuple(value, (torch.Tensor,) * 2, call)
    expect_tensor(codes, f"codes of {call}", torch.int8, shape)
    expect_tensor(scale, f"scale of {call}", torch.float32, scales)
    assert (codes.abs() <= 1).all(), f"codes of {call} are not all -1, 0 or 1"
    return codes, scale


def matrices(rng):
    """Weights [N, K] of all kinds: sizes, magnitudes, dtypes, views."""
    n, k = whole(rng, 2, 9), whole(rng, 3, 40)
    yield torch.randn(n, k, generator=rng)
    yield 1e4 * torch.randn(n, k, generator=rng)
    yield 1e-8 * torch.randn(n, k, generator=rng)
    yield torch.randn(k, n, generator=rng).T
    yield torch.randn(2 * n, 2 * k, generator=rng)[::2, ::2]
    yield torch.randn(n, k, generator=rng).bfloat16()
    yield (1e4 * torch.randn(n, k, generator=rng)).bfloat16()
    yield (1e-8 * (1 + torch.rand(n, k, generator=rng))).bfloat16()
    yield torch.randn(3, 1500, generator=rng).bfloat16()  # a sum in bfloat16 would stop growing
    yield -torch.rand(1, 7, generator=rng) - 0.1
    yield torch.randn(5, 1, generator=rng)
    yield torch.tensor([[-2.5]])
    yield torch.cat([torch.full((1, 30), 0.01), torch.full((1, 30), 100.0)])
    yield torch.tensor([90 * [9e-7] + 10 * [1.5e-4]])  # the small ones are a part of the mean
    yield torch.randn(1, whole(rng, 60, 90), generator=rng)
    above = 1e-3 * torch.randn(4, 1000, generator=rng)
    above[0, whole(rng, 0, 999)] = 1e4  # w / s is 1000 by rows, 4000 for all: more than int8 holds
    yield above
    for dtype in (torch.float32, torch.bfloat16):  # as many rows as columns
        yield torch.randn(k, k, generator=rng).to(dtype)


def drive_together(student, calls):
    """Runs beside the student's code: the results of all calls, which are held until the end."""
    return [getattr(student, name)(*args) for name, args in calls]


def expect_each_its_own(student, calls):
    """Results that are held are, at the end, what each call gives alone."""
    held = student.drive(drive_together, calls)
    for (name, args), value in zip(calls, held, strict=True):
        alone = getattr(student, name)(*args)
        pairs = zip(value, alone, strict=True) if isinstance(value, tuple) else [(value, alone)]
        for one, two in pairs:
            real = torch.as_tensor(two)
            assert not real.is_complex() and real.isfinite().all(), f"{name} gave no real numbers"
            expect_close(one, two, what=f"{name} of the first of two", atol=1e-5, rtol=1e-5)


def drive_means(student, wide):
    """Runs beside the student's code: a view, by rows and as a whole."""
    view = wide.T[1::2]
    return student.absmean(view, True), student.absmean(view, False)


def drive_least(student, wide):
    """Runs beside the student's code: the least error of a view."""
    return student.least_error(wide.T[1::2])


def wide_ones(rng):
    """Matrices of which every second column is looked at, as a row."""
    for dtype in (torch.float32, torch.bfloat16):
        yield torch.randn(whole(rng, 3, 9), 2 * whole(rng, 2, 9), generator=rng).to(dtype)


@exercise(
    "ex1",
    points=4,
    invariant="s = mean |w| of each row or of all, at least 1e-5, and codes of round(w / s), for "
    "matrices of all kinds",
    cause="a sum in bfloat16, a mean of columns, or a floor added",
)
def test_absmean(student, rng):
    cases = [(w, rows, None) for w in matrices(rng) for rows in (True, False)]
    for wide in wide_ones(rng):
        by_rows, by_all = student.drive(drive_means, wide)
        cases += [(wide.T[1::2], True, by_rows), (wide.T[1::2], False, by_all)]
    low = torch.tensor([[1e-7, 1e-7], [4e-5, 4e-5]])  # a row below the floor, not the mean of all
    cases += [(low, True, None), (low, False, None)]
    for w, rows, seen in cases:
        expect_absmean(student.absmean(w, rows) if seen is None else seen, w, rows)


def expect_absmean(value, w, rows):
    n, k = w.shape
    codes, scale = expect_pair(value, "absmean", (n, k), (n, 1) if rows else (1, 1))
    size = w.double().abs()
    right = size.mean(1, keepdim=True) if rows else size.mean().reshape(1, 1)
    right = right.clamp(min=FLOOR)
    bound = (n * k + 8) * FLOAT32
    expect_close(scale, right, what="scale", rtol=bound)
    ratio = w.double() / right
    clear = (ratio.abs() - 0.5).abs() > 4 * bound  # not so near a tie that rounding decides
    wanted = (ratio > 0.5).to(torch.int8) - (ratio < -0.5).to(torch.int8)
    assert torch.equal(codes[clear], wanted[clear]), "codes are not those of round(w / s)"


@exercise(
    "ex1",
    points=1,
    invariant="a tie is rounded to the even code, 0, on both sides",
    cause="w > s / 2 with an equal sign, or floor(w / s + 0.5)",
)
def test_ties(student, rng):
    w = torch.tensor([[0.5, -0.5, 1.5, -1.5], [1.0, -1.0, 3.0, -3.0]])  # means 1 and 2
    codes, scale = expect_pair(student.absmean(w, True), "absmean", (2, 4), (2, 1))
    assert codes.tolist() == 2 * [[0, 0, 1, -1]], "ties"
    expect_same(scale, torch.tensor([[1.0], [2.0]]), "scale")


@exercise(
    "ex1",
    points=3,
    invariant="the squared error of each row is the least that any number of kept weights gives",
    cause="a fixed threshold, the best k for the matrix in place of the row, or float32 sums",
)
def test_least_error(student, rng):
    cases = [(w, None) for w in matrices(rng)]
    cases += [(wide.T[1::2], student.drive(drive_least, wide)) for wide in wide_ones(rng)]
    for w, value in cases:
        expect_least(student.least_error(w) if value is None else value, w)
    pair = [torch.randn(3, 7, generator=rng) for _ in range(2)]
    calls = [("least_error", (w,)) for w in pair] + [("absmean", (w, True)) for w in pair]
    expect_each_its_own(student, calls)
    zero = torch.zeros(2, 5)
    zero[1, 3] = -1e-8
    codes, scale = expect_pair(student.least_error(zero), "least_error", (2, 5), (2, 1))
    assert not codes[0].any() and scale[0] == 0, "a row of zeros"
    assert codes[1].tolist() == [0, 0, 0, -1, 0], "a row of one weight"
    expect_close(scale[1].double(), torch.tensor([1e-8], dtype=F64), what="scale", rtol=1e-6)


def expect_least(value, w):
    n, k = w.shape
    codes, scale = expect_pair(value, "least_error", (n, k), (n, 1))
    assert (scale >= 0).all(), "a negative scale"
    for row, c, s in zip(w.double(), codes.double(), scale.double(), strict=True):
        if not row.any():
            assert not c.any() and s == 0, "a row of zeros"
            continue
        sums = row.abs().sort(descending=True).values.cumsum(0)
        gain = (sums.square() / torch.arange(1, k + 1)).max()
        seen = 2 * (s * c * row).sum() - (s * c).square().sum()
        expect_at_most((gain - seen) / gain, 1e-5, "what the error lacks of the least, relatively")
        best = (c * row).sum() / c.square().sum()  # the error hardly tells this from its like
        expect_close(s, best[None], what="the scale for these codes", rtol=(k + 8) * FLOAT32)


def drive_changed(student, first, second):
    """Runs beside the student's code: all answers for a matrix, before and after it was written
    into."""
    w, found = first.clone(), []
    for one in (first, second):
        w.copy_(one)
        value = student.absmean(w, True), student.absmean(w, False), student.least_error(w)
        found.append([[part.clone() for part in pair] for pair in value])
    return [[tuple(pair) for pair in three] for three in found]


@exercise(
    "ex1",
    points=1,
    invariant="both functions anywhere in what the card admits: one row or many, one column or "
    "thousands, both dtypes, small and large weights and zeros beside each other, in every layout",
    cause="a mistake where two of these meet, such as one column in bfloat16, or small weights in "
    "a view; or memory that is used again",
)
def test_anywhere_in_ternary(student, rng):
    calls, checks = [], []
    types, sizes = (torch.float32, torch.bfloat16), (1e-8, 1e-5, 1.0, 1e4, "each")
    for dtype, n, k, size in every_pair(rng, types, (1, 2, 9, 70), (1, 2, 40, 1100), sizes):
        w = torch.randn(n, k, generator=rng).clamp(-4, 4)
        if size == "each":  # of every row its own
            size = 10.0 ** torch.randint(-6, 4, (n, 1), generator=rng)
        w[:, -1] = 4.0
        w = w * size / 4  # up to 1e4
        small = (w.abs() < 1e-8) | (torch.rand(n, k, generator=rng) < 0.1)
        w = w.masked_fill(small, 0.0).to(dtype)
        for rows in (True, False):
            calls.append(("absmean", w, rows))
            checks.append((expect_absmean, w, rows))
        calls.append(("least_error", w))
        checks.append((expect_least, w))
    even = 1 + 0.1 * torch.rand(1, 5000, generator=rng)  # of which nearly all are kept
    calls.append(("least_error", even))
    checks.append((expect_least, even))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for value in results:
            check(value, *args)
    pair = torch.randn(2, 3, 7, generator=rng)
    for w, (by_rows, by_all, least) in zip(pair, student.drive(drive_changed, *pair), strict=True):
        expect_absmean(by_rows, w, True)
        expect_absmean(by_all, w, False)
        expect_least(least, w)


# ---- exercise 2 --------------------------------------------------------------------------------


def rounded_tokens(x):
    """x_hat in float64, from u in float32."""
    u = 127 / x.float().abs().amax(-1, keepdim=True).clamp(min=FLOOR)
    return (x.float() * u).round().double() / u.double()


def off_ties(x, near=1e-3):
    """x with zeros where it is so near a tie of its token's grid that a last digit decides."""
    places = x.float() * (127 / x.float().abs().amax(-1, keepdim=True).clamp(min=FLOOR))
    return x.masked_fill((places - places.floor() - 0.5).abs() < near, 0.0)


def rounded_weight(w):
    scale = w.float().abs().mean().clamp(min=FLOOR)
    return (w.float() / scale).round().clamp(-1, 1).double() * scale.double()


def drive_tokens(student, x, g, turned):
    """Runs beside the student's code: rounded tokens, perhaps of a view, and their gradient."""
    import torch

    x = x.mT.contiguous().mT if turned else x.clone()
    student.round_tokens(x)
    free = x.requires_grad
    x.requires_grad_()
    y = student.round_tokens(x)
    (dx,) = torch.autograd.grad(y, x, g)
    return y.detach(), dx, free


@exercise(
    "ex2",
    points=3,
    invariant="tokens of all kinds, each on its own grid, in the dtype they came in; the gradient "
    "is passed on as it is",
    cause="a grid for the batch, u in bfloat16, a floor added, or the gradient of a clamp",
)
def test_tokens(student, rng):
    k = whole(rng, 3, 30)
    kinds = [torch.randn(4, k, generator=rng) * m for m in (1.0, 1e4, 1e-2, 1e-8, 1e30)]
    kinds[2][0] = 8e-6 * torch.rand(k, generator=rng)  # below the floor, and not rounded away
    kinds += [torch.randn(2, 3, k, generator=rng), torch.randn(k, generator=rng)]
    kinds += [
        torch.randn(k, 5, generator=rng).T,
        torch.zeros(3, k),
        torch.randn(6, 1, generator=rng),
    ]
    kinds += [torch.randn(0, k, generator=rng), -torch.rand(2, k, generator=rng)]
    outlier = torch.randn(3, k, generator=rng)
    outlier[1, 0] = 1e4
    kinds += [outlier, 1e4 * torch.randn(2, 2, k, generator=rng)]
    kinds += [1e38 * (2 * torch.rand(2, k, generator=rng) - 1)]  # no float32 holds 127 times that
    kinds += [kinds[-1].bfloat16()]
    kinds += [x.bfloat16() for x in kinds[:7]]
    for i, x in enumerate(kinds):
        g = torch.randn(x.shape, generator=rng).to(x.dtype)
        turned = x.ndim > 2 or (x.ndim > 1 and i % 2 == 1)
        y, dx, free = student.drive(drive_tokens, x, g, turned)
        assert not free, "round_tokens made x require a gradient that needed none"
        expect_tensor(y, "round_tokens", x.dtype, tuple(x.shape))
        expect_same(dx, g, "the gradient")
        right = rounded_tokens(x)
        unit = BFLOAT16 if x.dtype == torch.bfloat16 else 8 * FLOAT32
        step = x.double()
        if x.numel():
            step = x.double().abs().amax(-1, keepdim=True).clamp(min=FLOOR) / 127
        # near a tie a last digit of u decides between two codes: they are a step apart
        ratio = (x.double() / step.clamp(min=1e-300)).abs() if x.numel() else x.double()
        tie = ((ratio - ratio.floor() - 0.5).abs() < 1e-4).double()
        off = (y.double() - right).abs() - tie * step * 1.001
        expect_at_most(off, unit * right.abs() + 1e-12, "the error of a rounded token")
    pair = [torch.randn(3, k, generator=rng) for _ in range(2)]
    expect_each_its_own(student, [("round_tokens", (x,)) for x in pair])
    for shape in ((2, 1500), (1500, 3)):
        x = on_the_grid(rng, *shape)
        y = student.round_tokens(x)
        expect_close(y, x, what="tokens that are on their grid", rtol=8 * FLOAT32)


def on_the_grid(rng, *shape):
    """Whole numbers up to 127 and one of 127 in each token, by eights: rounding leaves them."""
    x = torch.randint(-126, 127, shape, generator=rng).float()
    x[..., 0] = 127.0
    return x / 8


def drive_layer(student, w, b, x, g):
    """Runs beside the student's code: outputs and gradients of a layer."""
    from torch import nn

    linear = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, dtype=w.dtype)
    linear.weight.data = w.clone()
    if b is not None:
        linear.bias.data = b.clone()
    layer = student.BitLinear(linear)
    x = x.clone().requires_grad_()
    y = layer(x)
    y.backward(g)
    names = sorted(n for n, _ in layer.named_parameters())
    bias = None if b is None else linear.bias.grad
    return y.detach(), x.grad, linear.weight.grad, bias, names


@exercise(
    "ex2",
    points=3,
    invariant="outputs and all gradients of layers of all sizes, with and without bias, in two "
    "dtypes, for any dimensions, with batches of none",
    cause="reshape to two dimensions, gradients through the scale, or a clipped code without one",
)
def test_layers(student, rng):
    expect_large_layers(student, rng)
    for n, k, lead, dtype, bias, size in (
        (3, 17, (4,), torch.float32, True, 1.0),
        (5, 7, (2, 2, 3), torch.float32, True, 1.0),
        (17, 3, (2, 3), torch.float32, False, 1.0),
        (1, 1, (5,), torch.float32, True, 1.0),
        (6, 8, (), torch.float32, True, 100.0),
        (6, 8, (0,), torch.float32, True, 1.0),
        (6, 40, (3,), torch.float32, False, 1e-2),
        (7, 7, (7,), torch.float32, False, 1.0),
        (7, 7, (7, 7), torch.bfloat16, True, 1.0),
        (5, 9, (4,), torch.bfloat16, True, 1.0),
        (9, 5, (2, 3), torch.bfloat16, False, 1.0),
        (4, 6, (2, 0), torch.bfloat16, True, 1.0),
        (4, 6, (1,), torch.float32, True, 1.0),
        (1, 6, (1, 1), torch.float32, False, 1.0),
        (4, 1, (2, 1), torch.bfloat16, True, 1.0),
    ):
        w, b = torch.randn(n, k, generator=rng).to(dtype), torch.randn(n, generator=rng).to(dtype)
        w[0, 0] = 7.0  # clipped
        x = (size * torch.randn(*lead, k, generator=rng)).to(dtype)
        x, g = off_ties(x) if x.numel() else x, torch.randn(*lead, n, generator=rng).to(dtype)
        y, dx, dw, db, names = student.drive(drive_layer, w, b if bias else None, x, g)
        assert names == (["bias", "weight"] if bias else ["weight"]), f"parameters {names}"
        x_hat, w_hat = rounded_tokens(x) if x.numel() else x.double(), rounded_weight(w)
        unit = 4 * BFLOAT16 if dtype == torch.bfloat16 else 1e-5
        flat, flat_g = x_hat.reshape(-1, k), g.double().reshape(-1, n)
        reach = x_hat.abs() @ w_hat.abs().T + b.double().abs()
        expect_tensor(y, "the output", dtype, (*lead, n))
        right = x_hat @ w_hat.T + (b.double() if bias else 0)
        expect_at_most((y.double() - right).abs(), unit * reach, "the error of the output")
        expect_tensor(dw, "the gradient of w", dtype, (n, k))
        most = unit * (flat_g.abs().T @ flat.abs()) + 1e-12
        expect_at_most((dw.double() - flat_g.T @ flat).abs(), most, "the error of w's gradient")
        expect_tensor(dx, "the gradient of x", dtype, (*lead, k))
        most = unit * (g.double().abs() @ w_hat.abs()) + 1e-12
        expect_at_most((dx.double() - g.double() @ w_hat).abs(), most, "the error of x's gradient")
        if bias:
            most = unit * flat_g.abs().sum(0) + 1e-12
            expect_at_most((db.double() - flat_g.sum(0)).abs(), most, "the error of b's gradient")
    for dtype, unit in ((torch.float32, 8 * FLOAT32), (torch.bfloat16, BFLOAT16)):
        # unit vectors are on their grid: what comes out is s c itself, beside a weight of 1000
        w, g = torch.randn(12, 40, generator=rng).to(dtype), torch.ones(40, 12, dtype=dtype)
        w[0, 0] = 1000.0
        y, _, dw, *_ = student.drive(drive_layer, w, None, torch.eye(40, dtype=dtype), g)
        expect_close(dw, torch.ones(12, 40), what="the gradient of w, however far", atol=unit)
        y = y.T.double()
        s = w.double().abs().mean()
        clear = ((w.double() / s).abs() - 0.5).abs() > 1e-2
        right = rounded_weight(w)
        expect_close(y[clear], right[clear], what="s c", atol=(500 * FLOAT32 + unit) * s.item())
        sizes = y.abs()[clear & (right != 0)]
        expect_at_most(sizes.max() - sizes.min(), unit * s, "how far sizes of s c differ")


def expect_large_layers(student, rng):
    """Many inputs, outputs or tokens, and weights below the floor of the scale."""
    for n, k, lead, size in (
        (2, 1500, (2,), 1.0),
        (1500, 3, (2,), 1.0),
        (2, 3, (1500,), 1.0),
        (9, 11, (4,), 6e-6),  # its mean is below the floor: codes are those of w / 1e-5
        (9, 11, (4,), 1e-7),
    ):
        # 1 and a tenth of it, both far from a tie; inputs are on their grid
        w = torch.tensor([1.0, -1.0, 0.1, -0.1])[torch.randint(4, (n, k), generator=rng)] * size
        x, b = on_the_grid(rng, *lead, k), torch.randn(n, generator=rng)
        g = torch.randint(-3, 4, (*lead, n), generator=rng).float()
        y, dx, dw, db, _ = student.drive(drive_layer, w, b * size, x, g)
        w_hat, g, unit = rounded_weight(w), g.double(), FLOAT32 * (n + k + len(x) + 8)
        reach = x.double().abs() @ w_hat.abs().T + size * b.double().abs()
        right = x.double() @ w_hat.T + (b * size).double()
        expect_at_most((y.double() - right).abs(), unit * reach, "the error of the output")
        off = (dx.double() - g @ w_hat).abs()
        expect_at_most(off, unit * (g.abs() @ w_hat.abs()), "the error of x's gradient")
        off = (dw.double() - g.T @ x.double()).abs()
        expect_at_most(off, unit * (g.abs().T @ x.double().abs()), "the error of w's gradient")
        expect_same(db.double(), g.sum(0), "b's gradient")


def drive_frozen(student, w, b, x, g):
    """Runs beside the student's code: gradients of a layer whose weight, bias, or all is frozen."""
    from torch import nn

    linear, found = nn.Linear(w.shape[1], w.shape[0]), []
    linear.weight.data, linear.bias.data = w.clone(), b.clone()
    layer = student.BitLinear(linear)
    for frozen in ([linear.weight], [linear.bias], [linear.weight, linear.bias]):
        linear.requires_grad_(True).zero_grad()
        for p in frozen:
            p.requires_grad_(False)
        x = x.detach().requires_grad_()
        layer(x).backward(g)
        found.append([x.grad, linear.weight.grad, linear.bias.grad])
    return found


def expect_some_frozen(student, rng):
    """What is frozen has no gradient, all others have theirs."""
    w, b, x, g = (torch.randn(s, generator=rng) for s in ((4, 6), (4,), (3, 6), (3, 4)))
    x = off_ties(x)
    rights = g.double() @ rounded_weight(w), g.double().T @ rounded_tokens(x), g.double().sum(0)
    for frozen, grads in zip(
        ("w", "b", "wb"), student.drive(drive_frozen, w, b, x, g), strict=True
    ):
        for j, name in enumerate("xwb"):
            if name in frozen:
                assert grads[j] is None, "what is frozen has a gradient"
                continue
            assert grads[j] is not None, "a gradient is missing, where something else is frozen"
            what = f"the gradient of {name}, where {frozen} is frozen"
            expect_close(grads[j], rights[j], what=what, atol=1e-5, rtol=1e-5)


def drive_life(student, w, b, xs, lr):
    """Runs beside the student's code: steps of an optimizer that knows the linear; views of x.

    In both modes, and after each step without a gradient. Then a copy and another layer.
    """
    import copy

    import torch
    from torch import nn

    linear = nn.Linear(w.shape[1], w.shape[0])
    linear.weight.data, linear.bias.data = w.clone(), b.clone()
    optimizer = torch.optim.SGD(linear.parameters(), lr=lr)
    layer, outs, quiet, weights = student.BitLinear(linear), [], [], []
    for i, x in enumerate(xs):
        view = x.mT.contiguous().mT
        layer.train(i % 2 == 0)
        y = layer(view)
        optimizer.zero_grad()
        y.sum().backward()
        if i % 3:
            optimizer.step()
        else:  # as an optimizer of one's own may, unseen by autograd
            linear.weight.data -= lr * linear.weight.grad
            linear.bias.data -= lr * linear.bias.grad
        outs.append(y.detach())
        with torch.no_grad():
            quiet.append(layer(view).detach())
        weights.append([linear.weight.detach().clone(), linear.bias.detach().clone()])
    ids = [layer.weight is linear.weight, layer.bias is linear.bias]
    linears = [nn.Linear(3, 2).requires_grad_(False).train(mode) for mode in (True, False)]
    frozen = [student.BitLinear(one) for one in linears]
    twins = [copy.deepcopy(layer), student.BitLinear(nn.Linear(w.shape[1], w.shape[0]))]
    with torch.no_grad():  # others of the same sizes, and the first again
        for twin in twins:
            twin.weight.copy_(w.flip(0))
            twin.bias.copy_(b)
            outs.append(twin(xs[0]))
        outs.append(layer(xs[0]))
    free = [p.requires_grad for p in frozen[0].parameters()]
    ids += [linears[0].training, not linears[1].training]
    ids.append(student.BitLinear(nn.Linear(3, 2, bias=False)).bias is None)
    return outs, quiet, weights, ids, free, list(xs)


@exercise(
    "ex2",
    points=3,
    invariant="over several steps weight and bias are the linear's own and codes are those of the "
    "weight as it is, in both modes and without a gradient; frozen ones stay frozen",
    cause="cloned Parameters, codes kept between calls, or the weight overwritten by its rounding",
)
def test_it_lives(student, rng):
    expect_some_frozen(student, rng)
    w, b = torch.randn(4, 6, generator=rng), torch.randn(4, generator=rng)
    xs = [torch.randn(5, 6, generator=rng) for _ in range(4)]
    xs = [*map(off_ties, [*xs, *(torch.randn(2, 5, 6, generator=rng) for _ in range(2))])]
    outs, quiet, weights, ids, free, given = student.drive(drive_life, w, b, xs, 0.25)
    v, c = w, b
    *outs, copied, other, first = outs
    for x, out, still, (new, bias) in zip(xs, outs, quiet, weights, strict=True):
        x_hat = rounded_tokens(x)
        right = x_hat @ rounded_weight(v).T + c.double()
        expect_close(out, right, what="an output", atol=1e-4)
        moved = v.double() - 0.25 * x_hat.flatten(0, -2).sum(0)
        expect_close(new, moved, what="the linear's weight after a step", atol=1e-4)
        expect_close(bias, c - 0.25 * x[..., 0].numel(), what="the bias after a step", atol=1e-4)
        v, c = new, bias
        right = x_hat @ rounded_weight(v).T + c.double()
        expect_close(still, right, what="an output after a step", atol=1e-4)
    x_hat = rounded_tokens(xs[0])
    for y, (weight, bias), what in (
        (copied, (w.flip(0), b), "a copy's output, with a weight of its own"),
        (other, (w.flip(0), b), "the output of another layer of the same sizes"),
        (first, (v, c), "the output after another layer was called"),
    ):
        expect_close(y, x_hat @ rounded_weight(weight).T + bias.double(), what=what, atol=1e-4)
    assert ids[:2] == [True, True], "weight or bias is not the linear's own"
    assert ids[2:4] == [True, True], "the linear has another mode"
    assert ids[4], "the bias of a layer without one is not None"
    assert free == [False, False], "a frozen linear's Parameters are trainable"
    for x, kept in zip(xs, given, strict=True):
        expect_same(kept, x, "x after the calls")


# ---- exercise 3 --------------------------------------------------------------------------------


def bytes_of(row):
    """Bytes of a row of codes, by arithmetic on whole numbers."""
    digits = [c + 1 for c in row] + [1] * (-len(row) % 5)
    return [
        sum(d * 3**i for i, d in enumerate(digits[j : j + 5])) for j in range(0, len(digits), 5)
    ]


def drive_packed(student, wide):
    """Runs beside the student's code: a view, packed, and its bytes as a view, unpacked."""
    words = student.pack(wide.T)
    return words, student.unpack(words.T.contiguous().T, len(wide))


@exercise(
    "ex3",
    points=3,
    invariant="rows of every length, integers of other dtypes and views are packed byte for byte, "
    "and come back",
    cause="whole matrices packed without regard to rows, sums in int8, or another filling",
)
def test_packing(student, rng):
    for length in (1, 2, 3, 4, 5, 6, 9, 10, 11, whole(rng, 100, 140)):
        n = whole(rng, 1, 5)
        cases = [(n, d) for d in (torch.int8, torch.int16, torch.int32, torch.int64, torch.int64)]
        for n, dtype in [*cases, (length, torch.int8)]:  # the last one is square
            codes = torch.randint(-1, 2, (n, length), generator=rng).to(dtype)
            codes[0, -1] = 1
            words = student.pack(codes)
            right = torch.tensor([bytes_of(row) for row in codes.tolist()], dtype=torch.uint8)
            expect_same(words, right, "pack")
            expect_same(student.unpack(words, length), codes.to(torch.int8), "unpack")
    for k in (12, 10, 5):
        wide = torch.randint(-1, 2, (k, 3), generator=rng, dtype=torch.int8)
        words, back = student.drive(drive_packed, wide)
        right = torch.tensor([bytes_of(row) for row in wide.T.tolist()], dtype=torch.uint8)
        expect_same(words, right, "pack of a view")
        expect_same(back, wide.T, "unpack of a view")


@exercise(
    "ex3",
    points=1,
    invariant="each of the 243 bytes has its five codes",
    cause="digits from the high end, or a table that is not complete",
)
def test_every_byte(student, rng):
    words = torch.arange(243, dtype=torch.uint8)[:, None]
    codes = student.unpack(words, 5)
    right = torch.tensor([[b // 3**i % 3 - 1 for i in range(5)] for b in range(243)])
    expect_same(codes, right.to(torch.int8), "unpack")
    expect_same(student.unpack(words, 2), right[:, :2].to(torch.int8), "unpack of 2 codes")


@exercise(
    "ex3",
    points=1,
    invariant="other codes, bytes above 242, too few and too many bytes: ValueError",
    cause="only one side checked, or clamped without a word",
)
def test_refusals(student, rng):
    turn = whole(rng, 0, 6)
    for i, code in enumerate((2, -2, 3, 127, -128)):
        codes = torch.zeros(2, 7, dtype=torch.int8)
        codes[i % 2, (turn + i) % 7] = code
        expect_error(ValueError, lambda c=codes: student.pack(c), "another code")
    large = (255, 256, -256, 257, 65537, 2**32, 2**32 - 1, -(2**63))  # a cast would wrap
    for i, code in enumerate(large):  # in all columns
        codes = torch.zeros(2, 7, dtype=torch.int64)
        codes[i % 2, (turn + i) % 7] = code
        expect_error(ValueError, lambda c=codes: student.pack(c), "a large code")
    for dtype in (torch.int16, torch.int32):  # whose least has no positive, or which wraps
        least = torch.iinfo(dtype).min
        for code in (least, -1 - least, 256, -255, least + 2**8, 2, -2):
            codes = torch.zeros(2, 7, dtype=dtype)
            codes[turn % 2, turn] = code
            expect_error(ValueError, lambda c=codes: student.pack(c), "another code of its dtype")
    for dtype in (torch.int8, torch.int64):
        codes = torch.tensor([[0, 1, 2], [-1, 0, 1]], dtype=dtype)
        refused(student, [("pack", codes)])
    words = torch.full((2, 2), 121, dtype=torch.uint8)
    high = torch.tensor([[121, 250]], dtype=torch.uint8)
    refused(student, [("unpack", *given) for given in ((words, 11), (words, 3), (high, 9))])
    for length in (6, 7, 10):
        expect_same(
            student.unpack(words, length), torch.zeros(2, length, dtype=torch.int8), "unpack"
        )
    for length in (5, 11, 1):
        expect_error(ValueError, lambda n=length: student.unpack(words, n), "another length")
    for byte, row in itertools.product((243, 255), (0, 1)):
        high = words.clone()
        high[row, 0] = byte
        low = words.clone()
        low[row, 1] = byte  # of which two codes are asked for, or all
        for bad, length in ((high, 10), (low, 7), (low, 10)):
            expect_error(
                ValueError,
                lambda b=bad, n=length: student.unpack(b, n),
                "a byte that is no five codes",
            )


def drive_product(student, wide, codes):
    """Runs beside the student's code: views, multiplied."""
    return student.product(wide.mT, codes.T.contiguous().T, 1.0)


@exercise(
    "ex3",
    points=3,
    invariant="products of all sizes equal float64's; what has the code 0 in a row is not read "
    "there, and is read in others",
    cause="codes as factors, columns left out for all rows, or the scale within each sum",
)
def test_products(student, rng):
    for n, k, lead, dtype in (
        (3, 20, (4,), torch.float32),
        (1, 1, (2, 3), F64),
        (7, 200, (), torch.float32),
        (2, 5, (1,), F64),
        (2, 5, (1,), F64),  # other numbers of the same sizes
        (6, 6, (6,), F64),
    ):
        codes = torch.randint(-1, 2, (n, k), generator=rng, dtype=torch.int8)
        codes[0] = 0
        x = torch.randn(*lead, k, generator=rng, dtype=F64).to(dtype)
        scale = (0.1 + whole(rng, 1, 30) / 7) * (-1 if n == 2 else 1)
        y = student.product(x, codes, scale)
        right = scale * (x.double() @ codes.double().T)
        expect_tensor(y, "product", dtype, (*lead, n))
        bound = (k + 4) * (FLOAT32 if dtype == torch.float32 else 2.0**-52)
        reach = abs(scale) * (x.double().abs() @ codes.double().abs().T)
        expect_at_most((y - right).abs(), 2 * bound * reach + 1e-300, "the error of the product")
    for code, one in itertools.product((-1, 0, 1), (-2.0, 3.0)):  # one number by one code
        y = student.product(torch.tensor([one]), torch.tensor([[code]], dtype=torch.int8), 0.5)
        expect_close(y, torch.tensor([0.5 * one * code]), what="the product of one code")
    codes = torch.tensor([[1, 0, -1], [0, -1, 1]], dtype=torch.int8)
    x = torch.tensor([[1.0, math.inf, 2.0], [math.nan, 1.0, 2.0]])
    y = student.product(x, codes, 2.0)
    right = torch.tensor([[-2.0, -math.inf], [math.nan, 2.0]])
    expect_close(y, right, what="the product beside infinities")
    codes = torch.tensor([[1, -1, 0], [-1, 0, 1], [-1, -1, -1]], dtype=torch.int8)
    y = student.product(torch.tensor([[math.inf, 1.0, 2.0]]), codes, 0.5)
    right = torch.tensor([[math.inf, -math.inf, -math.inf]])
    expect_close(y, right, what="the product of infinities")
    for lead in ((3,), (2, 3), (2, 1, 3)):  # nothing of a row is read that has no other codes
        codes = torch.tensor([[0, 0, 0], [1, 0, 0], [0, -1, 0]], dtype=torch.int8)
        x = torch.tensor([1.0, -2.0, math.nan], dtype=F64).expand(lead).clone()
        right = torch.tensor([0.0, 0.5, 1.0], dtype=F64).expand(*lead[:-1], 3)
        expect_same(student.product(x, codes, 0.5), right, "the product beside NaN")
        x[...] = math.inf
        seen = student.product(x, torch.zeros(2, 3, dtype=torch.int8), 0.5)
        zeros = torch.zeros(*lead[:-1], 2, dtype=F64)
        expect_same(seen, zeros, "the product of codes that are all 0")
    codes_of = [torch.randint(-1, 2, (3, 7), generator=rng, dtype=torch.int8) for _ in range(2)]
    calls = [("pack", (c,)) for c in codes_of]
    calls += [("product", (torch.randn(2, 7, generator=rng), c, 0.5)) for c in codes_of]
    packed = [torch.randint(243, (3, 2), generator=rng).to(torch.uint8) for _ in range(2)]
    expect_each_its_own(student, calls + [("unpack", (w, 7)) for w in packed])
    for shape in ((3, 6), (2, 3, 6)):
        wide = torch.randn(shape, generator=rng, dtype=F64)
        seen = student.drive(drive_product, wide, codes)
        expect_close(seen, wide.mT @ codes.double().T, what="the product of a view", atol=EXACT)


def expect_product(y, x, codes, scale):
    expect_tensor(y, "product", x.dtype, (*x.shape[:-1], len(codes)))
    right = scale * (x.double() @ codes.double().T)
    bound = 2 * (x.shape[-1] + 4) * torch.finfo(x.dtype).eps
    reach = abs(scale) * (x.double().abs() @ codes.double().abs().T)
    expect_at_most((y - right).abs(), bound * reach + 1e-300, "the error of the product")


@exercise(
    "ex3",
    points=1,
    invariant="all three functions anywhere in what the card admits: one row or many, rows of any "
    "length, every dtype, in every layout",
    cause="a mistake where two of these meet, such as one column of int16, or float32 in a view; "
    "or memory that is used again",
)
def test_anywhere_in_trits(student, rng):
    rows, lengths = (1, 2, 6, 70), (1, 4, 5, 6, 260)
    types = (torch.int8, torch.int16, torch.int32, torch.int64)
    calls, rights = [], []
    large = [(2, 3001, torch.int32), (1500, 3, torch.int8)]
    for n, k, dtype in every_pair(rng, rows, lengths, types) + large:
        codes = torch.randint(-1, 2, (n, k), generator=rng)
        words = torch.tensor([bytes_of(row) for row in codes.tolist()], dtype=torch.uint8)
        calls += [("pack", codes.to(dtype)), ("unpack", words, k)]
        rights += [words, codes.to(torch.int8)]
    for (name, *_), right, results in zip(calls, rights, held(student, rng, calls), strict=True):
        for value in results:
            expect_same(value, right, f"{name} of {tuple(right.shape)}")
    calls = []
    leads = (), (1,), (5,), (2, 3), (2, 1, 2)
    cases = every_pair(rng, rows, lengths, (torch.float32, F64), leads, (1.0, -0.37, 1e6, 0.0))
    cases += [(2, 3000, torch.float32, (2,), 0.3), (2, 3, F64, (1500,), 0.3)]
    for n, k, dtype, lead, scale in [*cases, (1500, 3, F64, (2,), -0.3)]:
        codes = torch.randint(-1, 2, (n, k), generator=rng, dtype=torch.int8)
        x = torch.randn(*lead, k, generator=rng, dtype=F64).to(dtype)
        calls.append(("product", x, codes, scale))
    for (_, *args), results in zip(calls, held(student, rng, calls), strict=True):
        for y in results:
            expect_product(y, *args)


# ---- exercise 4 --------------------------------------------------------------------------------


def exact_divergences(a, b):
    """(forward, reverse, gradients of both) in float64."""
    a, b = a.double(), b.double()
    log_p, log_q = a.log_softmax(-1), b.log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    forward = torch.where(p > 0, p * (log_p - log_q), 0.0).sum(-1)
    r = log_q - log_p
    said = torch.where(q > 0, q * r, 0.0)
    reverse = torch.where(log_p > -math.inf, said, math.inf).sum(-1)
    return forward, reverse, q - p, torch.where(q > 0, q * (r - reverse[..., None]), 0.0)


def logits(rng, *shape, dtype=F64, size=2.0):
    return (size * torch.randn(shape, generator=rng, dtype=F64)).to(dtype)


@exercise(
    "ex4",
    points=3,
    invariant="both divergences of logits of any dimensions, in two dtypes, in the dtype of the "
    "student",
    cause="softmax and then log, a mean, a sum over the batch, or one more dimension",
)
def test_divergences(student, rng):
    v = whole(rng, 3, 40)
    for shape in ((v,), (4, v), (2, 3, v), (3, 1), (1, v), (2, 1, v), (1, 1, 1), (v, v), (4, 4, 4)):
        for dtype in (torch.float32, F64):
            a, b = logits(rng, *shape, dtype=dtype), logits(rng, *shape, dtype=dtype)
            forward, reverse, *_ = exact_divergences(a, b)
            bound = 200 * FLOAT32 if dtype == torch.float32 else EXACT
            for name, right in (("forward_kl", forward), ("reverse_kl", reverse)):
                seen = getattr(student, name)(a, b)
                expect_tensor(seen, name, dtype, shape[:-1])
                expect_close(seen, right, what=name, atol=bound, rtol=bound)
            calls = [(name, (x, y)) for name in ("forward_kl", "reverse_kl", "gradients")
                     for x, y in ((a, b), (b, a))]  # fmt: skip
            expect_each_its_own(student, calls)
            moved = student.forward_kl(a + 5, b - 3), student.reverse_kl(a + 5, b - 3)
            expect_close(moved[0], forward, what="forward_kl, logits moved", atol=8 * bound)
            expect_close(moved[1], reverse, what="reverse_kl, logits moved", atol=8 * bound)


@exercise(
    "ex4",
    points=2,
    invariant="logits of 10,000 and tokens that the teacher never says: right or infinite, no NaN",
    cause="exp of a logit, log of a 0, or 0 times infinity",
)
def test_far_apart(student, rng):
    a = torch.tensor([[1e4, 0.0, -1e4], [0.0, 1e4, 0.0]])
    b = torch.tensor([[0.0, 1e4, 0.0], [0.0, 1e4, 1.0]])
    forward, reverse, *_ = exact_divergences(a, b)
    expect_close(student.forward_kl(a, b), forward, what="forward_kl", rtol=1e-5, atol=1e-5)
    expect_close(student.reverse_kl(a, b), reverse, what="reverse_kl", rtol=1e-5, atol=1e-5)
    a = logits(rng, 3, 6)
    a[0, 2] = a[1, 0] = a[1, 5] = -math.inf
    b = logits(rng, 3, 6)
    forward, reverse, *_ = exact_divergences(a, b)
    expect_close(student.forward_kl(a, b), forward, what="forward_kl", atol=EXACT)
    rare, never = (torch.tensor([[0.0, v]], dtype=F64) for v in (-20.0, -1e4))
    p, rest = math.exp(-20.0) / (1 + math.exp(-20.0)), math.log1p(math.exp(-20.0))
    right = torch.tensor([p * (1e4 - 20.0) - rest], dtype=F64)  # of one token in 500 million
    expect_close(student.forward_kl(rare, never), right, what="forward_kl", rtol=1e-9)
    expect_close(student.reverse_kl(never, rare), right, what="reverse_kl", rtol=1e-9)
    for one in (0, 2, slice(None, None, 2)):  # one row alone, and three dimensions
        few = [x[one] if isinstance(one, int) else x[one][None] for x in (a, b)]
        pair = student.forward_kl(*few), student.reverse_kl(*few)
        for seen, right in zip(pair, exact_divergences(*few)[:2], strict=True):
            expect_close(seen, right, what="a divergence where a token is never said", atol=EXACT)
    seen = student.reverse_kl(a, b)
    assert seen[:2].tolist() == [math.inf, math.inf], "reverse_kl where the teacher never says it"
    expect_close(seen[2], reverse[2], what="reverse_kl", atol=EXACT)
    for dtype in (torch.float32, F64):
        # never said, where the student's chance is above 0 and rounds to 0; also in every row
        a = torch.tensor([[0.0, -math.inf, 1.0], [0.0, 1.0, -math.inf]], dtype=dtype)
        b = torch.tensor([[1e4, 0.0, 1e4], [0.0, 0.5, -1e4]], dtype=dtype)
        seen = student.reverse_kl(a, b)
        assert seen.tolist() == [math.inf, math.inf], "reverse_kl beside a chance that rounds to 0"
        forward, *_ = exact_divergences(a, b)
        digit = 1e-3 if dtype == torch.float32 else 1e-5  # the last one of a logit of 10,000
        expect_close(student.forward_kl(a, b), forward, what="forward_kl", atol=digit)
        # of two that are hardly likelier than never
        a = torch.tensor([[-math.inf, -1e4, -1e4], [-1e4, -math.inf, -9999.0]], dtype=dtype)
        b = torch.tensor([[0.0, 0.5, -1.0], [1.0, 0.0, 0.0]], dtype=dtype)
        forward, *_ = exact_divergences(a, b)
        expect_close(student.forward_kl(a, b), forward, what="forward_kl", atol=digit)
        # small chances count, where the logarithms are far apart: e^-16 and e^-18 times 10,000
        a = torch.tensor([[0.0, -16.0], [0.0, -18.0], [-1.0, 0.0]], dtype=dtype)
        b = torch.tensor([[0.0, -1e4], [0.0, -1e4], [0.0, -30.0]], dtype=dtype)
        forward, _, slope, _ = exact_divergences(a, b)
        expect_close(student.forward_kl(a, b), forward, what="forward_kl", rtol=1e-5, atol=1e-7)
        _, reverse, *_ = exact_divergences(b, a)
        expect_close(student.reverse_kl(b, a), reverse, what="reverse_kl", rtol=1e-5, atol=1e-7)


def drive_grads(student, a, b, g):
    """Runs beside the student's code: gradients by autograd; of views, where there are rows."""
    turn = (lambda x: x.mT.contiguous().mT) if a.ndim > 1 else (lambda x: x)
    found = []
    for divergence in (student.forward_kl, student.reverse_kl):
        teacher, pupil = a.clone().requires_grad_(), b.clone().requires_grad_()
        divergence(turn(teacher), turn(pupil)).backward(g)
        found.append([teacher.grad is None and teacher.requires_grad, pupil.grad])
    return found


def drive_quiet(student, a, b):
    """Runs beside the student's code: the formulas, where autograd is off."""
    import torch

    with torch.no_grad():
        return student.gradients(a, b)


@exercise(
    "ex4",
    points=3,
    invariant="gradients by formula and by autograd are those of float64, for any dimensions and "
    "sizes; the teacher gets none",
    cause="a formula that fits one row, the second part of reverse KL left out, or a sign",
)
def test_gradients(student, rng):
    v = whole(rng, 3, 40)
    # the last two of one shape: what was returned before is of no use
    for shape in ((v,), (4, v), (2, 3, v), (v, v), (4, 4, 4), (3, 1), (1, v), (2, 1, v), (2, 1, v)):
        for dtype in (torch.float32, F64):
            a, b = logits(rng, *shape, dtype=dtype), logits(rng, *shape, dtype=dtype)
            g = logits(rng, *shape[:-1], dtype=dtype)
            _, _, forward, reverse = exact_divergences(a, b)
            bound = 200 * FLOAT32 if dtype == torch.float32 else EXACT
            pair = expect_tuple(student.gradients(a, b), (torch.Tensor,) * 2, "gradients")
            auto = student.drive(drive_grads, a, b, g)
            for seen, (untouched, other), right in zip(pair, auto, (forward, reverse), strict=True):
                expect_tensor(seen, "gradients", dtype, shape)
                expect_close(seen, right, what="a gradient by formula", atol=bound)
                scaled = right * g.double()[..., None]
                expect_close(other, scaled, what="a gradient by autograd", atol=8 * bound)
                assert untouched, "the teacher has a gradient, or is frozen"
    a, b = logits(rng, 4, v), logits(rng, 4, v)
    a[:, 1], a[0, 2:] = -math.inf, -math.inf  # of forward KL also where a token is never said
    untouched, seen = student.drive(drive_grads, a, b, torch.ones(4, dtype=F64))[0]
    right = exact_divergences(a, b)[2]
    expect_close(seen, right, what="the gradient of forward KL beside -inf", atol=8 * EXACT)
    a = torch.tensor([1e4, 0.0, -1e4])
    b = torch.tensor([0.0, 1e4, 0.0])
    _, _, forward, reverse = exact_divergences(a, b)
    there, back = student.drive(drive_quiet, a, b)
    expect_close(there, forward, what="the gradient of forward KL", atol=1e-5)
    expect_close(back, reverse, what="the gradient of reverse KL", atol=1e-2)
    for dtype in (torch.float32, F64):  # by autograd, also where chances round to 0
        a = torch.tensor([[1e4, 0.0, -1e4], [0.0, 1.0, -1e4], [0.0, 0.5, 1.0]], dtype=dtype)
        for one, two in ((a, a.flip(0)), (a, a.flip(1))):
            g = torch.tensor([1.0, -0.5, 2.0], dtype=dtype)
            rights = exact_divergences(one, two)[2:]
            auto = student.drive(drive_grads, one, two, g)
            for (untouched, seen), right in zip(auto, rights, strict=True):
                right = right * g.double()[:, None]
                expect_close(seen, right, what="a gradient of logits of 10,000", atol=1e-2)
                assert untouched, "the teacher has a gradient"


def expect_divergences(name, value, a, b):
    """Each logarithm is off by some units of the largest logit, and weighs as much as its p or q,
    whose own relative error is as large."""
    forward, reverse, *slopes = exact_divergences(a, b)
    top = max(float(x[x.isfinite()].abs().max()) for x in (a, b)) + math.log(a.shape[-1]) + 1
    unit = 8 * torch.finfo(a.dtype).eps * top
    bound = unit * (1 + 2 * top)
    if name == "gradients":
        for seen, right in zip(expect_tuple(value, (torch.Tensor,) * 2, name), slopes, strict=True):
            expect_tensor(seen, name, a.dtype, a.shape)
            expect_close(seen, right, what="a gradient by formula", atol=bound)
        return
    expect_tensor(value, name, a.dtype, a.shape[:-1])
    right = forward if name == "forward_kl" else reverse
    expect_close(value, right, what=name, atol=bound, rtol=a.shape[-1] * unit)


@exercise(
    "ex4",
    points=1,
    invariant="all three functions anywhere in what the card admits: any dimensions, one token or "
    "many, both dtypes, small and large logits, tokens that are never said, in every layout",
    cause="a mistake where two of these meet, such as one token in three dimensions, or -inf in a "
    "view; or memory that is used again",
)
def test_divergences_anywhere(student, rng):
    leads, tokens, sizes = ((), (1,), (5,), (2, 3), (2, 1, 2)), (1, 2, 30, 300), (1e-3, 2.0, 1e4)
    calls = []
    dimensions = leads, tokens, (torch.float32, F64), sizes, sizes, (True, False)
    for lead, v, dtype, of_a, of_b, never in every_pair(rng, *dimensions):
        a, b = (x * (2 * torch.rand(*lead, v, generator=rng, dtype=F64) - 1) for x in (of_a, of_b))
        a[..., 0], b[..., 0] = of_a, -of_b
        a, b = a.to(dtype), b.to(dtype)
        calls.append(("gradients", a, b))
        if never:
            a = a.masked_fill(torch.rand(a.shape, generator=rng) < 0.3, -math.inf)
            a[..., -1] = b[..., -1]
        calls += [("forward_kl", a, b), ("reverse_kl", a, b)]
    for shape in ((2, 3000), (1500, 3)):
        a, b = logits(rng, *shape), logits(rng, *shape)
        calls += [(name, a, b) for name in ("forward_kl", "reverse_kl", "gradients")]
    for (name, *args), results in zip(calls, held(student, rng, calls), strict=True):
        for value in results:
            expect_divergences(name, value, *args)


# ---- exercise 5 --------------------------------------------------------------------------------


def drive_write(student, table, prompts, n, seed, frozen):
    """Runs beside the student's code: a model whose logits are a row of a table, by the sum of the
    tokens so far; two texts by one generator."""
    import torch
    from torch import nn

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(table, requires_grad=not frozen)
            self.other = nn.Parameter(table[:1].clone(), requires_grad=frozen)
            self.inside = nn.Sequential(nn.Identity())

        def forward(self, ids):
            return self.inside(self.table[ids.cumsum(1) % len(self.table)] + 0.0)

    model, generator = Table().train(not frozen), torch.Generator().manual_seed(seed)
    model.inside.train(frozen)  # what is inside may have another mode
    model.inside[0].train(not frozen)
    grads = [None if p.requires_grad is frozen else p + 1.0 for p in model.parameters()]
    for p, grad in zip(model.parameters(), grads, strict=True):
        p.grad = None if grad is None else grad.detach().clone()
    ids = student.write(model, prompts, n, generator)
    next_ids = student.write(model, prompts, n, generator)
    modes = [m.training for m in model.modules()] == [not frozen, frozen, not frozen]
    pairs = [(p.grad, grad) for p, grad in zip(model.parameters(), grads, strict=True)]
    same = all(one is two if two is None else one.equal(two) for one, two in pairs)
    free = [p.requires_grad for p in model.parameters()] == [not frozen, frozen]
    kept = [same, modes, free]
    return ids, next_ids, ids.requires_grad, kept, model.table.detach().clone(), prompts


@exercise(
    "ex5",
    points=3,
    invariant="tokens are drawn with the model's chances at temperature 1, in each row from what "
    "that row ends with; no token: the prompts",
    cause="a temperature, chances of the first row or place, or a token too many",
)
def test_draws(student, rng):
    v = 5
    p = torch.tensor([0.45, 0.3, 0.15, 0.07, 0.03])
    table = torch.stack([p.roll(i) for i in range(v)]).log() + 3
    prompts = torch.randint(v, (64, 3), generator=rng)
    ids, more, grad, kept, after, given = student.drive(
        drive_write, table, prompts, 60, whole(rng, 0, 10**6), False
    )
    expect_tensor(ids, "write", torch.int64, (64, 63))
    expect_same(ids[:, :3], prompts, "the prompts")
    expect_same(given, prompts, "the prompts that were given")
    expect_same(after, table, "the model")
    assert not grad and kept[0], "a gradient is kept, or one that the model had is another"
    assert kept[1], "the model's mode is another one afterwards"
    assert kept[2], "other Parameters are frozen afterwards"
    texts = {tuple(row) for row in ids[:, 3:].tolist()}
    assert len(texts) == 64, f"{len(texts)} different continuations in 64 rows"
    texts |= {tuple(row) for row in more[:, 3:].tolist()}
    assert len(texts) == 128, "a generator that goes on wrote the same text again"
    before = ids.cumsum(1)[:, 2:-1] % v
    counts = torch.bincount(((ids[:, 3:] - before) % v).flatten(), minlength=v).double()
    n = counts.sum()  # 3840 independent draws of p; 7 deviations: a chance below 1e-11
    off = (counts - n * p.double()).abs()
    expect_at_most(off, 7 * (n * p.double() * (1 - p.double())).sqrt(), "a count of draws")
    none_more, *_, kept, _, _ = student.drive(drive_write, table, prompts, 0, 1, True)
    expect_same(none_more, prompts, "write of no token")
    assert all(kept), "the model has other gradients or modes, or other Parameters are frozen"
    one, *_ = student.drive(drive_write, table, prompts[:1, :1], 1, 1, True)
    expect_tensor(one, "write", torch.int64, (1, 2))
    tables = [torch.full((v, v), -1e4), torch.full((v, v), 1e3, dtype=F64)]
    for i in range(v):  # after i comes i + 1, or i + 2; no exp holds such logits
        tables[0][i, (i + 1) % v], tables[1][i, (i + 2) % v] = -2e3, 9e3
    pair = [torch.tensor([[0, 1], [2, 3]]), torch.tensor([[4, 3], [0, 0]])]
    texts = student.drive(drive_two_models, tables, pair, 4)
    for i, text in enumerate(texts):
        start, by = pair[i % 2], 1 + i // 2
        right = torch.cat([start, (start[:, 1:] + by * torch.arange(1, 5)) % v], dim=1)
        expect_same(text, right, "a text of one of two models")
    for size in (1, 2, 5):  # no token ends a text, also where all rows have come to it
        cycle = torch.full((size, size), -1e4)
        for i in range(size):
            cycle[i, (i + 1) % size] = 0.0
        start = torch.full((3, 1), whole(rng, 0, size - 1))
        [text] = student.drive(drive_two_models, [cycle], [start], 11)
        expect_same(text, (start + torch.arange(12)) % size, f"a text of {size} words in turn")
    expect_a_tail(student, rng)
    far = torch.randint(v, (3, 300), generator=rng)
    sure = torch.full((v, v), -1e4)
    for i in range(v):  # after a sum of i comes i + 1
        sure[i, (i + 1) % v] = 0.0
    text = student.drive(drive_write, sure, far, 4, 1, True)[0]
    right = (text.cumsum(1)[:, 299:-1] + 1) % v
    expect_same(text[:, 300:], right, "what follows a prompt of 300 tokens")


def expect_the_rarest(chances, ids, counts):
    """As many of the k rarest tokens of each place are drawn as their chances say."""
    for k in counts:
        rare = chances <= chances.kthvalue(k, -1, keepdim=True).values
        p, drawn = (chances * rare).sum(-1), rare.gather(-1, ids[..., None]).sum()
        # 7 deviations of the count
        expect_at_most(
            (drawn - p.sum()).abs(),
            7 * (p * (1 - p)).sum().sqrt().item(),
            f"draws of the {k} rarest",
        )


def expect_a_tail(student, rng):
    """One token has half of the chance, 400 unlike ones share the rest; each of them is drawn."""
    table = 0.1 * torch.randn(401, 401, generator=rng)
    table[:, 7] = math.log(400)
    begin = torch.full((200, 1), whole(rng, 256, 400))
    ids, more, *_ = student.drive(drive_write, table, begin, 32, whole(rng, 0, 10**6), True)
    ids = torch.cat([ids, more])
    expect_same(ids[:, :1], torch.cat([begin, begin]), "the prompts")
    # 16 of each in 12800 draws, 10 of the rarest: five that never come have a chance below 1e-9
    assert len(ids[:, 1:].unique()) > 396, "tokens that are never drawn"
    chances = table.double().softmax(-1)[ids.cumsum(1)[:, :-1] % 401]
    expect_the_rarest(chances, ids[:, 1:], (8, 40))
    # half of 200 draws are others than 7, of 400: fewer than 50 different ones hardly ever
    least = min(len(place.unique()) for place in ids[:200, 1:].T)
    assert least >= 50, "rows with one prompt go on alike"
    p = chances[..., 7]
    off = ((ids[:, 1:] == 7).sum() - p.sum()).abs()
    expect_at_most(off, 7 * (p * (1 - p)).sum().sqrt().item(), "a count of draws")


def drive_two_models(student, tables, prompts, n):
    """Runs beside the student's code: each model on each of the prompts; all texts are held."""
    import torch
    from torch import nn

    class Table(nn.Module):
        def __init__(self, table):
            super().__init__()
            self.table = nn.Parameter(table)

        def forward(self, ids):
            return self.table[ids]

    models, generator = [Table(t).eval() for t in tables], torch.Generator().manual_seed(0)
    return [student.write(model, p, n, generator) for model in models for p in prompts]


def drive_loss(student, a, b, ids):
    """Runs beside the student's code: the loss, and gradients to both logits."""
    given = a.clone(), b.clone(), ids.clone()
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    student.minillm_loss(b, a, ids)  # others of the same sizes, and the same ids
    loss = student.minillm_loss(a, b, ids)
    shape = list(loss.shape)
    loss.backward()
    untouched = a.grad is None and a.requires_grad
    same = all(one.equal(two) for one, two in zip((a, b, ids), given, strict=True))
    return shape, untouched, same, b.grad


@exercise(
    "ex5",
    points=6,
    invariant="the gradient to every logit: that of KL(q || p) of each step, less what follows "
    "times (one-hot - q), on the mean over texts",
    cause="a return with its own step, reversed, divided by its length or with a gradient, a sum "
    "over texts, or a mean over steps",
)
def test_the_gradient(student, rng):
    for b, t, v, dtype in (
        (1, 1, 3, F64),
        (3, 1, 4, F64),
        (3, 5, 4, F64),
        (2, 7, whole(rng, 5, 30), F64),
        (1, 4, 1, F64),
        (4, 6, 9, torch.float32),
        (4, 4, 4, F64),
        (70, 2, 4, F64),
        (1, 300, 2, F64),
        (2, 2, 1500, F64),
        (2, 60, 5, F64),  # far from the teacher: returns of thousands
        (2, 9, 5, F64),  # farther, where chances round to 0
    ):
        size = {60: 30.0, 9: 1000.0}.get(t, 2.0)
        teacher, pupil = (logits(rng, b, t, v, dtype=dtype, size=size) for _ in (0, 1))
        ids = torch.randint(v, (b, t), generator=rng)
        shape, untouched, same, grad = student.drive(drive_loss, teacher, pupil, ids)
        assert same, "an argument is another one afterwards"
        assert shape == [], f"the loss has shape {shape}, expected a scalar"
        assert untouched, "the teacher has a gradient, or is frozen"
        _, _, _, single = exact_divergences(teacher, pupil)
        log_p, log_q = (x.double().log_softmax(-1) for x in (teacher, pupil))
        r = (log_p - log_q).gather(-1, ids[..., None])[..., 0]
        right = torch.zeros(b, t, v, dtype=F64)
        for i in range(b):
            for j in range(t):
                hot = F.one_hot(ids[i, j], v).double() - log_q[i, j].exp()
                right[i, j] = (single[i, j] - r[i, j + 1 :].sum() * hot) / b
        expect_tensor(grad, "the gradient", dtype, (b, t, v))
        bound = 1e-4 if dtype == torch.float32 else EXACT * max(1.0, right.abs().max().item())
        expect_close(grad, right, what="the gradient", atol=bound)


# ---- exercise 6 --------------------------------------------------------------------------------


def drive_own(student, state, sizes, cases):
    """Runs beside the student's code: what a Llama writes from nothing."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**sizes)).train()
    model.model.layers[0].eval()
    model.model.layers[0].mlp.train()
    model.load_state_dict(state)
    for i, p in enumerate(model.parameters()):  # one in two is frozen, one in three has a gradient
        p.requires_grad_(i % 2 == 0).grad = p.detach() + 1 if i % 3 == 0 else None
    modes = [m.training for m in model.modules()]
    rounds, more = [], []
    for seed in (1, 2):  # of torch's own generator
        torch.manual_seed(seed)
        generators = [torch.Generator().manual_seed(c[3]) for c in cases]
        both = list(zip(cases, generators, strict=True))
        rounds.append([student.own_text(model, *c[:3], g) for c, g in both])
        more.append([student.own_text(model, *c[:3], g) for c, g in both])
    kept = [p.requires_grad is (i % 2 == 0) for i, p in enumerate(model.parameters())]
    for i, p in enumerate(model.parameters()):
        kept.append(p.grad is None if i % 3 else p.grad is not None and p.grad.equal(p + 1))
    kept.append(modes == [m.training for m in model.modules()])
    return rounds, more[0], [t.requires_grad for t in rounds[0]], all(kept)


@exercise(
    "ex6",
    points=4,
    invariant="texts of all lengths, with none and with more than enough likeliest tokens; the "
    "first is even over the whole vocabulary, the last follow the model",
    cause="greedy counted from the begin token, a text one too long, torch's own generator, or "
    "draws among a few likely tokens",
)
def test_texts(student, rng):
    sizes, model = a_llama(rng)
    cases = [(400, 8, 2, 3), (400, 3, 0, 4), (1, 1, 0, 5), (3, 1, 5, 6), (4, 5, 9, 7), (2, 2, 1, 8)]
    cases += [(1, 6, 3, 10), (2000, 1, 0, 9)]
    (texts, again), more, grads, kept = student.drive(drive_own, state_of(model), sizes, cases)
    assert not any(grads), "a gradient is kept"
    assert kept, "the model has other modes or gradients, or other Parameters are frozen"
    for ids, same, other, (rows, length, greedy, _) in zip(texts, again, more, cases, strict=True):
        expect_tensor(ids, "own_text", torch.int64, (rows, 1 + length))
        expect_same(same, ids, "a text of the same seed, under another seed of torch")
        assert rows < 9 or not torch.equal(ids, other), "a generator that goes on, the same text"
        assert (ids[:, 0] == BEGIN_ID).all(), "no begin token"
        assert ((ids >= 0) & (ids < 20)).all(), "a token that is none"
        sure = min(greedy, length - 1)
        with torch.no_grad():
            likely = model(ids[:, :-1]).argmax(-1) == ids[:, 1:]
        assert likely[:, 1 : 1 + sure].all(), "a token that should be the likeliest is not"
        drawn = likely[:, 1 + sure :]
        assert rows < 9 or not drawn.all(0).any(), "a token that should be drawn is the likeliest"
    for _ in range(2):  # another model of the same shapes
        other = a_llama(rng)[1]
        cases = [(4, 5, 9, 7), (8, 6, 4, 8), (6, 14, 11, 5), (2, 70, 60, 6)]
        cases += [(5, 4, 4, 1), (5, 4, 3, 2)]
        value = student.drive(drive_own, state_of(other), sizes, cases)
        for ids, (_, length, greedy, _) in zip(value[0][0], cases, strict=True):
            with torch.no_grad():
                likely = other(ids[:, :-1]).argmax(-1) == ids[:, 1:]
            sure = min(greedy, length - 1)
            assert likely[:, 1 : 1 + sure].all(), "a token that should be the likeliest is not"
    expect_all_drawn(student, rng)
    counts = torch.bincount(texts[-1][:, 1], minlength=20).double()
    # 2000 even draws of 20: 100 each, deviation 9.75; seven of them is a chance below 1e-10
    expect_at_most((counts - 100).abs(), 7 * 9.75, "how often a token comes first")
    with torch.no_grad():
        chance = model(texts[0][:, :-1]).softmax(-1)[:, 3:].double()
        bare = model(texts[0][:, 1:-1]).softmax(-1)[:, 2:].double()
    # draws of the model without the begin token would be likelier there: their log odds
    odds = chance.log() - bare.log()
    mean = (chance * odds).sum(-1)
    spread = ((chance * odds.square()).sum(-1) - mean.square()).sum().sqrt()
    seen = odds.gather(-1, texts[0][:, 4:, None]).sum()
    expect_at_most((seen - mean.sum()).abs(), 7 * spread, "draws off the whole text's chances")
    rank = (chance > chance.gather(-1, texts[0][:, 4:, None])).sum(-1)
    for k in (1, 2, 3, 5, 10):  # how many of the drawn are among the k likeliest
        inside = chance.topk(k).values.sum(-1)
        sd = (inside * (1 - inside)).sum().sqrt().item()
        off = ((rank < k).sum() - inside.sum()).abs()
        expect_at_most(off, 7 * sd + 0.5, "draws off the model's chances")


def expect_all_drawn(student, rng):
    """Where no token is much likelier than another each is drawn."""
    sizes, model = a_llama(rng, vocab_size=300)
    with torch.no_grad():
        model.model.norm.weight *= 0.05  # logits of about 0.1
    value = student.drive(drive_own, state_of(model), sizes, [(1000, 5, 0, 3)])
    ids = torch.cat([value[0][0][0], value[1][0]])
    with torch.no_grad():
        chances = model(ids[:, :-1]).softmax(-1)[:, 1:].double()
    expect_the_rarest(chances, ids[:, 2:], (5, 15))
    alike = (ids[:1000, 2:] == ids[1000:, 2:]).double().mean()  # 1 in 300; by the same luck: most
    expect_at_most(alike, 0.1, "share of drawn tokens that a second text repeats")


def drive_qat(student, state, sizes, batches, lr, frozen):
    """Runs beside the student's code: training, and what is left of the model that was given.

    A state with layers behind the head makes a model that has two. Of a model that is `partly`
    frozen one Parameter in two is, and one in three has a gradient.
    """
    from torch import nn

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**sizes))
    if "lm_head_two.weight" in state:
        model.lm_head_two = nn.Linear(*state["lm_head_two.weight"].shape)
        model.second_head = nn.Linear(*state["second_head.weight"].shape)
        model.register_forward_hook(lambda made, _, y: made.second_head(made.lm_head_two(y)))
    model.train(frozen is False).requires_grad_(not frozen)
    model.load_state_dict(state)
    model.model.layers[0].train(frozen is True)  # a part in another mode, and one inside of it
    model.model.layers[0].mlp.train(frozen is False)
    for i, p in enumerate(model.parameters()):
        if frozen == "partly":
            p.requires_grad_(i % 2 == 0).grad = p.detach() + 1 if i % 3 == 0 else None

    def kept():
        modes = [m.training for m in model.modules()]
        grads = [[] if p.grad is None else p.grad.tolist() for p in model.parameters()]
        ids = [one.tolist() for one in batches]
        return [modes, [p.requires_grad for p in model.parameters()], grads, ids]

    before = kept()
    made, losses = student.qat(model, batches, lr)
    after = {n: p.detach().clone() for n, p in model.state_dict().items()}
    pairs = zip(("modes", "frozen Parameters", "gradients", "ids"), before, kept(), strict=True)
    changed = [name for name, one, two in pairs if one != two]
    names = [n for n, m in model.named_modules() if type(m).__name__ == "BitLinear"]
    rounded = sorted(n for n, m in made.named_modules() if type(m).__name__ == "BitLinear")
    trained = {n: p.detach().clone() for n, p in made.named_parameters()}
    free = [p.requires_grad for p in made.parameters()]
    modes = [m.training for m in made.modules()]
    return losses, after, changed, names, rounded, trained, free, modes


class Through(torch.nn.Module):
    """A linear layer, rounded as BitLinear's card says; both roundings straight through."""

    def __init__(self, linear):
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x):
        x_hat, w_hat = rounded_tokens(x.detach()).float(), rounded_weight(self.weight.detach())
        w = w_hat.float() + (self.weight - self.weight.detach())
        return F.linear(x_hat + (x - x.detach()), w, self.bias)


def trained_by_hand(model, batches, lr):
    """(parameters by name, losses) of AdamW's steps, written out."""
    made = copy.deepcopy(model)
    for name, layer in list(made.named_modules()):
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            made.set_submodule(name, Through(layer))
    named, losses = dict(made.named_parameters()), []
    first, second = ({n: torch.zeros_like(p) for n, p in named.items()} for _ in (0, 1))
    for step, ids in enumerate(batches, start=1):
        with torch.no_grad():
            log_p = model(ids[:, :-1]).log_softmax(-1)
        log_q = made(ids[:, :-1]).log_softmax(-1)
        loss = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
        losses.append(loss.item())
        for (n, p), g in zip(
            named.items(), torch.autograd.grad(loss, [*named.values()]), strict=True
        ):
            first[n] = 0.9 * first[n] + 0.1 * g
            second[n] = 0.999 * second[n] + 0.001 * g.square()
            mean, square = first[n] / (1 - 0.9**step), second[n] / (1 - 0.999**step)
            p.data = p.data - lr * mean / (square.sqrt() + 1e-8)
    return {n: p.detach() for n, p in named.items()}, losses


def first_loss(model, ids):
    """(Divergence of the rounded model from the model before any step, whether a last digit decides
    how an input is rounded)."""
    near, made = [], copy.deepcopy(model)

    def round_input(module, args):
        near.append(not torch.equal(off_ties(args[0], 1e-4), args[0]))
        return (rounded_tokens(args[0]).float(),)

    for name, layer in made.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            layer.weight.data = rounded_weight(layer.weight.data).float()
            layer.register_forward_pre_hook(round_input)
    with torch.no_grad():
        log_p, log_q = (m(ids[:, :-1]).log_softmax(-1) for m in (model, made))
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean().item(), any(near)


def clear_start(rng, ids, tied):
    """(sizes, a model that is rounded over the ids in one way, its first loss)."""
    for _ in range(100):
        sizes, model = a_llama(rng, tie_word_embeddings=tied)
        loss, near = first_loss(model, ids)
        if not near:
            break
    return sizes, model, loss


def expect_the_steps(student, rng, sizes, model, frozen):
    """Batches of unlike sizes, whose gradients are of unlike norms: step for step as AdamW."""
    few = ((1, 3), (6, 9), (2, 4), (1, 3))
    more = ((6, 9), (6, 9), (1, 3), (2, 4), (1, 3), (1, 3), (1, 3), (1, 3))  # for AdamW's memory
    for lr, shapes, far in ((1e-3, few, 0.1), (5e-3, few, 0.1), (1e-3, more, 0.05)):
        ids = [torch.randint(20, shape, generator=rng) for shape in shapes]
        right, wanted = trained_by_hand(model, ids, lr)
        value = student.drive(drive_qat, state_of(model), sizes, ids, lr, frozen)
        losses, trained = value[0], value[5]
        assert trained.keys() == right.keys(), f"parameters {sorted(trained)}"
        expect_trained(trained, right, state_of(model), lr, far)
        expect_close(torch.tensor(losses), torch.tensor(wanted), what="the losses", rtol=0.02)
    # a text of one token that is read: queries and keys get no gradient but for rounding, of which
    # Adam makes steps; so only one step is made, and they are not looked at
    ids = [torch.randint(20, (1, 2), generator=rng)]
    right, wanted = trained_by_hand(model, ids, 1e-3)
    value = student.drive(drive_qat, state_of(model), sizes, ids, 1e-3, frozen)
    right = {n: p for n, p in right.items() if "q_proj" not in n and "k_proj" not in n}
    expect_trained(value[5], right, state_of(model), 1e-3, 0.1)
    expect_close(torch.tensor(value[0]), torch.tensor(wanted), what="the loss", rtol=0.02)


def expect_trained(trained, right, before, lr, far):
    off = torch.cat([((trained[n] - right[n]) / lr).abs().flatten() for n in right])
    # a code or a grid at a tie may fall otherwise: it moves few, and others hardly
    share = (off > far).double().mean()
    expect_at_most(share, 0.05, f"share of numbers off by {far} of the rate")
    for n, wanted in right.items():
        moves = (wanted - before[n]).abs().mean() > 0.1 * lr
        assert not moves or not trained[n].equal(before[n]), f"{n} is not trained"


def expect_every_linear(student, rng):
    """Layers with a bias, and two outside of all blocks: only what is lm_head is left out.

    Some Parameters are frozen in the model that is given, and are trained all the same.
    """
    sizes, model = a_llama(rng, attention_bias=True, mlp_bias=True)
    model.lm_head_two, model.second_head = torch.nn.Linear(20, 20), torch.nn.Linear(20, 20)
    for layer in (model.lm_head_two, model.second_head):  # whose names are nearly the head's
        layer.weight.data = 0.5 * torch.randn(20, 20, generator=rng)
        layer.bias.data = torch.randn(20, generator=rng)
    model.register_forward_hook(lambda made, _, y: made.second_head(made.lm_head_two(y)))
    ids = [torch.randint(20, shape, generator=rng) for shape in ((3, 9), (2, 4), (4, 7))]
    right, wanted = trained_by_hand(model, ids, 1e-3)
    value = student.drive(drive_qat, state_of(model), sizes, ids, 1e-3, "partly")
    losses, rounded, trained = value[0], value[4], value[5]
    assert not value[2], f"what was given has other {value[2]}"
    assert all(value[6]), "a Parameter of the student is frozen"
    expect_trained(trained, right, state_of(model), 1e-3, 0.1)
    layers = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    assert rounded == sorted({*layers} - {"lm_head"}), f"rounded: {rounded}"
    assert trained.keys() == right.keys(), f"parameters {sorted(trained)}"
    expect_close(torch.tensor(losses), torch.tensor(wanted), what="the losses", rtol=0.02)


@exercise(
    "ex6",
    points=5,
    invariant="a copy with all linears but the head rounded, trained by one step of AdamW a batch, "
    "all at the rate lr, towards the model as it was; frozen or not, tied or not",
    cause="the head rounded, a frozen copy, gradients of the last batch kept, clipped or another "
    "rate, an optimizer for each batch, or the given model changed",
)
def test_trainings(student, rng):
    expect_every_linear(student, rng)
    for tied, frozen in ((True, True), (False, False)):
        ids = [torch.randint(20, (3, 9), generator=rng) for _ in range(2)]
        sizes, model, wanted = clear_start(rng, ids[0], tied)
        state = state_of(model)
        value = student.drive(drive_qat, state, sizes, ids[:1], 1e-3, frozen)
        losses, after, changed, names, rounded, trained, free, modes = value
        assert not changed, f"what was given has other {changed}"
        expect_close(losses[0], wanted, what="the first loss", rtol=1e-3)
        layers = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
        layers += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        assert rounded == sorted(f"model.layers.0.{n}" for n in layers), f"rounded: {rounded}"
        assert not names, "the model that was given has BitLinears"
        for name, tensor in state.items():
            expect_same(after[name], tensor, f"{name} of the model that was given")
        assert all(free) and not any(modes), "the student is frozen, or in training mode"
        none = student.drive(drive_qat, state, sizes, [], 1e-3, frozen)
        assert not none[0] and not any(none[7]), "without a batch: losses, or training mode"
        for name, tensor in trained.items():
            expect_tensor(tensor, name, torch.float32, tuple(state[name].shape))
            # AdamW's first step: the rate, for every number whose gradient is not tiny
            moved = (tensor - state[name]).abs()
            expect_at_most(moved, 1.01e-3 + 1e-6, f"how far {name} moved in a step")
            expect_at_most(-moved.max(), -0.9e-3, f"minus how far {name} moved")
        assert len(losses) == 1 and isinstance(losses[0], float), "one loss, a float"
        expect_the_steps(student, rng, sizes, model, frozen)
        _, second, wanted = clear_start(rng, ids[0], tied)
        value = student.drive(drive_qat, state_of(second), sizes, ids[:1], 1e-3, frozen)
        expect_close(value[0][0], wanted, what="the first loss of another model", rtol=1e-3)
        twice = student.drive(drive_qat, state, sizes, 20 * ids, 1e-2, frozen)[0]
        assert len(twice) == 40, f"{len(twice)} losses of 40 batches"
        expect_at_most(twice[-1] + twice[-2], 0.8 * (twice[0] + twice[1]), "the last two losses")
        expect_at_most(
            abs(twice[1] - first_loss(model, ids[1])[0]), 2.0, "how far the second moved"
        )
