"""Hidden tests of lab15: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.
"""

import copy
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
    yield torch.randn(3, 1500, generator=rng).bfloat16()  # a sum in bfloat16 would stop growing
    yield -torch.rand(1, 7, generator=rng) - 0.1
    yield torch.randn(5, 1, generator=rng)
    yield torch.tensor([[-2.5]])
    yield torch.cat([torch.full((1, 30), 0.01), torch.full((1, 30), 100.0)])


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
    for w, rows, seen in cases:
        n, k = w.shape
        scales = (n, 1) if rows else (1, 1)
        seen = student.absmean(w, rows) if seen is None else seen
        codes, scale = expect_pair(seen, "absmean", (n, k), scales)
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
    points=4,
    invariant="the squared error of each row is the least that any number of kept weights gives",
    cause="a fixed threshold, the best k for the matrix in place of the row, or float32 sums",
)
def test_least_error(student, rng):
    cases = [(w, None) for w in matrices(rng)]
    cases += [(wide.T[1::2], student.drive(drive_least, wide)) for wide in wide_ones(rng)]
    for w, value in cases:
        n, k = w.shape
        value = student.least_error(w) if value is None else value
        codes, scale = expect_pair(value, "least_error", (n, k), (n, 1))
        assert (scale >= 0).all(), "a negative scale"
        for row, c, s in zip(w.double(), codes.double(), scale.double(), strict=True):
            sums = row.abs().sort(descending=True).values.cumsum(0)
            gain = (sums.square() / torch.arange(1, k + 1)).max()
            seen = 2 * (s * c * row).sum() - (s * c).square().sum()
            expect_at_most(
                (gain - seen) / gain, 1e-5, "what the error lacks of the least, relatively"
            )
    zero = torch.zeros(2, 5)
    zero[1, 3] = -1e-8
    codes, scale = expect_pair(student.least_error(zero), "least_error", (2, 5), (2, 1))
    assert not codes[0].any() and scale[0] == 0, "a row of zeros"
    assert codes[1].tolist() == [0, 0, 0, -1, 0], "a row of one weight"
    expect_close(scale[1].double(), torch.tensor([1e-8], dtype=F64), what="scale", rtol=1e-6)


# ---- exercise 2 --------------------------------------------------------------------------------


def rounded_tokens(x):
    """x_hat in float64, from u in float32."""
    u = 127 / x.float().abs().amax(-1, keepdim=True).clamp(min=FLOOR)
    return (x.float() * u).round().double() / u.double()


def rounded_weight(w):
    scale = w.float().abs().mean().clamp(min=FLOOR)
    return (w.float() / scale).round().clamp(-1, 1).double() * scale.double()


def drive_tokens(student, x, g, turned):
    """Runs beside the student's code: rounded tokens, perhaps of a view, and their gradient."""
    import torch

    x = (x.mT.contiguous().mT if turned else x.clone()).requires_grad_()
    y = student.round_tokens(x)
    (dx,) = torch.autograd.grad(y, x, g)
    return y.detach(), dx


