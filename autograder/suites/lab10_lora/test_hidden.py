"""Hidden tests of lab10: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.
"""

import functools
import math
from fractions import Fraction
from statistics import NormalDist

import torch
import torch.nn.functional as F

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
from efflib.lab.again import held, held_results, refused
from efflib.lab.cases import every_pair

FLOAT32 = 2.0**-24  # relative error of one float32 rounding
BFLOAT16 = 2.0**-8


def draw(rng, low, high):
    """A whole number from low to high."""
    return int(torch.randint(low, high + 1, (1,), generator=rng))


def expect_held(student, name, first, second):
    """What a call returned is the same while the next one is made. Returns both results."""
    results = held_results(student, name, [first, second])
    for seen, call in zip(results, (first, second), strict=True):
        right = getattr(student, name)(*call)
        parts = (
            [(seen, right)] if isinstance(right, torch.Tensor) else zip(seen, right, strict=True)
        )
        for part, other in parts:
            expect_close(part, other, what=f"{name}, held while it was called again", rtol=1e-5)
    return results


# ---- exercise 1 ------------------------------------------------------------------------------


def drive_layer(student, w, a, b, x, options):
    """Runs beside the student's code: a layer on a base whose weight is that of a module inside
    it, as it starts and with a and b given; which parameters got a gradient, or await one."""
    from torch import nn

    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.out_features, self.in_features = w.shape
            self.inner = nn.ModuleList([nn.ParameterList([nn.Parameter(w)])])

        def forward(self, x):
            return x @ self.inner[0][0].T

    base = Base()
    layer = student.LoRALinear(base, **options)
    x, found = x.requires_grad_(), [layer.a.detach().clone()]
    for given in (None, (a, b)):
        if given:
            layer.a.data, layer.b.data = given
        layer.a.grad = layer.b.grad = x.grad = None
        y = layer(x)
        y.sum().backward()
        found.append((y.detach(), layer.a.grad, layer.b.grad, x.grad))
    grads = sorted(n for n, p in layer.named_parameters() if p.grad is not None)
    return *found, grads, [n for n, p in base.named_parameters() if p.requires_grad]


@exercise(
    "ex1",
    points=2,
    invariant="y = base(x) + s x A^T B^T for numbers of all sizes; the gradient reaches a, b, x, "
    "in a new layer too, and no parameter of the base, nor of a module inside it",
    cause="A or B transposed, a scale that fits one rank only, a base that must be an nn.Linear, "
    "torch.no_grad() around the base, an alpha that is made a whole number, only the base's direct "
    "parameters frozen, or those of a copy, or an update left out while B is 0",
)
def test_the_formula(student, rng):
    kinds = (torch.Tensor, tuple, tuple, list, list)
    for r, stabilized, large in ((1, False, 1), (3, False, 1e-8), (5, True, 1e4), (16, True, 1)):
        n, k, alpha = draw(rng, 1, 9), draw(rng, 1, 9), 0.5 + draw(rng, 1, 20)
        w, x = torch.randn(n, k, generator=rng), large * torch.randn(2, 4, k, generator=rng)
        a, b = torch.randn(r, k, generator=rng), torch.randn(n, r, generator=rng)
        options = {"r": r, "alpha": alpha, "rank_stabilized": stabilized}
        value = student.drive(drive_layer, w, a, b, x, options)
        start, new, given, grads, left = expect_tuple(value, kinds, "a layer")
        expect_tensor(start, "a as it starts", torch.float32, (r, k))
        scale = alpha / (math.sqrt(r) if stabilized else r)

        def exact(w, a, b, x, scale=scale):
            leaves = [t.double().requires_grad_() for t in (a, b, x)]
            a, b, x = leaves
            y = x @ w.double().T + scale * (x @ a.T @ b.T)
            y.sum().backward()
            return y.detach(), *(t.grad for t in leaves)

        names = ("y", "the gradient of a", "the gradient of b", "the gradient of x")
        for found, *four in ((new, w, start, 0 * b, x), (given, w, a, b, x)):
            found = expect_tuple(found, (torch.Tensor,) * 4, "y and the gradients of a, b and x")
            expect_tensor(found[0], "the output", torch.float32, (2, 4, n))
            # the same with all signs positive: what each rounding is a part of
            sizes = exact(*(t.abs() for t in four))
            for seen, right, size, what in zip(found, exact(*four), sizes, names, strict=True):
                bound = (4 * (k + r + n) + 40) * FLOAT32 * size
                expect_at_most((seen.double() - right).abs(), bound, f"the error of {what}")
        assert grads == ["a", "b"], "gradients reached the base"
        assert not left, "parameters of the base that was given are not frozen"


def drive_shapes(student, w, a, b, x):
    """Runs beside the student's code: inputs that are views, what a layer leaves of them, and an
    output without gradients that is read when the next one was made."""
    import torch
    from torch import nn

    class Same(nn.Module):
        in_features, out_features = w.shape[1], w.shape[1]

        def forward(self, x):
            return x

    base = nn.Linear(w.shape[1], w.shape[0], bias=False)
    base.weight.data = w
    layer = student.LoRALinear(base, len(a), float(len(a)))
    layer.a.data, layer.b.data = a, b
    outputs = [layer(v).detach() for v in (x.mT, x[0, :, 0], x.mT[:0])]
    with torch.no_grad():
        outputs.append(layer(x.mT))
        layer(-x.mT)
    given = x.mT.clone()
    layer = student.LoRALinear(Same(), len(a), 1.0, dropout=0.5)
    layer.b.data.fill_(1.0)
    layer(given)
    return outputs, given


@exercise(
    "ex1",
    points=1,
    invariant="x may be a view, of one dimension, or without a row; it stays as it was, so does "
    "what the base put out",
    cause="view in place of reshape, y += update where the base puts out x itself, dropout in "
    "place, or one memory for all outputs",
)
def test_views_and_what_stays(student, rng):
    w, a = torch.randn(3, 6, generator=rng), torch.randn(2, 6, generator=rng)
    b, x = torch.randn(3, 2, generator=rng), torch.randn(2, 6, 5, generator=rng)
    outputs, given = student.drive(drive_shapes, w, a, b, x)
    whole = w.double() + b.double() @ a.double()
    size = w.double().abs() + b.double().abs() @ a.double().abs()
    for y, v in zip(outputs, (x.mT, x[0, :, 0], x.mT[:0], x.mT), strict=True):
        expect_tensor(y, "the output for a view", torch.float32, (*v.shape[:-1], 3))
        error = (y.double() - v.double() @ whole.T).abs()
        expect_at_most(error, 48 * FLOAT32 * (v.double().abs() @ size.T), "the error for a view")
    expect_same(given, x.mT, "x after a pass")


def drive_starts(student, names):
    """Runs beside the student's code: how the updates of a model start."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 16))
    starts = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        made = student.add_lora(model, names, 32, 1.0)
        starts.append([(made.get_submodule(n).a.data, made.get_submodule(n).b.data) for n in names])
    for name in names:
        made.get_submodule(name).b.data = torch.ones_like(made.get_submodule(name).b)
    made.train()
    return starts, *(made(torch.ones(8, 64)).detach() for _ in range(2))


@exercise(
    "ex1",
    points=1,
    invariant="a is uniform in +-1 / sqrt(K); layers start unlike, torch's seed decides",
    cause="a normal start, a fixed seed inside, one a for all layers, equal rows, or a bound "
    "with r or N in it; a dropout of add_lora's own",
)
def test_how_layers_start(student, rng):
    starts, y, repeated = student.drive(drive_starts, ["0", "1", "2"])
    what = "in training mode, without dropout, the difference of two outputs"
    expect_at_most((y - repeated).abs(), 0.0, what)
    for a, b in starts[0]:
        expect_same(b, torch.zeros_like(b), f"b beside a of {list(a.shape)}")
    first, again, other = ([a for a, _ in start] for start in starts)
    for a, b, c in zip(first, again, other, strict=True):
        expect_tensor(a, "a", torch.float32, (32, 64))
        # 2048 draws of at least 2^23 numbers: a quarter of a pair is equal on average
        assert len(a.unique()) > 2000, "numbers of a are equal"
        expect_same(b, a, "a of the same seed")
        assert not torch.equal(a, c), "another seed gives the same a"
        expect_at_most(a.abs(), 1 / 8, "the size of a")
        # 2048 numbers: the deviation of a uniform is bound / sqrt(3), its error 1 % (8 of them)
        expect_close(a.std().item() * 8 * math.sqrt(3), 1.0, what="the deviation of a", atol=0.08)
        expect_close(a.mean().item() * 8, 0.0, what="the mean of a", atol=0.12)
    assert not torch.equal(first[0], first[1]), "two layers start alike"


def drive_low(student, w, a, b, x):
    """Runs beside the student's code: a base in bfloat16."""
    from torch import nn

    base = nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=w.dtype)
    base.weight.data = w
    layer = student.LoRALinear(base, len(a), 2.0 * len(a)).eval()
    layer(x)  # nothing of this call may be kept
    layer.a.data, layer.b.data = a, b
    return layer(x).detach(), base(x).detach()


@exercise(
    "ex1",
    points=1,
    invariant="beside a bfloat16 base the update is computed in float32 and the output is bfloat16",
    cause="a and b in the dtype of the base, products in bfloat16, an output in float32, or a B A "
    "that is kept from an earlier call",
)
def test_a_bfloat16_base(student, rng):
    n, k, r = 6, 128, 4
    w = (0.01 * torch.randn(n, k, generator=rng)).bfloat16()
    a, b = torch.randn(r, k, generator=rng), torch.randn(n, r, generator=rng)
    # the parts of the low-rank products cancel: what is left is seen in float32 only
    b[:, 1], a[1] = -b[:, 0], a[0] + 0.01 * a[1]
    b[:, 2:] = 0
    for shape in ((k,), (3, k), (2, 1, 5, k)):
        x = torch.randn(shape, generator=rng).bfloat16()
        value = student.drive(drive_low, w, a, b, x)
        y, base = expect_tuple(value, (torch.Tensor, torch.Tensor), "a layer")
        expect_tensor(y, "the output", torch.bfloat16, (*shape[:-1], n))
        update = 2 * (x.double() @ a.double().T @ b.double().T)
        bound = 2 * BFLOAT16 * (base.double().abs() + update.abs()) + 1e-3
        error = (y.double() - base.double() - update).abs()
        expect_at_most(error, bound, "the error of the output")
    w = w.float()
    for seen, out in ((torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)):
        x = torch.randn(3, k, generator=rng).to(seen)
        y = student.drive(drive_mixed, w, a, b, x, out)
        what = f"the output of a base that reads {seen} and puts out {out}"
        expect_tensor(y, what, out, (3, n))
        base, update = x.double() @ w.double().T, x.double() @ a.double().T @ b.double().T
        bound = 2 * BFLOAT16 * (base.abs() + update.abs()) + 1e-3
        expect_at_most((y.double() - base - update).abs(), bound, f"the error of {what}")


def drive_dropped(student, x, dropout):
    """Runs beside the student's code: an update of x itself, which dropout has gone over, in
    training mode, on a base that puts out float32 zeros."""
    import torch
    from torch import nn

    class Base(nn.Module):
        in_features = out_features = 1

        def forward(self, x):
            return torch.zeros(x.shape)

    layer = student.LoRALinear(Base(), 1, 1.0, dropout=dropout).train()
    layer.a.data, layer.b.data = torch.ones(1, 1), torch.ones(1, 1)
    return layer(x).detach()


def drive_refused_layer(student, r, dropout):
    """Runs beside the student's code: the error, and what it leaves of the base."""
    from torch import nn

    base = nn.Linear(3, 2).train()
    before = [p.detach().clone() for p in base.parameters()]
    try:
        student.LoRALinear(base, r, 1.0, dropout)
        kind = "no error"
    except ValueError:
        kind = "ValueError"
    except Exception as fault:
        kind = type(fault).__name__
    after = [(p.requires_grad, p.detach()) for p in base.parameters()]
    return kind, before, after, base.training


@exercise(
    "ex1",
    points=1,
    invariant="dropout divides in float32, of bfloat16 inputs too; what is refused leaves the base "
    "as it was",
    cause="dropout before x is made float32, or a base frozen before the arguments are looked at",
)
def test_dropped_digits_and_refusals(student, rng):
    for dtype in (torch.bfloat16, torch.float32):
        y = student.drive(drive_dropped, torch.ones(64, 1, dtype=dtype), 0.1)
        expect_tensor(y, "the output", torch.float32, (64, 1))
        off = torch.minimum(y.double().abs(), (y.double() - 1 / 0.9).abs())
        expect_at_most(off, 1e-6, "1 / 0.9 or 0: the difference")
    for r, dropout in ((0, 0.0), (-3, 0.5), (2, 1.0), (2, -0.25), (2, math.inf)):
        kind, before, after, training = student.drive(drive_refused_layer, r, dropout)
        assert kind == "ValueError", f"{kind} in place of a ValueError"
        assert training, "a refused base came back in another mode"
        for old, (trains, new) in zip(before, after, strict=True):
            assert trains and torch.equal(old, new), "a refused base is frozen, or another one"


def drive_mixed(student, w, a, b, x, out):
    """Runs beside the student's code: a base that puts out another dtype than it reads."""
    from torch import nn

    class Base(nn.Module):
        out_features, in_features = w.shape

        def forward(self, x):
            return (x.float() @ w.T).to(out)

    layer = student.LoRALinear(Base(), len(a), float(len(a)))
    layer.a.data, layer.b.data = a, b
    return layer(x).detach()


