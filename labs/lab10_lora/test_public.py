"""Public tests of lab10: what lab.check runs.  Properties, and numbers to check by hand.

w is a weight [N, K], a [r, K] and b [N, r] its update, x inputs [..., K].
"""

import math
from statistics import NormalDist

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
BFLOAT16 = 2.0**-8


# ---- exercise 1: a layer with an update ------------------------------------------------------


def drive_layer(student, w, bias, a, b, x, options, train):
    """Runs beside the student's code: a layer whose a and b are set, called twice."""
    from torch import nn

    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.out_features, self.in_features = w.shape
            self.kernel, self.shift = nn.Parameter(w), nn.Parameter(bias)

        def forward(self, x):
            return x @ self.kernel.T + self.shift

    layer = student.LoRALinear(Base(), **options).train(train)
    layer.a.data, layer.b.data = a, b
    return layer(x).detach(), layer(x).detach(), float(layer.scale)


def layer_of(student, w, bias, a, b, x, train=False, **options):
    value = student.drive(drive_layer, w, bias, a, b, x, options, train)
    return expect_tuple(value, (torch.Tensor, torch.Tensor, float), "the layer, twice")


@exercise(
    "ex1",
    points=1,
    invariant="W = 3, bias 1, A = 5, B = 7, alpha = 2, r = 1: x = 1 gives 74; r = 4 scales by 2/4",
    cause="a scale of alpha alone, the root of r in the wrong case, or the base or bias left out",
)
def test_a_layer_by_hand(student, rng):
    for r, stabilized, scale in (
        (1, False, 2.0),
        (4, False, 0.5),
        (4, True, 1.0),
        (9, True, 2 / 3),
    ):
        a, b = torch.full((r, 1), 5.0), torch.full((1, r), 7.0)
        options = {"r": r, "alpha": 2.0, "rank_stabilized": stabilized}
        y, again, seen = layer_of(
            student, torch.tensor([[3.0]]), torch.ones(1), a, b, torch.ones(2, 1), **options
        )
        what = f"r = {r}, rank_stabilized = {stabilized}"
        expect_close(seen, scale, what=f"scale of {what}", rtol=1e-6)
        right = torch.full((2, 1), 4.0 + scale * 35 * r)
        # a sum of r products: each rounded
        expect_tensor(y, f"the output with {what}", torch.float32)
        expect_close(y, right, what=f"the output with {what}", rtol=4 * (r + 4) * FLOAT32)
        expect_same(again, y, "the output of a second call")
    x, w = torch.tensor([[1.0, 2.0, 4.0]]), torch.zeros(2, 3)
    a, b = torch.tensor([[1.0, 0.0, 2.0]]), torch.tensor([[1.0], [-3.0]])
    y, *_ = layer_of(student, w, torch.zeros(2), a, b, x, r=1, alpha=1.0)
    expect_close(y, torch.tensor([[9.0, -27.0]]), what="x = 1, 2, 4, A = 1, 0, 2, B = 1, -3")


def drive_gradient(student, w, a, b, x, dy, options):
    """Runs beside the student's code: the gradient that leaves a layer for x."""
    from torch import nn

    base = nn.Linear(w.shape[1], w.shape[0], bias=False)
    base.weight.data = w
    layer = student.LoRALinear(base, **options)
    layer.a.data, layer.b.data = a, b
    x = x.requires_grad_()
    layer(x).backward(dy)
    return x.grad


@exercise(
    "ex1",
    points=1,
    invariant="the gradient passes through base and update: W = 3, s B A = 70, dy = 1 give dx = 73",
    cause="the base in torch.no_grad(), or x detached: frozen is the weight, not the way to x",
)
def test_the_gradient_passes_through(student, rng):
    one = torch.ones(1, 1)
    options = {"r": 1, "alpha": 2.0}
    dx = student.drive(drive_gradient, 3 * one, 5 * one, 7 * one, one, one, options)
    expect_close(dx, 73 * one, what="dx of W = 3, A = 5, B = 7, s = 2", rtol=8 * FLOAT32)
    w, a = torch.randn(4, 6, generator=rng), torch.randn(3, 6, generator=rng)
    b, x = torch.randn(4, 3, generator=rng), torch.randn(2, 5, 6, generator=rng)
    dy = torch.randn(2, 5, 4, generator=rng)
    dx = student.drive(drive_gradient, w, a, b, x, dy, {"r": 3, "alpha": 1.5})
    whole, size = (
        f(w.double()) + 0.5 * (f(b.double()) @ f(a.double())) for f in (lambda t: t, torch.abs)
    )
    error = (dx.double() - dy.double() @ whole).abs()
    # each of the parts is rounded at most once for each number of its sums
    expect_at_most(error, 32 * FLOAT32 * (dy.double().abs() @ size), "the error of dx")