@exercise(
    "ex2",
    points=3,
    invariant="tokens of all kinds, each on its own grid, in the dtype they came in; the gradient "
    "is passed on as it is",
    cause="a grid for the batch, u in bfloat16, a floor added, or the gradient of a clamp",
)
def test_tokens(student, rng):
    k = whole(rng, 3, 30)
    kinds = [torch.randn(4, k, generator=rng) * m for m in (1.0, 1e4, 1e-2, 1e-8)]
    kinds += [torch.randn(2, 3, k, generator=rng), torch.randn(k, generator=rng)]
    kinds += [
        torch.randn(k, 5, generator=rng).T,
        torch.zeros(3, k),
        torch.randn(6, 1, generator=rng),
    ]
    kinds += [torch.randn(0, k, generator=rng), -torch.rand(2, k, generator=rng)]
    outlier = torch.randn(3, k, generator=rng)
    outlier[1, 0] = 1e4
    kinds += [outlier] + [x.bfloat16() for x in kinds[:6]]
    for i, x in enumerate(kinds):
        g = torch.randn(x.shape, generator=rng).to(x.dtype)
        y, dx = student.drive(drive_tokens, x, g, x.ndim > 1 and i % 2 == 1)
        expect_tensor(y, "round_tokens", x.dtype, tuple(x.shape))
        expect_same(dx, g, "the gradient")
        right = rounded_tokens(x)
        unit = BFLOAT16 if x.dtype == torch.bfloat16 else 8 * FLOAT32
        step = x.double().abs().amax(-1, keepdim=True) / 127 if x.numel() else x.double()
        # near a tie a last digit of u decides between two codes: they are a step apart
        ratio = (x.double() / step.clamp(min=1e-300)).abs() if x.numel() else x.double()
        tie = ((ratio - ratio.floor() - 0.5).abs() < 1e-4).double()
        off = (y.double() - right).abs() - tie * step * 1.001
        expect_at_most(off, unit * right.abs() + 1e-12, "the error of a rounded token")


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
    for n, k, lead, dtype, bias, size in (
        (3, 17, (4,), torch.float32, True, 1.0),
        (17, 3, (2, 3), torch.float32, False, 1.0),
        (1, 1, (5,), torch.float32, True, 1.0),
        (6, 8, (), torch.float32, True, 100.0),
        (6, 8, (0,), torch.float32, True, 1.0),
        (6, 40, (3,), torch.float32, False, 1e-2),
        (5, 9, (4,), torch.bfloat16, True, 1.0),
    ):
        w, b = torch.randn(n, k, generator=rng).to(dtype), torch.randn(n, generator=rng).to(dtype)
        w[0, 0] = 7.0  # clipped
        x = (size * torch.randn(*lead, k, generator=rng)).to(dtype)
        g = torch.randn(*lead, n, generator=rng).to(dtype)
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


def drive_life(student, w, b, xs, lr):
    """Runs beside the student's code: steps of an optimizer that knows the linear; a view of x."""
    import torch
    from torch import nn

    linear = nn.Linear(w.shape[1], w.shape[0])
    linear.weight.data, linear.bias.data = w.clone(), b.clone()
    optimizer = torch.optim.SGD(linear.parameters(), lr=lr)
    layer, outs = student.BitLinear(linear), []
    for x in xs:
        view = x.T.contiguous().T
        y = layer(view)
        optimizer.zero_grad()
        y.sum().backward()
        optimizer.step()
        outs.append(y.detach())
    ids = [layer.weight is linear.weight, layer.bias is linear.bias]
    frozen = student.BitLinear(nn.Linear(3, 2).requires_grad_(False))
    free = [p.requires_grad for p in frozen.parameters()]
    return outs, linear.weight.detach().clone(), ids, free, list(xs)


@exercise(
    "ex2",
    points=3,
    invariant="over several steps weight and bias are the linear's own and codes are those of the "
    "weight as it is; frozen ones stay frozen",
    cause="cloned Parameters, codes kept between calls, or the weight overwritten by its rounding",
)
def test_it_lives(student, rng):
    w, b = torch.randn(4, 6, generator=rng), torch.randn(4, generator=rng)
    xs = [torch.randn(5, 6, generator=rng) for _ in range(4)]
    outs, last, ids, free, given = student.drive(drive_life, w, b, xs, 0.25)
    v, c = w.clone(), b.clone()
    for x, out in zip(xs, outs, strict=True):
        x_hat = rounded_tokens(x)
        right = x_hat @ rounded_weight(v).T + c.double()
        expect_close(out, right, what="an output", atol=1e-4)
        v = (v.double() - 0.25 * x_hat.sum(0)).float()
        c = c - 0.25 * 5
    expect_close(last, v, what="the linear's weight after the steps", atol=1e-4)
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
    """Runs beside the student's code: a view, packed."""
    return student.pack(wide.T)


