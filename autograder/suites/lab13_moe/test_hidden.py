"""Hidden tests of lab13: loops and formulas in float64, and the inputs that break real code.

Inputs are drawn anew for each submission; no draw is near a tie but where ties are the question.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

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
from efflib.lab.again import drawn_ways, held, held_results, refused
from efflib.lab.cases import every_pair

F64, I64 = torch.float64, torch.int64
FLOAT32 = 2.0**-24
CONVENTIONS = ("mixtral", "switch", "deepseek")


def distinct(rng, tokens, count, scale=1.0):
    """Logits [T, E] whose entries of a token differ: 0.1 to 1 apart, in random order, scaled."""
    steps = 0.1 + 0.9 * torch.rand(tokens, count, generator=rng)
    values = steps.cumsum(1) - 0.5 * steps.sum(1, keepdim=True)
    order = torch.rand(tokens, count, generator=rng).argsort(1)
    return scale * values.gather(1, order)


def choices(rng, tokens, count, k):
    """Experts [T, k], those of a token all different."""
    return torch.rand(tokens, count, generator=rng).argsort(1)[:, :k].contiguous()


def gates_of(logits, experts, convention):
    """The gates of the chosen experts, in float64."""
    s = logits.double()
    if convention == "mixtral":
        return s.gather(1, experts).softmax(1)
    if convention == "switch":
        return s.softmax(1).gather(1, experts)
    weights = s.sigmoid().gather(1, experts)
    return weights / weights.sum(1, keepdim=True)


def expect_routing(value, logits, k, convention, bias=None, what="route"):
    """Right experts in falling order, right gates; logits and biases without near ties."""
    experts, gates = expect_tuple(value, (torch.Tensor,) * 2, what)
    shape = (len(logits), k)
    expect_tensor(experts, f"experts of {what}", I64, shape)
    expect_tensor(gates, f"gates of {what}", torch.float32, shape)
    s = logits.double()
    compared = s.sigmoid() if convention == "deepseek" else s
    compared = compared if bias is None else compared + bias.double()
    right = compared.sort(1, descending=True).indices[:, :k]
    expect_same(experts, right, f"experts, {what}")
    # each gate is some ten roundings of numbers up to 1
    expect_close(
        gates, gates_of(logits, right, convention), what=f"gates, {what}", atol=64 * FLOAT32
    )


def walked(experts, places, order, real=None):
    """Who finds a place: one choice after the other."""
    tokens, k = experts.shape
    queue = [(t, j) for t in range(tokens) for j in range(k)]
    if order == "choices":
        queue.sort(key=lambda at: at[1])
    ids, there = experts.tolist(), [True] * tokens if real is None else real.tolist()
    free, kept = {}, [[False] * k for _ in range(tokens)]
    for t, j in queue:
        expert = ids[t][j]
        if there[t] and free.setdefault(expert, places) > 0:
            free[expert] -= 1
            kept[t][j] = True
    return torch.tensor(kept, dtype=torch.bool).view(tokens, k)


def whole(rng, low, high):
    """A number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def drive_sloped(student, calls, ways):
    """Runs beside the student's code: of each call (name, which of args have gradients, dy, *args)
    both results, as drive_laid, those gradients from dy, and what experts were called with.

    The last two arguments of dispatch_combine are the experts' sizes and a limit: expert e cuts its
    rows off at the limit and multiplies by its size, a power of 2.
    """
    import itertools

    import torch

    turn = itertools.cycle(ways)

    def lay(x):
        way = next(turn)
        if way == 1:
            return x.mT.clone(memory_format=torch.contiguous_format).mT
        if way == 2:
            return torch.cat([x.repeat_interleave(2, -1)] * 2)[: len(x), ::2]
        k = x.shape[-1]
        return torch.cat([x, x, x], -1)[:, k : 2 * k] if way == 3 else x.clone()

    def ask(name, args, heard):
        args = [lay(x) if isinstance(x, torch.Tensor) and x.dim() == 2 else x for x in args]
        if name == "dispatch_combine":
            limit, sizes = args.pop(), args.pop()

            def run(e, rows):
                heard.append([int(e), rows.detach().clone()])
                return rows.clamp(-limit, limit) * sizes[int(e)].to(rows.dtype)

            args.append(run)
        return getattr(student, name)(*args)

    def parts(value):
        return value if isinstance(value, tuple) else (value,)

    first, second, grads, calls_of = [], [], [], []
    for name, leaves, dy, *args in calls:
        args = [x.clone().requires_grad_() if i in leaves else x for i, x in enumerate(args)]
        heard = []
        value = ask(name, args, heard)
        if parts(value)[-1].requires_grad:
            parts(value)[-1].backward(dy)
        own = [args[i] for i in leaves]
        grads.append([x.detach() * 0 if x.grad is None else x.grad for x in own])
        first.append(value)
        calls_of.append(heard)
    copies = [tuple(x.detach().clone() for x in parts(value)) for value in first]
    for value in first:
        for x in parts(value):
            x.detach().zero_()
    for name, _, _, *args in calls:
        second.append(tuple(x.detach().clone() for x in parts(ask(name, args, []))))
    return list(zip(copies, second, grads, calls_of, strict=True))


def sloped(student, rng, calls):
    """(both results as tuples, gradients, calls of experts) of each call of drive_sloped.

    Tensors of two dimensions are laid in every way, of four in a row each in another.
    """
    ways = drawn_ways(rng)
    return student.drive(drive_sloped, calls, ways)


def drive_layer(student, x, experts, gates, kept, weights, dy):
    """Runs beside the student's code: expert e is tanh(rows @ weights[e]), each call is noted."""
    import torch

    leaves = [t.clone().requires_grad_() for t in (x, gates, weights)]
    calls = []

    def run(e, rows):
        calls.append((int(e), rows.detach().clone()))
        return torch.tanh(rows @ leaves[2][int(e)])

    y = student.dispatch_combine(leaves[0], experts, leaves[1], kept, run)
    if y.requires_grad:
        y.backward(dy)
    grads = [t.grad if t.grad is not None else torch.zeros_like(t) for t in leaves]
    return y.detach(), calls, *grads


def looped(x, experts, gates, kept, weights, dy):
    """y and the gradients of x, gates, weights by a loop over tokens and choices, float64."""
    leaves = [t.double().requires_grad_() for t in (x, gates, weights)]
    rows = []
    for t in range(len(x)):
        y = 0.0 * leaves[0][t]
        for j in range(experts.shape[1]):
            if kept[t, j]:
                y = y + leaves[1][t, j] * torch.tanh(leaves[0][t] @ leaves[2][experts[t, j]])
        rows.append(y)
    y = torch.stack(rows)
    y.backward(dy.double())
    grads = [t.grad if t.grad is not None else torch.zeros_like(t) for t in leaves]
    return y.detach(), *grads


def a_layer(rng, tokens, count, k, width=4, share=1.0):
    """(x, experts, gates, kept, weights, dy); a share of the choices is kept."""
    x, dy = (torch.randn(tokens, width, generator=rng) for _ in range(2))
    weights = torch.randn(count, width, width, generator=rng) / width**0.5
    gates = torch.rand(tokens, k, generator=rng)
    kept = torch.rand(tokens, k, generator=rng) < share
    return x, choices(rng, tokens, count, k), gates, kept, weights, dy


def expect_layer(student, x, experts, gates, kept, weights, dy, what):
    """Output, gradients and calls of a float32 layer."""
    value = student.drive(drive_layer, x, experts, gates, kept, weights, dy)
    y, calls, *grads = expect_tuple(value, (torch.Tensor, list, *(torch.Tensor,) * 3), what)
    right, *others = looped(x, experts, gates, kept, weights, dy)
    expect_tensor(y, f"y, {what}", torch.float32, tuple(x.shape))
    names = ("y", "the gradient of x", "of gates", "of the experts' weights")
    for name, a, b in zip(names, (y, *grads), (right, *others), strict=True):
        # sums of at most some hundred products, each a few roundings
        expect_close(a, b, what=f"{name}, {what}", atol=1e-4 * max(1.0, b.abs().max().item()))
    asked = sorted(set(experts[kept].tolist()))
    seen = [e for e, _ in calls]
    assert sorted(seen) == asked, f"{what}: calls of the experts {seen}, needed are {asked}"
    for e, rows in calls:
        own = x[((experts == e) & kept).any(1)]
        as_lists = [sorted(r.tolist()) for r in (rows, own)]
        assert as_lists[0] == as_lists[1], f"{what}: expert {e} got other rows than its tokens'"


def drive_gaps(student, name, args):
    """Runs beside the student's code: a call whose tensors are every second entry of wider ones."""
    import torch

    def gaps(value):
        if not torch.is_tensor(value):
            return value
        wide = torch.cat([value, value], -1).repeat_interleave(2, -1)
        return wide[..., : 2 * value.shape[-1] : 2]

    return getattr(student, name)(*map(gaps, args))


# ---- exercise 1 ------------------------------------------------------------------------------


def drive_view(student, logits, k, convention):
    """Runs beside the student's code: logits that are every second column of something."""
    return student.route(logits.repeat_interleave(2, 1)[:, ::2], k, convention)


@exercise(
    "ex1",
    points=2,
    invariant="experts and gates are those of float64 for any T, E and k, in both dtypes, of views",
    cause="sums over the tokens, a k that is built in, bfloat16 to the end, or view() of a view",
)
def test_routing_of_any_size(student, rng):
    for tokens, count, k, scale in (
        (17, 8, 2, 1.0),
        (3, 64, 6, 0.2),
        (1, 5, 1, 1.0),
        (6, 1, 1, 1.0),
        (1, 1, 1, 1.0),
        (5, 7, 7, 1.0),
        (0, 4, 2, 1.0),
    ):
        for convention in CONVENTIONS:
            dtypes = (torch.float32, torch.bfloat16) if count < 10 else (torch.float32,)
            for dtype in dtypes:
                logits = distinct(rng, tokens, count, scale).to(dtype)
                what = f"{convention}, {k} of {count}, {dtype}"
                expect_routing(
                    student.route(logits, k, convention), logits, k, convention, None, what
                )
                value = student.drive(drive_view, logits, k, convention)
                expect_routing(value, logits, k, convention, None, f"{what}, a view")