def drive_start(student, w, bias, x, options):
    """Runs beside the student's code: a new layer, as it is."""
    from torch import nn

    base = nn.Linear(w.shape[1], w.shape[0], dtype=w.dtype)
    base.weight.data, base.bias.data = w, bias
    layer = student.LoRALinear(base, **options)
    trains = sorted(name for name, p in layer.named_parameters() if p.requires_grad)
    y = layer.eval()(x)
    return layer.a.data, layer.b.data, trains, y.detach(), layer.base(x).detach()


def drive_made(student, options):
    """Runs beside the student's code: a layer is made and not called."""
    from torch import nn

    student.LoRALinear(nn.Linear(4, 4), **options)


@exercise(
    "ex1",
    points=1,
    invariant="at the start a is uniform in +-1 / sqrt(K), b is 0, the output is the base's bit by "
    "bit, only a and b train, and the base is `base`; r < 1 or dropout outside [0, 1) is a "
    "ValueError",
    cause="both 0 or both random, a normal a, a bound of 1 / K, a base that trains, another dtype, "
    "inputs of two dimensions only, or no check before the first call",
)
def test_the_start(student, rng):
    w, bias = torch.randn(40, 100, generator=rng), torch.randn(40, generator=rng)
    x = torch.randn(3, 2, 100, generator=rng)
    kinds = (torch.Tensor, torch.Tensor, list, torch.Tensor, torch.Tensor)
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [t.to(dtype) for t in (w, bias, x)]
        value = student.drive(drive_start, *inputs, {"r": 8, "alpha": 16.0})
        a, b, trains, y, right = expect_tuple(value, kinds, "a new layer")
        expect_tensor(a, f"a beside a base in {dtype}", torch.float32, (8, 100))
        expect_same(b, torch.zeros(40, 8), f"b beside a base in {dtype}")
        expect_at_most(a.abs(), 0.1, "the size of a at the start, K = 100,")
        low, high = a.aminmax()
        # 800 uniform numbers: all below 0.095 with probability 0.975^800 < 1e-8
        assert low < -0.095 and high > 0.095, f"a reaches from {low:.3f} to {high:.3f}"
        expect_same(y, right, f"the output of a new layer in {dtype}")
        assert trains == ["a", "b"], f"these parameters train: {trains}"
    for r, dropout in ((0, 0.0), (-1, 0.0), (2, 1.0), (2, -0.1)):
        options = {"r": r, "alpha": 1.0, "dropout": dropout}
        expect_error(
            ValueError,
            lambda o=options: student.drive(drive_made, o),
            f"a new layer with {options}",
        )


@exercise(
    "ex1",
    points=2,
    invariant="dropout zeroes inputs of the update and divides the others by 1 - p, in training "
    "mode only; the base sees all of x",
    cause="dropout on what the base reads, on the low-rank product, on the output, of whole rows, "
    "or in eval mode",
)
def test_dropout_on_the_update_only(student, rng):
    w, a, b = torch.tensor([[3.0], [4.0]]), torch.ones(2, 1), torch.eye(2)
    x = torch.ones(200, 1)
    options = {"r": 2, "alpha": 2.0, "dropout": 0.75}
    y, other, _ = layer_of(student, w, torch.zeros(2), a, b, x, train=True, **options)
    left = (y - torch.tensor([3.0, 4.0])).double()
    # one input: an update is 0 or 1 / (1 - 0.75) = 4 for both outputs at once
    fits = ((left == 0) | (left == 4)).all(1) & (left[:, 0] == left[:, 1])
    odd = left[~fits][:1].tolist()
    assert fits.all(), f"updates with dropout 0.75 are {odd[0]} of a row, expected [0, 0] or [4, 4]"
    assert not torch.equal(y, other), "a second call dropped the same inputs"
    y, *_ = layer_of(student, w, torch.zeros(2), a, b, x, train=False, **options)
    expect_same(y, torch.tensor([[4.0, 5.0]]).expand(200, 2), "the output in eval mode")
    for p in (0.75, 0.25):  # A and B are 1 on the diagonal: the update is what dropout leaves of x
        one, options = torch.eye(50), {"r": 50, "alpha": 50.0, "dropout": p}
        w, x = torch.zeros(50, 50), torch.ones(2, 20, 50)
        y, *_ = layer_of(student, w, torch.zeros(50), one, one, x, train=True, **options)
        dropped = y == 0
        # 2000 draws: 8 standard errors
        share, error = dropped.double().mean().item(), math.sqrt(p * (1 - p) / 2000)
        expect_close(share, p, what=f"the share dropped by dropout {p}", atol=8 * error)
        left = torch.where(dropped, 1 / (1 - p), y.double())
        expect_close(left, torch.full_like(left, 1 / (1 - p)), what="what is left of 1", rtol=1e-6)
        # a draw for each number: 20 equal ones happen with probability 0.75^20 at most, not in all
        alike = (dropped.all(-1) | ~dropped.any(-1)).all() or (
            dropped.all(1) | ~dropped.any(1)
        ).all()
        assert not alike, "numbers of one row, or of one column of x, are dropped together"