@exercise(
    "ex3",
    points=3,
    invariant="rows of every length, integers of other dtypes and views are packed byte for byte, "
    "and come back",
    cause="whole matrices packed without regard to rows, sums in int8, or another filling",
)
def test_packing(student, rng):
    for length in (1, 2, 3, 4, 5, 6, 9, 10, 11, whole(rng, 100, 140)):
        for dtype in (torch.int8, torch.int64):
            codes = torch.randint(-1, 2, (whole(rng, 1, 5), length), generator=rng).to(dtype)
            codes[0, -1] = 1
            words = student.pack(codes)
            right = torch.tensor([bytes_of(row) for row in codes.tolist()], dtype=torch.uint8)
            expect_same(words, right, "pack")
            expect_same(student.unpack(words, length), codes.to(torch.int8), "unpack")
    wide = torch.randint(-1, 2, (12, 3), generator=rng, dtype=torch.int8)
    right = torch.tensor([bytes_of(row) for row in wide.T.tolist()], dtype=torch.uint8)
    expect_same(student.drive(drive_packed, wide), right, "pack of a view")


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
    for code in (2, -2, 3, 127, -128):
        codes = torch.zeros(2, 7, dtype=torch.int8)
        codes[whole(rng, 0, 1), whole(rng, 0, 6)] = code
        expect_error(ValueError, lambda c=codes: student.pack(c), "another code")
    words = torch.full((2, 2), 121, dtype=torch.uint8)
    for length in (6, 7, 10):
        expect_same(
            student.unpack(words, length), torch.zeros(2, length, dtype=torch.int8), "unpack"
        )
    for length in (5, 11, 1):
        expect_error(ValueError, lambda n=length: student.unpack(words, n), "another length")
    for byte in (243, 255):
        high = words.clone()
        high[whole(rng, 0, 1), 0] = byte
        expect_error(
            ValueError, lambda h=high: student.unpack(h, 10), "a byte that is no five codes"
        )


def drive_product(student, wide, codes):
    """Runs beside the student's code: a view, multiplied."""
    return student.product(wide.T, codes, 1.0)


@exercise(
    "ex3",
    points=4,
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
    ):
        codes = torch.randint(-1, 2, (n, k), generator=rng, dtype=torch.int8)
        codes[0] = 0
        x = torch.randn(*lead, k, generator=rng, dtype=F64).to(dtype)
        scale = 0.1 + whole(rng, 1, 30) / 7
        y = student.product(x, codes, scale)
        right = scale * (x.double() @ codes.double().T)
        expect_tensor(y, "product", dtype, (*lead, n))
        bound = (k + 4) * (FLOAT32 if dtype == torch.float32 else 2.0**-52)
        reach = scale * (x.double().abs() @ codes.double().abs().T)
        expect_at_most((y - right).abs(), 2 * bound * reach + 1e-300, "the error of the product")
    codes = torch.tensor([[1, 0, -1], [0, -1, 1]], dtype=torch.int8)
    x = torch.tensor([[1.0, math.inf, 2.0], [math.nan, 1.0, 2.0]])
    y = student.product(x, codes, 2.0)
    right = torch.tensor([[-2.0, -math.inf], [math.nan, 2.0]])
    expect_close(y, right, what="the product beside infinities")
    wide = torch.randn(3, 6, generator=rng, dtype=F64)
    seen = student.drive(drive_product, wide, codes)
    expect_close(seen, wide.T @ codes.double().T, what="the product of a view", atol=EXACT)


# ---- exercise 4 --------------------------------------------------------------------------------