def drive_nested(student, names, train, dtype):
    """Runs beside the student's code: modes, gradients, and what was given."""
    import copy

    import torch
    from torch import nn

    torch.manual_seed(0)

    class Own(nn.Module):  # no nn.Linear, and its parameters have the names of an update's
        in_features, out_features = 5, 2

        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(2, 5)), nn.Parameter(torch.randn(2))
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, x):
            self.passes += 1
            return x @ self.a.T + self.b

    inner = nn.Sequential(nn.Linear(5, 5), nn.Dropout(0.5), nn.Linear(5, 5))
    model = nn.Sequential(nn.Linear(4, 5), inner, nn.LayerNorm(5), Own())
    model.train(train).to(dtype)
    given = {n: p.clone() for n, p in model.state_dict().items()}
    made = student.add_lora(model, names, 2, 4.0)
    modes = sorted({m.training for each in (made, model) for m in each.modules()})
    x = torch.randn(3, 4).to(dtype)
    outputs = [copy.deepcopy(m).eval()(x).detach() for m in (made, model)]
    for name in names:
        made.get_submodule(name).b.data.fill_(1.0)
    made(x).sum().backward()
    grads = sorted(n for n, p in made.named_parameters() if p.grad is not None)
    same = {n: torch.equal(p, given[n]) for n, p in model.state_dict().items()}
    touched = any(p.grad is not None for p in model.parameters())
    return grads, modes, sorted(same), all(same.values()), touched, outputs


@exercise(
    "ex1",
    points=1,
    invariant="in a nested model gradients reach the updates of the named layers alone, layers of "
    "any kind get one, all modules keep their modes, and the given model keeps its parameters and "
    "buffers",
    cause="modules in another mode than the model, layers taken by a part of their name or only if "
    "they are nn.Linear, parameters frozen by name, shared ones or shared buffers, or no copy of "
    "the model",
)
def test_nested_models(student, rng):
    every = ["0", "1.0", "1.2", "3"]
    cases = [(["1.0", "3"], False, torch.float32), (every, True, torch.float32)]
    cases += [(["3"], True, torch.bfloat16), (["0"], False, torch.float32)]
    for names, train, dtype in cases:
        found = student.drive(drive_nested, names, train, dtype)
        grads, modes, left, same, touched, outputs = found
        expect_tensor(outputs[0], "the output of the model with new updates", dtype, (3, 2))
        expect_same(*outputs, "the output of the model with new updates")
        assert grads == sorted(f"{n}.{p}" for n in names for p in ("a", "b")), f"gradients: {grads}"
        assert modes == [train], "layers came back in another mode, or were left in one"
        names_left = ["0.bias", "0.weight", "1.0.bias", "1.0.weight", "1.2.bias", "1.2.weight"]
        names_left += ["2.bias", "2.weight", "3.a", "3.b", "3.passes"]
        assert left == names_left and same and not touched, "the model that was given has changed"


def drive_layers(student, cases, seed):
    """Runs beside the student's code: of each case two layers, the start of both, and of one its
    outputs as it starts, with a and b given, and with -b in eval mode; gradients; what stays."""
    import torch
    from torch import nn

    class Base(nn.Module):
        def __init__(self, w, out):
            super().__init__()
            self.out_features, self.in_features = w.shape
            self.b, self.out, self.made = nn.Parameter(w.clone()), out, None

        def forward(self, x):
            same = self.out is None  # what comes in goes out
            self.made = x if same else (x.double() @ self.b.double().T).to(self.out)
            return self.made

    def lay(x, way):
        if way == 1 and x.dim() > 1:
            return x.mT.contiguous().mT
        if way == 2:
            return x.repeat_interleave(2, -1)[..., ::2]
        return torch.cat([x.flip(-1), x], -1)[..., x.shape[-1] :] if way == 3 else x.clone()

    def one(w, a, b, x, dy, out, way, train, needs, args, options):
        layer = student.LoRALinear(Base(w, out), *args, **options).train(train)
        twin = student.LoRALinear(Base(w, out), *args, **options)
        start = [layer.a.detach().clone(), layer.b.detach().clone(), twin.a.detach().clone()]
        trains = sorted(n for n, p in layer.named_parameters() if p.requires_grad)
        x = lay(x, way).requires_grad_(needs)
        first = layer(x).detach().clone()
        made = layer.base.made.detach().clone()
        layer.a.data, layer.b.data = a.clone(), b.clone()
        y = layer(x)
        y.backward(dy)
        found = [y.detach().clone(), layer.a.grad, layer.b.grad]
        found += [x.grad] if needs else []
        y.detach().zero_()
        reached = sorted(n for n, p in layer.named_parameters() if p.grad is not None)
        with torch.no_grad():
            layer.b.neg_()
            last = layer.eval()(x).detach().clone()
        kept = [layer.base.made.detach().clone(), x.detach().clone()]
        return start, first, made, found, last, kept, trains, reached, float(layer.scale)

    torch.manual_seed(seed)
    return [one(*case) for case in cases]


LEADS = ((), (0,), (1,), (9,), (2, 3), (2, 1, 3))  # in front of the last dimension
TYPES = (torch.float32, torch.bfloat16)
UNITS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16}


def layer_case(
    rng, shape, r, alpha, dropout, stabilized, train, lead, types, way, size, needs, how
):
    """Arguments of drive_layers' `one`.  All parts of dy B A have one sign in each column, so that
    the gradient of x tells what dropout left."""
    (n, k, kind), (of_x, of_w, out) = shape, types
    scale = alpha / (math.sqrt(r) if stabilized else r)
    sides, columns = (torch.randint(0, 2, (m,), generator=rng) * 2.0 - 1 for m in (n, k))
    a = (torch.rand(r, k, generator=rng) + 0.5) * columns
    b = (torch.rand(n, r, generator=rng) + 0.5) * sides[:, None] / scale
    dy = (torch.rand(*lead, n, generator=rng) + 0.5) * sides
    if not (train and dropout):
        a, b, dy = (t * (torch.randint(0, 2, t.shape, generator=rng) * 2 - 1) for t in (a, b, dy))
        b = b * 10.0 ** draw(rng, -7, 3)
    w = torch.eye(n) if kind == "same" else torch.randn(n, k, generator=rng) * (kind != "zeros")
    x = size * torch.randn(*lead, k, generator=rng)
    if len(lead) > 1:
        x[0] *= 1e-3  # rows of unlike sizes
    args, options = [r, alpha, dropout, stabilized], {}
    if how == "names":
        names = ("rank_stabilized", "dropout", "alpha", "r")
        args, options = [], dict(zip(names, args[::-1], strict=True))
    elif how == "defaults":
        args = args[:2]
        options = ({"dropout": dropout} if dropout else {}) | (
            {"rank_stabilized": True} if stabilized else {}
        )
    out = None if kind == "same" else out
    dy = dy.to(out or of_x)
    return w.to(of_w), a, b, x.to(of_x), dy, out, way, train, needs, args, options


def expect_started(start, r, k, what):
    a, b, other = start
    expect_tensor(a, f"a of {what}", torch.float32, (r, k))
    bound = (1 + 2 * FLOAT32) / math.sqrt(k)
    expect_at_most(a.abs(), bound, f"the size of a of {what}")
    # the mean of the squares of uniform numbers is bound^2 / 3, their deviation 0.3 bound^2
    off = abs(k * a.double().square().mean().item() - 1 / 3)
    expect_at_most(off, 8 * 0.3 / math.sqrt(r * k), f"the spread of a of {what}")
    if r * k > 4:
        assert not torch.equal(a, other), "two layers start alike"
    expect_same(b, torch.zeros_like(b), f"b of {what}")