@exercise(
    "ex1",
    points=2,
    invariant="biases decide alone who is chosen if they are large, and never how much it counts",
    cause="biased gates, a bias that is added to logits, or an order of gates in place of scores",
)
def test_biases_of_any_size(student, rng):
    for tokens, count, k, size in ((9, 6, 2, 0.02), (4, 5, 3, 2.0), (3, 8, 3, 1e4), (2, 4, 4, 3.0)):
        logits = distinct(rng, tokens, count)
        bias = distinct(rng, 1, count)[0]
        bias = size * (bias / (bias.abs().max() if size == 1e4 else 1))  # as large as it may be
        both = torch.cat([logits, logits.bfloat16().float()])
        compared = both.double().sigmoid() + bias.double()
        gaps = compared.sort(1).values.diff(dim=1)
        if gaps.numel() and gaps.min() < 1e-6 * max(1.0, size):  # a near tie: lay it apart
            bias = 3.0 * torch.arange(count)
        for given in (logits, logits.bfloat16()):
            for value in (
                student.route(given, k, "deepseek", bias),
                student.drive(drive_gaps, "route", (given, k, "deepseek", bias)),
            ):
                what = f"biases of {size}, {given.dtype}"
                expect_routing(value, given, k, "deepseek", bias, what)
    fine = 1 + 2.0**-14 * torch.arange(9.0)  # biases that 16 bits make equal
    for bias in (fine, fine.flip(0)):
        logits = torch.zeros(2, 9)
        value = student.route(logits, 4, "deepseek", bias)
        expect_routing(value, logits, 4, "deepseek", bias, "biases that are near each other")
    for size in (1.0, -1.0):  # sigmoids near 1 (equal in bfloat16), and near 0
        order = torch.rand(3, 5, generator=rng).argsort(1)
        for dtype in (torch.float32, torch.bfloat16):
            logits = (size * torch.arange(6.0, 11.0)[order]).to(dtype)
            value = student.route(logits, 3, "deepseek")
            expect_routing(value, logits, 3, "deepseek", None, f"logits of 6 to 10, {dtype}")
    logits = distinct(rng, 4, 5)
    value = student.route(logits, 2, "deepseek", None)
    expect_routing(value, logits, 2, "deepseek", None, "no bias")
    value = student.route(logits, 2)
    expect_routing(value, logits, 2, "mixtral", None, "the default")


@exercise(
    "ex1",
    points=1,
    invariant="of equal scores any is taken, none twice; logits of 1e4 have gates all the same",
    cause="a comparison with the k-th largest, which takes more than k, or exp() of a logit",
)
def test_ties_and_huge_logits(student, rng):
    for row, k in (
        ([1.0, 1.0, 1.0, 1.0], 2),
        ([2.0, 1.0, 1.0, 0.0], 2),
        ([0.0, 0.0, 3.0], 3),
        ([-1e4, -1e4, 1e4], 3),
        ([-1e4] * 5, 5),
    ):
        logits = torch.tensor([row]).repeat(3, 1)
        for convention in CONVENTIONS if min(row) > -1e4 else ("mixtral", "switch"):
            value = student.route(logits, k, convention)
            experts, gates = expect_tuple(value, (torch.Tensor,) * 2, "route")
            expect_tensor(experts, "experts", I64, (3, k))
            for chosen in experts.tolist():
                assert len(set(chosen)) == k, f"experts {chosen} of logits {row}"
                assert all(0 <= e < len(row) for e in chosen), f"experts {chosen} of logits {row}"
            values = logits.gather(1, experts)
            expect_same(values, logits.sort(1, descending=True).values[:, :k], "chosen logits")
            right = gates_of(logits, experts, convention)
            expect_close(gates, right, what=f"gates of {row}, {convention}", atol=64 * FLOAT32)
    for convention in ("mixtral", "switch"):
        for base in (9990.0, -9990.0):  # near each other, where float32 has steps of a thousandth
            logits = base + torch.arange(5.0)[torch.rand(4, 5, generator=rng).argsort(1)]
            value = student.route(logits, 3, convention)
            expect_routing(value, logits, 3, convention, None, f"{convention}, logits near {base}")
        for size in (300.0, 1e4):
            logits = distinct(rng, 4, 5)
            logits = size * (logits / logits.abs().max())  # far behind the first a softmax is 0
            for k in (1, 2, 5):
                value = student.route(logits, k, convention)
                what = f"{convention}, logits of {size}"
                expect_routing(value, logits, k, convention, None, what)


def drive_slopes(student, logits, k, convention, bias, dy):
    """Runs beside the student's code: gates, and the gradient of their weighted sum."""
    logits = logits.clone().requires_grad_()
    gates = student.route(logits, k, convention, bias)[1]
    if gates.requires_grad:
        gates.backward(dy)
    return logits.grad if logits.grad is not None else logits.detach() * 0


@exercise(
    "ex1",
    points=2,
    invariant="the gradient of the logits is that of the gates: 0 with one renormalized choice, of "
    "all logits in switch, of the chosen alone in the others",
    cause="gates detached, renormalized in switch, or a softmax over all before the choice that is "
    "detached from its sum",
)
def test_gradients(student, rng):
    for count, k in ((5, 1), (6, 3), (4, 4)):
        for convention in CONVENTIONS:
            logits, dy = distinct(rng, 7, count), torch.randn(7, k, generator=rng)
            for bias in (None, 3.0 * torch.arange(count)):
                if bias is not None and convention != "deepseek":
                    continue
                for given in (logits, logits.bfloat16()):
                    seen = student.drive(drive_slopes, given, k, convention, bias, dy)
                    leaf = given.double().requires_grad_()
                    compared = leaf if bias is None else leaf.sigmoid() + bias.double()
                    experts = compared.sort(1, descending=True).indices[:, :k]
                    gates_of(leaf, experts, convention).backward(dy.double())
                    what = f"gradient of the logits, {convention}, {k} of {count}, {given.dtype}"
                    # a bfloat16 leaf has a bfloat16 gradient, perhaps a sum of some
                    rtol = 0.0 if given is logits else 2.0**-7
                    off = (seen.double() - leaf.grad).abs()
                    most = 1e-5 + rtol * dy.abs().max()
                    expect_at_most(off, most, f"the error of the {what}")


@exercise(
    "ex1",
    points=1,
    invariant="k from 1 to E, three conventions, a bias in one of them; else a ValueError",
    cause="no check, or one that refuses k = E; a valid call is right after each error",
)
def test_what_is_refused(student, rng):
    logits, bias = distinct(rng, 2, 3), torch.zeros(3)
    for arguments in (
        (logits, 0, "mixtral"),
        (logits, 4, "deepseek"),
        (logits, -1, "switch"),
        (logits, 2, "Mixtral"),
        (logits, 2, ""),
        (logits, 2, "mixtral", bias),
        (logits, 2, "switch", bias),
    ):
        refused(student, [("route", *arguments)])
        nobody = (logits[:0].clone(), *arguments[1:])
        what = f"{arguments[1:3]} without a token"
        expect_error(ValueError, lambda a=nobody: student.route(*a), what)
        value = student.route(logits, 3, "deepseek", bias)
        expect_routing(value, logits, 3, "deepseek", bias, "k = E after an error")
    for convention in CONVENTIONS:
        calls = [(distinct(rng, 2, 3), 2, convention) for _ in range(3)]
        for call, value in zip(calls, held_results(student, "route", calls), strict=True):
            expect_routing(value, *call, None, f"{convention}, held while others came")


SOME_BIASES = ("none", "zeros", "small", "fine", "one of 1e4", "all of 1e4", "lowest")


def drawn_logits(rng, tokens, count, kind, low):
    """Logits [T, E] of a kind, of size up to 1e4, or to 10 (low: for deepseek)."""
    top = 10.0 if low else 1e4
    s = torch.randn(tokens, count, generator=rng)
    if kind == "plain":
        return s.clamp(-10, 10)
    if kind == "ties":
        return s.clamp(-1, 1).round()
    if kind == "tiny":
        return s * 2.0**-60
    if kind == "one far ahead":  # the others differ by less than float32 has steps up there
        s = s.clamp(-10, 10) if low else 2.0**-12 * s
        s.scatter_(1, torch.randint(count, (tokens, 1), generator=rng), top)
        return s
    steps = torch.rand(tokens, count, generator=rng)
    if kind == "all low":
        return 0.1 * steps - top if low else 9.0 * steps - top
    return top - steps if kind == "all high" else top * (2 * steps - 1)


def drawn_bias(rng, count, kind):
    bias = torch.rand(count, generator=rng)
    if kind == "none":
        return None
    if kind == "fine":  # 16 bits make them equal
        return 1 + 2.0**-14 * torch.randperm(count, generator=rng)
    if kind == "one of 1e4":
        bias[whole(rng, 0, count - 1)] = 1e4
    sizes = {"zeros": 0.0, "all of 1e4": 1e4 / bias.abs().max()}
    return bias * sizes.get(kind, 1.0)


@exercise(
    "ex1",
    points=1,
    invariant="whatever logits, biases and sizes meet, in both dtypes and in any layout",
    cause="a bias that takes the dtype of the logits, a number added to a sum, a comparison after "
    "a subtraction, or a result that a later call changes",
)
def test_anywhere_in_the_router(student, rng):
    kinds = ("plain", "ties", "tiny", "one far ahead", "all low", "all high", "wide")
    ways = ["mixtral", "switch", *(("deepseek", bias) for bias in SOME_BIASES)]
    dtypes = (torch.float32, torch.bfloat16)
    shapes = ((1, 8), (1, 300), (2, 65), (5, 9), (70, 64), (300, 8))
    large = itertools.cycle(every_pair(rng, shapes, (2, 3, -1, 0), dtypes))
    cases = [(*next(large), *case) for case in itertools.product(kinds, ways[:2] + ways)]
    small = ((0, 1), (0, 8), (1, 1), (1, 2), (2, 7), (300, 1))
    cases += every_pair(rng, small, (1, 0), dtypes, kinds, ways[:2] + [ways[2], ways[4], ways[-1]])
    cases += [((2, 8), 1, dtype, "all low", ("deepseek", "none")) for dtype in dtypes]
    calls, whats = [], []
    for (tokens, count), k, dtype, kind, way in cases:
        convention, of_bias = (way, None) if isinstance(way, str) else way
        logits = drawn_logits(rng, tokens, count, kind, of_bias is not None).to(dtype)
        bias = None
        if of_bias == "lowest":  # those with the least scores of the first token are chosen
            bias = -3 * logits[:1].float().sigmoid().sum(0)
        elif of_bias:
            bias = drawn_bias(rng, count, of_bias)
        k = k if k > 0 else count + k
        dy = torch.randn(tokens, k, generator=rng)
        calls.append(("route", (0,), dy, logits, k, convention, bias))
        what = f"{convention}, bias {of_bias}, {k} of {count}, {tokens} tokens, {kind}, {dtype}"
        whats.append(what)
    for call, what, found in zip(calls, whats, sloped(student, rng, calls), strict=True):
        first, second, (slope,), _ = found
        expect_routed(second, *call[3:], what)
        experts = expect_routed(first, *call[3:], what)
        expect_slope(slope, experts, call[2], *call[3:6], what)
    empty = torch.randn(0, 70, generator=rng)
    wide = [empty, torch.randn(1, 70, generator=rng)]
    more = [("route", logits, 71, c) for logits in wide for c in CONVENTIONS]
    refused(student, [*more, ("route", torch.zeros(9, 1), 2, "switch")])