def exact_divergences(a, b):
    """(forward, reverse, gradients of both) in float64."""
    a, b = a.double(), b.double()
    log_p, log_q = a.log_softmax(-1), b.log_softmax(-1)
    p, q = log_p.exp(), log_q.exp()
    forward = torch.where(p > 0, p * (log_p - log_q), 0.0).sum(-1)
    r = log_q - log_p
    reverse = torch.where(q > 0, q * r, 0.0).sum(-1)
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
    for shape in ((v,), (4, v), (2, 3, v), (3, 1)):
        for dtype in (torch.float32, F64):
            a, b = logits(rng, *shape, dtype=dtype), logits(rng, *shape, dtype=dtype)
            forward, reverse, *_ = exact_divergences(a, b)
            bound = 200 * FLOAT32 if dtype == torch.float32 else EXACT
            for name, right in (("forward_kl", forward), ("reverse_kl", reverse)):
                seen = getattr(student, name)(a, b)
                expect_tensor(seen, name, dtype, shape[:-1])
                expect_close(seen, right, what=name, atol=bound, rtol=bound)
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
    seen = student.reverse_kl(a, b)
    assert seen[:2].tolist() == [math.inf, math.inf], "reverse_kl where the teacher never says it"
    expect_close(seen[2], reverse[2], what="reverse_kl", atol=EXACT)


def drive_grads(student, a, b, g):
    """Runs beside the student's code: gradients by autograd."""
    found = []
    for divergence in (student.forward_kl, student.reverse_kl):
        teacher, pupil = a.clone().requires_grad_(), b.clone().requires_grad_()
        divergence(teacher, pupil).backward(g)
        found.append([teacher.grad is None, pupil.grad])
    return found


@exercise(
    "ex4",
    points=4,
    invariant="gradients by formula and by autograd are those of float64, for any dimensions and "
    "sizes; the teacher gets none",
    cause="a formula that fits one row, the second part of reverse KL left out, or a sign",
)
def test_gradients(student, rng):
    v = whole(rng, 3, 40)
    for shape in ((v,), (4, v), (2, 3, v), (3, 1)):
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
                assert untouched, "the teacher has a gradient"
    a = torch.tensor([1e4, 0.0, -1e4])
    b = torch.tensor([0.0, 1e4, 0.0])
    _, _, forward, reverse = exact_divergences(a, b)
    there, back = student.gradients(a, b)
    expect_close(there, forward, what="the gradient of forward KL", atol=1e-5)
    expect_close(back, reverse, what="the gradient of reverse KL", atol=1e-2)


# ---- exercise 5 --------------------------------------------------------------------------------


def drive_write(student, table, prompts, n, seed, frozen):
    """Runs beside the student's code: a model whose logits are a row of a table, token by token."""
    import torch
    from torch import nn

    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(table, requires_grad=not frozen)

        def forward(self, ids):
            return self.table[ids] + 0.0

    model = Table()
    ids = student.write(model, prompts, n, torch.Generator().manual_seed(seed))
    return ids, ids.requires_grad, model.table.grad is None, model.table.detach().clone(), prompts


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
    ids, grad, none, after, given = student.drive(
        drive_write, table, prompts, 60, whole(rng, 0, 10**6), False
    )
    expect_tensor(ids, "write", torch.int64, (64, 63))
    expect_same(ids[:, :3], prompts, "the prompts")
    expect_same(given, prompts, "the prompts that were given")
    expect_same(after, table, "the model")
    assert not grad and none, "a gradient is kept"
    texts = {tuple(row) for row in ids[:, 3:].tolist()}
    assert len(texts) == 64, f"{len(texts)} different continuations in 64 rows"
    counts = torch.zeros(v, dtype=F64)
    for before, token in zip(ids[:, 2:-1].flatten(), ids[:, 3:].flatten(), strict=True):
        counts[(token - before) % v] += 1
    n = counts.sum()  # 3840 independent draws of p; 7 deviations: a chance below 1e-11
    off = (counts - n * p.double()).abs()
    expect_at_most(off, 7 * (n * p.double() * (1 - p.double())).sqrt(), "a count of draws")
    none_more, *_ = student.drive(drive_write, table, prompts, 0, 1, True)
    expect_same(none_more, prompts, "write of no token")
    one, *_ = student.drive(drive_write, table, prompts[:1, :1], 1, 1, True)
    expect_tensor(one, "write", torch.int64, (1, 2))