def drive_add(student, names, r, alpha):
    """Runs beside the student's code: a small nested model gets updates."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("emb", nn.Embedding(5, 6))
    model.add_module("block", nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.Linear(6, 6)))
    model.eval()
    ids = torch.tensor([0, 4, 2])
    before = model(ids).detach()
    changed = student.add_lora(model, names, r, alpha)
    kinds = {n: type(m).__name__ for n, m in model.named_modules()}
    return {
        "new": sorted(n for n, m in changed.named_modules() if type(m).__name__ == "LoRALinear"),
        "trains": sorted(n for n, p in changed.named_parameters() if p.requires_grad),
        "scales": [float(changed.get_submodule(n).scale) for n in names],
        "starts": [changed.get_submodule(n).a.data for n in names],
        "train": [changed.get_submodule(n).training for n in names],
        "same": changed(ids).detach(),
        "before": before,
        "given": sorted(kinds.values()),
        "still": all(p.requires_grad for p in model.parameters()),
    }


@exercise(
    "ex1",
    points=1,
    invariant="the copy has updates beside the named layers, trains nothing else, and puts out the "
    "same; the model that was given stays as it was",
    cause="embeddings and norms left to train, other layers taken, no copy, one start for all, or "
    "another mode",
)
def test_a_model_with_updates(student, rng):
    for names, alpha in ((["block.0"], 3.0), (["block.2", "block.0"], 6.0)):
        seen = student.drive(drive_add, names, 2, alpha)
        assert seen["new"] == sorted(names), f"updates stand beside {seen['new']}, not {names}"
        trains = sorted(f"{n}.{part}" for n in names for part in ("a", "b"))
        assert seen["trains"] == trains, f"these train: {seen['trains']}, expected {trains}"
        right = [alpha / 2] * len(names)
        assert seen["scales"] == right, f"scales {seen['scales']} of alpha {alpha}, r 2"
        expect_same(seen["same"], seen["before"], "the output of the model with new updates")
        if len(names) == 2:
            assert not torch.equal(*seen["starts"]), "two layers start with the same a"
        assert not any(seen["train"]), "new layers of a model in eval mode are in training mode"
        assert "LoRALinear" not in seen["given"], "the model that was given has updates now"
        assert seen["still"], "parameters of the model that was given are frozen now"


# ---- exercise 2: merge, add, and go back -----------------------------------------------------


@exercise(
    "ex2",
    points=2,
    invariant="W = 1 in bfloat16 and an update of 2^-8 + 2^-17 give 1 + 2^-7",
    cause="the update rounded to bfloat16 before it is added, no scale, or another dtype",
)
def test_merge_rounds_once(student, rng):
    a, b = torch.tensor([[2.0**-8], [2.0**-17]]), torch.ones(1, 2)
    for dtype, right in ((torch.bfloat16, 1 + 2.0**-7), (torch.float32, 1 + 2.0**-8 + 2.0**-17)):
        for scale in (1.0, 0.5):
            new = student.merge(torch.ones(1, 1, dtype=dtype), a / scale, b, scale)
            right_w = torch.full((1, 1), right, dtype=dtype)
            expect_same(new, right_w, f"1 + update in {dtype}, scale {scale}")
    w, a = torch.zeros(2, 3), torch.tensor([[1.0, 0.0, 2.0]])
    new = student.merge(w, a, torch.tensor([[1.0], [-3.0]]), 0.5)
    right = torch.tensor([[0.5, 0.0, 1.0], [-1.5, 0.0, -3.0]])
    expect_same(new, right, "A = 1, 0, 2, B = 1, -3, s = 1/2")
    new = student.merge(w + 1, a, torch.tensor([[2.0], [0.0]]), 0.5)
    right = torch.tensor([[2.0, 1.0, 3.0], [1.0, 1.0, 1.0]])
    expect_same(new, right, "W = 1, A = 1, 0, 2, B = 2, 0, s = 1/2, a second call,")


def pair(value, call, shape_a, shape_b):
    a, b = expect_tuple(value, (torch.Tensor, torch.Tensor), call)
    expect_tensor(a, f"a of {call}", torch.float32, shape_a)
    expect_tensor(b, f"b of {call}", torch.float32, shape_b)
    return a.double(), b.double()


@exercise(
    "ex2",
    points=2,
    invariant="one pair has the effect of all: B A is the sum of s_i B_i A_i, its rank that of all "
    "together",
    cause="A's and B's added, which mixes them; scales left out or used twice; equal ranks only",
)
def test_stacked_updates(student, rng):
    one = (torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0]]), 1.0)
    two = (torch.tensor([[0.0, 1.0]]), torch.tensor([[3.0]]), 10.0)
    a, b = pair(student.stack([one, two]), "stack", (2, 2), (1, 2))
    right = torch.tensor([[2.0, 30.0]]).double()
    # a root of the scale on both sides is rounded in float32: four roundings
    expect_close(b @ a, right, what="B A of the example by hand", rtol=8 * FLOAT32)
    for _ in range(2):
        updates = []
        for r, scale in ((3, 0.5), (1, -2.0), (2, 1.0)):
            a, b = torch.randn(r, 5, generator=rng), torch.randn(4, r, generator=rng)
            updates.append((a, b, scale))
        right = sum(s * (b.double() @ a.double()) for a, b, s in updates)
        a, b = pair(student.stack(updates), "stack", (6, 5), (4, 6))
        expect_close(b @ a, right, what="B A of three updates", rtol=1e-5, atol=1e-5)
    a, b = pair(student.stack(updates[:1]), "stack", (3, 5), (4, 3))
    expect_close(
        b @ a, updates[0][1].double() @ updates[0][0].double() / 2, what="of one", atol=1e-5
    )


@exercise(
    "ex2",
    points=1,
    invariant="the nearest matrix of rank r: diag(4, 3) at rank 1 is diag(4, 0), 3 is missing",
    cause="V for V^T, singular values left out, other than the largest, or only about the largest "
    "(torch.svd_lowrank draws at random)",
)
def test_the_nearest_of_rank_r(student, rng):
    delta = torch.tensor([[0.0, -4.0, 0.0], [3.0, 0.0, 0.0]])
    a, b = pair(student.factor(delta, 1), "factor", (1, 3), (2, 1))
    right = torch.tensor([[0.0, -4.0, 0.0], [0.0, 0.0, 0.0]]).double()
    expect_close(b @ a, right, what="B A of rank 1", atol=1e-5)
    for r in (1, 2, 4, 2):
        delta = torch.randn(6, 4, generator=rng)
        sizes = torch.linalg.svdvals(delta.double())
        a, b = pair(student.factor(delta, r), "factor", (r, 4), (6, r))
        off = (delta.double() - b @ a).norm().item()
        least = sizes[r:].norm().item()
        expect_at_most(off, least + 1e-4, f"the distance of B A of rank {r}")
    delta = torch.randn(200, 150, generator=rng)  # its singular values differ little
    sizes = torch.linalg.svdvals(delta.double())
    a, b = pair(student.factor(delta, 4), "factor", (4, 150), (200, 4))
    off, least = (delta.double() - b @ a).norm().item(), sizes[4:].norm().item()
    # the factors are rounded to float32: far less than this
    expect_at_most(off, least * (1 + 1e-5), "the distance of B A of rank 4 to a [200, 150]")


@exercise(
    "ex2",
    points=1,
    invariant="r from 1 to the smaller of N and K; any other is a ValueError",
    cause="no check, or one of N or K alone: a slice that is shorter than r, or empty",
)
def test_what_is_no_rank(student, rng):
    delta = torch.randn(3, 5, generator=rng)
    a, b = pair(student.factor(delta, 3), "factor", (3, 5), (3, 3))
    expect_close(b @ a, delta.double(), what="B A of full rank", atol=1e-5)
    for shape, matrix in (("[3, 5]", delta), ("[5, 3]", delta.T.contiguous())):
        for r in (0, 4, -1):
            what = f"r = {r} of {shape}"
            expect_error(ValueError, lambda r=r, d=matrix: student.factor(d, r), what)


# ---- exercise 3: bytes -----------------------------------------------------------------------


def number(value, right, what):
    expect_close(float(expect_number(value, what)), float(right), what=what, rtol=1e-9)


@exercise(
    "ex3",
    points=1,
    invariant="layers of 10 x 20 and 5 x 8, rank 2: 60 + 26 numbers; equal layers count each",
    cause="N K for N + K, one shape only, equal shapes counted once, or r left out",
)
def test_numbers_by_hand(student, rng):
    number(student.trained_numbers([(10, 20), (5, 8)], 2), 86, "trained_numbers, two layers")
    number(student.trained_numbers([(10, 20)], 1), 30, "trained_numbers, rank 1")
    number(student.trained_numbers([(5, 8)] * 3, 2), 78, "trained_numbers, three equal layers")
    number(student.trained_numbers([], 4), 0, "trained_numbers, no layer")


@exercise(
    "ex3",
    points=2,
    invariant="100 frozen numbers in 4 bits, 10 trained ones: 70, 20 and 80 bytes, with a copy 120",
    cause="bits for bytes, 4.5 bits rounded, states of frozen numbers, one state, or trained ones "
    "in 4 bits",
)
def test_bytes_by_hand(student, rng):
    for arguments, right in (
        ((100, 10, 4), (70, 20, 80)),
        ((100, 10), (220, 20, 80)),
        ((100, 10, 4, True), (70, 20, 120)),
        ((0, 10), (20, 20, 80)),
        ((100, 0, 4.5), (56.25, 0, 0)),
    ):
        value = student.bytes_held(*arguments)
        assert isinstance(value, tuple) and len(value) == 3, f"bytes_held returned {value!r}"
        for seen, expected, part in zip(
            value, right, ("weights", "gradients", "optimizer"), strict=True
        ):
            number(seen, expected, f"{part} of bytes_held{arguments}")


@exercise(
    "ex3",
    points=2,
    invariant="10 blocks, checkpoints at every 4th: three inputs and four blocks",
    cause="groups rounded down, the last group's blocks in place of the largest's, all blocks, or "
    "only one input",
)
def test_checkpoints_by_hand(student, rng):
    for layers, every, inputs, blocks in (
        (10, 4, 3, 4),
        (10, 5, 2, 5),
        (10, 1, 10, 1),
        (10, 10, 1, 10),
        (10, 9, 2, 9),
        (1, 1, 1, 1),
    ):
        for boundary, block in ((1000, 7), (1, 100), (1.5, 2.25)):
            what = f"checkpointed({layers}, {boundary}, {block}, {every})"
            seen = student.checkpointed(layers, boundary, block, every)
            number(seen, boundary * inputs + block * blocks, what)


@exercise(
    "ex3",
    points=1,
    invariant="no other distance takes fewer bytes, and of equal ones it is the smallest",
    cause="the root as a formula, a largest of equal ones, or 1 or all blocks left out",
)
def test_the_best_distance(student, rng):
    for layers, boundary, block in (
        (16, 1, 1),
        (80, 1, 34),
        (10, 5, 1),
        (7, 1, 100),
        (9, 900, 1),
        (1, 5, 5),
    ):
        seen = student.best_every(layers, boundary, block)
        assert type(seen) is int, f"best_every returned {seen!r}, not an int"
        sums = [-(-layers // n) * boundary + n * block for n in range(1, layers + 1)]
        right = sums.index(min(sums)) + 1
        what = f"best_every({layers}, {boundary}, {block})"
        assert seen == right, f"{what} is {seen}, expected {right}"


# ---- exercise 4: NF4 -------------------------------------------------------------------------


def true_levels():
    """From another implementation of the quantile function, in float64."""
    q, p = NormalDist().inv_cdf, 0.9677083
    above = [q(p + (0.5 - p) * i / 8) for i in range(8)]
    below = [-q(p + (0.5 - p) * i / 7) for i in range(7)]
    return torch.tensor(sorted([*below, 0.0, *above]), dtype=torch.float64) / q(p)


def coded(student, w):
    value = expect_tuple(student.quantize_nf4(w), (torch.Tensor, torch.Tensor), "quantize_nf4")
    n = w.numel()
    codes = expect_tensor(value[0], "codes", torch.uint8, (n,))
    return codes, expect_tensor(value[1], "absmax", torch.float32, (-(-n // 64),))


@exercise(
    "ex4",
    points=2,
    invariant="16 rising levels from -1 to 1, one of them 0: 7 below it and 8 above",
    cause="both halves made with 8 or with 7, no zero, not divided by the largest, or falling",
)
def test_levels(student, rng):
    levels = expect_tensor(student.nf4_levels(), "nf4_levels()", torch.float32, (16,))
    assert (levels.diff() > 0).all(), f"the levels do not rise: {levels.tolist()}"
    assert levels[7] == 0, f"level 7 is {levels[7].item():.4f}, not 0"
    expect_close(levels, true_levels(), what="the levels", atol=2e-6)


@exercise(
    "ex4",
    points=2,
    invariant="absmax is the largest size of the block; each weight has the level nearest to it",
    cause="the largest value with its sign, the level below in place of the nearest, codes of the "
    "weight itself, a floor or an epsilon under absmax, or codes in another dtype than uint8",
)
def test_the_nearest_level(student, rng):
    w = torch.zeros(64)
    w[:5] = torch.tensor([0.5, -2.0, 1.0, -0.1, 1.9])
    codes, absmax = coded(student, w)
    expect_same(absmax, torch.tensor([2.0]), "absmax of 0.5, -2, 1, -0.1, 1.9 and zeros")
    # in parts of 2: 0.25, -1, 0.5, -0.05, 0.95
    right = [10, 0, 12, 6, 15] + [7] * 59
    assert codes.tolist() == right, f"codes {codes.tolist()[:6]} ..., expected {right[:6]} ..."
    levels, factors = true_levels(), torch.tensor([[1], [30], [1e-3], [1]])
    for _ in range(2):
        w = torch.randn(4, 64, generator=rng) * factors
        codes, absmax = coded(student, w)
        expect_same(absmax, w.abs().amax(1), "absmax")
        far = ((w.double() / absmax.double()[:, None]).flatten()[:, None] - levels).abs()
        seen = far.gather(1, codes.long()[:, None])[:, 0]
        expect_at_most(seen, far.amin(1) + 1e-5, "the distance to the level that was taken")
    for size in (1.0, 1e-7, 1e4):
        codes, absmax = coded(student, size * torch.tensor([0.5, -2.0, 1.0, -0.1, 1.9]))
        expect_close(absmax, torch.tensor([2 * size]), what="absmax", rtol=4 * FLOAT32)
        what = f"codes of 0.5, -2, 1, -0.1, 1.9 times {size:g}"
        assert codes.tolist() == right[:5], f"{what}: {codes.tolist()}, expected {right[:5]}"


@exercise(
    "ex4",
    points=1,
    invariant="blocks run over the ends of rows, the last may be short, one of zeros stays zeros; "
    "no weight, NaN or infinity is a ValueError",
    cause="blocks of each row, a last block that is padded into the result, 0 / 0, or no check",
)
def test_blocks_of_64(student, rng):
    w = torch.randn(3, 50, generator=rng)
    codes, absmax = coded(student, w)
    right = torch.stack([part.abs().max() for part in w.flatten().split(64)])
    expect_same(absmax, right, "absmax of [3, 50]: blocks of 64, 64 and 22")
    w = torch.cat([torch.zeros(64), torch.tensor([-3.0, 3.0])])
    codes, absmax = coded(student, w)
    expect_same(absmax, torch.tensor([0.0, 3.0]), "absmax of a block of zeros and a short one")
    assert codes[:64].tolist() == [7] * 64, f"codes of zeros: {sorted(set(codes[:64].tolist()))}"
    back = student.dequantize_nf4(codes, absmax, (66,))
    expect_same(back, w, "what comes back of zeros, and of -3 and 3")
    for bad, what in (
        ([], "no weight"),
        ([1.0, math.nan], "NaN"),
        ([1.0, math.inf], "infinity"),
        ([-math.inf], "-infinity"),
    ):
        w = torch.tensor(bad)
        expect_error(ValueError, lambda w=w: student.quantize_nf4(w), f"quantize_nf4 of {what}")


def drive_transposed(student, w):
    """Runs beside the student's code: a weight that is not contiguous."""
    return student.quantize_nf4(w.T)