def expect_routed(value, logits, k, convention, bias, what):
    """Experts in falling order of what is compared, any of those that rounding makes equal."""
    experts, gates = expect_tuple(value, (torch.Tensor,) * 2, what)
    expect_tensor(experts, f"experts, {what}", I64, (len(logits), k))
    expect_tensor(gates, f"gates, {what}", torch.float32, (len(logits), k))
    assert ((experts >= 0) & (experts < logits.shape[1])).all(), f"experts, {what}: out of range"
    assert (experts.sort(1).values.diff(dim=1) > 0).all(), f"experts, {what}: one twice"
    compared = logits.double()
    if convention == "deepseek":
        compared = compared.sigmoid() + (0 if bias is None else bias.double())
    right = compared.sort(1, descending=True).values[:, :k]
    # a sigmoid in float32 is off by two roundings, its sum with a bias by one more, of each of two
    slack = 8 * FLOAT32 * right.abs().clamp(min=1) * (convention == "deepseek")
    off = (compared.gather(1, experts) - right).abs()
    expect_at_most(off, slack, f"how far the chosen are from the largest, {what}")
    right = gates_of(logits, experts, convention)
    expect_close(gates, right, what=f"gates, {what}", atol=64 * FLOAT32)
    return experts


def expect_slope(slope, experts, dy, logits, k, convention, what):
    """The gradient of the logits is that of the gates, in float64."""
    leaf = logits.double().requires_grad_()
    gates_of(leaf, experts, convention).backward(dy.double())
    # a bfloat16 leaf has a bfloat16 gradient
    rtol = 0.0 if logits.dtype == torch.float32 else 2.0**-8
    off, most = (slope.double() - leaf.grad).abs(), 1e-5 + rtol * leaf.grad.abs()
    expect_at_most(off, most, f"the error of the gradient of the logits, {what}")


# ---- exercise 2 ------------------------------------------------------------------------------


def near_whole(tokens, count, k, factor):
    """Whether some order of the float operations rounds across a whole number."""
    ways = (
        tokens * k * factor / count,
        factor * (tokens * k / count),
        tokens / count * k * factor,
        tokens * (factor / count) * k,
        tokens / count * factor * k,
        factor * k / count * tokens,
        k / count * tokens * factor,
    )
    exact = math.ceil(Fraction(factor) * tokens * k / count)
    return any(math.ceil(way) != exact for way in ways)


@exercise(
    "ex2",
    points=2,
    invariant="places are factor T k / E, rounded up, for any sizes",
    cause="rounding down or to nearest, a least number of places, or k left out",
)
def test_capacities(student, rng):
    cases = [
        (1, 64, 1, 1.0),
        (0, 3, 2, 1.5),
        (10**6, 64, 6, 1.25),
        (999993, 1, 9, 2.25),
        (8, 8, 2, 0.0),
        (5, 1, 1, 2.0),
    ]
    for _ in range(30):
        tokens, count, k = (int(torch.randint(1, n, (), generator=rng)) for n in (5000, 65, 9))
        cases.append((tokens, count, k, 0.25 * int(torch.randint(1, 12, (), generator=rng))))
    for case in cases:
        if near_whole(*case):
            continue
        tokens, count, k, factor = case
        right = math.ceil(Fraction(factor) * tokens * k / count)
        seen = student.capacity(*case)
        assert expect_number(seen, "capacity") == right, f"capacity{case} is {seen}, not {right}"
    for bad in (
        (-1, 3, 1, 1.0),
        (6, 0, 1, 1.0),
        (6, -2, 1, 1.0),
        (6, 3, 0, 1.0),
        (6, 3, 1, -0.5),
        (6, 3, 1, math.inf),
        (6, 3, 1, math.nan),
        (0, 0, 1, 1.0),
        (0, 3, 0, 1.0),
        (0, 3, 1, -0.5),
        (0, 3, 1, math.nan),
        (0, 3, 1, math.inf),
        (6, 3, -1, -1.0),
    ):
        expect_error(ValueError, lambda b=bad: student.capacity(*b), f"capacity{bad}")


def drive_transposed(student, experts, places, order, real):
    """Runs beside the student's code: experts that are a transposed view."""
    return student.admitted(experts.T.contiguous().T, places, order, real)


@exercise(
    "ex2",
    points=3,
    invariant="each expert keeps the first `places` that ask for it, in the order given",
    cause="orders exchanged, one dimension mixed with the other, positions off by one, or places "
    "of an earlier call",
)
def test_queues(student, rng):
    for tokens, count, k, places in (
        (40, 8, 2, 7),
        (40, 8, 2, 10),
        (25, 6, 6, 4),
        (60, 3, 1, 25),
        (200, 256, 4, 3),
        (3000, 3, 2, 1500),
        (5000, 2, 1, 2100),  # float16 has no 2049
        (9, 4, 2, 0),
        (9, 4, 2, 100),
        (1, 1, 1, 1),
        (0, 4, 2, 3),
    ):
        experts = choices(rng, tokens, count, k)
        if count == 256:
            experts[0] = torch.tensor([255, 1, 254, 0])
        for order in ("tokens", "choices"):
            what = f"admitted, {k} of {count}, {places} places, {order}"
            right = walked(experts, places, order)
            for seen in (
                student.admitted(experts, places, order),
                student.drive(drive_transposed, experts, places, order, None),
            ):
                expect_tensor(seen, what, torch.bool, (tokens, k))
                expect_same(seen, right, what)
    experts = choices(rng, 30, 4, 2)
    seen = student.admitted(experts, 9)
    expect_same(seen, walked(experts, 9, "tokens"), "admitted, the default order")


@exercise(
    "ex2",
    points=2,
    invariant="padding takes no place, wherever it stands, and is not kept",
    cause="padding counted, kept, or taken for the end of the text",
)
def test_padding_anywhere(student, rng):
    for tokens, count, k, places, share in (
        (30, 4, 2, 6, 0.6),
        (30, 4, 2, 3, 0.2),
        (12, 5, 5, 4, 0.5),
        (10, 3, 1, 2, 0.0),
        (10, 3, 1, 2, 1.0),
        (0, 3, 1, 2, 1.0),
    ):
        experts = choices(rng, tokens, count, k)
        real = torch.rand(tokens, generator=rng) < share
        for order in ("tokens", "choices"):
            seen = student.admitted(experts, places, order, real)
            what = f"admitted, {share:.0%} real, {order}"
            expect_tensor(seen, what, torch.bool, (tokens, k))
            expect_same(seen, walked(experts, places, order, real), what)
            seen = student.drive(drive_gaps, "admitted", (experts, places, order, real))
            expect_same(seen, walked(experts, places, order, real), f"{what}, of views")


@exercise(
    "ex2",
    points=1,
    invariant="another order and a negative number of places give a ValueError, 0 places do not",
    cause="an else that takes anything for the second order, or no check of places",
)
def test_orders_refused(student, rng):
    experts = choices(rng, 5, 3, 2)
    for places, order in ((2, "gates"), (2, "choice"), (2, ""), (-1, "tokens"), (-3, "choices")):
        real = torch.rand(5, generator=rng) < 0.5
        given = ("admitted", experts, places, order)
        refused(student, [(*given, real), given])
        for rows, real in (
            (experts[:0].clone(), None),
            (experts, torch.zeros(5, dtype=torch.bool)),
        ):
            expect_error(
                ValueError,
                lambda p=places, o=order, e=rows, r=real: student.admitted(e, p, o, r),
                f"places={places}, order={order!r}, no real token",
            )
        seen = student.admitted(experts, 2, "choices")
        expect_same(seen, walked(experts, 2, "choices"), "admitted after an error")
    for order in ("tokens", "choices"):
        calls = [(choices(rng, 20, 3, 2), 5, order) for _ in range(4)]
        for call, seen in zip(calls, held_results(student, "admitted", calls), strict=True):
            expect_same(seen, walked(*call), f"admitted, {order}, held while others came")