def drive_loss(student, a, b, ids):
    """Runs beside the student's code: the loss, and gradients to both logits."""
    a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
    loss = student.minillm_loss(a, b, ids)
    shape = list(loss.shape)
    loss.backward()
    return shape, a.grad is None, b.grad


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
        (3, 5, 4, F64),
        (2, 7, whole(rng, 5, 30), F64),
        (1, 4, 1, F64),
        (4, 6, 9, torch.float32),
    ):
        teacher, pupil = logits(rng, b, t, v, dtype=dtype), logits(rng, b, t, v, dtype=dtype)
        ids = torch.randint(v, (b, t), generator=rng)
        shape, untouched, grad = student.drive(drive_loss, teacher, pupil, ids)
        assert shape == [], f"the loss has shape {shape}, expected a scalar"
        assert untouched, "the teacher has a gradient"
        _, _, _, single = exact_divergences(teacher, pupil)
        log_p, log_q = (x.double().log_softmax(-1) for x in (teacher, pupil))
        r = (log_p - log_q).gather(-1, ids[..., None])[..., 0]
        right = torch.zeros(b, t, v, dtype=F64)
        for i in range(b):
            for j in range(t):
                hot = F.one_hot(ids[i, j], v).double() - log_q[i, j].exp()
                right[i, j] = (single[i, j] - r[i, j + 1 :].sum() * hot) / b
        expect_tensor(grad, "the gradient", dtype, (b, t, v))
        bound = 1e-4 if dtype == torch.float32 else EXACT
        expect_close(grad, right, what="the gradient", atol=bound)


# ---- exercise 6 --------------------------------------------------------------------------------


def drive_own(student, state, sizes, cases):
    """Runs beside the student's code: what a Llama writes from nothing."""
    import torch

    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**sizes)).eval()
    model.load_state_dict(state)
    before = torch.get_rng_state()
    texts = [student.own_text(model, *c[:3], torch.Generator().manual_seed(c[3])) for c in cases]
    return texts, torch.equal(before, torch.get_rng_state()), [t.requires_grad for t in texts]


@exercise(
    "ex6",
    points=4,
    invariant="texts of all lengths, with none and with more than enough likeliest tokens; the "
    "first is even, the last follow the model",
    cause="greedy counted from the begin token, a text one too long, or torch's own generator",
)
def test_texts(student, rng):
    sizes, model = a_llama(rng)
    cases = [(200, 8, 2, 3), (50, 6, 0, 4), (1, 1, 0, 5), (3, 1, 5, 6), (4, 5, 9, 7), (2, 2, 1, 8)]
    texts, untouched, grads = student.drive(drive_own, state_of(model), sizes, cases)
    assert untouched, "torch's own generator has moved"
    assert not any(grads), "a gradient is kept"
    for ids, (rows, length, greedy, _) in zip(texts, cases, strict=True):
        expect_tensor(ids, "own_text", torch.int64, (rows, 1 + length))
        assert (ids[:, 0] == BEGIN_ID).all(), "no begin token"
        assert ((ids >= 0) & (ids < 20)).all(), "a token that is none"
        sure = min(greedy, length - 1)
        with torch.no_grad():
            likely = model(ids[:, :-1]).argmax(-1) == ids[:, 1:]
        assert likely[:, 1 : 1 + sure].all(), "a token that should be the likeliest is not"
    counts = torch.bincount(texts[0][:, 1], minlength=20).double()
    # 200 even draws of 20: 10 each, deviation 3.1; seven of them is a chance below 1e-8
    expect_at_most((counts - 10).abs(), 7 * 3.1, "how often a token comes first")
    with torch.no_grad():
        chance = model(texts[0][:, :-1]).softmax(-1)[:, 3:].gather(-1, texts[0][:, 4:, None])
        every = model(texts[0][:, :-1]).softmax(-1)[:, 3:]
    # the chance of what was drawn: its mean is sum p^2, each deviates by at most 1/2
    mean, n = every.square().sum(-1).double().mean(), chance.numel()
    expect_at_most((chance.double().mean() - mean).abs(), 7 * 0.5 / n**0.5, "draws off the model")