@exercise(
    "ex4",
    points=1,
    invariant="a code comes back as its level times the absmax of its block, in the given shape; "
    "bfloat16 and transposed weights are coded as what they hold",
    cause="the absmax of another block, uint8 as a mask, a flat result, quotients in bfloat16, or "
    "view",
)
def test_what_comes_back(student, rng):
    # of 5000 weights about 20 change their code if the quotient is rounded to bfloat16
    w = torch.randn(100, 50, generator=rng).bfloat16()
    right = coded(student, w.T.float().contiguous())
    seen = expect_tuple(student.drive(drive_transposed, w), (torch.Tensor,) * 2, "quantize_nf4")
    expect_same(seen[0], right[0], "codes of a transposed bfloat16 weight")
    expect_same(seen[1], right[1], "absmax of a transposed bfloat16 weight")
    for shape in ((2, 70), (7, 5, 4), (140,), (2, 70)):
        codes = torch.randint(16, (2 * 70,), generator=rng).to(torch.uint8)
        absmax = torch.tensor([1.0, 8.0, 0.5])[torch.randperm(3, generator=rng)]
        back = student.dequantize_nf4(codes, absmax, shape)
        expect_tensor(back, "dequantize_nf4(...)", torch.float32, shape)
        right = true_levels()[codes.long()] * absmax[torch.arange(140) // 64].double()
        expect_close(back.flatten(), right, what="the weights that came back", atol=2e-5)


# ---- exercise 5: double quantization ---------------------------------------------------------


def some_levels(rng):
    """256 rising numbers from -1 to 1, denser in the middle."""
    x = torch.linspace(-1, 1, 256)
    return x.sign() * x.square()


def scaled(student, absmax, levels):
    value = student.quantize_scales(absmax, levels)
    codes, second, mean = expect_tuple(value, (torch.Tensor,) * 3, "quantize_scales")
    expect_tensor(codes, "codes", torch.uint8, tuple(absmax.shape))
    expect_tensor(second, "second", torch.float32, (-(-len(absmax) // 256),))
    return codes, second, expect_tensor(mean, "mean", torch.float32, ())


@exercise(
    "ex5",
    points=2,
    invariant="absmax 1, 2, 6: the mean is 3, second is 3, and -2/3, -1/3 and 1 are looked up",
    cause="the mean not taken off, a mean of the padding or of each block, or no sizes",
)
def test_scales_by_hand(student, rng):
    levels = torch.linspace(-1, 1, 256)
    codes, second, mean = scaled(student, torch.tensor([1.0, 2.0, 6.0]), levels)
    expect_close(mean, torch.tensor(3.0), what="the mean", rtol=4 * FLOAT32)
    expect_close(second, torch.tensor([3.0]), what="second", rtol=8 * FLOAT32)
    # level i is -1 + 2 i / 255: nearest to -2/3, -1/3 and 1 are 42.5, 85 and 255
    assert codes.tolist()[1:] == [85, 255] and codes[0] in (42, 43), f"codes {codes.tolist()}"
    absmax = torch.cat([torch.full((256,), 1.0), torch.tensor([5.0, 4.0])])
    codes, second, mean = scaled(student, absmax, levels)
    right = absmax.double().mean()
    expect_close(mean, right, what="the mean of 258", rtol=300 * FLOAT32)
    left = torch.stack([right - 1, 5 - right])
    expect_close(second, left, what="second of two blocks", rtol=0, atol=1e-3)


@exercise(
    "ex5",
    points=2,
    invariant="what comes back is at most half the gap of two levels away, times second",
    cause="blocks of another size, codes that are not the nearest, or the mean not added again",
)
def test_scales_come_back(student, rng):
    levels = some_levels(rng)
    gap = levels.double().diff().max()
    for n in (1, 100, 256, 600):
        absmax = 0.1 + torch.rand(n, generator=rng)
        codes, second, mean = scaled(student, absmax, levels)
        back = student.dequantize_scales(codes, second, mean, levels)
        expect_tensor(back, "dequantize_scales(...)", torch.float32, (n,))
        of_block = second.double()[torch.arange(n) // 256]
        off = (back.double() - absmax.double()).abs()
        expect_at_most(off, gap / 2 * of_block + 1e-6, f"the error of {n} scales")


@exercise(
    "ex5",
    points=1,
    invariant="scales that are all equal come back as they were",
    cause="an epsilon under second, padding before the mean is taken off, or a code of NaN",
)
def test_equal_scales(student, rng):
    levels = some_levels(rng)
    for n in (1, 3, 300):
        absmax = torch.full((n,), 0.25)
        codes, second, mean = scaled(student, absmax, levels)
        expect_same(second, torch.zeros(-(-n // 256)), f"second of {n} equal scales")
        back = student.dequantize_scales(codes, second, mean, levels)
        expect_same(back, absmax, f"{n} equal scales")


@exercise(
    "ex5",
    points=1,
    invariant="64 weights take 288 bits, doubly quantized 256 + 8 + 32 + 32",
    cause="scales, seconds, or the mean left out, rounded down, or counted in 16 bits",
)
def test_bits_by_hand(student, rng):
    for n, double, right in (
        (64, False, 288),
        (64, True, 328),
        (65, False, 324),
        (65, True, 260 + 16 + 64),
        (64 * 257, True, 4 * 64 * 257 + 8 * 257 + 3 * 32),
    ):
        seen = student.nf4_bits(n, double)
        assert type(seen) is int, f"nf4_bits returned {seen!r}, not an int"
        assert seen == right, f"nf4_bits({n}, {double}) is {seen}, expected {right}"


# ---- exercise 6: through frozen weights, for many adapters -----------------------------------


def drive_product(student, w, x, dy, kept):
    """Runs beside the student's code: both passes, what was decoded, and what stays in between."""
    import gc

    import torch

    def alive():  # {place: bytes} of all tensors that Python knows
        tensors = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]
        tensors = [t for t in tensors if t.layout == torch.strided]
        return {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}

    x, calls, saved = x.requires_grad_(), [], []

    def decode():
        calls.append(1)
        return w.clone()

    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda t: saved.append(t.numel()) or t, lambda t: t
    )
    before = alive()
    with hooks:
        y = student.frozen_product(x, decode)
    between, after = len(calls), alive()
    own = {t.untyped_storage().data_ptr() for t in (x, y)}
    new = [size for place, size in after.items() if place not in before and place not in own]
    if kept:
        return y.detach(), between, saved, new
    y.backward(dy)
    return y.detach(), between, saved, x.grad, len(calls)


def drive_two(student, first, second, x, dy):
    """Runs beside the student's code: one product behind another."""
    x = x.requires_grad_()
    low = student.frozen_product(x, lambda: first.clone())
    y = student.frozen_product(low, lambda: second.clone())
    y.backward(dy)
    return y.detach(), x.grad


@exercise(
    "ex6",
    points=2,
    invariant="W = (2, 3), x = (1, 1): y = 5, and dy = 10 gives dx = (20, 30)",
    cause="dy W^T, a gradient that forgets dy, x W in place of x W^T, another dtype than x's, or "
    "the W of another layer",
)
def test_both_passes_by_hand(student, rng):
    value = student.drive(
        drive_product, torch.tensor([[2.0, 3.0]]), torch.ones(1, 2), torch.tensor([[10.0]]), False
    )
    expect_close(value[0], torch.tensor([[5.0]]), what="y")
    expect_close(value[3], torch.tensor([[20.0, 30.0]]), what="dx")
    w = torch.randn(4, 4, generator=rng)  # square: W and its transpose both fit
    x, dy = torch.randn(2, 3, 4, generator=rng), torch.randn(2, 3, 4, generator=rng)
    y, _, _, dx, _ = student.drive(drive_product, w, x, dy, False)
    expect_close(y, x.double() @ w.double().T, what="y of a square W", atol=1e-5)
    expect_close(dx, dy.double() @ w.double(), what="dx of a square W", atol=1e-5)
    low = student.drive(drive_product, w, x.bfloat16(), dy.bfloat16(), False)
    for seen, what in ((low[0], "y"), (low[3], "dx")):
        expect_tensor(seen, f"{what} for x in bfloat16", torch.bfloat16, (2, 3, 4))
    other = torch.randn(4, 4, generator=rng)
    y, dx = student.drive(drive_two, w, other, x, dy)
    expect_close(y, x.double() @ (other.double() @ w.double()).T, what="y of two", atol=1e-4)
    expect_close(dx, dy.double() @ other.double() @ w.double(), what="dx of two", atol=1e-4)


@exercise(
    "ex6",
    points=2,
    invariant="decode is called once in each pass, and nothing as large as W is kept between them",
    cause="ctx.save_for_backward(W), F.linear, which keeps it, or a decoded W on ctx, in a closure",
)
def test_nothing_large_is_kept(student, rng):
    w, x = torch.randn(70, 90, generator=rng), torch.randn(2, 90, generator=rng)
    _, between, saved, _, after = student.drive(drive_product, w, x, torch.ones(2, 70), False)
    assert between == 1, f"decode was called {between} times in the forward pass, expected once"
    kept = sum(saved)  # also in pieces
    assert kept < 6300, f"between the passes tensors of {saved} numbers are saved; W has 6300"
    assert after == 2, f"decode was called {after} times in both passes, expected twice"
    _, between, _, new = student.drive(drive_product, w, x, torch.ones(2, 70), True)
    assert between == 1, f"without a backward pass decode was called {between} times, expected once"
    held = f"between the passes new tensors of {new} bytes are alive; W has {4 * 6300}"
    assert sum(new) < 4 * 6300 // 2, held  # half: in bfloat16 it is W still


def some_adapters(rng, ranks=(2, 1, 3), n=4, k=5):
    made = []
    for j, r in enumerate(ranks):
        a, b = torch.randn(r, k, generator=rng), torch.randn(n, r, generator=rng)
        made.append((a, b, 0.5 + j))
    return made


def added(x, y, adapters, index):
    y = y.double()
    for i, j in enumerate(index):
        if j >= 0:
            a, b, scale = adapters[j]
            y[i] += scale * (x[i].double() @ a.double().T @ b.double().T)
    return y


@exercise(
    "ex6",
    points=1,
    invariant="each row gets the update of its own adapter, scaled; -1 leaves it bit by bit; an "
    "index below -1 or beyond the list is a ValueError",
    cause="adapters[-1] for none, one adapter for all rows, scales left out, rows counted as "
    "adapters, or no check",
)
def test_rows_of_their_own(student, rng):
    adapters = some_adapters(rng)
    x, y = torch.randn(4, 3, 5, generator=rng), torch.randn(4, 3, 4, generator=rng)
    for index in ([1, -1, 0, 1], [2, 2, -1, 0], [-1, -1, -1, -1]):
        new = student.batched_update(x, y, adapters, torch.tensor(index))
        expect_tensor(new, "batched_update(...)", torch.float32, (4, 3, 4))
        expect_close(new, added(x, y, adapters, index), what=f"rows {index}", atol=1e-5)
        none = [i for i, j in enumerate(index) if j < 0]
        expect_same(new[none], y[none], f"rows without an adapter of {index}")
    new = student.batched_update(x, y, [], torch.tensor([-1, -1, -1, -1]))
    expect_same(new, y, "y, where there is no adapter at all,")
    for index, known in (
        ([0, 3, -1, 0], adapters),
        ([-2, 0, 0, 0], adapters),
        ([0, -1, -1, -1], []),
    ):
        wrong, what = torch.tensor(index), f"index {index} of {len(known)} adapters"
        expect_error(ValueError, lambda i=wrong, k=known: student.batched_update(x, y, k, i), what)


@exercise(
    "ex6",
    points=1,
    invariant="an adapter that no row uses has no effect, even if it holds NaN",
    cause="all adapters computed for all rows and masked by 0: 0 times NaN is NaN",
)
def test_an_unused_adapter(student, rng):
    adapters = some_adapters(rng)
    bad = (adapters[1][0] * math.nan, adapters[1][1], 1.0)
    x, y = torch.randn(3, 2, 5, generator=rng), torch.randn(3, 2, 4, generator=rng)
    index = [2, 0, -1]
    new = student.batched_update(x, y, [adapters[0], bad, adapters[2]], torch.tensor(index))
    expect_tensor(new, "batched_update(...)", torch.float32, (3, 2, 4))
    expect_close(new, added(x, y, adapters, index), what="rows beside an unused NaN", atol=1e-5)