def drawn_capacities(rng):
    """(tokens, count, k, factor, places), where no order of float operations counts another number:
    whole numbers, and such that lie below or above one by little, beside what they are of."""
    cases, near = [], (0, 2.0**-40, 2.0**-30, 2.0**-16, 0.25)
    for count, k, size, off, sign in every_pair(
        rng, (1, 2, 41, 64, 300), (1, 2, 6, 9), (1, 50, 4096, 10**6), near, (1, -1)
    ):
        for _ in range(20):
            tokens = size if off else whole(rng, 1 + size // 2, size)
            places = whole(rng, 1, 1 + 2 * tokens * k // count)
            factor = (places + sign * off) * count / (tokens * k)
            exact = Fraction(factor) * tokens * k / count
            if off or exact == places:  # a float need not be there
                break
        if not near_whole(tokens, count, k, factor):
            cases.append((tokens, count, k, factor, math.ceil(exact)))
    return cases


@exercise(
    "ex2",
    points=1,
    invariant="places of whole numbers and of those just above or below; queues of any length with "
    "padding of any kind, places from none to far too many, any ids and layouts",
    cause="a number taken off before rounding up, a short way for many places that forgets "
    "padding, or a result that a later call changes",
)
def test_anywhere_in_the_queue(student, rng):
    cases = drawn_capacities(rng)
    none = every_pair(rng, (0, 1, 10**6), (1, 41, 64), (1, 6), (0.0, 1.25, 2.5))
    cases += [(tokens, *rest, 0) for tokens, *rest in none if tokens * rest[-1] == 0]
    found = held_results(student, "capacity", [case[:-1] for case in cases])
    for (*given, right), seen in zip(cases, found, strict=True):
        seen = expect_number(seen, "capacity")
        assert seen == right, f"capacity{tuple(given)} is {seen}, expected {right}"
    calls, masks = [], ("none", "all", "nobody", "some", "first", "last")
    for tokens, k, places, order, mask, ids in every_pair(
        rng,
        (0, 1, 2, 30, 70, 130),
        (1, 2, 3, 6),
        ("0", "1", "even", "T - 1", "T", "T + 1", "10**5"),
        ("tokens", "choices"),
        masks,
        ("few", "many", "large"),
    ):
        count = {"few": k + 1, "many": 256, "large": k}[ids]
        names = torch.randperm(256, generator=rng) if ids != "large" else 255 - torch.arange(256)
        experts = names[choices(rng, tokens, count, k)]
        even = math.ceil(tokens * k / count)
        sizes = {"even": even, "T - 1": max(0, tokens - 1), "T": tokens, "T + 1": tokens + 1}
        places = sizes[places] if places in sizes else {"0": 0, "1": 1}.get(places, 10**5)
        calls.append(("admitted", experts, places, order, drawn_mask(rng, tokens, mask)))
    tokens, order = 1600, ("tokens", "choices")[whole(rng, 0, 1)]
    experts, mask = choices(rng, tokens, 7, 6), drawn_mask(rng, tokens, "some")
    long = ("admitted", experts, 700, order, mask)
    found = [*held(student, rng, calls), (student.admitted(*long[1:]),)]
    for (_, *given), results in zip([*calls, long], found, strict=True):
        right, (experts, places, order, real) = walked(*given), given
        padding = "no" if real is None else int((~real).sum())
        what = f"admitted, {list(experts.shape)}, {places} places, {order}, {padding} padding"
        for seen in results:
            expect_tensor(seen, what, torch.bool, tuple(experts.shape))
            expect_same(seen, right, what)


def drawn_mask(rng, tokens, kind):
    """Which tokens [T] are real, or None: all, nobody, some, the first or the last alone."""
    if kind == "none":
        return None
    mask = torch.full((tokens,), kind == "all")
    if kind == "some":
        mask = torch.rand(tokens, generator=rng) < 0.6
    if kind in ("first", "last") and tokens:
        mask[0 if kind == "first" else -1] = True
    return mask


# ---- exercise 3 ------------------------------------------------------------------------------


@exercise(
    "ex3",
    points=3,
    invariant="output and gradients equal the loop's for any k, experts and drops; each expert is "
    "called once at most, with its own tokens",
    cause="assignment for addition, gates of the wrong choice, an order that is not undone, calls "
    "for nobody, dropped rows computed",
)
def test_layers_of_any_size(student, rng):
    for tokens, count, k, width, share in (
        (20, 8, 2, 6, 1.0),
        (20, 8, 2, 6, 0.6),
        (13, 5, 5, 3, 0.7),
        (9, 40, 3, 4, 0.9),
        (1, 3, 2, 5, 1.0),
        (1, 1, 1, 1, 1.0),
        (6, 2, 1, 1, 0.5),
    ):
        case = a_layer(rng, tokens, count, k, width, share)
        expect_layer(student, *case, f"{tokens} tokens, {k} of {count}, {share:.0%} kept")
    x, experts, gates, kept, weights, dy = a_layer(rng, 8, 256, 2)
    experts[0] = torch.tensor([255, 0])
    gates = gates - 0.5  # a gate may be negative, or 0
    gates[1, 0] = 0.0
    expect_layer(student, x, experts, gates, kept, weights, dy, "an expert 255, gates below 0")
    experts = torch.tensor([[2, 1]]).repeat(8, 1)
    expect_layer(student, x, experts, gates, kept, weights, dy, "all to two experts")
    other = torch.randn(x.shape, generator=rng)  # nothing is kept of the call before
    expect_layer(
        student, other, experts, gates, kept, weights, dy, "the same experts, other tokens"
    )
    same = x[:1].repeat(8, 1)  # eight equal rows are eight rows
    expect_layer(student, same, experts, gates, kept, weights, dy, "equal tokens")


def drive_layers(student, calls):
    """Runs beside the student's code: layers of experts e that add e, and of such that take it
    away, held to the last."""

    def adding(sign):
        return lambda e, rows: rows + sign * float(e)

    return [[student.dispatch_combine(*args, adding(sign)) for args in calls] for sign in (1, -1)]


def drive_empty(student, x, experts, gates, kept):
    """Runs beside the student's code: what comes of it, and how often experts are called."""
    calls = []

    def run(e, rows):
        calls.append(int(e))
        return rows + 1

    return student.dispatch_combine(x, experts, gates, kept, run), calls


@exercise(
    "ex3",
    points=2,
    invariant="without a token, or with all choices dropped, zeros, and no expert is called",
    cause="cat of nothing, experts called with no rows, or NaN from a division by the kept gates",
)
def test_nothing_to_do(student, rng):
    for tokens, k, dtype in ((0, 2, torch.float32), (5, 2, torch.float32), (3, 1, torch.bfloat16)):
        x = torch.randn(tokens, 4, generator=rng).to(dtype)
        experts, gates = choices(rng, tokens, 6, k), torch.rand(tokens, k, generator=rng)
        kept = torch.zeros(tokens, k, dtype=torch.bool)
        value = student.drive(drive_empty, x, experts, gates, kept)
        y, calls = expect_tuple(value, (torch.Tensor, list), "dispatch_combine")
        expect_same(y, torch.zeros_like(x), f"y of {tokens} tokens, all dropped")
        assert not calls, f"experts {calls} were called for nobody"
        if tokens:
            kept[1] = True
            y, calls = student.drive(drive_empty, x, experts, gates, kept)
            right = torch.zeros(tokens, 4, dtype=F64)
            right[1] = (gates[1].double().sum() * (x[1].double() + 1)).to(F64)
            size = (x[1].abs().max().item() + 1) * k
            expect_close(y, right, what="y, one token kept", atol=size * (8 * unit(dtype)))
            assert not y[0].any() and not y[2].any(), "a token without a kept choice is not 0"
    calls = []
    for _ in range(3):
        kept = torch.rand(5, 2, generator=rng) < 0.7
        x, gates = torch.randn(5, 4, generator=rng), torch.rand(5, 2, generator=rng)
        x[0], kept[0] = 0, True  # a token like another, and what experts make of it is not 0
        calls.append((x, choices(rng, 5, 6, 2), gates, kept))
    for sign, found in zip((1, -1), student.drive(drive_layers, calls), strict=True):
        for (x, experts, gates, kept), y in zip(calls, found, strict=True):
            each = x.double()[:, None] + sign * experts[..., None]
            right = ((gates * kept).double()[..., None] * each).sum(1)
            what = "y, held while other tokens, and other experts, came"
            expect_close(y, right, what=what, atol=64 * unit(x.dtype))


def unit(dtype):
    """Half of a step of numbers near 1."""
    return {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}[dtype]


def drive_views(student, x, experts, gates, kept, sizes):
    """Runs beside the student's code: transposed views; experts multiply by a power of 2."""
    x, gates = x.clone().requires_grad_(), gates.clone().requires_grad_()
    views = (t.T.contiguous().T for t in (x, experts, gates, kept))
    y = student.dispatch_combine(*views, lambda e, rows: rows * float(sizes[int(e)]))
    if y.requires_grad:
        y.sum().backward()
    grads = [t.grad if t.grad is not None else 0 * t.detach() for t in (x, gates)]
    return y.detach(), *grads


@exercise(
    "ex3",
    points=2,
    invariant="y has the dtype of x, in bfloat16 too; x may be a view; sizes from 1e-8 to 1e4",
    cause="float32 out of bfloat16, gates rounded before anything else twice, or view() of x",
)
def test_dtypes_and_views(student, rng):
    for dtype in (torch.float32, torch.bfloat16):
        for size in (1.0, 1e-8, 1e4):
            tokens, count, k = 30, 6, 3
            x = (size * torch.randn(tokens, 8, generator=rng)).to(dtype)
            experts, gates = choices(rng, tokens, count, k), torch.rand(tokens, k, generator=rng)
            kept = torch.rand(tokens, k, generator=rng) < 0.8
            sizes = 2.0 ** torch.arange(-2, count - 2)
            value = student.drive(drive_views, x, experts, gates, kept, sizes)
            y, grad, of_gates = expect_tuple(value, (torch.Tensor,) * 3, "dispatch_combine")
            expect_tensor(y, f"y of {dtype}", dtype, tuple(x.shape))
            parts = gates.double() * kept * sizes.double()[experts]  # [T, k]
            right = parts.sum(1, keepdim=True) * x.double()
            # each part: gate rounded, product rounded; then k sums, rounded
            bound = (k + 4) * 2 * unit(dtype) * parts.sum(1, keepdim=True) * x.double().abs()
            expect_at_most(
                (y.double() - right).abs(), bound, f"the error of y, {dtype}, size {size}"
            )
            slope = parts.sum(1, keepdim=True).expand(x.shape)
            what = f"the gradient of x, {dtype}"
            expect_close(grad, slope, what=what, rtol=(k + 4) * 2 * unit(dtype), atol=0.0)
            each = (kept * sizes.double()[experts])[..., None] * x.double()[:, None]  # [T, k, D]
            bound = (8 + 4) * 2 * unit(dtype) * each.abs().sum(-1)
            off = (of_gates.double() - each.sum(-1)).abs()
            expect_at_most(off, bound, f"the error of the gradient of gates, {dtype}")


@exercise(
    "ex3",
    points=1,
    invariant="an expert of which a single choice is kept gets this one row, and gives it back to "
    "its token",
    cause="rows of all tokens that chose the expert, kept or not",
)
def test_one_row(student, rng):
    x, _, gates, kept, weights, dy = a_layer(rng, 6, 3, 2)
    experts = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 1], [1, 2], [2, 0]])
    for t in range(6):
        for j in (0, 1):
            kept = torch.zeros(6, 2, dtype=torch.bool)
            kept[t, j] = True
            expect_layer(student, x, experts, gates, kept, weights, dy, f"choice {j} of token {t}")


@exercise(
    "ex3",
    points=1,
    invariant="output, gradients and calls wherever sizes, drops, dtypes, layouts and magnitudes "
    "meet: a single token that is dropped, hundreds at one expert, gates of 0",
    cause="a short way for one token or one expert, calls in pieces, or a result that a later call "
    "changes",
)
def test_anywhere_in_the_layer(student, rng):
    calls = []
    crowds = [(0, "few"), (1, "few"), (1, "many"), (2, "large"), (30, "many"), (30, "large")]
    crowds += [(300, "many"), (520, "few")]
    for (tokens, ids), share, k, dtype, width, size in every_pair(
        rng,
        crowds,
        ("all", "none", "one", "some", "a choice"),
        (1, 2, 5),
        (torch.float32, torch.bfloat16),
        (1, 2, 7),
        (2.0**-40, 1.0, 2.0**12),
    ):
        count = {"few": k, "many": 64, "large": k + 1}[ids]
        names = torch.randperm(256, generator=rng) if ids == "many" else torch.arange(256)
        names = 255 - names if ids == "large" else names
        experts = names[choices(rng, tokens, count, k)]
        gates = torch.rand(tokens, k, generator=rng)
        if ids != "few":
            gates = (2 * gates - 1) * (torch.rand(tokens, k, generator=rng) < 0.8)
        kept = torch.rand(tokens, k, generator=rng) < {"all": 1.0, "some": 0.6}.get(share, 0.0)
        if share == "one" and tokens:
            kept[whole(rng, 0, tokens - 1), whole(rng, 0, k - 1)] = True
        if share == "a choice":
            kept[:, whole(rng, 0, k - 1)] = True
        x, dy = ((size * torch.randn(tokens, width, generator=rng)).to(dtype) for _ in range(2))
        sizes = 2.0 ** torch.randint(-3, 4, (256,), generator=rng)
        given = (x, experts, gates, kept, sizes, size)
        calls.append(("dispatch_combine", (0, 2, 4), dy, *given))
    for (_, _, dy, *given), found in zip(calls, sloped(student, rng, calls), strict=True):
        expect_dispatched(*found, dy, *given)