def drive_qat(student, state, sizes, batches, lr, frozen):
    """Runs beside the student's code: training, and what is left of the model that was given."""
    from efflib.models.config import LlamaConfig
    from efflib.models.llama import Llama

    model = Llama(LlamaConfig(**sizes)).eval().requires_grad_(not frozen)
    model.load_state_dict(state)
    made, losses = student.qat(model, batches, lr)
    after = {n: p.detach().clone() for n, p in model.state_dict().items()}
    kept = [[p.grad is None, p.requires_grad] for p in model.parameters()]
    names = [n for n, m in model.named_modules() if type(m).__name__ == "BitLinear"]
    rounded = sorted(n for n, m in made.named_modules() if type(m).__name__ == "BitLinear")
    trained = {n: p.detach().clone() for n, p in made.named_parameters()}
    free = [p.requires_grad for p in made.parameters()]
    modes = [m.training for m in made.modules()]
    return losses, after, kept, names, rounded, trained, free, modes


def first_loss(model, ids):
    """The divergence of the rounded model from the model, before any step."""
    made = copy.deepcopy(model)
    for name, layer in made.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            layer.weight.data = rounded_weight(layer.weight.data).float()
            layer.register_forward_pre_hook(lambda m, args: (rounded_tokens(args[0]).float(),))
    with torch.no_grad():
        log_p, log_q = (m(ids[:, :-1]).log_softmax(-1) for m in (model, made))
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean().item()


@exercise(
    "ex6",
    points=5,
    invariant="a copy with all linears but the head rounded, trained by one step of AdamW a batch "
    "towards the model as it was; frozen or not, tied or not",
    cause="the head rounded, a frozen copy, gradients of the last batch kept, another "
    "optimizer, or the given model changed",
)
def test_trainings(student, rng):
    for tied, frozen in ((True, True), (False, False)):
        sizes, model = a_llama(rng, tie_word_embeddings=tied)
        state = state_of(model)
        ids = [torch.randint(20, (3, 9), generator=rng) for _ in range(2)]
        value = student.drive(drive_qat, state, sizes, ids[:1], 1e-3, frozen)
        losses, after, kept, names, rounded, trained, free, modes = value
        expect_close(losses[0], first_loss(model, ids[0]), what="the first loss", rtol=1e-3)
        layers = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
        layers += ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        assert rounded == sorted(f"model.layers.0.{n}" for n in layers), f"rounded: {rounded}"
        assert not names, "the model that was given has BitLinears"
        for name, tensor in state.items():
            expect_same(after[name], tensor, f"{name} of the model that was given")
        assert all(none for none, _ in kept), "the model that was given has gradients"
        assert all(grad is not frozen for _, grad in kept), "requires_grad of the model given"
        assert all(free) and not any(modes), "the student is frozen, or in training mode"
        for name, tensor in trained.items():
            expect_tensor(tensor, name, torch.float32, tuple(state[name].shape))
            # AdamW's first step: the rate, for every number whose gradient is not tiny
            moved = (tensor - state[name]).abs()
            expect_at_most(moved, 1.01e-3 + 1e-6, f"how far {name} moved in a step")
            expect_at_most(-moved.max(), -0.9e-3, f"minus how far {name} moved")
        sizes_, losses_ = len(losses), losses
        assert sizes_ == 1 and isinstance(losses_[0], float), "one loss, a float"
        twice = student.drive(drive_qat, state, sizes, 20 * ids, 1e-2, frozen)[0]
        assert len(twice) == 40, f"{len(twice)} losses of 40 batches"
        expect_at_most(twice[-1] + twice[-2], 0.8 * (twice[0] + twice[1]), "the last two losses")
        expect_at_most(abs(twice[1] - first_loss(model, ids[1])), 2.0, "how far the second moved")