def left_by_dropout(dx, flow, direct, dropout, what):
    """What x was multiplied with, from its gradient: 0 or 1 / (1 - dropout) for each number."""
    kept = (dx.double() - direct) / flow > 0.5 / (1 - dropout)
    pairs = kept[..., : kept.shape[-1] // 2 * 2].unflatten(-1, (-1, 2))
    rows = kept.reshape(-1, kept.shape[-1])
    rows = rows[: len(rows) // 2 * 2].unflatten(0, (-1, 2))
    if dropout == 0.5:  # 2^-40 at most
        for two, dim, name in ((pairs, -1, "in a row"), (rows, 1, "in a column")):
            alike = two.all(dim) == two.any(dim)
            assert alike.numel() < 40 or not alike.all(), f"{what}: {name} numbers go together"
    return kept.double() / (1 - dropout)


def expect_layer(case, result, what):
    w, a, b, x, dy, out, _, train, needs, args, options = case
    r, alpha, dropout, stabilized = (
        args[i] if i < len(args) else options.get(name, (None, None, 0.0, False)[i])
        for i, name in enumerate(("r", "alpha", "dropout", "rank_stabilized"))
    )
    start, first, made, found, last, kept, trains, reached, seen = result
    n, k = w.shape
    out, scale = out or x.dtype, alpha / (math.sqrt(r) if stabilized else r)
    expect_started(start, r, k, what)
    assert trains == reached == ["a", "b"], f"{what}: {trains} train, gradients reach {reached}"
    expect_close(seen, scale, what=f"scale of {what}", rtol=1e-6)
    expect_tensor(first, f"the first output of {what}", out, (*x.shape[:-1], n))
    expect_same(first, made, f"the first output of {what}")
    expect_same(kept[0], made, f"what the base of {what} puts out, after all")
    expect_same(kept[1], x, f"x of {what} after all")
    w, a, b, x, dy, unit = *(t.double() for t in (w, a, b, x, dy)), UNITS[out]
    direct, flow = dy @ w, scale * (dy @ b @ a)
    mask, known = torch.ones_like(x), True
    if train and dropout:
        known = needs
        mask = left_by_dropout(found[3], flow, direct, dropout, what) if needs else mask
    for y, left, sign in ((found[0], mask, 1), (last, torch.ones_like(x), -1)):
        expect_tensor(y, f"the output of {what}", out, (*x.shape[:-1], n))
        update, base = sign * scale * (x * left @ a.T @ b.T), x @ w.T
        parts = scale * ((x * left).abs() @ a.abs().T @ b.abs().T)
        # base, update and sum are rounded in the dtype of the output, the update's parts in float32
        bound = 2.1 * unit * (base.abs() + update.abs())
        bound = bound + (k + r + 12) * FLOAT32 * (base.abs() + parts)
        if known or sign < 0:
            expect_at_most((y.double() - base - update).abs(), bound, f"the error of {what}")
    rows, x, dy = math.prod(x.shape[:-1]), (x * mask).reshape(-1, k), dy.reshape(-1, n)

    def gradients(x, a, b, dy):
        return scale * ((dy @ b).T @ x), scale * (dy.T @ (x @ a.T))

    exact, sizes = gradients(x, a, b, dy), gradients(x.abs(), a.abs(), b.abs(), dy.abs())
    for grad, right, parts, name in zip(found[1:3], exact, sizes, ("a", "b"), strict=True):
        bound = (rows + n + k + r + 12) * FLOAT32 * parts
        if known:
            expect_at_most((grad.double() - right).abs(), bound, f"the gradient of {name}, {what}")
    if needs:
        unit, parts = UNITS[found[3].dtype], scale * (dy.abs() @ b.abs() @ a.abs())
        parts = parts.reshape(flow.shape) * mask
        # parts of the update may be added one by one to what comes through the base
        bound = (2.1 * unit + (n + r + 12) * FLOAT32) * (direct.abs() + parts)
        bound = bound + (n + 2) * FLOAT32 * (dy.abs() @ w.abs()).reshape(flow.shape)
        off = (found[3].double() - direct - flow * mask).abs()
        expect_at_most(off, bound, f"the gradient of x, {what}")


@exercise(
    "ex1",
    points=1,
    invariant="layers, anywhere in what the card admits: any sizes, ranks, factors and dropout, in "
    "either mode, x and the base each in a dtype of its own, views, with and without a gradient",
    cause="a corner where two others meet, such as dropout beside bfloat16, or a view beside one "
    "row; something kept from the first call",
)
def test_anywhere_in_a_layer(student, rng):
    shapes = ((1, 1, "zeros"), (1, 6, "any"), (5, 1, "any"), (4, 7, "zeros"), (6, 6, "same"))
    shapes += ((33, 70, "any"),)
    types = [(x, w, y) for x in TYPES for w in TYPES for y in TYPES]
    cases = [
        layer_case(rng, *case)
        for case in every_pair(
            rng,
            shapes,
            (1, 2, 7, 200),
            (1, 9, 0.5, 3e-3),
            (0.0, 0.5, 0.1, 0.9),
            (True, False),
            (True, False),
            LEADS,
            types,
            range(4),
            (1e-8, 1.0, 1e4),
            (True, False),
            ("places", "names", "defaults"),
        )
    ]
    for lead, dropout in [(n, d) for n in ((), (1,), (2, 3)) for d in (0.5, 0.9)]:  # many are left
        form = ((4, 70, "any"), 2, 1, dropout, False, True, lead, types[0], 0, 1.0, True, "places")
        cases.append(layer_case(rng, *form))
    large = ((307, 331, "any"), 7, 1, 0.0, False, True, (131,), types[0], 0, 1.0, True, "places")
    cases.append(layer_case(rng, *large))  # sides that no block size divides
    results = student.drive(drive_layers, cases, draw(rng, 0, 2**31))
    for case, result in zip(cases, results, strict=True):
        what = f"a layer {list(case[0].shape)}, r = {len(case[1])}, x {list(case[3].shape)}"
        expect_layer(case, result, f"{what} in {case[3].dtype}")


def drive_models(student, cases, seed):
    """Runs beside the student's code: models with updates, and the ones that were given."""
    from collections import OrderedDict

    import torch
    from torch import nn

    class Own(nn.Linear):
        pass

    def lay(weights, kind):
        layer = kind(weights.shape[1], weights.shape[0], bias=False)
        layer.weight.data = weights.clone()
        return layer

    def one(weights, names, r, alpha, train, dtype, frozen, a, b, x):
        parts = [lay(w, (nn.Linear, Own)[i % 2]) for i, w in enumerate(weights)]
        inner = nn.Sequential(OrderedDict([("1", parts[2]), ("a", parts[3])]))
        outer = [("1", parts[0]), ("11", parts[1]), ("base", inner), ("b", parts[4])]
        model = nn.Sequential(OrderedDict([*outer, ("norm", nn.LayerNorm(len(weights[4])))]))
        model = model.to(dtype).train(train).requires_grad_(not frozen)
        x = x.to(dtype)
        made = student.add_lora(model, names, r, alpha)
        other = student.add_lora(model, names, r, alpha)
        modes = [[m.training for m in each.modules()] for each in (made, model)]
        trains = [
            [n for n, p in each.named_parameters() if p.requires_grad] for each in (made, model)
        ]
        starts = [[m.get_submodule(n).a.detach().clone() for n in names] for m in (made, other)]
        scales = [float(made.get_submodule(n).scale) for n in names]
        kinds = [type(m).__name__ for m in model.modules()]
        outputs = [made(x).detach(), model(x).detach()]
        given = [p.detach().clone() for p in model.parameters()]
        for p in other.parameters():
            p.data.zero_()
        left = [p.detach().clone() for p in model.parameters()]
        for p in model.parameters():
            p.data.zero_()
        for name, one_a, one_b in zip(names, a, b, strict=True):
            made.get_submodule(name).a.data, made.get_submodule(name).b.data = one_a, one_b
        made.norm = nn.Identity()
        changed = made(x).detach()
        return modes, trains, starts, scales, kinds, outputs, given, left, changed

    torch.manual_seed(seed)
    return [one(*case) for case in cases]


@exercise(
    "ex1",
    points=1,
    invariant="models, anywhere in what the card admits: names that look alike, in any order, none "
    "to all, any rank and factor, either mode and dtype, a model that is frozen already",
    cause="names matched by a part, a mode or a dtype that one case has, weights shared with the "
    "model that was given, or equal starts",
)
def test_anywhere_in_a_model(student, rng):
    every, widths, cases = ["1", "11", "base.1", "base.a", "b"], (3, 4, 1, 6, 2, 5), []
    chosen = ([], ["1"], ["11", "1"], ["base.a"], ["b", "base.1"], every, every[::-1])
    ranks, factors = (1, 2, 40), (5, 0.75, 32.0)
    both = (True, False)
    for names, *rest in every_pair(rng, chosen, ranks, factors, both, TYPES, both):
        shapes = list(zip(widths[1:], widths, strict=False))
        weights = [torch.randn(*shape, generator=rng) for shape in shapes]
        own = [shapes[every.index(name)] for name in names]
        a = [torch.randn(rest[0], k, generator=rng) for _, k in own]
        b = [torch.randn(n, rest[0], generator=rng) for n, _ in own]
        cases.append((weights, names, *rest, a, b, torch.randn(2, 3, generator=rng)))
    results = student.drive(drive_models, cases, draw(rng, 0, 2**31))
    for case, result in zip(cases, results, strict=True):
        expect_model(every, case, result)


def expect_model(every, case, result):
    weights, names, r, alpha, train, dtype, frozen, a, b, x = case
    modes, trains, starts, scales, kinds, outputs, given, left, changed = result
    what = f"a model with updates of rank {r} beside {names} in {dtype}"
    assert {mode for each in modes for mode in each} == {train}, f"{what}: another mode"
    assert sorted(trains[0]) == sorted(f"{n}.{p}" for n in names for p in "ab"), f"{what} trains"
    assert len(trains[1]) == (0 if frozen else len(every) + 2), f"{what}: given, and frozen"
    assert "LoRALinear" not in kinds, f"{what}: the given one has updates"
    for scale in scales:
        expect_close(scale, alpha / r, what=f"scale of {what}", rtol=1e-6)
    for one, other, old in zip(*starts, a, strict=True):
        expect_tensor(one, f"a of {what}", torch.float32, tuple(old.shape))
        assert old.numel() < 5 or not torch.equal(one, other), f"{what}: equal starts"
    expect_tensor(outputs[0], f"the first output of {what}", dtype, (2, len(weights[-1])))
    expect_same(*outputs, f"the first output of {what}")
    for old, new in zip(given, left, strict=True):
        expect_same(new, old, f"the given model behind {what}")
    right, parts, unit = x.to(dtype).double(), x.abs().double(), UNITS[dtype]
    for name, w in zip(every, weights, strict=True):
        whole = w.to(dtype).double()
        size = whole.abs()
        if name in names:
            i = names.index(name)
            whole = whole + alpha / r * (b[i].double() @ a[i].double())
            size = size + alpha / r * (b[i].double().abs() @ a[i].double().abs())
        right, parts = right @ whole.T, parts @ size.T
    expect_tensor(changed, f"the output of {what}", dtype, tuple(right.shape))
    # five layers, each of which rounds inputs, two outputs and their sum, in float32 r + 6 terms
    bound = 5 * (4 * unit + (r + 8) * FLOAT32) * 1.1 * parts
    expect_at_most((changed.double() - right).abs(), bound, f"the error of {what}")


# ---- exercise 2 ------------------------------------------------------------------------------


def drive_views(student, w, a, b):
    """Runs beside the student's code: weights and factors that are not contiguous."""
    return student.merge(w.T, a.T, b.T, 1.0)


@exercise(
    "ex2",
    points=2,
    invariant="the merged weight is the sum in float32 or float64, rounded to the dtype of w last",
    cause="products or sums in bfloat16, a scale that is forgotten, squared, or in the dtype of w, "
    "a transpose that fits squares, or small updates left out",
)
def test_merged_weights(student, rng):
    for n, k, r in ((5, 7, 3), (1, 4, 1), (16, 2, 2), (4, 4, 2)):
        w = torch.randn(n, k, generator=rng)
        a, b = torch.randn(r, k, generator=rng), torch.randn(n, r, generator=rng)
        for size, scale in ((1.0, 0.5), (1e-3, -3.0), (1e-8, 1.25), (1e5, 0.0), (1e5, 2.0)):
            exact = w.double() + scale * (b.double() @ (size * a).double())
            new = student.merge(w, size * a, b, scale)
            expect_tensor(new, "merge", torch.float32, (n, k))
            parts = w.double().abs() + abs(scale) * (b.double().abs() @ (size * a).double().abs())
            off = (new.double() - exact).abs()
            expect_at_most(off, (r + 4) * FLOAT32 * parts, "the error of merge")
            exact = w.bfloat16().double() + scale * (b.double() @ (size * a).double())
            low = expect_tensor(
                student.merge(w.bfloat16(), size * a, b, scale), "merge", torch.bfloat16, (n, k)
            )
            # half a step of bfloat16, and what float32 sums may add to it
            bound = exact.abs() * BFLOAT16 * 1.01 + (r + 4) * FLOAT32 * parts
            expect_at_most((low.double() - exact).abs(), bound, "the error of merge in bfloat16")
    one, w = torch.ones(1, 1), torch.full((1, 1), -1 / 3).bfloat16()
    new = student.merge(w, one, one, 1 / 3)  # what bfloat16 leaves of 1/3
    expect_close(new, w.double() + 1 / 3, what="1/3 less 1/3 in bfloat16", rtol=2 * BFLOAT16)
    w = 1e-12 * torch.randn(6, 4, generator=rng)  # weights and updates that are small themselves
    a, b = torch.randn(3, 4, generator=rng), 1e-12 * torch.randn(6, 3, generator=rng)
    new = student.drive(drive_views, w.T, a.T, b.T)
    parts = w.double().abs() + b.double().abs() @ a.double().abs()
    error = (new.double() - w.double() - b.double() @ a.double()).abs()
    expect_at_most(error, 8 * FLOAT32 * parts, "the error of merge of small weights, transposed")
    low = student.drive(drive_views, w.bfloat16().T, a.T, b.T)
    expect_tensor(low, "merge of a view in bfloat16", torch.bfloat16, (6, 4))
    exact = w.bfloat16().double() + b.double() @ a.double()
    bound = exact.abs() * BFLOAT16 * 1.01 + 8 * FLOAT32 * parts
    expect_at_most((low.double() - exact).abs(), bound, "the error of merge of a bfloat16 view")
    expect_held(student, "merge", (w, a, b, 1.0), (-w, a, b, 2.0))


def drive_shared(student, a, b, scales):
    """Runs beside the student's code: each pair of an A and a B, so that updates share either, and
    parts of a pair."""
    pairs = [(one_a, one_b) for one_a in a for one_b in b] + [(a[0][:1], b[0][:, :1])]
    return student.stack([(*pair, scale) for pair, scale in zip(pairs, scales, strict=True)])


@exercise(
    "ex2",
    points=3,
    invariant="stacked updates have the effect of their sum, in either order, from one to twelve, "
    "also if some of them share an A or a B",
    cause="the first few only, B's on top of one another, a scale on both sides, or updates told "
    "apart by one of their parts",
)
def test_sums_of_updates(student, rng):
    n, k = 6, 8
    for ranks, size in (
        ((2,), 1.0),
        ((1, 4), 1e-8),
        ((3, 1, 2, 2), 1.0),
        ((1, 2, 1, 3, 2), 1e4),
        ((1,) * 12, 1.0),
    ):
        updates = [
            (torch.randn(r, k, generator=rng), size * torch.randn(n, r, generator=rng), scale)
            for r, scale in zip(ranks, (0.25, -3.0, 2.0, 1.0, 0.0, 1.5) * 2, strict=False)
        ]
        right = sum(s * (b.double() @ a.double()) for a, b, s in updates)
        parts = sum(abs(s) * (b.double().abs() @ a.double().abs()) for a, b, s in updates)
        for order in (updates, updates[::-1]):
            a, b = expect_tuple(student.stack(order), (torch.Tensor, torch.Tensor), "stack")
            expect_tensor(a, "a", torch.float32, (sum(ranks), k))
            expect_tensor(b, "b", torch.float32, (n, sum(ranks)))
            # a scale, or its root on both sides, is rounded in float32: four roundings
            error = (b.double() @ a.double() - right).abs()
            expect_at_most(error, 8 * FLOAT32 * parts, "the error of B A")
    other = [(-a, 2 * b, scale) for a, b, scale in updates]
    expect_held(student, "stack", (updates,), (other,))
    a, b = (torch.randn(2, *shape, generator=rng) for shape in ((3, k), (n, 3)))
    scales = [0.5, -3.0, 2.0, 0.25, -1.5]
    seen = student.drive(drive_shared, list(a), list(b), scales)
    pairs = [(one_a, one_b) for one_a in a for one_b in b] + [(a[0][:1], b[0][:, :1])]
    shared = [(*pair, scale) for pair, scale in zip(pairs, scales, strict=True)]
    expect_stacked(seen, shared, "updates that share an A or a B")


def drive_transposed(student, delta, r):
    """Runs beside the student's code: a change that is not contiguous."""
    return student.factor(delta.T, r)


@exercise(
    "ex2",
    points=3,
    invariant="no matrix of rank r is nearer than B A; one of rank r comes back itself",
    cause="V not transposed, values left out, tall matrices only, noise for a low rank, a sketch "
    "(torch.svd_lowrank) of a matrix whose singular values differ little, or eigenvectors of its "
    "square in float32",
)
def test_the_nearest_matrix(student, rng):
    for n, k, size in ((9, 4, 1.0), (4, 9, 1e4), (5, 5, 1e-8), (1, 6, 10.0 ** draw(rng, -3, 2))):
        delta = torch.randn(n, k, generator=rng) * size
        sizes = torch.linalg.svdvals(delta.double())
        for r in range(1, min(n, k) + 1):
            a, b = expect_tuple(student.factor(delta, r), (torch.Tensor, torch.Tensor), "factor")
            expect_tensor(a, "a", torch.float32, (r, k))
            expect_tensor(b, "b", torch.float32, (n, r))
            off = (delta.double() - b.double() @ a.double()).norm().item()
            least = sizes[r:].norm().item() + 1e-4 * sizes[0].item()
            expect_at_most(off, least, "the distance")
    delta = torch.randn(307, 331, generator=rng)  # its singular values differ little
    sizes = torch.linalg.svdvals(delta.double())
    for r in (1, 8):
        a, b = student.drive(drive_transposed, delta.T, r)
        off, least = (delta.double() - b.double() @ a.double()).norm(), sizes[r:].norm().item()
        expect_at_most(off.item(), least * (1 + 1e-5), "the distance to a large matrix")
    a, b = student.factor(torch.eye(5), 2)  # all singular values are equal: any two do
    off = (torch.eye(5).double() - b.double() @ a.double()).norm().item()
    expect_at_most(off, math.sqrt(3) * (1 + 1e-5), "the distance to the unit matrix")
    low = torch.randn(6, 1, generator=rng) @ torch.randn(1, 7, generator=rng)
    for r in (1, 3):
        a, b = student.factor(low, r)
        expect_tensor(a, f"a of rank {r} of a matrix of rank 1", torch.float32, (r, 7))
        expect_tensor(b, f"b of rank {r} of a matrix of rank 1", torch.float32, (6, r))
        expect_close(b.double() @ a.double(), low, what="a matrix of rank 1", atol=1e-4)
    u, v = (torch.linalg.qr(torch.randn(m, 2, generator=rng).double())[0] for m in (30, 20))
    low = (u * torch.tensor([1.0, 2e-4]).double() @ v.T).float()
    a, b = student.factor(low, 2)
    # squared in float32 the second size, 4e-8 of the first, is not told from rounding
    off = (low.double() - b.double() @ a.double()).norm().item()
    expect_at_most(off, 1e-5, "the distance to a matrix of sizes 1 and 2e-4")
    a, b = student.factor(torch.zeros(3, 4), 2)
    expect_close(b.double() @ a.double(), torch.zeros(3, 4), what="zeros", atol=1e-9)
    rows = torch.randn(2, 3, 4, generator=rng)
    results = held_results(student, "factor", [(delta, 3) for delta in rows])
    for (a, b), delta in zip(results, rows, strict=True):
        off = (delta.double() - b.double() @ a.double()).norm().item()
        expect_at_most(off, 1e-4, "the distance, held while factor was called again")
    for r in (0, -1, 4):
        refused(student, [("factor", rows[0], r)])


def expect_merged(result, w, a, b, scale, what):
    expect_tensor(result, what, w.dtype, tuple(w.shape))
    update = scale * (b.double() @ a.double())
    parts = w.double().abs() + abs(scale) * (b.double().abs() @ a.double().abs())
    exact, slack = w.double() + update, (len(a) + 4) * FLOAT32 * parts
    # a sum in float32 is off by `slack`, and then rounded: rounding keeps the order
    low, high = (exact - slack).to(w.dtype), (exact + slack).to(w.dtype)
    off = torch.maximum(low.double() - result.double(), result.double() - high.double())
    expect_at_most(off, 0.0, f"beyond what one rounding of the sum gives: {what}")


def expect_stacked(result, updates, what):
    (n, k), rank = (len(updates[0][1]), updates[0][0].shape[1]), sum(len(u[0]) for u in updates)
    a, b = expect_tuple(result, (torch.Tensor, torch.Tensor), what)
    expect_tensor(a, f"a, {what}", torch.float32, (rank, k))
    expect_tensor(b, f"b, {what}", torch.float32, (n, rank))
    right = sum(s * (b.double() @ a.double()) for a, b, s in updates)
    parts = sum(abs(s) * (b.double().abs() @ a.double().abs()) for a, b, s in updates)
    error = (b.double() @ a.double() - right).abs()
    expect_at_most(error, 8 * FLOAT32 * parts, f"the error of B A, {what}")


def expect_nearest(result, delta, r, what):
    n, k = delta.shape
    a, b = expect_tuple(result, (torch.Tensor, torch.Tensor), what)
    expect_tensor(a, f"a, {what}", torch.float32, (r, k))
    expect_tensor(b, f"b, {what}", torch.float32, (n, r))
    sizes = torch.linalg.svdvals(delta.double())
    off = (delta.double() - b.double() @ a.double()).norm().item()
    # float32: each of n + k reflections rounds every number a few times
    least = sizes[r:].norm().item() + 8 * (n + k) * FLOAT32 * delta.double().norm().item()
    expect_at_most(off, least, f"the distance, {what}")


def any_delta(rng, n, k, kind):
    """[n, k] of one of many kinds, of numbers near 1."""
    delta = torch.randn(n, k, generator=rng)
    if kind == "one column":
        return delta[:, :1].expand(n, k).clone()
    if kind == "steep":  # squared in float32 the third size is not told from rounding
        return delta * 0.02 ** torch.arange(k).clamp(max=4)
    if kind == "one large":
        delta[draw(rng, 0, n - 1), draw(rng, 0, k - 1)] = 1e3
    if kind == "equal sizes":
        return torch.eye(n, k)[torch.randperm(n, generator=rng)]
    return torch.zeros(n, k) if kind == "zeros" else delta


@exercise(
    "ex2",
    points=1,
    invariant="all three functions, anywhere in what the card admits: any sizes, ranks, factors "
    "and numbers of updates, each in a view, and results stay when others are asked for",
    cause="a corner where two others meet, such as a factor of 0 beside bfloat16, a rank above "
    "both sizes, or a wide matrix of low rank; memory that is used again",
)
def test_anywhere_in_updates(student, rng):
    calls, checks = [], []
    shapes = ((1, 1), (1, 9), (7, 1), (5, 5), (6, 80))
    scales = (0.0, 1, -3.5, 7e-9, 2e4)
    sizes = (1e-8, 1.0, 1e4)
    cases = every_pair(rng, shapes, (1, 2, 7, 100), scales, TYPES, (0.0, *sizes), sizes, sizes)
    for n, k, r in ((307, 331, 3), (9, 11, 131)):  # beyond what pieces of 128 hold
        cases += [[(n, k), r, -3.5, dtype, 1.0, 1.0, 1.0] for dtype in TYPES]
    for (n, k), r, scale, dtype, *powers in cases:
        w, a, b = (torch.randn(*s, generator=rng) for s in ((n, k), (r, k), (n, r)))
        w, a, b = (t * power for t, power in zip((w, a, b), powers, strict=True))
        call = (w.to(dtype), a, b, scale)
        calls.append(("merge", *call))
        checks.append((expect_merged, *call, f"merge of [{n}, {k}] in {dtype}, r = {r}"))
    for (n, k), count, largest, scale, *powers in every_pair(
        rng, shapes, (1, 2, 13, 40), (1, 3, 20), scales, sizes, sizes
    ):
        updates = []
        for i in range(count):
            r = draw(rng, 1, largest)
            own = scale if i == count // 2 else scales[draw(rng, 0, len(scales) - 1)]
            a, b = torch.randn(r, k, generator=rng), torch.randn(n, r, generator=rng)
            updates.append((powers[0] * a, powers[1] * b, own))
        calls.append(("stack", updates))
        checks.append((expect_stacked, updates, f"{count} updates of [{n}, {k}]"))
    kinds = ("any", "one column", "steep", "one large", "equal sizes", "zeros")
    shapes = ((1, 1), (1, 9), (7, 1), (5, 8), (8, 5), (66, 65))
    cases = every_pair(rng, shapes, kinds, (0.0, 0.5, 1.0), sizes)
    cases += [(shape, "steep", 0.5, 1.0) for shape in ((5, 8), (8, 5)) for _ in range(3)]
    for (n, k), kind, rank, size in cases:
        r = max(1, round(rank * min(n, k))) if kind != "steep" else min(n, k, 3)
        delta = size * any_delta(rng, n, k, kind)
        calls.append(("factor", delta, r))
        checks.append((expect_nearest, delta, r, f"[{n}, {k}], {kind}, r = {r}"))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    calls = []
    for n, k in (*shapes, *shapes, (0, 4)):
        delta = any_delta(rng, n, k, kinds[draw(rng, 0, 5)] if n else "any")
        delta = delta * sizes[draw(rng, 0, 2)]
        others = {0, -1, min(n, k) + 1, max(n, k) + 1, -min(n, k)}
        calls += [("factor", delta, r) for r in sorted(others)]
    refused(student, calls)


# ---- exercise 3 ------------------------------------------------------------------------------


def number(value, right, what):
    expect_close(float(expect_number(value, what)), float(right), what=what, rtol=1e-9)


@exercise(
    "ex3",
    points=3,
    invariant="numbers and bytes of whole models: r (N + K) each, 12 or 16 bytes a trained number",
    cause="bits rounded to whole bytes, a copy that counts elsewhere, or 32 bits for large numbers",
)
def test_whole_models(student, rng):
    for d, f, layers in ((4096, 11008, 32), (8192, 22016, 80)):
        shapes = [(d, d)] * 4 + [(f, d)] * 2 + [(d, f)]
        for r in (1 + 2 * draw(rng, 0, 31), 257):  # of 65B more than 2^31, and no float32
            seen = student.trained_numbers([*shapes * layers, (1, 1)], r)
            number(seen, layers * r * (8 * d + 3 * (d + f)) + 2 * r, "trained_numbers")
        total = layers * (4 * d * d + 3 * d * f)
        for bits in (16, 8, 4.5, 4.127, 12, 8.25):
            trained = draw(rng, 1, 10**9)
            for copy in (False, True):
                value = student.bytes_held(total, trained, bits, copy)
                assert isinstance(value, tuple) and len(value) == 3, "no tuple of three"
                number(value[0], total * bits / 8 + 2 * trained, "weights")
                number(value[1], 2 * trained, "gradients")
                number(value[2], (12 if copy else 8) * trained, "optimizer")


def walked(layers, boundary, block, every):
    """The peak of a walk through both passes: inputs of groups, and one group at a time."""
    inputs = sum(boundary for i in range(layers) if i % every == 0)
    groups = [list(range(i, min(i + every, layers))) for i in range(0, layers, every)]
    return max(inputs + sum(block for _ in group) for group in reversed(groups))


@exercise(
    "ex3",
    points=2,
    invariant="the bytes of checkpoints are those of a walk through both passes",
    cause="rounding the number of groups down, the size of the largest group up, fractions cut, or "
    "a sum in float32",
)
def test_a_walk_through_the_passes(student, rng):
    for _ in range(8):
        layers = draw(rng, 1, 40)
        boundary, block = draw(rng, 1, 50), draw(rng, 1, 999)
        for every in sorted({1, layers, draw(rng, 1, layers), draw(rng, 1, layers)}):
            for b, c in ((boundary, block), (boundary / 4, block / 8), (0.0, block + 0.5)):
                seen = student.checkpointed(layers, b, c, every)
                number(seen, walked(layers, b, c, every), "checkpointed")
    # 80 * (10^11 + 1) + 10^11 + 3 is no float32
    number(student.checkpointed(80, 10**11 + 1, 10**11 + 3, 1), 81 * 10**11 + 83, "large ones")
    number(student.checkpointed(80, 1, 10**11 + 3, 80), 80 * 10**11 + 241, "large blocks")


@exercise(
    "ex3",
    points=3,
    invariant="no distance of checkpoints takes fewer bytes than the best one",
    cause="a rounded root or what lies about it, a search that ends too early, the wrong one of "
    "two equal ones, or bytes compared in float32",
)
def test_no_better_distance(student, rng):
    for _ in range(10):
        layers = draw(rng, 1, 60)
        boundary, block = draw(rng, 1, 20), draw(rng, 1, 20)
        sums = [walked(layers, boundary, block, n) for n in range(1, layers + 1)]
        seen = student.best_every(layers, boundary, block)
        assert type(seen) is int and seen == sums.index(min(sums)) + 1, "not the best distance"
    # 5e10 + 2 bytes against 5e10 + 3: the same number in float32
    assert student.best_every(6, 10**10 + 1, 10**10) == 3, "large bytes are rounded"
    # 2 * 1.9 + 4 = 7.8 is least, with 1 in place of 1.9 it were every 2nd
    assert student.best_every(7, 1.9, 1.0) == 4, "fractions are cut off"
    assert student.best_every(9, 1e-8, 0.9e-8) == 3, "small bytes are rounded"
    assert student.best_every(9, 0, 5) == 1 and student.best_every(9, 5, 0) == 9, "nothing"
    # the root of layers * boundary / block is 57
    assert student.best_every(80, 41, 1) == 80, "far from the root"
    assert student.best_every(80, 1000, 1) == 80, "one group of many blocks"
    assert student.best_every(6, 6, 1) == 6 and student.best_every(5, 1, 1) in (2,), "ends"


def true_bytes(layers, boundary, block, every):
    """Exact, from the list of groups."""
    groups = [min(every, layers - i) for i in range(0, layers, every)]
    return len(groups) * Fraction(boundary) + max(groups) * Fraction(block)


def expect_exactly(value, right, what, terms=8):
    """What float64 holds exactly is right to the last bit, all else within `terms` roundings."""
    off = abs(Fraction(expect_number(value, what)) - right)
    whole = (8 * right).denominator == 1 and 8 * right < 2**53
    slack = 0 if whole else right * Fraction(terms, 2**53)
    assert off <= slack, f"{what} is {value}, expected {float(right)}"


def two_best(rng, layers):
    """(every, later one) such that no other takes fewer bytes where these two take as many."""
    n, edges = 1, []
    while n < layers:
        groups = -(-layers // n)
        gains = {m: Fraction(groups + layers // -m, m - n) for m in range(n + 1, layers + 1)}
        best = max(gains.values())
        later = max(m for m, gain in gains.items() if gain == best)
        edges.append((n, later))
        n = later
    return edges[draw(rng, 0, len(edges) - 1)]


def even_cases(rng):
    """(layers, boundary, block): two distances that take as many bytes, and almost as many."""
    cases = []
    for _ in range(8):
        layers = draw(rng, 2, 130)
        n, m = two_best(rng, layers)
        size = (1, 0.125, 2**34, 2.0**-30)[draw(rng, 0, 3)]
        boundary, block = (m - n) * size, (layers // -m - layers // -n) * size
        little = min(size, 0.125)
        cases += [(layers, boundary + d, block) for d in (0, little, -little)]
    layers = draw(rng, 201, 400)  # one group or two
    cases += [(layers, layers // 2 + d, 1) for d in (0, 0.125, -0.125)]
    return cases + [(2, 2.0**40 + d, 2.0**40) for d in (0, 0.5, -0.5)]  # of 3e12, and exact


@exercise(
    "ex3",
    points=1,
    invariant="all four functions, anywhere in what the card admits: none to thousands of layers, "
    "bytes of 0, fractions and hundreds of billions beside one another; two distances that take as "
    "many bytes, and a little more or less",
    cause="a corner where two others meet, such as fractions beside large numbers, or one block; a "
    "default; float32; rounding before the comparison",
)
def test_anywhere_in_bytes(student, rng):
    bytes_of = (0, 0.0, 1, 0.125, 2.625, 3 * 2.0**-30, 10**11 + 1, 2.0**36 + 0.5, 0.3)
    shares = (0.0, 0.3, 0.49, 0.51, 0.9, 1.0)
    calls = []
    for n, share, *two in every_pair(rng, (1, 2, 7, 36, 80, 126, 999), shares, bytes_of, bytes_of):
        calls.append((n, *two, max(1, min(n, round(share * n) + draw(rng, 0, 1)))))
    for every in (2, draw(rng, 3, 99), draw(rng, 1001, 9999), 10**6):
        layers = every * draw(rng, 1, 5)
        calls += [(layers + d, 3, 0.5, every) for d in (0, 1, -1) if layers + d >= every]
    values = student.many("checkpointed", [(call, {}) for call in calls])
    for call, value in zip(calls, values, strict=True):
        terms = -(-call[0] // call[3]) + 8  # inputs may be added one by one
        expect_exactly(value, true_bytes(*call), f"checkpointed{call}", terms)
    some = bytes_of[:-1]  # in sums of these no rounding decides
    calls = every_pair(rng, (1, 2, 3, 12, 36, 80, 126), some, some) + even_cases(rng)
    values = student.many("best_every", [(tuple(call), {}) for call in calls])
    for call, value in zip(calls, values, strict=True):
        sums = [true_bytes(*call, n) for n in range(1, call[0] + 1)]
        what = f"best_every{tuple(call)}"
        right = sums.index(min(sums)) + 1
        assert type(value) is int and value == right, f"{what} is {value}, expected {right}"
    check_numbers(student, rng)


DEFAULTS = {"bits": 16, "copy": False}
BITS = (16, 8, 4, 1, 2, 32, 4.5, 0.5, 4.127, 3.0, 12, 8.25, 17)


def check_numbers(student, rng):
    ways = ("places", "names", "defaults", "defaults")
    calls, cases, numbers = [], [], (0, 1, 63, 10**6 + 1, 65 * 10**9 + 1, 2**40 + 3)
    for frozen, trained, bits, copy, how in every_pair(
        rng, numbers, numbers, BITS, (False, True), ways
    ):
        options = {"bits": bits, "copy": copy}
        if how == "defaults":
            options = {k: v for k, v in options.items() if v != DEFAULTS[k]}
        args = (frozen, trained, bits, copy) if how == "places" else (frozen, trained)
        calls.append((args, {} if how == "places" else options))
        cases.append((frozen, trained, bits, copy))
    values = student.many("bytes_held", calls)
    for (frozen, trained, bits, copy), value in zip(cases, values, strict=True):
        what = f"bytes_held({frozen}, {trained}, {bits}, {copy})"
        assert isinstance(value, tuple) and len(value) == 3, f"{what}: no tuple of three"
        right = (
            Fraction(bits) * frozen / 8 + 2 * trained,
            2 * trained,
            (12 if copy else 8) * trained,
        )
        for seen, exact in zip(value, right, strict=True):
            expect_exactly(seen, Fraction(exact), what)
    calls = []
    for count, largest, r in every_pair(rng, (0, 1, 2, 65, 600), (1, 100, 10**6), (1, 2, 64, 4097)):
        shapes = [(draw(rng, 1, largest), draw(rng, 1, largest)) for _ in range(count)]
        shapes[1:2] = shapes[:1] if count > 1 else []  # equal ones
        calls.append((shapes, r))
    values = student.many("trained_numbers", [(call, {}) for call in calls])
    for (shapes, r), value in zip(calls, values, strict=True):
        right = Fraction(sum(r * (n + k) for n, k in shapes))
        expect_exactly(value, right, f"trained_numbers of {len(shapes)} layers, r = {r}")


# ---- exercise 4 ------------------------------------------------------------------------------


def true_levels():
    """From another implementation of the quantile function, in float64."""
    q, p = NormalDist().inv_cdf, 0.9677083
    above = [q(p + (0.5 - p) * i / 8) for i in range(8)]
    below = [-q(p + (0.5 - p) * i / 7) for i in range(7)]
    return torch.tensor(sorted([*below, 0.0, *above]), dtype=torch.float64) / q(p)


def coded(student, w):
    value = expect_tuple(student.quantize_nf4(w), (torch.Tensor, torch.Tensor), "quantize_nf4")
    codes = expect_tensor(value[0], "codes", torch.uint8, (w.numel(),))
    return codes, expect_tensor(value[1], "absmax", torch.float32, (-(-w.numel() // 64),))


@exercise(
    "ex4",
    points=1,
    invariant="the levels are those quantiles, from -1 to 1, twice the same",
    cause="probabilities from another end, one of the ends counted, or a table that is changed",
)
def test_the_levels_again(student, rng):
    for _ in range(2):
        levels = expect_tensor(student.nf4_levels(), "nf4_levels()", torch.float32, (16,))
        expect_close(levels, true_levels(), what="the levels", atol=2e-6)
        expect_close(levels[torch.tensor([0, 15])], torch.tensor([-1.0, 1.0]), what="the ends")


@exercise(
    "ex4",
    points=2,
    invariant="each code is that of the nearest level, for blocks of any size and sign",
    cause="one absmax for all, a sign lost, or levels compared with the weight itself",
)
def test_nearest_in_float64(student, rng):
    for shape in ((5, 128), (64,), (3, 7, 11), (1, 1)):
        w = torch.randn(shape, generator=rng) * 10.0 ** draw(rng, -4, 3)
        if draw(rng, 0, 1):
            w = w.abs() * (1 - 2 * draw(rng, 0, 1))  # one sign only
        codes, absmax = coded(student, w)
        flat = w.flatten().double()
        blocks = [part.abs().max().item() for part in flat.split(64)]
        expect_close(absmax, torch.tensor(blocks).float(), what="absmax")
        of_block = torch.tensor(blocks, dtype=torch.float64)[torch.arange(len(flat)) // 64]
        distances = ((flat / of_block)[:, None] - true_levels()).abs()
        seen = distances.gather(1, codes.long()[:, None])[:, 0]
        expect_at_most(seen, distances.amin(1) + 1e-5, "the distance to the level that was taken")


def beside_middles(size):
    """Weights of a block, 1e-5 of `size` beside the middles of two levels, and their codes."""
    levels = true_levels()
    middles = (levels[1:] + levels[:-1]) / 2
    w = torch.cat([middles - 1e-5, middles + 1e-5, torch.ones(1, dtype=torch.float64)])
    return (w * size).float(), [*range(15), *range(1, 16), 15]


@exercise(
    "ex4",
    points=1,
    invariant="beside the middle of two levels the nearer is taken, in blocks of 1e-30 as of 1e30",
    cause="an epsilon or a floor under absmax, a sum of squares that becomes infinite, "
    "quotients in less than float32, or middles of other levels",
)
def test_beside_the_middles(student, rng):
    for size in (1.0, 1e-5, 1e-6, 1e-7, 1e-8, 1e-15, 1e-30, 1e4, 1e15, 1e30):
        w, right = beside_middles(size)
        codes, absmax = coded(student, w)
        expect_same(absmax, w[-1:], "absmax")
        # levels are known to 2e-6, a quotient to 2^-24
        assert codes.tolist() == right, f"codes of a block of size {size:g} are not the nearest"
        back = student.dequantize_nf4(codes, absmax, (31,))
        parts = true_levels()[codes.long()] * absmax.double()
        expect_close(back, parts, what="what comes back", atol=3e-6 * size)
    mixed = torch.cat([F.pad(beside_middles(size)[0], (0, 33)) for size in (1e-8, 1e4, 1.0)])
    codes, _ = coded(student, mixed)
    for part in codes.split(64):
        assert part[:31].tolist() == right, "codes of a small block beside a large one"


def drive_view(student, w):
    """Runs beside the student's code: a weight that is not contiguous."""
    return student.quantize_nf4(w.T)


@exercise(
    "ex4",
    points=2,
    invariant="bfloat16 weights and views are coded as the same numbers in float32",
    cause="products in bfloat16, levels in the dtype of w, or view on a transposed weight",
)
def test_bfloat16_and_views(student, rng):
    # of 5000 weights about 20 change their code if the quotient is rounded to bfloat16
    w = torch.randn(50, 100, generator=rng).bfloat16()
    right = coded(student, w.float())
    for seen, expected, what in zip(coded(student, w), right, ("codes", "absmax"), strict=True):
        expect_same(seen, expected, f"{what} of a bfloat16 weight")
    value = expect_tuple(student.drive(drive_view, w), (torch.Tensor,) * 2, "quantize_nf4")
    right = coded(student, w.T.float().contiguous())
    for seen, expected, what in zip(value, right, ("codes", "absmax"), strict=True):
        expect_same(seen, expected, f"{what} of a transposed weight")


@exercise(
    "ex4",
    points=2,
    invariant="weights come back within half a gap of their block, zeros and the largest exactly; "
    "what is empty, or not finite somewhere, is a ValueError",
    cause="the absmax of another block, a wrong level, a block of zeros that becomes NaN, or a "
    "check of the sum, of the first numbers, or of the rows in place of all numbers",
)
def test_there_and_back(student, rng):
    gap = true_levels().diff().max().item()
    for shape in ((6, 50), (1, 3), (2, 64), (1,), (2, 1, 3, 70)):
        w = torch.randn(shape, generator=rng)
        codes, absmax = coded(student, w)
        back = student.dequantize_nf4(codes, absmax, shape)
        expect_tensor(back, "dequantize_nf4", torch.float32, shape)
        of_block = absmax.double()[torch.arange(w.numel()) // 64].reshape(shape)
        expect_at_most((back - w).abs().double(), (gap / 2 + 1e-6) * of_block, "the error")
        largest = w.abs() == of_block.float()
        expect_close(back[largest], w[largest], what="the largest of each block", rtol=1e-6)
    w = torch.zeros(3, 70)
    codes, absmax = coded(student, w)
    expect_same(absmax, torch.zeros(4), "absmax of nothing but zeros")
    expect_same(student.dequantize_nf4(codes, absmax, (3, 70)), w, "nothing but zeros")
    w = torch.zeros(130)
    w[129] = 2.5
    codes, absmax = coded(student, w)
    expect_same(student.dequantize_nf4(codes, absmax, (130,)), w, "zeros and 2.5")
    w = torch.full((2, 70), 3e38)  # their sum is infinite, they are not
    codes, absmax = coded(student, w)
    expect_same(student.dequantize_nf4(codes, absmax, (2, 70)), w, "140 weights of 3e38")
    w = torch.randn(130, generator=rng)
    codes, absmax = coded(student, w)
    expect_held(student, "nf4_levels", (), ())
    levels = expect_tensor(student.nf4_levels(), "nf4_levels()", torch.float32, (16,))
    expect_close(levels, true_levels(), what="the levels", atol=2e-6)
    expect_held(student, "quantize_nf4", (w,), (2 * w.flip(0),))
    expect_held(
        student, "dequantize_nf4", (codes, absmax, (130,)), (codes.flip(0), 2 * absmax, (130,))
    )
    expect_same(student.nf4_levels(), levels, "the levels behind other calls")
    for bad in (math.nan, math.inf, -math.inf):
        for dtype in (torch.float32, torch.bfloat16):
            w = torch.ones(130, dtype=dtype)
            w[draw(rng, 64, 129)] = bad
            refused(student, [("quantize_nf4", w)])
    expect_error(ValueError, lambda: student.quantize_nf4(torch.ones(3, 0)), "three empty rows")


@functools.cache
def beside_in_bfloat16():
    """For some largest numbers from 1 to 2 others numbers of bfloat16, itself the first, whose
    quotients have another nearest level once they are rounded to bfloat16."""
    levels, found = true_levels(), []
    middles = (levels[1:] + levels[:-1]) / 2
    for m in torch.arange(128, 256).double() / 128:
        w = (middles[:, None] * m * (1 + torch.tensor([-(2.0**-8), 0, 2.0**-8]))).flatten()
        w = w.bfloat16().double()
        near, rounded = (torch.bucketize(q, middles) for q in (w / m, (w / m).bfloat16().double()))
        found.append(torch.cat([m[None], w[near != rounded]]))
    return [numbers for numbers in found if len(numbers) > 5]


def any_block(rng, kind, levels):
    """64 weights of a kind, of which the largest is near 1."""
    x = torch.randn(64, generator=rng, dtype=torch.float64)
    x = x / x.abs().max()
    if kind == "one sign":
        return x.abs() * (2 * draw(rng, 0, 1) - 1)
    if kind == "levels":  # both ends among them
        x = levels[torch.randint(0, 16, (64,), generator=rng)]
        x[draw(rng, 0, 31)], x[draw(rng, 32, 63)] = 1.0, -1.0
    if kind == "beside middles":
        beside, sides = (levels[1:] + levels[:-1]) / 2, torch.tensor([-1e-5, 1e-5]).double()
        beside = (beside[:, None] + sides).flatten()
        places = torch.randperm(64, generator=rng)
        x[places[:30]], x[places[30]] = beside, float(2 * draw(rng, 0, 1) - 1)
    if kind == "bfloat16":
        some = beside_in_bfloat16()
        x = F.pad(some[draw(rng, 0, len(some) - 1)], (0, 64))[:64]
    if kind == "one":
        x = torch.zeros(64).double()
        x[draw(rng, 0, 63)] = -1.0
    if kind == "equal":
        x = torch.full((64,), 2.0 * draw(rng, 0, 1) - 1).double()
    return 0 * x if kind == "zeros" else x


def any_weights(rng, shape, dtype, kinds, sizes):
    """Blocks of every kind and size, those that are given first and last of all."""
    n, levels = math.prod(shape), true_levels()
    count = -(-n // 64)
    blocks = [any_block(rng, kinds[0], levels), any_block(rng, kinds[1], levels)]
    blocks = [t * s for t, s in zip(blocks, sizes, strict=True)]
    if count > 2:
        more = torch.randn(count - 2, 64, generator=rng).double()
        powers = 10.0 ** torch.randint(-8, 5, (count - 2, 1), generator=rng)
        blocks[1:1] = list(more * powers)
    return torch.cat(blocks)[:n].reshape(shape).to(dtype)


def expect_coded(result, w, what):
    codes, absmax = expect_tuple(result, (torch.Tensor,) * 2, what)
    n = w.numel()
    expect_tensor(codes, f"codes, {what}", torch.uint8, (n,))
    expect_tensor(absmax, f"absmax, {what}", torch.float32, (-(-n // 64),))
    blocks = F.pad(w.double().flatten(), (0, -n % 64)).reshape(-1, 64)
    right = blocks.abs().amax(1)
    expect_same(absmax, right.float(), f"absmax, {what}")
    expect_at_most(codes, 15, f"codes, {what}")
    x = (blocks / torch.where(right > 0, right, 1.0)[:, None]).flatten()[:n]
    levels = true_levels()
    nearest = torch.bucketize(x, (levels[1:] + levels[:-1]) / 2)
    seen, least = ((x - levels[c]).abs() for c in (codes.long(), nearest))
    # levels are known to 2e-6, a quotient to 2^-24
    expect_at_most(seen - least, 5e-6, f"a nearer level was left out, {what}")
    assert (codes[x == 0] == 7).all(), f"zeros have other codes than that of 0, {what}"


def expect_decoded(result, codes, absmax, shape, what):
    expect_tensor(result, what, torch.float32, shape)
    of_block = absmax.double()[torch.arange(len(codes)) // 64]
    right = true_levels()[codes.long()] * of_block
    off = (result.double().flatten() - right).abs()
    expect_at_most(off, 3e-6 * right.abs(), f"the error of {what}")


@exercise(
    "ex4",
    points=1,
    invariant="both functions, anywhere in what the card admits: 1 to some 70,000 weights, "
    "of any number of dimensions, in both dtypes, blocks of every kind and size beside one "
    "another, views; one NaN or infinity anywhere is refused, and results stay",
    cause="a corner where two others meet, such as a short block beside bfloat16, or a large one "
    "beside a small one; one number for all blocks; memory that is used again",
)
def test_anywhere_in_blocks(student, rng):
    shapes = [
        (1,),
        (64,),
        (65,),
        (1, 1, 1, 1),
        (3, 49),
        (64, 3),
        (1, 5, 79),
        (2, 1, 3, 11),
    ]
    shapes += [(draw(rng, 4, 60), draw(rng, 4, 60))]
    kinds = ("any", "one sign", "levels", "beside middles", "bfloat16", "one", "equal", "zeros")
    sizes, calls, checks = (2.0**-100, 2.0**-28, 1.0, 2.0**14, 2.0**100), [], []
    kinds = [(kinds[i], kinds[j]) for i, j in enumerate(torch.randperm(8, generator=rng))]
    for shape, dtype, kind, *two in every_pair(rng, shapes, TYPES, kinds, sizes, sizes):
        if dtype is torch.bfloat16 and draw(rng, 0, 1):
            kind = (kind[0], "bfloat16")
        w = any_weights(rng, shape, dtype, kind, two)
        calls.append(("quantize_nf4", w))
        checks.append((expect_coded, w, f"{list(shape)} in {dtype}"))
        n = w.numel()
        codes = torch.randint(0, 16, (n,), generator=rng).to(torch.uint8)
        absmax = 10.0 ** torch.randint(-8, 5, (-(-n // 64),), generator=rng)
        absmax[0], absmax[-1] = two[0], two[1] * (kind[1] != "zeros")
        calls.append(("dequantize_nf4", codes, absmax, shape))
        checks.append((expect_decoded, codes, absmax, shape, f"what comes back of {list(shape)}"))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    n = 64 * draw(rng, 1025, 1100) + draw(rng, 1, 63)
    w = any_weights(rng, (n,), TYPES[draw(rng, 0, 1)], ("any", "levels"), (1.0, 1e-8))
    codes, absmax = student.quantize_nf4(w)
    expect_coded((codes, absmax), w, f"{n} weights")
    expect_decoded(student.dequantize_nf4(codes, absmax, (n,)), codes, absmax, (n,), f"{n} weights")
    calls, bad = [], (math.nan, math.inf, -math.inf)
    for shape, dtype, value, place in every_pair(rng, shapes, TYPES, bad, (0.0, 0.5, 1.0)):
        w = 1e30 * torch.randn(shape, generator=rng).to(dtype)
        w.view(-1)[round(place * (w.numel() - 1))] = value
        calls.append(("quantize_nf4", w))
    for dtype, value in every_pair(rng, TYPES, bad):
        w = torch.ones(65, 3, dtype=dtype)
        w[draw(rng, 0, 64), draw(rng, 0, 2)] = value
        expect_error(ValueError, lambda w=w: student.drive(drive_view, w), f"a view with {value}")
    empty = [torch.zeros(s, dtype=d) for s in ((0,), (0, 64), (2, 0, 3)) for d in TYPES]
    refused(student, [*calls, *(("quantize_nf4", w) for w in empty)])


# ---- exercise 5 ------------------------------------------------------------------------------


def scaled(student, absmax, levels):
    value = student.quantize_scales(absmax, levels)
    codes, second, mean = expect_tuple(value, (torch.Tensor,) * 3, "quantize_scales")
    expect_tensor(codes, "codes", torch.uint8, tuple(absmax.shape))
    expect_tensor(second, "second", torch.float32, (-(-len(absmax) // 256),))
    return codes, second, expect_tensor(mean, "mean", torch.float32, ())


def drive_strided(student, absmax, levels):
    """Runs beside the student's code: columns of a matrix, which are not contiguous."""
    return student.quantize_scales(absmax[:, 0], levels[:, 0])


@exercise(
    "ex5",
    points=2,
    invariant="codes name the levels nearest to (absmax - mean) / second, whatever the levels are",
    cause="levels taken for evenly spaced or symmetric, or a mean of each block",
)
def test_codes_in_float64(student, rng):
    for n in (256, 1, 257, 900):
        levels = torch.rand(256, generator=rng).sort().values * 2 - 1
        absmax = torch.rand(n, generator=rng) * 10.0 ** draw(rng, -2, 2) + 0.01
        codes, second, mean = scaled(student, absmax, levels)
        if n > 1:
            columns = [torch.stack([t, t], 1) for t in (absmax, levels)]
            seen = student.drive(drive_strided, *columns)
            expect_same(seen[0], codes, "codes of absmax and levels that are views")
        exact = absmax.double().mean()
        expect_close(mean, exact, what="the mean", rtol=1e-5)
        left = (absmax.double() - exact).split(256)
        right = torch.stack([part.abs().max() for part in left])
        expect_close(second, right, what="second", rtol=1e-4, atol=1e-5 * exact.item())
        if n == 1:
            continue  # nothing is left of one scale
        of_block = right[torch.arange(n) // 256].clamp(min=1e-30)
        x = torch.cat(left) / of_block
        distances = (x[:, None] - levels.double()).abs()
        seen = distances.gather(1, codes.long()[:, None])[:, 0]
        # the mean is known to 1e-5 of itself, and is divided by second
        slack = 4e-5 * exact / of_block + 1e-5
        expect_at_most(seen, distances.amin(1) + slack, "the distance to the level that was taken")


def levels_beside(x, apart):
    """256 rising levels; the middle of two of them lies `apart` below each of the x's."""
    pairs = [(v - apart - 0.01, v - apart + 0.01) for v in x]
    rest = torch.linspace(-1.2, -1.1, 256 - 2 * len(x)).tolist()
    return torch.tensor(sorted([*rest, *(v for two in pairs for v in two)]))


@exercise(
    "ex5",
    points=1,
    invariant="the nearest level is taken for scales of 1e-27 as for those of 1e27, among levels "
    "of 1e-25 as of -1e22",
    cause="an epsilon or a floor under second, a mean that is rounded, or squares of distances, "
    "which become infinite or 0",
)
def test_scales_of_all_sizes(student, rng):
    # whole numbers times a power of 2: mean 6, -5, -3, 1 and 7 are left, all of it exact
    left = torch.tensor([-5.0, -3.0, 1.0, 7.0])
    for apart in (2e-6, -2e-6):
        levels = levels_beside((left / 7).tolist(), apart)
        right = (left.double()[:, None] / 7 - levels.double()).abs().argmin(-1)
        for size in (1.0, *(2.0**power for power in (-90, -50, -27, -24, -20, -17, 13, 90))):
            codes, second, mean = scaled(student, (left + 6) * size, levels)
            expect_close(mean.item(), 6 * size, what="the mean", rtol=1e-6)
            expect_close(second, torch.tensor([7 * size]), what="second", rtol=1e-6)
            assert codes.tolist() == right.tolist(), f"codes of scales of {size:g}"
            back = student.dequantize_scales(codes, second, mean, levels)
            parts = levels.double()[right] * 7 * size + 6 * size
            expect_close(back, parts, what="what comes back", atol=16 * FLOAT32 * 13 * size)
    numbers = torch.arange(256.0)
    even = torch.tensor([1.0, 6, 3, 6, 7, 6, 13, 6])  # again 6, and half of them are the mean
    codes, *_ = scaled(student, even, (numbers - 256) * 4e19)
    assert codes.tolist() == [255] * 8, "codes of levels from -1e22 to -4e19"
    codes, *_ = scaled(student, even, (numbers - 100) * 1e-25)
    assert codes[1::2].tolist() == [100] * 4, "codes of 0 among levels of 1e-25"


@exercise(
    "ex5",
    points=1,
    invariant="scales come back as level times second of their block plus the mean",
    cause="second of another block, the mean inside the product, or a dtype of bytes",
)
def test_what_scales_come_back_as(student, rng):
    for n in (1, 256, 257, 700):
        levels = torch.rand(256, generator=rng).sort().values * 2 - 1
        codes = torch.randint(256, (n,), generator=rng).to(torch.uint8)
        second, mean = torch.rand(-(-n // 256), generator=rng), torch.rand((), generator=rng) + 1
        back = student.dequantize_scales(codes, second, mean, levels)
        expect_tensor(back, "dequantize_scales", torch.float32, (n,))
        of_block = second.double()[torch.arange(n) // 256]
        right = levels.double()[codes.long()] * of_block + mean.double()
        expect_close(back, right, what="the scales", atol=1e-6)


@exercise(
    "ex5",
    points=2,
    invariant="equal scales come back exactly, also where only one block is equal to the mean",
    cause="an epsilon or a floor under second, which moves other blocks",
)
def test_blocks_at_the_mean(student, rng):
    levels = torch.linspace(-1, 1, 256)
    absmax = torch.full((512,), 0.5)
    absmax[256::2], absmax[257::2] = 0.25, 0.75  # the first block is the mean, the second not
    codes, second, mean = scaled(student, absmax, levels)
    expect_same(mean, torch.tensor(0.5), "the mean")
    expect_same(second, torch.tensor([0.0, 0.25]), "second")
    back = student.dequantize_scales(codes, second, mean, levels)
    expect_tensor(back, "dequantize_scales", torch.float32, (512,))
    expect_close(back, absmax, what="the scales", atol=1e-6)
    other = 3 * absmax.flip(0)
    expect_held(student, "quantize_scales", (absmax, levels), (other, levels))
    expect_held(
        student,
        "dequantize_scales",
        (codes, second, mean, levels),
        (codes.flip(0), second, 2 * mean, levels),
    )
    tiny = torch.tensor([1e-6, 3e-6])
    codes, second, mean = scaled(student, tiny, levels)
    expect_close(second, torch.tensor([1e-6]), what="second of tiny scales", rtol=1e-3)
    back = student.dequantize_scales(codes, second, mean, levels)
    expect_close(back, tiny, what="tiny scales", rtol=0.01)


@exercise(
    "ex5",
    points=2,
    invariant="every bit that n weights need is counted, of 1 and of 65 billion",
    cause="a block too few at the limits, or the same second and mean for all sizes",
)
def test_every_bit(student, rng):
    large = (65 * 10**9 + 1, 2**31 + 64)
    for n in (1, 63, 64, 65, 64 * 256, 64 * 256 + 1, 4096 * 4096, draw(rng, 1, 10**7), *large):
        blocks = -(-n // 64)
        for double in (False, True):
            seen = student.nf4_bits(n, double)
            right = 4 * n + (8 * blocks + 32 * -(-blocks // 256) + 32 if double else 32 * blocks)
            assert type(seen) is int and seen == right, "another number of bits"


def any_scales(rng, n, kind):
    """n scales of a kind, near 1.  Means of "even" and "equal" ones are exact in any order."""
    x = torch.rand(n, generator=rng)
    if kind == "alike":  # 16 places of float32 apart
        return 1 + 2.0**-23 * (16 * x).round().index_fill(0, torch.tensor([0]), 16.0)
    if kind == "all but the last":  # the mean is rounded to theirs
        return 1 + 2.0**-23 * torch.eye(n)[-1]
    if kind == "one large":
        x[draw(rng, 0, n - 1)] = 3e4
    if kind == "with zeros":  # those of blocks of zeros
        x[torch.randperm(n, generator=rng)[: n // 2]] = 0.0
    if kind in ("even", "one block at the mean"):
        half = 8.0 * torch.randint(-31, 32, (n // 2,), generator=rng)
        half[-1:] = 255.0
        left = torch.cat([half, -half, torch.zeros(n % 2)])
        if kind == "even":
            left = left[torch.randperm(n, generator=rng)]
        elif n > 512:
            left[:256], left[len(left) - 256 :] = 0.0, 0.0
            left[256], left[257] = 255.0, -255.0
            left[258 : len(left) - 256] = 0.0
        return (300 + left) / 256
    return {"equal": torch.full((n,), 0.75), "zeros": torch.zeros(n)}.get(kind, x)


def any_rising(rng, kind, absmax):
    """256 rising levels."""
    steps = torch.rand(256, generator=rng) + 0.01
    rising = (steps.cumsum(0) - steps[0]) / (steps.sum() - steps[0])
    if kind == "beside":  # middles lie next to what is looked up
        left = absmax.double() - absmax.double().mean()
        x = (left[:256] / left[:256].abs().max().clamp(min=1e-300)).unique()
        x = x[torch.cat([torch.ones(1) > 0, x.diff() > 0.025])][:40]
        return levels_beside(x.tolist(), (2e-6, -2e-6)[draw(rng, 0, 1)])
    low, high = {"above": (0, 1), "below": (-1, 0), "wide": (-300, 4e4), "narrow": (-0.2, 0.1)}.get(
        kind, (-1, 1)
    )
    return (low + (high - low) * rising.square()).float()


def expect_scaled(result, absmax, levels, exactly, what):
    """exactly: the mean, and what is left, are exact in float32."""
    codes, second, mean = expect_tuple(result, (torch.Tensor,) * 3, what)
    n, exact, levels = len(absmax), absmax.double(), levels.double()
    expect_tensor(codes, f"codes, {what}", torch.uint8, (n,))
    expect_tensor(second, f"second, {what}", torch.float32, (-(-n // 256),))
    expect_tensor(mean, f"the mean, {what}", torch.float32, ())
    right = exact.mean().item()
    expect_at_most(abs(mean.item() - right), (n + 8) * FLOAT32 * right, f"error of mean, {what}")
    left, rounded = exact - mean.double(), 2 * FLOAT32 * mean.item()
    largest = torch.stack([part.abs().max() for part in left.split(256)])
    off = (second.double() - largest).abs()
    expect_same(second[largest == 0], 0 * second[largest == 0], f"second at the mean, {what}")
    expect_at_most(off, rounded + 2 * FLOAT32 * largest, f"the error of second, {what}")
    if exactly:
        expect_same(mean, exact.mean().float(), f"the mean, {what}")
        expect_same(second, largest.float(), f"second, {what}")
    of_block = second.double()[torch.arange(n) // 256]
    some = of_block > 0
    x = left[some] / of_block[some]
    nearest = torch.bucketize(x, (levels[1:] + levels[:-1]) / 2)
    seen, least = ((x - levels[c]).abs() for c in (codes[some].long(), nearest))
    # the mean may be off by half a place, what is divided, the quotient and distances as well
    slack = 2 * (2 * rounded / of_block[some] + 4 * FLOAT32 * (x.abs() + least))
    expect_at_most(seen - least, slack, f"a nearer level was left out, {what}")


def expect_unscaled(result, codes, second, mean, levels, what):
    expect_tensor(result, what, torch.float32, (len(codes),))
    of_block = second.double()[torch.arange(len(codes)) // 256]
    parts = levels.double()[codes.long()] * of_block
    off = (result.double() - parts - mean.double()).abs()
    expect_at_most(off, 3 * FLOAT32 * (parts.abs() + mean.abs()), f"the error of {what}")
    expect_same(result[of_block == 0], mean.expand(len(codes))[of_block == 0], f"the mean, {what}")


@exercise(
    "ex5",
    points=1,
    invariant="all three functions, anywhere in what the card admits: any number of scales of any "
    "size, equal, alike, 0, a block at the mean, any levels, views, and results stay; bits on both "
    "sides of every block",
    cause="a corner where two others meet, such as levels on one side of 0 beside a short block, "
    "or a mean far from second; memory that is used again",
)
def test_anywhere_in_scales(student, rng):
    calls, checks = [], []
    counts = (1, 2, 256, 257, 513, 768, draw(rng, 3, 1100))
    exact = ("even", "one block at the mean", "equal", "zeros")
    kinds = ("any", "alike", "all but the last", "one large", "with zeros", *exact)
    rising = ("any", "above", "below", "wide", "narrow", "beside")
    sizes = (2.0**-90, 2.0**-27, 1.0, 2.0**14, 2.0**90)
    for n, kind, of_levels, size, other in every_pair(
        rng, counts, kinds, rising, sizes, (0.0, *sizes)
    ):
        absmax = any_scales(rng, n, kind)
        levels = any_rising(rng, of_levels, absmax)
        absmax, what = size * absmax, f"{n} scales, {kind}, levels {of_levels}"
        calls.append(("quantize_scales", absmax, levels))
        checks.append((expect_scaled, absmax, levels, kind in exact, what))
        codes = torch.randint(0, 256, (n,), generator=rng).to(torch.uint8)
        second = other * torch.rand(-(-n // 256), generator=rng)
        mean = size * (torch.rand((), generator=rng) + (kind != "zeros"))
        calls.append(("dequantize_scales", codes, second, mean, levels))
        checks.append((expect_unscaled, codes, second, mean, levels, f"what comes back, {what}"))
    for (check, *args), results in zip(checks, held(student, rng, calls), strict=True):
        for result in results:
            check(result, *args)
    n = 13_829  # some more than the notebook's weights have
    absmax = any_scales(rng, n, "any")
    levels = any_rising(rng, "any", absmax)
    codes, second, mean = student.quantize_scales(absmax, levels)
    expect_scaled((codes, second, mean), absmax, levels, False, f"{n} scales")
    back = student.dequantize_scales(codes, second, mean, levels)
    expect_unscaled(back, codes, second, mean, levels, f"what comes back of {n} scales")
    numbers = {64 * b * m + d for b in (1, 256) for m in (1, 2, 99, 10**8 + 7) for d in (-1, 0, 1)}
    numbers = sorted(numbers | {1, 2, 2**31, 2**32 + 1, 65 * 10**9 + 1, 10**13 + 1})
    calls = [((n, double), {}) for n in numbers for double in (False, True)]
    for ((n, double), _), seen in zip(calls, student.many("nf4_bits", calls), strict=True):
        blocks = -(-n // 64)
        right = 4 * n + (8 * blocks + 32 * -(-blocks // 256) + 32 if double else 32 * blocks)
        assert type(seen) is int and seen == right, f"nf4_bits({n}, {double})"


# ---- exercise 6 ------------------------------------------------------------------------------


def drive_chain(student, first, second, x, dy):
    """Runs beside the student's code: two layers, one after the other, and then their decodes."""
    x, calls = x.requires_grad_(), []

    def decoder(w, name):
        def decode():
            calls.append(name)
            return w.clone()

        return decode

    y = student.frozen_product(x, decoder(first, "first"))
    y = student.frozen_product(y.relu(), decoder(second, "second"))
    before = len(calls)
    y.backward(dy)
    return y.detach(), x.grad, before, calls


@exercise(
    "ex6",
    points=1,
    invariant="outputs and gradients are those of dense layers, for x of any number of dimensions",
    cause="flattened shapes, a transpose that fits squares only, or a cache of the last W",
)
def test_two_layers_against_autograd(student, rng):
    for shape in ((5,), (3, 5), (2, 3, 5), (2, 1, 3, 5), (0, 5), (1, 5)):
        first, second = torch.randn(6, 5, generator=rng), torch.randn(4, 6, generator=rng)
        x, dy = torch.randn(shape, generator=rng), torch.randn((*shape[:-1], 4), generator=rng)
        value = student.drive(drive_chain, first, second, x, dy)
        y, dx, before, calls = expect_tuple(value, (torch.Tensor, torch.Tensor, int, list), "y")
        exact = x.double().requires_grad_()
        right = (exact @ first.double().T).relu() @ second.double().T
        right.backward(dy.double())
        expect_tensor(y, "y", torch.float32, (*shape[:-1], 4))
        expect_close(y, right.detach(), what="y", atol=1e-4)
        expect_close(dx, exact.grad, what="dx", atol=1e-4)
        assert before == 2 and sorted(calls) == ["first", "first", "second", "second"], "decodes"


def drive_layouts(student, w, x, dy):
    """Runs beside the student's code: x, dy and W that are views, and a gradient of y.sum()."""
    x = x.requires_grad_()
    y = student.frozen_product(x.mT, lambda: w.clone().T)
    y.mT.backward(dy)  # arrives transposed
    first = x.grad.clone()
    x.grad = None
    student.frozen_product(x.mT, lambda: w.clone().T).sum().backward()  # arrives expanded
    return y.detach(), first, x.grad


@exercise(
    "ex6",
    points=1,
    invariant="x, dy and W may be views, of any size",
    cause="view in place of reshape, forward or backward, or an absolute bound somewhere",
)
def test_layouts_and_sizes(student, rng):
    for n, k, size in ((4, 6, 1.0), (1, 1, 1e-8), (7, 2, 1e4)):
        w, x = torch.randn(k, n, generator=rng), size * torch.randn(2, k, 5, generator=rng)
        dy = torch.randn(2, n, 5, generator=rng)
        y, dx, ones = student.drive(drive_layouts, w, x, dy)
        exact, back = w.double().T, w.double()
        for seen, right, parts, what in (
            (y, x.mT.double() @ exact.T, x.mT.double().abs() @ exact.T.abs(), "y"),
            (dx, back @ dy.double(), back.abs() @ dy.double().abs(), "dx"),
            (
                ones,
                back @ torch.ones_like(dy).double(),
                back.abs() @ torch.ones_like(dy).double(),
                "dx of y.sum()",
            ),
        ):
            expect_tensor(seen, what, torch.float32, tuple(right.shape))
            expect_at_most((seen.double() - right).abs(), 16 * FLOAT32 * parts, f"error of {what}")


def drive_bfloat16(student, w, x, dy):
    """Runs beside the student's code: x in bfloat16, and x that needs no gradient."""
    calls = []

    def decode():
        calls.append(1)
        return w.clone()

    plain = student.frozen_product(x.clone(), decode)
    needs, x = plain.requires_grad, x.requires_grad_()
    y = student.frozen_product(x, decode)
    y.backward(dy)
    return plain.detach(), needs, y.detach(), x.grad, len(calls)


@exercise(
    "ex6",
    points=2,
    invariant="y and dx have the dtype of x; if no gradient is asked for there is no second decode",
    cause="a result in float32, a gradient in another dtype, or decoding ahead of need",
)
def test_bfloat16_and_no_gradient(student, rng):
    w = torch.randn(6, 8, generator=rng)
    for dtype, error in ((torch.float32, 1e-5), (torch.bfloat16, 4 * BFLOAT16)):
        x, dy = (
            torch.randn(3, 8, generator=rng).to(dtype),
            torch.randn(3, 6, generator=rng).to(dtype),
        )
        value = student.drive(drive_bfloat16, w, x, dy)
        plain, needs, y, dx, calls = expect_tuple(
            value, (torch.Tensor, bool, torch.Tensor, torch.Tensor, int), "both"
        )
        used = w.to(dtype).double()
        for seen, right, parts, what in (
            (plain, x.double() @ used.T, x.double().abs() @ used.T.abs(), "y without a gradient"),
            (y, x.double() @ used.T, x.double().abs() @ used.T.abs(), "y"),
            (dx, dy.double() @ used, dy.double().abs() @ used.abs(), "dx"),
        ):
            expect_tensor(seen, what, dtype, tuple(right.shape))
            expect_at_most((seen.double() - right).abs(), error * parts, f"the error of {what}")
        assert not needs and calls == 3, "decoded for a gradient that nobody asked for"


def added(x, y, adapters, index):
    y = y.double()
    for i, j in enumerate(index):
        if j >= 0:
            a, b, scale = adapters[j]
            y[i] += scale * (x[i].double() @ a.double().T @ b.double().T)
    return y


def drive_rows(student, size):
    """Runs beside the student's code: x, y and factors that are views."""
    import torch

    x, y = size * torch.ones(7, 2, 2), torch.zeros(2, 7, 3).transpose(0, 1)
    a, b = torch.ones(2, 6).T[:3], torch.ones(3, 3).T
    adapters = [(a, b, 3e4), (a, -b, 1.5e4), (a / 2, b, 3e4)]  # some share an A or a B
    square = torch.tensor([[1.0, 2.0], [3.0, 4.0]])  # others begin at the same number
    parts = ((a[:1], 3e4), (square[:1], 1e4), (square.T[:1], 1e4))
    adapters += [(part, b[:, :1], scale) for part, scale in parts]
    return student.batched_update(x.mT, y, adapters, torch.tensor([0, 1, 2, 1, 3, 4, 5]))


@exercise(
    "ex6",
    points=1,
    invariant="every row gets the update of its own adapter, whatever the ranks and the order",
    cause="ranks taken as equal, rows sorted and not put back, the last adapter for -1, zeros "
    "added to rows without one, numbers of adapters in 8 bits, or an A that is known by where it "
    "lies in memory",
)
def test_mixed_batches(student, rng):
    for rows, tokens, n, k in ((5, 2, 3, 4), (2, 1, 6, 2), (8, 3, 4, 4)):
        adapters = []
        for r in (1, 4, 2):
            a, b = torch.randn(r, k, generator=rng), torch.randn(n, r, generator=rng)
            adapters.append((a, b, float(draw(rng, 1, 5)) - 2.5))
        x, y = (
            torch.randn(rows, tokens, k, generator=rng),
            torch.randn(rows, tokens, n, generator=rng),
        )
        index = [draw(rng, -1, 2) for _ in range(rows)]
        first = draw(rng, 0, rows - 1)
        y[first], index[first] = -0.0, -1
        new = student.batched_update(x, y, adapters, torch.tensor(index))
        expect_tensor(new, "batched_update", torch.float32, (rows, tokens, n))
        expect_close(new, added(x, y, adapters, index), what="y", atol=1e-4)
        none = [i for i, j in enumerate(index) if j < 0]
        expect_same(new[none], y[none], "rows without an adapter")
        assert new[none].signbit().equal(y[none].signbit()), "-0.0 became 0.0 without an adapter"
    negative = [(-a, 2 * b, scale) for a, b, scale in adapters]
    calls = [(x, y, adapters), (x.flip(0), y.flip(0), negative)]
    given = [(*call, torch.tensor(index)) for call in calls]
    results = held_results(student, "batched_update", given)
    for seen, call in zip(results, calls, strict=True):
        what = "y, held while another was asked for"
        expect_close(seen, added(*call, index), what=what, atol=1e-4)
    for wrong in ([*index[:-1], 3], [-2, *index[1:]], [0] * 7 + [10**6]):
        refused(student, [("batched_update", x, y, adapters, torch.tensor(wrong))])
    refused(student, [("batched_update", x, y, [], torch.tensor([-1] * 7 + [0]))])
    many = [(torch.full((1, 2), j + 1.0), torch.ones(1, 1), 1e-8) for j in range(300)]
    index = [299, 256, -1, 43]
    x, y = torch.ones(4, 1, 2), torch.zeros(4, 1, 1)
    new = student.batched_update(x, y, many, torch.tensor(index))
    right = added(x, y, many, index)
    expect_close(new, right, what="y of the last of 300 adapters", rtol=16 * FLOAT32)
    parts = torch.tensor([1.8e9, -9e8, 9e8, -9e8, 6e8, 3e8, 4e8])[:, None, None].expand(7, 2, 3)
    large = student.drive(drive_rows, 1e4)
    expect_close(large, parts, what="y of large x, transposed", rtol=16 * FLOAT32)
    for rows, tokens in ((3, 0), (1, 1)):
        x, y = torch.ones(rows, tokens, 2), torch.zeros(rows, tokens, 1)
        new = student.batched_update(x, y, many[:2], torch.zeros(rows, dtype=torch.int64))
        expect_tensor(new, "an update of no token, or one", torch.float32, (rows, tokens, 1))
        expect_close(new, torch.full_like(y, 2e-8).double(), what="y", rtol=16 * FLOAT32)


@exercise(
    "ex6",
    points=2,
    invariant="no adapters, unused ones with NaN or inf, and rows that hold or use NaN or inf: "
    "others stay right, and rows with an update of NaN become NaN",
    cause="products for all rows that are masked before or afterwards, NaN made 0, or an empty "
    "list that fails",
)
def test_what_must_not_spread(student, rng):
    x, y = torch.randn(3, 2, 5, generator=rng), torch.randn(3, 2, 4, generator=rng)
    new = student.batched_update(x, y, [], torch.tensor([-1, -1, -1]))
    expect_same(new, y, "y without any adapter")
    good = (torch.randn(2, 5, generator=rng), torch.randn(4, 2, generator=rng), 1.5)
    for bad, scale in ((math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)):
        unused = (torch.full((3, 5), bad), torch.randn(4, 3, generator=rng), scale)
        index = [1, -1, 1]
        new = student.batched_update(x, y, [unused, good], torch.tensor(index))
        expect_close(new, added(x, y, [unused, good], index), what="y", atol=1e-4)
    spoilt = x.clone()
    spoilt[1] = math.nan
    new = student.batched_update(spoilt, y, [good], torch.tensor([0, -1, 0]))
    expect_close(new, added(spoilt, y, [good], [0, -1, 0]), what="y beside a row of NaN", atol=1e-4)
    for bad in (math.nan, math.inf):  # rows that use it become no numbers, no other row does
        wild = (torch.full((3, 5), bad), torch.randn(4, 3, generator=rng), 1.0)
        new = student.batched_update(x, y, [wild, good], torch.tensor([1, 0, 1]))
        assert not new[1].isfinite().any(), "an update of NaN or infinity became a number"
        right = added(x, y, [wild, good], [1, -1, 1])[[0, 2]]
        expect_close(new[[0, 2]], right, what="rows beside one of infinity", atol=1e-4)
        wild = x.clone()
        wild[1] = bad
        new = student.batched_update(wild, y, [good, good], torch.tensor([0, 1, 0]))
        right = added(x, y, [good, good], [0, 1, 0])[[0, 2]]
        expect_close(new[[0, 2]], right, what="rows beside an infinite row", atol=1e-4)
    # in the rows that ask for it NaN stays
    for inputs, adapter in ((spoilt, good), (x, (good[0], math.nan * good[1], 1.0))):
        new = student.batched_update(inputs, y, [adapter], torch.tensor([-1, 0, -1]))
        assert new[1].isnan().all(), "an update of NaN became a number"
        expect_same(new[[0, 2]], y[[0, 2]], "rows without an adapter beside one of NaN")


def drive_products(student, cases, weigh):
    """Runs beside the student's code: all forward passes, then all backward passes in another
    order.  Of each case y, the gradient of x, how often W was decoded, and x afterwards.

    weigh: also the bytes of what is alive between the passes and was not before.
    """
    import gc

    import torch

    def storage(t):
        return t.untyped_storage()

    def lay(x, way):
        if way == 1 and x.dim() > 1:
            return x.mT.contiguous().mT
        if way == 2:
            return x.repeat_interleave(2, -1)[..., ::2]
        return torch.cat([x.flip(-1), x], -1)[..., x.shape[-1] :] if way == 3 else x.clone()

    def decoder(w, way):
        calls = []

        def decode():
            calls.append(1)
            return lay(w, way)

        return decode, calls

    made = []
    for w, x, dy, ways, needs, _ in cases:
        x = lay(x, ways[0]).requires_grad_(needs)
        made.append((x, lay(dy, ways[1]), *decoder(w, ways[2])))
    outputs, counts = [], []
    if weigh:
        gc.freeze()  # what is there is not among get_objects() until unfreeze
    for (x, _, decode, calls), (*_, how) in zip(made, cases, strict=True):
        outputs.append(student.frozen_product(x * 1 if how == "behind another" else x, decode))
        counts.append(len(calls))
    new = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)] if weigh else []
    gc.unfreeze()
    own = {storage(t).data_ptr() for t in [*outputs, *(t for part in made for t in part[:2])]}
    new = {storage(t).data_ptr(): storage(t).nbytes() for t in new if t.layout == torch.strided}
    new = [size for place, size in new.items() if place not in own]
    results = [y.detach().clone() for y in outputs]
    for i in [*range(1, len(cases), 2), *range(0, len(cases), 2)]:
        (x, dy, *_), y, (*_, needs, how) = made[i], outputs[i], cases[i]
        if needs and how == "sum":
            y.sum().backward()  # arrives expanded
        elif needs and how == "asked for":
            x.grad = torch.autograd.grad(y, x, dy)[0]
        elif needs:
            y.backward(dy)
    found = []
    for (x, _, _, calls), y, count in zip(made, results, counts, strict=True):
        grads = [] if x.grad is None else [x.grad]
        found.append((y, grads, [count, len(calls)], x.detach().clone()))
    return found, new


def product_cases(rng, shapes, leads, sizes):
    ways = [torch.randperm(4, generator=rng)[:3].tolist() for _ in range(4)]
    ways[0] = [0, 0, 0]
    kinds = ("plain", "sum", "asked for", "behind another")
    cases = []
    for (n, k), lead, dtype, way, needs, how, size, other in every_pair(
        rng, shapes, leads, TYPES, ways, (True, False), kinds, sizes, sizes
    ):
        w, x = other * torch.randn(n, k, generator=rng), size * torch.randn(*lead, k, generator=rng)
        dy = torch.randn(*lead, n, generator=rng)
        dy = torch.ones_like(dy) if how == "sum" else dy
        cases.append((w, x.to(dtype), dy.to(dtype), way, needs, how))
    return cases


def expect_product(case, result, what):
    w, x, dy, _, needs, *_ = case
    y, grads, counts, x_after = result
    (n, k), dtype = w.shape, x.dtype
    assert counts == [1, 1 + needs], f"{what}: decoded {counts} times after forward and backward"
    assert len(grads) == needs, f"{what}: a gradient that nobody asked for, or none"
    expect_same(x_after, x, f"x behind {what}")
    pairs = [(y, x.double(), w.double().T, k, "y")]
    pairs += [(grad, dy.double(), w.double(), n, "dx") for grad in grads]
    for seen, left, right, terms, name in pairs:
        expect_tensor(seen, f"{name}, {what}", dtype, (*left.shape[:-1], right.shape[1]))
        # W, each product and each sum may be rounded in the dtype of x
        bound = (terms + 4) * UNITS[dtype] * (left.abs() @ right.abs())
        expect_at_most((seen.double() - left @ right).abs(), bound, f"the error of {name}, {what}")


@exercise(
    "ex6",
    points=1,
    invariant="products, anywhere in what the card admits: any sizes and dimensions, both dtypes, "
    "x, dy and W in views, with a gradient and without; many "
    "forward passes before the first backward pass, and nothing as large as W between them, "
    "no copy of a large x either",
    cause="a corner where two others meet, such as one dimension beside bfloat16; W kept "
    "in one case, or x in float32; decode called for a gradient that nobody asks for",
)
def test_anywhere_through_frozen_weights(student, rng):
    shapes, leads = ((1, 1), (1, 5), (6, 1), (4, 4), (7, 3)), (*LEADS[:3], *LEADS[4:])
    cases = product_cases(rng, shapes, leads, (1e-8, 1.0, 1e4))
    large = product_cases(rng, ((400, 300),), ((), (2, 1)), (1.0,))
    w = torch.randn(400, 300, generator=rng)
    for dtype, way in ((dtype, way) for dtype in TYPES for way in (0, 1, 2)):  # x larger than W
        x, dy = (torch.randn(500, m, generator=rng).to(dtype) for m in (300, 400))
        large.append((w, x, dy, [way, 0, 0], True, "plain"))
    found, _ = student.drive(drive_products, cases, False)
    weighed, new = student.drive(drive_products, large, True)
    for case, result in zip([*cases, *large], [*found, *weighed], strict=True):
        what = f"x {list(case[1].shape)} in {case[1].dtype}, W {list(case[0].shape)}"
        expect_product(case, result, what)
    # half of one W in bfloat16, for all of them
    expect_at_most(sum(new), 400 * 300 - 1, "bytes that are new between the passes")


def drive_batches(student, cases):
    """Runs beside the student's code: batched updates whose adapters are made here, of a stack."""
    found = []
    for x, y, (a, b, ranks, scales), index, way in cases:
        adapters = [
            (one_a[:r], one_b[:, :r], scale)
            for one_a, one_b, r, scale in zip(a, b, ranks, scales, strict=True)
        ]
        given = [x, y, index]
        if way == 1:
            given = [t.mT.contiguous().mT if t.dim() > 1 else t for t in given]
        if way == 2:
            given = [t.repeat_interleave(2, -1)[..., ::2] for t in given]
        new = student.batched_update(given[0], given[1], adapters, given[2])
        found.append((new, given[1]))
    return found


def batch_case(rng, rows, tokens, shape, count, rank, kind, unused, of_x, of_y, scale, size, way):
    """(x, y, adapters, index, way) as drive_batches takes them."""
    n, k = shape
    x = size * torch.randn(rows, tokens, k, generator=rng)
    y = torch.randn(rows, tokens, n, generator=rng)
    a, b = torch.randn(count, rank, k, generator=rng), torch.randn(count, n, rank, generator=rng)
    ranks = [draw(rng, 1, rank) for _ in range(count)]
    scales = [(scale, 1, -0.75)[draw(rng, 0, 2)] for _ in range(count)]
    index = torch.randint(-1, max(count, 1), (rows,), generator=rng)
    if kind in ("none", "all the last") or not count:
        index[:] = -1 if kind == "none" or not count else count - 1
    if kind == "all but one":
        index[:], index[draw(rng, 0, rows - 1)] = draw(rng, 0, count - 1), -1
    if (index >= 0).any():
        scales[int(index.max())] = scale
    for j in set(range(count)) - set(index.tolist()):  # NaN or infinity in what nobody uses
        (a, b)[j % 2][j] = unused
        scales[j] = unused if draw(rng, 0, 1) else scales[j]
    if of_x == "nan" and tokens:
        x[index < 0] = math.nan
        x[(index >= 0).nonzero().flatten()[:1], 0] = math.nan
    if tokens:
        y[:, -1, 0] = {"-0.0": -0.0, "nan": math.nan}.get(of_y, 1.0)
    return x, y, (a, b, ranks, scales), index, way


def expect_batch(result, case, what):
    (new, y_after), (x, y, (a, b, ranks, scales), index, _) = result, case
    expect_tensor(new, what, torch.float32, tuple(y.shape))
    bits = [t.contiguous().view(torch.int32) for t in (y_after, y, new[index < 0], y[index < 0])]
    assert bits[0].equal(bits[1]), f"{what}: y has changed"
    assert bits[2].equal(bits[3]), f"{what}: a row without an adapter has changed"
    for i, j in enumerate(index.tolist()):
        if j < 0:
            continue
        r, scale = ranks[j], scales[j]
        left, right, row = x[i].double(), (a[j][:r].double(), b[j][:, :r].double()), y[i].double()
        exact = row + scale * (left @ right[0].T @ right[1].T)
        parts = row.abs() + abs(scale) * (left.abs() @ right[0].abs().T @ right[1].abs().T)
        lost = exact.isnan()
        assert new[i].isnan().equal(lost), f"{what}: another NaN"
        bound = (x.shape[-1] + r + 5) * FLOAT32 * parts
        off = (new[i].double() - exact).abs()
        expect_at_most(off[~lost], bound[~lost], f"the error of {what}")


@exercise(
    "ex6",
    points=1,
    invariant="batches, anywhere in what the card admits: any rows and tokens, none to hundreds of "
    "adapters of unlike ranks, factors of any size, NaN in unused ones, in x and in y, views; an "
    "index that names none is refused in any place",
    cause="a corner where two others meet, such as no token beside NaN, one row and hundreds of "
    "adapters, or a factor of 0; a row without an adapter that is computed again",
)
def test_anywhere_in_batches(student, rng):
    shapes, kinds = ((1, 1), (1, 6), (5, 1), (4, 3)), ("any", "none", "all the last", "all but one")
    numbers, scales = (1.0, math.nan, -math.inf), (0.0, 1, -2.5, 3e4, 1e-8)
    dimensions = ((1, 2, 9), (0, 1, 3), shapes, (0, 1, 3, 300), (1, 2, 20), kinds, numbers)
    dimensions += (("any", "nan"), ("any", "-0.0", "nan"), scales, (1e-8, 1.0, 1e4), range(3))
    cases = every_pair(rng, *dimensions)
    cases = [batch_case(rng, *case) for case in cases if case[3] or case[5] == "none"]
    more = every_pair(
        rng,
        *dimensions[:3],
        (0,),
        (1,),
        ("none",),
        (1.0,),
        *dimensions[7:9],
        (1,),
        (1.0,),
        range(3),
    )
    cases += [batch_case(rng, *case) for case in more]
    cases.append(batch_case(rng, 2, 1, (4, 3), 3, 2, "any", 1.0, "any", "any", 1, 1e-8, 1))
    same = ("all the last", 1.0, "nan", "any", 0.0, 1.0, 0)  # NaN times a scale of 0
    cases.append(batch_case(rng, 2, 1, (4, 3), 3, 2, *same))
    large = ("any", 1.0, "any", "any", 1, 1.0, 0)
    cases.append(batch_case(rng, 131, 3, (67, 71), 3, 20, *large))
    results = student.drive(drive_batches, cases)
    for case, result in zip(cases, results, strict=True):
        x, y, (a, *_), *_ = case
        expect_batch(result, case, f"x {list(x.shape)}, y {list(y.shape)}, {len(a)} adapters")
    calls = []
    for rows, tokens, count, place, bad in every_pair(
        rng, (1, 2, 9), (0, 1, 3), (0, 1, 3), (0.0, 0.5, 1.0), (-2, 0, 1, 256, 2**40, -(2**40))
    ):
        index = (
            torch.randint(-1, max(count, 1), (rows,), generator=rng) if count else -torch.ones(rows)
        )
        index = index.long()
        index[round(place * (rows - 1))] = bad if bad < 0 else count + bad
        adapters = [(torch.ones(2, 3), torch.ones(4, 2), 1.0)] * count
        calls.append(
            (
                "batched_update",
                torch.ones(rows, tokens, 3),
                torch.ones(rows, tokens, 4),
                adapters,
                index,
            )
        )
    refused(student, calls)