def expect_dispatched(first, second, slopes, heard, dy, x, experts, gates, kept, sizes, limit):
    """Both outputs, the gradients of x, gates and sizes, and what experts were called with."""
    (tokens, k), u, width = experts.shape, unit(x.dtype), x.shape[1]
    what = f"{tokens} tokens of {width}, {k} choices, {int(kept.sum())} kept, {x.dtype}"
    inner = x.double().clamp(-limit, limit)
    parts = gates.double() * kept * sizes.double()[experts]  # [T, k]
    total, most = parts.sum(1, keepdim=True), parts.abs().sum(1, keepdim=True)
    # each part: gate rounded, product rounded; then k sums, rounded
    bound = (k + 4) * 2 * u * most
    for y in (*first, *second):
        expect_tensor(y, f"y, {what}", x.dtype, tuple(x.shape))
        off = (y.double() - total * inner).abs()
        expect_at_most(off, bound * inner.abs(), f"the error of y, {what}")
    below = (x.double().abs() <= limit) * dy.double()
    of_x, of_gates, of_sizes = (slope.double() for slope in slopes)
    off = (of_x - total * below).abs()
    expect_at_most(off, bound * below.abs(), f"the error of the gradient of x, {what}")
    each = dy.double() * inner
    slope, reach = ((e.sum(1, keepdim=True) * kept * sizes[experts]) for e in (each, each.abs()))
    off = (of_gates - slope).abs()
    expect_at_most(off, (width + 4) * 2 * u * reach, f"the error of the gradient of gates, {what}")
    slope, reach = torch.zeros(2, 256, dtype=F64)
    for j in range(k):
        weight = (gates.double() * kept)[:, j]
        slope.index_add_(0, experts[:, j], weight * each.sum(1))
        reach.index_add_(0, experts[:, j], weight.abs() * each.abs().sum(1))
    most = (tokens * width + k + 8) * 2 * u * reach
    expect_at_most((of_sizes - slope).abs(), most, f"the error of experts' gradients, {what}")
    asked, seen = sorted(set(experts[kept].tolist())), sorted(e for e, _ in heard)
    assert seen == asked, f"{what}: calls of the experts {seen}, needed are {asked}"
    for e, rows in heard:
        own = x[((experts == e) & kept).any(1)]
        same = sorted(rows.tolist()) == sorted(own.tolist()) and rows.dtype == x.dtype
        assert same, f"{what}: expert {e} got other rows than its tokens'"


# ---- exercise 4 ------------------------------------------------------------------------------


def loss_of(logits, experts):
    """E sum f P in float64, with the gradient of the logits."""
    leaf = logits.double().requires_grad_()
    tokens, count = logits.shape
    f = torch.tensor(
        [(experts == e).sum().item() / experts.numel() for e in range(count)], dtype=F64
    )
    loss = count * (f * leaf.softmax(1).sum(0) / tokens).sum()
    loss.backward()
    return loss.detach(), leaf.grad


def drive_loss(student, logits, experts):
    """Runs beside the student's code: the loss of a view of logits, and its gradient."""
    logits = logits.repeat_interleave(2, 1)[:, ::2].requires_grad_()
    loss = student.balancing_loss(logits, experts.repeat_interleave(2, 1)[:, ::2])
    if loss.requires_grad:
        loss.backward()
    grad = logits.grad if logits.grad is not None else logits.detach() * 0
    return loss.detach(), grad.float()


def drive_load(student, experts, count, real):
    """Runs beside the student's code: the load of experts that are a transposed view."""
    return student.load(experts.T.contiguous().T, count, real)


@exercise(
    "ex4",
    points=2,
    invariant="shares of the real tokens' choices, of all experts; zeros if there is none",
    cause="shares by k or by T alone, padding counted, an end at the last expert, 0 / 0",
)
def test_loads(student, rng):
    for tokens, count, k, share in (
        (50, 8, 2, 0.7),
        (50, 8, 2, 0.7),  # others of the same sizes
        (7, 64, 6, 1.0),
        (1, 1, 1, 1.0),
        (5, 3, 3, 0.5),
        (6, 4, 1, 0.0),
        (0, 4, 2, 1.0),
    ):
        experts = choices(rng, tokens, count, k)
        real = torch.rand(tokens, generator=rng) < share
        for mask in (real, None):
            rows = experts if mask is None else experts[mask]
            counts = [(rows == e).sum().item() for e in range(count)]
            right = torch.tensor([c / max(1, rows.numel()) for c in counts])
            for seen in (
                student.load(experts, count, mask),
                student.drive(drive_load, experts, count, mask),
                student.drive(drive_gaps, "load", (experts, count, mask)),
            ):
                expect_tensor(seen, "load", torch.float32, (count,))
                what = f"load, {tokens} tokens, {share:.0%} real"
                expect_close(seen, right, what=what, atol=1e-6)
    one, two = torch.zeros(3, 1, dtype=I64), torch.tensor([[1], [1], [2]])
    seen = held_results(student, "load", [(one, 4), (two, 4), (one, 4)])
    for share, right in zip(seen, ([3, 0, 0, 0], [0, 2, 1, 0], [3, 0, 0, 0]), strict=True):
        right = torch.tensor(right) / 3
        expect_close(share, right, what="load, held while others came", atol=1e-6)


@exercise(
    "ex4",
    points=2,
    invariant="loss and gradient are those of float64, for one expert and many, huge logits, and "
    "bfloat16",
    cause="k times too large, exp() without a maximum, a softmax in bfloat16, gradients through f",
)
def test_losses(student, rng):
    for tokens, count, k, size in (
        (40, 8, 2, 1.0),
        (1, 1, 1, 1.0),
        (3, 64, 6, 3.0),
        (9, 5, 5, 1.0),
        (12, 4, 1, 1e4),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            logits = (size * torch.randn(tokens, count, generator=rng)).to(dtype)
            experts = choices(rng, tokens, count, k)
            value = student.drive(drive_loss, logits, experts)
            loss, grad = expect_tuple(value, (torch.Tensor,) * 2, "balancing_loss")
            right, slope = loss_of(logits, experts)
            what = f"{k} of {count}, logits of {size}, {dtype}"
            expect_tensor(loss, f"balancing_loss, {what}", torch.float32, ())
            expect_close(loss.item(), right.item(), what=f"the loss, {what}", rtol=2e-6)
            # a bfloat16 leaf has a bfloat16 gradient
            rtol = 0.0 if dtype == torch.float32 else 2.0**-7
            expect_close(grad, slope, what=f"its gradient, {what}", atol=2e-6, rtol=rtol)
    logits = 9990 + torch.randn(6, 4, generator=rng)  # float32 has steps of a thousandth there
    experts = choices(rng, 6, 4, 2)
    loss, _ = student.drive(drive_loss, logits, experts)
    right = loss_of(logits, experts)[0].item()
    expect_close(loss.item(), right, what="the loss of logits near 9990", rtol=2e-6)
    logits = torch.randn(600, 3, generator=rng).bfloat16()
    experts = choices(rng, 600, 3, 2)
    loss, _ = student.drive(drive_loss, logits, experts)
    right = loss_of(logits, experts)[0].item()
    expect_close(loss.item(), right, what="the loss of 600 bfloat16 rows", rtol=2e-6)


@exercise(
    "ex4",
    points=2,
    invariant="only the direction of the imbalance counts, of each expert by itself",
    cause="a step in proportion, a mean over the shares that are not 0, a sign exchanged",
)
def test_biases_move(student, rng):
    for count, speed in ((8, 0.001), (8, 0.001), (8, 0.001), (4, 1.5), (1, 0.1), (16, 1e-6)):
        bias = 0.1 * torch.randn(count, generator=rng)
        away = torch.randint(-1, 2, (count,), generator=rng).float()
        share = (1 + 0.3 * away * torch.rand(count, generator=rng).clamp(min=0.1)) / count
        if count == 4:
            share = torch.tensor([1.0, 0.0, 0.0, 0.0])
            away = torch.tensor([1.0, -1.0, -1.0, -1.0])
        seen = student.moved_bias(bias, share, speed)
        expect_tensor(seen, "moved_bias", torch.float32, (count,))
        right = bias.double() - speed * away.double()
        expect_close(seen, right, what=f"the bias, speed {speed}", atol=2e-7 * max(1.0, speed))
    bias, away = torch.randn(8, generator=rng), torch.tensor([1.0, -1, 0, 0, 0, 0, 1, -1])
    calls = [(bias, (1 + 0.5 * x) / 8, 0.5) for x in (away, -away, away)]
    held = held_results(student, "moved_bias", calls)
    held += [student.drive(drive_gaps, "moved_bias", calls[1])]
    for seen, x in zip(held, (away, -away, away, -away), strict=True):
        expect_close(seen, bias - 0.5 * x, what="the bias, held while others came", atol=1e-6)
    seen = student.moved_bias(bias, (1 + 2.0**-20 * away) / 8, 0.5)
    right = bias.double() - 0.5 * away.double()
    expect_close(seen, right, what="the bias, shares off by a millionth", atol=1e-6)
    for count in (3, 10):  # the shares without any token: less than even
        bias = torch.randn(count, generator=rng)
        seen = student.moved_bias(bias, torch.zeros(count), 0.5)
        expect_close(seen, bias + 0.5, what=f"the bias of {count} shares of 0", atol=1e-6)
    for count in (
        3,
        6,
        7,
        10,
        12,
    ):  # even shares that are no binary fractions, as `load` gives them
        bias = torch.randn(count, generator=rng)
        share = torch.full((count,), 2.0) / (2 * count)
        expect_same(student.moved_bias(bias, share, 0.5), bias, f"the bias of {count} even shares")


@exercise(
    "ex4",
    points=2,
    invariant="for any number of tokens from 4 on: at least 70 % to one expert, a loss below 0.9, "
    "no ties",
    cause="shares that are rounded below 70 %, logits that tie, or a loss above 0.9 for few tokens",
)
def test_fooled_routers(student, rng):
    for tokens in (4, 5, 6, 7, 9, 10, 11, 13, 50, 1001, 10**5):
        expect_fooled(student.fooled(tokens), tokens)


def expect_fooled(logits, tokens):
    """A loss below 0.9 where at least 70 % of the tokens go to one expert, and no ties."""
    expect_tensor(logits, "fooled", torch.float32, (tokens, 2))
    s = logits.double()
    assert torch.isfinite(s).all(), "logits must be finite"
    expect_at_most(0.99e-6, (s[:, 0] - s[:, 1]).abs().min().item(), "what a row must differ by")
    experts = s.argmax(1, keepdim=True)
    most = max((experts == e).double().mean().item() for e in (0, 1))
    loss = loss_of(s, experts)[0].item()
    expect_at_most(0.7, most, f"the share, {tokens} tokens: 0.7")
    assert loss < 0.9, f"{tokens} tokens: the loss is {loss:.4f}"


def drive_moved(student, cases):
    """Runs beside the student's code: biases of 0, moved by 1 after the load of each case."""
    import torch

    shares = [student.load(*case) for case in cases]
    return [student.moved_bias(torch.zeros(len(f)), f, 1.0) for f in shares]


@exercise(
    "ex4",
    points=1,
    invariant="biases move as the whole numbers of choices say, next to the even share, too; loads "
    "and losses wherever sizes, padding, dtypes, layouts and magnitudes meet",
    cause="a share or a comparison that is off by a rounding for some numbers of experts, a short "
    "way for one token or no padding, or a result that a later call changes",
)
def test_anywhere_in_the_balance(student, rng):
    expect_loads(student, rng)
    expect_moves(student, rng)
    calls = []
    for tokens, count, k, dtype, kind in every_pair(
        rng,
        (1, 2, 70, 300),
        (1, 2, 8, 41, 100),
        (1, 2, 0),
        (torch.float32, torch.bfloat16),
        ("plain", "ties", "tiny", "one far ahead", "all low", "all high", "wide"),
    ):
        logits = drawn_logits(rng, tokens, count, kind, False).to(dtype)
        experts = choices(rng, tokens, count, min(count, k or count))
        calls.append(("balancing_loss", (0,), torch.tensor(1.0), logits, experts))
    for (_, _, _, *given), found in zip(calls, sloped(student, rng, calls), strict=True):
        (tokens, count), (right, slope) = given[0].shape, loss_of(*given)
        first, second, (grad,), _ = found
        what = f"{tokens} tokens, {given[1].shape[1]} of {count}, {given[0].dtype}"
        for loss in (*first, *second):
            expect_tensor(loss, f"balancing_loss, {what}", torch.float32, ())
            # one sum over tokens and experts of numbers above 0, each a few roundings; and of d,
            # which is rounded before exp(-d), d exp(-d) is at most 0.37
            rtol, atol = (tokens * count + 32) * FLOAT32, count * FLOAT32
            expect_close(loss, right, what=f"the loss, {what}", rtol=rtol, atol=atol)
        rtol = 0.0 if given[0].dtype == torch.float32 else 2.0**-8
        expect_close(grad, slope, what=f"its gradient, {what}", atol=2e-6, rtol=rtol)
    sizes = [4, 5, 10, 64, 1000, *(whole(rng, 4, 300) for _ in range(5)), whole(rng, 300, 10**4)]
    found = held(student, rng, [("fooled", tokens) for tokens in sizes])
    for tokens, results in zip(sizes, found, strict=True):
        for logits in results:
            expect_fooled(logits, tokens)


def expect_loads(student, rng):
    """Loads [E] of any sizes and padding: within two roundings of the quotient of whole numbers."""
    calls = []
    for tokens, count, k, mask, kind in every_pair(
        rng,
        (0, 1, 2, 70, 1100),
        (1, 2, 8, 65, 300, 1000),
        (1, 2, 0),
        ("none", "all", "nobody", "some", "first", "last"),
        ("any", "first", "last"),
    ):
        k = min(count, k or 6)
        experts = choices(rng, tokens, count if kind == "any" else k, k)
        experts = count - 1 - experts if kind == "last" else experts
        calls.append(("load", experts, count, drawn_mask(rng, tokens, mask)))
    most = (torch.arange(2501) % 100 == 1).long()[:, None]  # 2475 is no float of 16 bits
    calls.append(("load", most, 3, None))
    for (_, experts, count, real), results in zip(calls, held(student, rng, calls), strict=True):
        rows = experts if real is None else experts[real]
        counts = Counter(rows.flatten().tolist())
        right = [counts[e] / max(1, rows.numel()) for e in range(count)]
        what = f"load, {list(experts.shape)} of {count}, {len(rows)} real"
        for seen in results:
            expect_tensor(seen, what, torch.float32, (count,))
            expect_close(seen, torch.tensor(right, dtype=F64), what=what, atol=1e-6)


def expect_moves(student, rng):
    """Biases move down where the share is above 1/E, up where it is below, and else not at all."""
    calls, aways = [], []
    for count, kind, speed, of_bias in every_pair(
        rng,
        (1, 2, 3, 8, 41, 47, 64, 107, 300, whole(rng, 4, 1000)),
        ("even", "next to it", "zeros", "one has all"),
        (1e-6, 0.001, 1.5, 1e3),
        (0.0, 1e-6, 1.0, 1e4),
    ):
        share, away = torch.full((count,), 1.0) / count, torch.zeros(count)
        if kind == "next to it":  # the float above or below, or it
            away = torch.randint(-1, 2, (count,), generator=rng).float()
            share = torch.nextafter(share, share + away)
        elif kind != "even":
            away, share = away - 1, 0 * share
        if kind == "one has all":
            at = whole(rng, 0, count - 1)
            share[at], away[at] = 1.0, float(count > 1)
        calls.append(("moved_bias", of_bias * torch.randn(count, generator=rng), share, speed))
        aways.append(away)
    for call, away, results in zip(calls, aways, held(student, rng, calls), strict=True):
        (_, bias, share, speed), what = call, f"the bias of {len(away)} experts, speed {call[3]}"
        for seen in results:
            expect_tensor(seen, "moved_bias", torch.float32, bias.shape)
            still = away == 0
            expect_same(seen[still], bias[still], f"{what}, with the even share")
            right = bias.double() - speed * away.double()
            atol = 2 * FLOAT32 * (bias.abs().max().item() + speed)
            expect_close(seen, right, what=what, atol=atol)
    cases = []
    for count in (5, 9, 41, 47, 49, *(whole(rng, 1, 130) for _ in range(12))):
        for more in (0, 1):  # a token more: the experts that it chose have more than the even share
            k, times = whole(rng, 1, min(count, 4)), whole(rng, 1, 3)
            k, times = {5: (1, 3), 9: (1, 7)}.get(count, (k, times))  # 3 (1/15) is not 1/5
            rows = torch.arange(count * times * k).view(-1, k) % count
            rows = torch.cat([rows, choices(rng, more, count, k), choices(rng, 3, count, k)])
            real = torch.arange(len(rows)) < len(rows) - 3
            order = torch.randperm(len(rows), generator=rng)
            cases.append((rows[order], count, real[order]))
    for (rows, count, real), seen in zip(cases, student.drive(drive_moved, cases), strict=True):
        own = Counter(rows[real].flatten().tolist())
        above = [own[e] * count - own.total() for e in range(count)]
        right = -torch.tensor(above).sign().float()
        what = f"the way of the biases after {own.total()} choices of {count} experts"
        expect_same(seen, right, what)


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=3,
    invariant="k at one token, E for many, 0 for none, and between them the mean in fractions",
    cause="draws with replacement, min(E, k B), a chance that is rounded; no check of k and batch",
)
def test_woken_of_any_size(student, rng):
    for count, k, batch in (
        (8, 2, 0),
        (8, 2, 1),
        (8, 2, 8),
        (64, 6, 32),
        (256, 8, 100),
        (1, 1, 0),
        (1, 1, 5),
        (7, 7, 3),
        (10**4, 1, 1),
        (10**4, 5000, 3),
        (1000, 400, 2),
        (10**4, 1, 10**4),
        (128, 1, 10**6),
        (10**4, 1, 10**5),
    ):
        if batch <= 100:
            right = float(count * (1 - (1 - Fraction(k, count)) ** batch))
        else:
            right = -count * math.expm1(batch * math.log1p(-k / count)) if k < count else count
        seen = expect_number(student.woken(count, k, batch), "woken")
        expect_close(float(seen), right, what=f"woken({count}, {k}, {batch})", rtol=1e-9, atol=1e-9)
    empty = ((8, 0, 0), (8, 9, 0), (0, 1, 0), (4, 4, -1), (1, 1, -2))
    for bad in ((8, 0, 1), (8, 9, 1), (8, -1, 1), (8, 2, -1), (0, 1, 1), *empty):
        expect_error(ValueError, lambda b=bad: student.woken(*b), f"woken{bad}")
        seen = expect_number(student.woken(4, 4, 1), "woken")
        expect_close(float(seen), 4.0, what="woken(4, 4, 1)", atol=1e-9)


@exercise(
    "ex5",
    points=1,
    invariant="each expert that anybody chose is read once",
    cause="the largest id for the number of experts, or tokens counted",
)
def test_bytes_of_steps(student, rng):
    for tokens, count, k, each in ((20, 64, 2, 10**9), (3, 8, 8, 1), (1, 1, 1, 7), (0, 4, 2, 5)):
        experts = choices(rng, tokens, count, k)
        right = len({int(e) for row in experts for e in row}) * each
        views = lambda *a: student.drive(drive_gaps, "step_bytes", a)  # noqa: E731
        for call in (student.step_bytes, lambda *a: student.drive(drive_bytes, *a), views):
            seen = expect_number(call(experts, each), "step_bytes")
            assert seen == right, f"{tokens} tokens, {k} of {count}: {seen} bytes, expected {right}"


def drive_bytes(student, experts, each):
    """Runs beside the student's code: experts that are a transposed view."""
    return student.step_bytes(experts.T.contiguous().T, each)


def drive_sent(student, experts, home, place, devices, row, once):
    """Runs beside the student's code: experts, home and place that are views."""
    views = experts.T.contiguous().T, *(t.repeat_interleave(2)[::2] for t in (home, place))
    return student.sent(*views, devices, row, once)


@exercise(
    "ex5",
    points=4,
    invariant="bytes from the token's device to those of its experts, nothing to its own",
    cause="rows and columns exchanged, devices in equal parts assumed, once for all tokens of a "
    "device, int32",
)
def test_traffic(student, rng):
    for tokens, count, k, devices, row in (
        (40, 8, 3, 4, 256),
        (25, 16, 4, 16, 1),
        (9, 5, 5, 2, 10**9),
        (7, 6, 2, 1, 8),
        (1, 1, 1, 3, 8),
        (0, 4, 2, 3, 8),
        (60, 8, 2, 2, 999_999_937),
        (30, 8, 2, 5, 14336),
        (30, 8, 2, 5, 14336),  # other choices of the same sizes
    ):
        experts = choices(rng, tokens, count, k)
        home = torch.randint(devices, (tokens,), generator=rng)
        place = torch.randint(devices, (count,), generator=rng)
        for once in (True, False):
            right = torch.zeros(devices, devices, dtype=I64)
            for t in range(tokens):
                to = [int(place[e]) for e in experts[t]]
                for q in set(to) if once else to:
                    if q != int(home[t]):
                        right[int(home[t]), q] += row
            given = experts, home, place, devices, row, once
            for seen in (student.sent(*given), student.drive(drive_sent, *given)):
                expect_same(seen, right, f"sent, {devices} devices, once={once}")
    home, place = torch.tensor([0, 1]), torch.tensor([0, 1])
    calls = [(torch.tensor([[a], [a]]), home, place, 2, 8, True) for a in (0, 1, 0)]
    for call, seen in zip(calls, held_results(student, "sent", calls), strict=True):
        right = torch.tensor([[0, 0], [8, 0]])  # both to device 0
        right = right if int(call[0][0]) == 0 else right.T
        expect_same(seen, right, "sent, held while others came")


@exercise(
    "ex5",
    points=1,
    invariant="means for all sizes from one to the largest; bytes and traffic wherever sizes, "
    "placements, rows and layouts meet",
    cause="a short way for one token, one device or many of them, ids beyond a limit, a chance in "
    "float32, or a result that a later call changes",
)
def test_anywhere_in_the_bytes(student, rng):
    cases = []
    for count, k, batch in every_pair(
        rng, (1, 2, 3, 41, 300, 10**4), (1, 2, -1, 0, "half"), (0, 1, 2, 64, 257, 10**6)
    ):
        k = max(1, count // 2) if k == "half" else max(1, min(count, k) if k > 0 else count + k)
        cases.append((count, k, batch))
    for case, seen in zip(cases, held_results(student, "woken", cases), strict=True):
        count, k, batch = case
        right = count * float(batch > 0)
        if k < count:
            right = -count * math.expm1(batch * math.log1p(-k / count))
        what = f"woken{case}"
        expect_close(float(expect_number(seen, what)), right, what=what, rtol=1e-9)
    calls, asked = [], []
    sizes = itertools.product((0, 1, 2, 70, 1100), (1, 2, 6))
    for (tokens, k), ids, each in every_pair(
        rng, list(sizes), ("few", "many", "large"), (0, 1, 2, 10**9)
    ):
        experts = choices(rng, tokens, {"few": k, "many": 64, "large": k + 1}[ids], k)
        calls.append(("step_bytes", 9999 - experts if ids == "large" else experts, each))
        asked.append(len(set(experts.flatten().tolist())) * each)
    for (_, experts, each), right, results in zip(
        calls, asked, held(student, rng, calls), strict=True
    ):
        for seen in results:
            what = f"step_bytes of {list(experts.shape)}, {each} each"
            assert expect_number(seen, what) == right, f"{what} is {seen}, expected {right}"
    calls = []
    placed = list(itertools.product(("any", "one"), ("any", "one", "as homes")))
    rows = 0, 1, 999_999_937, 10**9
    cases = every_pair(
        rng,
        (0, 1, 2, 70, 300),
        (1, 2, 6),
        ("k", 64, 300),
        (1, 2, 3, 16),
        placed,
        rows,
        (True, False),
    )
    cases.append((70, 2, 300, 70, ("any", "any"), 10**9, True))
    cases += [(1, 1, "k", 2, ("any", "any"), row, True) for row in rows]
    for tokens, k, count, devices, (homes, place), row, once in cases:
        count = k if count == "k" else count
        home = torch.randint(devices, (tokens,), generator=rng)
        at = torch.randint(devices, (count,), generator=rng)
        last = torch.full((max(tokens, count),), devices - 1)
        home = last[:tokens].clone() if homes == "one" else home
        if place != "any":
            at = (last if place == "as homes" else 0 * last)[:count].clone()
        experts = choices(rng, tokens, count, k)
        calls.append(("sent", experts, home, at, devices, row, once))
    for (_, *given), results in zip(calls, held(student, rng, calls), strict=True):
        right = carried(*given)
        what = f"sent, {list(given[0].shape)} of {len(given[2])}, {given[3]} devices, {given[5]}"
        for seen in results:
            expect_same(seen, right, what)


def carried(experts, home, place, devices, row, once):
    """Bytes [devices, devices] by a walk."""
    moved = [[0] * devices for _ in range(devices)]
    place = place.tolist()
    for own, line in zip(home.tolist(), experts.tolist(), strict=True):
        to = [place[e] for e in line]
        for q in set(to) if once else to:
            moved[own][q] += row * (q != own)
    return torch.tensor(moved, dtype=I64)


# ---- exercise 6 ------------------------------------------------------------------------------


def entropy(scores, active):
    """The weighted loss in float64, and the gradient of the scores."""
    leaf = scores.double().requires_grad_()
    sign = torch.where(active, 1.0, -1.0).double()
    each = torch.nn.functional.softplus(-sign * leaf)
    silent = active.double().mean() + 0.005
    loss = (each * torch.where(active, torch.ones_like(silent), silent)).mean()
    loss.backward()
    return loss.detach(), leaf.grad


def drive_entropy(student, scores, active):
    """Runs beside the student's code: the loss and its gradient."""
    leaf = scores.clone().requires_grad_()
    loss = student.predictor_loss(leaf.T.contiguous().T, active.T.contiguous().T)  # views
    loss.backward()
    return loss.detach(), leaf.grad


@exercise(
    "ex6",
    points=2,
    invariant="weighted cross-entropy and gradient are those of float64, for scores of any size, "
    "none or all active",
    cause="log of a sigmoid that is 0, a share of each neuron or token, normalized weights",
)
def test_losses_of_predictors(student, rng):
    for tokens, neurons, size, share in (
        (30, 20, 1.0, 0.2),
        (4, 3, 1e4, 0.5),
        (5, 6, 1.0, 0.0),
        (5, 6, 1.0, 1.0),
        (1, 1, 3.0, 1.0),
        (10, 8, 50.0, 0.8),
        (5000, 3, 1.0, 0.3),
    ):
        scores = size * torch.randn(tokens, neurons, generator=rng)
        active = torch.rand(tokens, neurons, generator=rng) < share
        value = student.drive(drive_entropy, scores, active)
        loss, grad = expect_tuple(value, (torch.Tensor,) * 2, "predictor_loss")
        right, slope = entropy(scores, active)
        what = f"{share:.0%} active, scores of {size}"
        expect_tensor(loss, f"predictor_loss, {what}", torch.float32, ())
        rounding = 2.0**-23 * scores.abs().max().item()  # of a difference of two such numbers
        expect_close(loss, right, what=f"the loss, {what}", rtol=1e-5, atol=rounding)
        expect_close(grad, slope, what=f"its gradient, {what}", atol=1e-5 / scores.numel())


@exercise(
    "ex6",
    points=2,
    invariant="recall is hits by active neurons, 1.0 without any; bytes are those of the union",
    cause="0 / 0, precision, a mean of each token's recall, or a sum over tokens",
)
def test_recalls_and_bytes(student, rng):
    cases = (
        (40, 30, 0.3, 0.5),
        (9, 30, 0.3, 0.1),
        (9, 30, 0.3, 0.3),
        (3, 5, 1.0, 0.0),
        (4, 6, 0.0, 0.5),
        (0, 4, 1, 1),
        (1, 1, 1, 1),
    )
    for tokens, neurons, a, b in cases:
        active = torch.rand(tokens, neurons, generator=rng) < a
        chosen = torch.rand(tokens, neurons, generator=rng) < b
        if tokens == 40:
            active[0], chosen[0] = True, False
            chosen[:, 7:11] = False
        hits = sum(1 for x, y in zip(active.flatten(), chosen.flatten(), strict=True) if x and y)
        right = hits / int(active.sum()) if active.any() else 1.0
        for seen in (
            student.recall(chosen, active),
            student.drive(drive_gaps, "recall", (chosen, active)),
        ):
            what = f"recall, {a:.0%} active, {b:.0%} chosen"
            expect_close(float(expect_number(seen, "recall")), right, what=what, atol=1e-6)
        used = sum(1 for n in range(neurons) if any(chosen[t, n] for t in range(tokens)))
        for width, number, predictor in ((1, 1, 0), (4096, 2, 10**6), (128, 4, 14656)):
            right, given = (
                number * (3 * width * used + predictor),
                (chosen, width, number, predictor),
            )
            for seen in (
                student.bytes_read(*given),
                student.drive(drive_gaps, "bytes_read", given),
            ):
                expect_number(seen, "bytes_read")
                assert seen == right, f"bytes_read of {used} neurons is {seen}, expected {right}"


@exercise(
    "ex6",
    points=1,
    invariant="bytes of large layers are whole numbers without an end, however many tokens chose",
    cause="products or counts in 32 or 8 bits",
)
def test_bytes_of_large_layers(student, rng):
    for tokens, neurons, width, number, predictor in (
        (1, 100_000, 20_000, 4, 10**9),
        (2, 53_248, 16_384, 2, 0),
        (256, 3, 128, 2, 0),  # a count in eight bits is 0 again
        (512, 2, 1, 1, 5),
    ):
        chosen = torch.ones(tokens, neurons, dtype=torch.bool)
        right = number * (3 * width * neurons + predictor)
        seen = expect_number(student.bytes_read(chosen, width, number, predictor), "bytes_read")
        assert seen == right, f"{neurons} neurons of {width} is {seen}, expected {right}"
        assert isinstance(seen, int), f"bytes_read is {seen!r}, a whole number is asked for"
        hits = expect_number(student.recall(chosen, chosen), "recall")
        expect_close(float(hits), 1.0, what="recall of all", atol=1e-6)


def neuron_by_neuron(x, gate, up, down, chosen):
    """[T, D] float64: the sum over the neurons that a token chose."""
    y = torch.zeros(len(x), x.shape[1], dtype=F64)
    for n in chosen.any(0).nonzero().flatten().tolist():
        inner = (x.double() @ gate[n].double()).clamp(min=0) * (x.double() @ up[n].double())
        y += (inner * chosen[:, n])[:, None] * down[:, n].double()
    return y


def drive_turned(student, x, gate, up, down, chosen):
    """Runs beside the student's code: all arguments are transposed views."""
    views = [t.T.contiguous().T for t in (x, gate, up, down, chosen)]
    return student.skipping_mlp(*views)


def drive_flops(student, x, gate, up, down, chosen):
    """Runs beside the student's code: y, and the FLOPs of the matrix products that made it."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        y = student.skipping_mlp(x, gate, up, down, chosen)
    return y, counter.get_total_flops()


@exercise(
    "ex6",
    points=3,
    invariant="each token sums over its own chosen neurons; rows and columns that nobody chose may "
    "hold NaN; no token and no neuron are no error",
    cause="the union for all, a product with 0 in place of an index, down's rows for its columns, "
    "active neurons that were not chosen",
)
def test_mlps_that_skip(student, rng):
    for tokens, width, neurons, share, size, idle in (
        (12, 6, 20, 0.4, 1.0, (0, 5, 19)),
        (5, 7, 7, 0.6, 1.0, (3,)),
        (1, 5, 9, 0.5, 1.0, (1, 2)),
        (3, 1, 1, 1.0, 1.0, ()),
        (1, 1, 1, 1.0, 1.0, ()),
        (4, 3, 6, 0.0, 1.0, (0, 1, 2, 3, 4, 5)),
        (0, 3, 6, 0.5, 1.0, (2,)),
        (6, 4, 8, 0.7, 1e-3, (4,)),
        (6, 4, 8, 0.7, 100.0, (7,)),
    ):
        shapes = ((tokens, width), (neurons, width), (neurons, width), (width, neurons))
        x, gate, up, down = (torch.randn(s, generator=rng) for s in shapes)
        x = size * x
        chosen = torch.rand(tokens, neurons, generator=rng) < share
        chosen[:, list(idle)] = False
        right = neuron_by_neuron(x, gate, up, down, chosen)
        for n in range(neurons):
            if not chosen[:, n].any():
                gate[n], up[n], down[:, n] = math.nan, math.nan, math.nan
        most = right.abs().max().item() if right.numel() else 0.0
        for y in (
            student.skipping_mlp(x, gate, up, down, chosen),
            student.drive(drive_turned, x, gate, up, down, chosen),
        ):
            what = f"{tokens} tokens, {share:.0%} of {neurons} neurons"
            expect_tensor(y, f"y, {what}", torch.float32, (tokens, width))
            expect_close(y, right, what=f"y, {what}", atol=2e-5 * max(size**2, most))
    calls = []
    for _ in range(3):
        parts = [torch.randn(s, generator=rng) for s in ((2, 3), (4, 3), (4, 3), (3, 4))]
        calls.append((*parts, torch.ones(2, 4, dtype=torch.bool)))
    for call, y in zip(calls, held_results(student, "skipping_mlp", calls), strict=True):
        right = neuron_by_neuron(*call)
        most = 2e-5 * max(1.0, right.abs().max().item())
        expect_close(y, right, what="y, held while others came", atol=most)
    tokens, width, neurons, used = 8, 16, 256, 16  # a sixteenth is read: NaN made 0 is still read
    shapes = ((tokens, width), (neurons, width), (neurons, width), (width, neurons))
    x, gate, up, down = (torch.randn(s, generator=rng) for s in shapes)
    chosen = torch.zeros(tokens, neurons, dtype=torch.bool)
    chosen[:, torch.randperm(neurons, generator=rng)[:used]] = True
    y, flops = student.drive(drive_flops, x, gate, up, down, chosen)
    right = neuron_by_neuron(x, gate, up, down, chosen)
    expect_close(y, right, what="y of a sixteenth", atol=2e-5 * right.abs().max().item())
    whole = 6 * tokens * width * neurons
    expect_at_most(flops, whole / 4, "FLOPs where a sixteenth of the neurons is chosen")


@exercise(
    "ex6",
    points=1,
    invariant="losses, gradients, recalls, bytes and layers wherever sizes, shares, magnitudes and "
    "layouts meet: nearly all active, one score of 1e4, one token, nobody chosen",
    cause="a weight that is cut off at 1, a short way for one token or many, a mean of rounded "
    "parts, rows that are read for nobody, or a result that a later call changes",
)
def test_anywhere_in_the_neurons(student, rng):
    calls = []
    kinds = ("plain", "tiny", "one of 1e4", "all of 1e4", "as they are", "opposite")
    cases = [*every_pair(rng, SIZES[1:], kinds, SHARES), ((2, 300), "plain", "all but one")]
    for (tokens, neurons), kind, share in cases:
        active = drawn_active(rng, tokens, neurons, share)
        scores = torch.randn(tokens, neurons, generator=rng)
        if kind == "tiny":
            scores = scores * 2.0**-60
        elif kind == "one of 1e4":
            scores[whole(rng, 0, tokens - 1), whole(rng, 0, neurons - 1)] = 1e4
        elif kind == "all of 1e4":
            scores = 1e4 * (scores / scores.abs().max())
        elif kind != "plain":  # sure of it, or of the contrary
            sign = torch.where(active == (kind == "opposite"), -1.0, 1.0)
            scores = sign * (10 + 10 * torch.rand(tokens, neurons, generator=rng))
        calls.append(("predictor_loss", (0,), torch.tensor(1.0), scores, active))
    for (_, _, _, *given), found in zip(calls, sloped(student, rng, calls), strict=True):
        (right, slope), (scores, active), (*both, (grad,), _) = entropy(*given), given, found
        what = f"{list(scores.shape)}, {int(active.sum())} active"
        rounding = 2.0**-23 * scores.abs().max().item()  # of a difference of two such numbers
        for (loss,) in both:
            expect_tensor(loss, f"predictor_loss, {what}", torch.float32, ())
            expect_close(loss, right, what=f"the loss, {what}", rtol=1e-5, atol=rounding)
        expect_close(grad, slope, what=f"its gradient, {what}", atol=1e-5 / scores.numel())
    calls = []
    for size, a, b, width, number, predictor in every_pair(
        rng, SIZES, SHARES, SHARES, (1, 2 * 10**4), (1, 2, 4), (0, 1, 10**9)
    ):
        chosen, active = (drawn_active(rng, *size, share) for share in (a, b))
        calls += [("recall", chosen, active), ("bytes_read", chosen, width, number, predictor)]
    for (name, chosen, *rest), results in zip(calls, held(student, rng, calls), strict=True):
        for seen in results:
            what, seen = f"{name} of {list(chosen.shape)}", expect_number(seen, name)
            if name == "recall":
                hits, of = int((chosen & rest[0]).sum()), int(rest[0].sum())
                expect_close(float(seen), hits / of if of else 1.0, what=what, atol=1e-6)
            else:
                right = rest[1] * (3 * rest[0] * int(chosen.any(0).sum()) + rest[2])
                assert seen == right and isinstance(seen, int), f"{what} is {seen}, not {right}"
    expect_skipped(student, rng)


SIZES = ((0, 5), (1, 1), (1, 40), (2, 300), (40, 1), (9, 7), (300, 9), (70, 64))
SHARES = ("none", "one", "some", "a token's", "a neuron's", "all but one", "all")


def drawn_active(rng, tokens, neurons, share):
    """[T, N] bool: which neurons, by a kind of share."""
    mask = torch.rand(tokens, neurons, generator=rng) < 0.3
    if share != "some":
        mask = torch.full((tokens, neurons), share in ("all", "all but one"))
    if tokens and share not in ("none", "some", "all"):
        t, n = whole(rng, 0, tokens - 1), whole(rng, 0, neurons - 1)
        rows = slice(None) if share == "a neuron's" else t
        mask[rows, slice(None) if share == "a token's" else n] = share != "all but one"
    return mask


def drive_skipping(student, calls):
    """Runs beside the student's code: the FLOPs of the matrix products of each call."""
    from torch.utils.flop_counter import FlopCounterMode

    found = []
    for args in calls:
        with FlopCounterMode(display=False) as counter:
            student.skipping_mlp(*args)
        found.append(counter.get_total_flops())
    return found


def expect_skipped(student, rng):
    """Layers against float64, each entry to the roundings of what it is a sum of."""
    calls, rights = [], []
    for (tokens, neurons), width, share, size, of_gate, idle in every_pair(
        rng, SIZES, (1, 2, 16), SHARES, (2.0**-20, 1.0, 2.0**10), (2.0**-20, 1.0), IDLE
    ):
        chosen = drawn_active(rng, tokens, neurons, share)
        shapes = ((tokens, width), (neurons, width), (neurons, width), (width, neurons))
        x, gate, up, down = (torch.randn(s, generator=rng) for s in shapes)
        x, gate = size * x, of_gate * gate
        down[whole(rng, 0, width - 1)] *= 2.0**-20
        g, u = (x.double() @ w.double().T for w in (gate, up))
        right = (g.clamp(min=0) * u * chosen) @ down.double().T
        g, u = (x.double().abs() @ w.double().abs().T for w in (gate, up))
        reach = (g * u * chosen) @ down.double().abs().T
        for w in (gate, up, down.T):
            w[~chosen.any(0)] = idle
        calls.append(("skipping_mlp", x, gate, up, down, chosen))
        rights.append((right, (2 * width + neurons + 8) * FLOAT32 * reach))
    found = held(student, rng, calls)
    for (_, x, *_, chosen), (right, bound), results in zip(calls, rights, found, strict=True):
        what = f"y, {list(chosen.shape)}, {int(chosen.sum())} chosen, of {x.shape[1]} channels"
        for y in results:
            expect_tensor(y, what, torch.float32, tuple(x.shape))
            expect_at_most((y.double() - right).abs(), bound, f"the error of {what}")
    few, most = [], []
    for tokens, neurons, used in ((1, 64, 1), (1, 300, 9), (70, 64, 3), (300, 32, 2)):
        shapes = ((tokens, 8), (neurons, 8), (neurons, 8), (8, neurons))
        chosen = torch.zeros(tokens, neurons, dtype=torch.bool)
        chosen[:, torch.randperm(neurons, generator=rng)[:used]] = True
        few.append((*(torch.randn(s, generator=rng) for s in shapes), chosen))
        most.append(6 * tokens * 8 * neurons / 4)
    for flops, bound, (*_, chosen) in zip(
        student.drive(drive_skipping, few), most, few, strict=True
    ):
        what = f"FLOPs where {int(chosen.any(0).sum())} of {chosen.shape[1]} neurons are chosen"
        expect_at_most(flops, bound, f"{what}, {len(chosen)} tokens")


IDLE = (math.nan, math.inf, 0.0)
