"""Hidden tests of lab02: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.  Where codes matter, they are made from codes, with an
offset of at most 0.4 of a step: no float32 formula for x / s can give another code.
"""

import itertools

import pytest
import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_number,
    expect_same,
    expect_tensor,
)
from efflib.lab.again import held, refused

FLOAT32 = 2.0**-24  # relative error of one float32 rounding
BFLOAT16 = 2.0**-8  # of one rounding to bfloat16
QMAX, FLOOR = 127, 1e-5
CLEAR = 1e-4  # distance from a rounding tie, in steps, at which no float32 formula changes a code
LLAMA = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def whole(rng, low, high):
    """A number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def spread(rng, options, count):
    """`count` of the options, each as often as the others to within one, in an order drawn."""
    order = []
    while len(order) < count:
        order += [options[i] for i in torch.randperm(len(options), generator=rng).tolist()]
    return order[:count]


TYPES = (torch.float32, torch.bfloat16)


def cases_in_pairs(rng, limit):
    """12 cases (k, lead, dtype, size), each of two in a row of one shape.

    lead: dimensions in front of the last, each number of them in each dtype; size: a power of 2, up
    to 2^limit and down to 2^-limit in each pair.
    """
    cases, kinds = [], spread(rng, list(itertools.product((1, 2, 3), TYPES)), 6)
    for (dims, dtype), k in zip(kinds, spread(rng, (1, 2, 5, 9, 16, 33), 6), strict=True):
        lead, large = [whole(rng, 1, 4) for _ in range(dims)], whole(rng, 0, 1)
        lead[0] += dims == 3 and lead[0] == 1  # of four dimensions the first is another one
        for sign in (large, 1 - large):
            cases.append((k, lead, dtype, 2.0 ** ((2 * sign - 1) * whole(rng, limit // 2, limit))))
    return cases


def expect_each(checks, found):
    """Both results of each call pass the check (function, *args) of that call."""
    for (check, *args), results in zip(checks, found, strict=True):
        for result in results:
            check(result, *args)


def drive_switch(student, calls):
    """Runs beside the student's code: the functions that leave gradients on, or off, otherwise
    than they found them."""
    import torch

    wrong = []
    for on in (True, False):
        for name, *args in calls:
            torch.set_grad_enabled(on)
            getattr(student, name)(*args)
            if torch.is_grad_enabled() is not on:
                wrong.append(name)
    torch.set_grad_enabled(True)
    return wrong


def leaves_gradients(student, calls):
    wrong = student.drive(drive_switch, calls)
    assert not wrong, f"{wrong[0]} left gradients on, or off, otherwise than it found them"


def rounded(x, top, clear=CLEAR):
    """(x through the 8-bit grid that ends at top, what a tie may move it by), in float64."""
    step = torch.where(top > 0, top.double() / QMAX, 1.0)
    steps = x.double() / step
    tie = ((steps - steps.floor() - 0.5).abs() <= clear) & (steps.abs() < QMAX)
    return steps.round().clamp(-QMAX, QMAX) * step, tie * step


def loose_product(x, w, bias=None, roundings=8):
    """As product, of factors (values, what ties may move them by)."""
    (x, of_x), (w, of_w) = x, w
    y, bound = product(x, w, bias)
    bound = bound + x.abs() @ w.abs().T * FLOAT32 * (roundings - 8)
    if bias is not None:  # which may be the first term of the sum
        bound = bound + bias.double().abs() * FLOAT32 * x.shape[-1]
    return y, bound + of_x @ w.abs().T + x.abs() @ of_w.T + of_x @ of_w.T


def expect_output(y, right, bound, what):
    expect_tensor(y, what, torch.float32, tuple(right.shape))
    expect_within(y, right, bound, what)


def coded(shape, step, rng, reach=120):
    """(values, codes) of a shape [R, C]: values = step (code + offset); every row reaches 127."""
    codes = torch.randint(-reach, reach + 1, shape, generator=rng).double()
    values = codes + 0.8 * torch.rand(shape, generator=rng) - 0.4
    for i in range(shape[0]):
        j = int(torch.randint(shape[1], (1,), generator=rng))
        codes[i, j] = values[i, j] = QMAX if i % 2 else -QMAX
    return (values * step).float(), codes


def coded_tensor(shape, step, rng):
    """As `coded`, but only the tensor as a whole reaches 127 steps."""
    values, codes = coded((1, shape[0] * shape[1]), step, rng)
    return values.view(shape), codes.view(shape)


def product(x, w, bias=None):
    """(x w^T + bias in float64, bound of the rounding of any float32 order of it)."""
    x, w = x.double(), w.double()
    bound = (x.abs() @ w.abs().T) * FLOAT32 * (x.shape[-1] + 8)
    if bias is None:
        return x @ w.T, bound
    return x @ w.T + bias.double(), bound + bias.double().abs() * 4 * FLOAT32


def expect_within(observed, expected, bound, what):
    error = (observed.double() - expected).abs()
    expect_at_most(error, bound, f"{what}: |y - expected|")


# ---- exercise 1 ------------------------------------------------------------------------------


def drive_random(student, batches, w):
    """Runs beside the student's code: maxima of the three layers of a random network."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            n, k = w.shape
            self.block = nn.ModuleDict({"up": nn.Linear(k, n, bias=False), "down": nn.Linear(n, k)})
            self.head = nn.Linear(k, 2)

        def forward(self, x):
            return self.head(self.block["down"](torch.tanh(self.block["up"](x))))

    net = Net().to(batches[0].dtype)
    with torch.no_grad():
        net.block["up"].weight.copy_(w)
    return student.channel_maxima(net, ["block.down", "block.up"], batches)


def drive_ids(student, batches, table):
    """Runs beside the student's code: maxima of a layer that reads an embedding of token ids."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Embedding(*table.shape), nn.Linear(table.shape[1], 2))
    with torch.no_grad():
        model[0].weight.copy_(table)
    return student.channel_maxima(model, ["1"], batches)


@exercise(
    "ex1",
    points=1,
    invariant="the maxima are those of the layers' own inputs, over all tokens of all batches, "
    "also where a batch holds token ids",
    cause="outputs for inputs, the batch dimension kept, the order of the names relied on, or a "
    "batch that is changed before the model gets it",
)
def test_maxima_of_a_random_network(student, rng):
    w = torch.randn(5, 7, generator=rng)
    for shapes in (((3, 4, 7), (1, 9, 7)), ((6, 7),), ((2, 2, 2, 7), (4, 1, 3, 7))):
        batches = [torch.randn(shape, generator=rng) for shape in shapes]
        maxima = student.drive(drive_random, batches, w)
        assert isinstance(maxima, dict) and set(maxima) == {"block.up", "block.down"}, (
            "channel_maxima must return a dict with an entry for each name and no other"
        )
        rows = torch.cat([b.flatten(0, -2) for b in batches])
        up = expect_tensor(maxima["block.up"], "x_max", torch.float32, (7,))
        assert torch.equal(up, rows.abs().amax(0)), "the maxima of the first layer differ"
        inner = torch.tanh(rows.double() @ w.double().T).abs().amax(0)
        down = expect_tensor(maxima["block.down"], "x_max", torch.float32, (5,))
        # a sum of 7 products, and tanh, which does not enlarge errors
        size = (rows.double().abs() @ w.double().abs().T).amax()
        expect_close(down, inner, what="maxima inside", atol=(size * 16 * FLOAT32).item())
    table = torch.randn(11, 4, generator=rng)
    batches = [torch.randint(11, (2, 3), generator=rng) for _ in range(2)]
    maxima = student.drive(drive_ids, batches, table)
    seen = expect_tensor(maxima["1"], "x_max behind an embedding", torch.float32, (4,))
    expected = table[torch.cat(batches).flatten()].abs().amax(0)
    expect_same(seen, expected, "x_max behind an embedding")


def drive_twice(student, pair):
    """Runs beside the student's code: a layer that runs twice in one pass."""
    from torch import nn

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            turned = self.other(x[0].transpose(0, 1)).transpose(0, 1)  # a view, not contiguous
            return self.layer(x[0]) + self.layer(x[1]) + turned

    return student.channel_maxima(Twice(), ["layer", "other"], [pair])


@exercise(
    "ex1",
    points=2,
    invariant="a layer that runs twice in one forward pass: the maximum over both calls; inputs "
    "may be views",
    cause="the last call overwrites the first; or view in place of flatten or reshape",
)
def test_layer_that_runs_twice(student, rng):
    a, b = torch.randn(2, 3, 4, generator=rng), torch.randn(2, 3, 4, generator=rng)
    b[..., 0] = 0
    for size in (1.0, 1e-8, 1e4):
        maxima = student.drive(drive_twice, size * torch.stack([a, b]))
        both = (size * torch.maximum(a.abs(), b.abs())).amax((0, 1))
        expect_tensor(maxima["layer"], "x_max", torch.float32, (4,))
        expect_same(maxima["layer"], both, f"x_max over both calls, x of size {size:g}")
        expect_tensor(maxima["other"], "x_max", torch.float32, (4,))
        one = (size * a).abs().amax((0, 1))
        expect_same(maxima["other"], one, f"x_max of the other layer, x of size {size:g}")


def drive_error(student, good, bad, refuse):
    """Runs beside the student's code: hooks left behind after an error, and a pass that works.

    A layer gets the wrong width; or, with `refuse`, the model itself raises a KeyError.
    """
    import torch
    from torch import nn

    class Model(nn.Sequential):
        def forward(self, x):
            if refuse and x.shape[-1] != 4:
                raise KeyError("a batch that this model does not know")
            for layer in self:
                x = layer(x)
            return x

    model = Model(nn.Linear(4, 3), nn.Linear(3, 2))
    own = [m.register_forward_pre_hook(lambda module, args: None) for m in (model, model[0])]
    own.append(model[1].register_forward_hook(lambda module, args, y: None))
    kind, left = "", []
    for on in (True, False):
        torch.set_grad_enabled(on)
        try:
            student.channel_maxima(model, ["0", "1"], [good, bad])
        except Exception as fault:
            kind = type(fault).__name__
        left.append(torch.is_grad_enabled() is on)
    torch.set_grad_enabled(True)
    hooks = sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()) - 3
    for handle in own:
        handle.remove()
    return kind, hooks, all(left), student.channel_maxima(model, ["0"], [good])


@exercise(
    "ex1",
    points=2,
    invariant="hooks are removed also if the model raises, whatever it raises, and the error is "
    "passed on",
    cause="handles removed after the loop instead of in finally, or for one kind of error only, or "
    "the error swallowed",
)
def test_model_that_raises(student, rng):
    good, bad = torch.randn(2, 4, generator=rng), torch.randn(2, 5, generator=rng)
    for refuse, right in ((False, "RuntimeError"), (True, "KeyError")):
        kind, hooks, left, maxima = student.drive(drive_error, good, bad, refuse)
        assert kind == right, f"the model's {right} came out as {kind or 'nothing'}"
        assert hooks == 0, f"{hooks} hooks more than before on a model that raised a {right}"
        assert left, f"a {right} left gradients on, or off, otherwise than they were before"
        expect_tensor(maxima["0"], "x_max", torch.float32, (4,))
        expect_same(maxima["0"], good.abs().amax(0), f"x_max after a {right}")


def drive_side_effects(student, batch, weight):
    """Runs beside the student's code: what two searches leave on a model.

    The second one is over half of the batch.
    """
    import torch
    from torch import nn

    inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))
    model = nn.Sequential(nn.Linear(4, 4), inner).to(batch.dtype)
    inner.eval()
    inner[0].train()
    inner[0].bias.requires_grad_(False)
    with torch.no_grad():
        model[0].weight.copy_(weight)
    model[0].weight.grad = weight.clone()
    grads = []

    def watch(module, args):
        grads.append(torch.is_grad_enabled())

    handle = model.register_forward_pre_hook(watch)
    maxima = student.channel_maxima(model, ["0", "1.0"], [batch])
    kept = len(model._forward_pre_hooks)
    handle.remove()
    enabled, modes = torch.is_grad_enabled(), [module.training for module in model.modules()]
    torch.set_grad_enabled(True)
    model.eval()
    second = student.channel_maxima(model, ["0"], [batch / 2])
    modes += [module.training for module in model.modules()]
    torch.set_grad_enabled(True)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    layer, names = model[0], list(model.state_dict())
    rest = layer.weight.detach(), layer.weight.grad, names, second
    return maxima, grads, kept, enabled, modes, frozen, rest


@exercise(
    "ex1",
    points=1,
    invariant="bfloat16 inputs give float32 maxima; no gradients; foreign hooks, the mode of every "
    "module, requires_grad, weights and their gradients stay, and a second search starts anew",
    cause="no torch.no_grad, gradients switched off for good, eval mode left on, or train mode set "
    "again where a module was in eval mode, parameters frozen or thawed, all hooks of the model "
    "cleared, its weights changed, or maxima kept on its layers",
)
def test_side_effects(student, rng):
    batch = torch.randn(3, 4, generator=rng).bfloat16()
    weight = torch.randn(4, 4, generator=rng).bfloat16()
    value = student.drive(drive_side_effects, batch, weight)
    maxima, grads, kept, enabled, modes, frozen, (later, gradient, names, second) = value
    expect_same(later, weight, "a weight of the model afterwards")
    assert gradient is not None, "a weight had a gradient before, now it has none"
    expect_same(gradient, weight, "the gradient of a weight afterwards")
    right = ["0.weight", "0.bias", "1.0.weight", "1.0.bias"]
    assert names == right, f"the state of the model had the names {right}, now {names}"
    half = expect_tensor(second["0"], "x_max of a second search", torch.float32, (4,))
    expected = (batch / 2).abs().amax(0).float()
    expect_same(half, expected, "x_max of a second search, over half of the batch")
    first = expect_tensor(maxima["0"], "x_max", torch.float32, (4,))
    assert torch.equal(first, batch.abs().amax(0).float()), "maxima of bfloat16 inputs differ"
    assert grads == [False], f"one pass without gradients is asked, gradients were on: {grads}"
    assert kept == 1, "a hook that was on the model before is gone"
    assert enabled, "gradients were switched off for good"
    right = [True, True, False, True, False]  # the model, 0, 1, 1.0, 1.1
    assert modes[:5] == right, f"training modes were {right}, they became {modes[:5]}"
    assert not any(modes[5:]), f"all was in eval mode, training modes became {modes[5:]}"
    assert frozen == ["1.0.bias"], f"1.0.bias was frozen, now these are: {frozen}"


@exercise(
    "ex1",
    points=2,
    invariant="from ratio times torch.median up, ascending, whatever the size of x_max or the "
    "ratio; a channel that is always 0 is none",
    cause="> for >=, a mean of the two middle channels, 0 >= 0 taken for an outlier, small maxima "
    "taken for 0, or a ratio below 1 clamped",
)
def test_rule_for_outliers(student, rng):
    cases = [
        ([2.0, 4.0, 1.0, 8.0], 2, [1, 3]),  # the lower median is 2
        ([0.0, 0.0, 0.0, 5.0, 0.0], 3, [3]),
        ([0.0, 0.0, 0.0], 3, []),
        ([7.0], 1, [0]),
        ([2.0, 5.0, 4.875, 1.0, 0.5], 2.5, [1]),
        ([2.0, 0.875, 4.0, 1.0, 0.0], 0.875, [0, 1, 2, 3]),
        ([2e-8, 4e-8, 1e-8, 8e-8], 3, [3]),
        ([2e-30, 4e-30, 1e-30, 8e-30], 3, [3]),
        ([2e4, 4e4, 1e4, 8e4], 3, [3]),
        ([0.0, 0.0, 1e-8], 3, [2]),
    ]
    x_max = torch.rand(101, generator=rng) + 0.5
    where = torch.randperm(101, generator=rng)[:9]
    x_max[where] *= 40
    cases.append((x_max.tolist(), 8, sorted(where.tolist())))
    for values, ratio, expected in cases:
        found = student.outlier_channels(torch.tensor(values), ratio)
        expect_tensor(found, "outlier_channels", torch.int64, (len(expected),))
        assert found.tolist() == expected, f"{found.tolist()}, expected {expected}"


def drive_plans(student, plans, factors):
    """Runs beside the student's code: searches of models that give each named layer views of the
    batch, times factors of its own, as often as the plan says; all results after the last."""
    import torch
    from torch import nn

    def view(x, way):
        if way == 1 and x.dim() > 2:
            x = x.transpose(0, 1)
        if way == 2:
            return x.repeat_interleave(2, -1)[..., ::2]
        if way == 3:
            return torch.cat([x, x], -1)[..., : x.shape[-1]]
        return x

    class Model(nn.Module):
        def __init__(self, plan, width):
            super().__init__()
            self.plan, self.a = plan, nn.ModuleDict({"b": nn.ModuleList()})
            self.b = nn.Linear(width, 2)
            for _ in range(2):
                self.a["b"].append(nn.Sequential(nn.Linear(width, 1, bias=False), nn.Linear(1, 3)))

        def forward(self, x):
            for name, way, factor in self.plan:
                self.get_submodule(name)(view(x * factor, way))
            return x

    def search(names, plan, batches):
        model = Model(plan, batches[0].shape[-1]).to(batches[0].dtype)
        first = student.channel_maxima(model, names, batches)
        model.plan = [(name, way, factors * factor) for name, way, factor in plan]
        return first, student.channel_maxima(model, names, batches)

    found = [search(*plan) for plan in plans]
    return [[{n: x.clone() for n, x in maxima.items()} for maxima in pair] for pair in found]


NAMES = ("b", "a.b.0.0", "a.b.1.0")  # of layers of drive_plans; a.b.1.1 is not asked for


@exercise(
    "ex1",
    points=1,
    invariant="both functions, anywhere in what the card admits: any layers, in any order, however "
    "often they run, inputs of every size and dtype in views; results stay when others are asked",
    cause="a corner where two others meet, such as bfloat16 in four dimensions; maxima of an "
    "earlier search; or memory used again",
)
def test_anywhere_in_a_model(student, rng):
    plans, rights = [], []
    for k, lead, dtype, size in cases_in_pairs(rng, 90):
        names = [NAMES[i] for i in torch.randperm(3, generator=rng)[: whole(rng, 1, 3)].tolist()]
        runs = [*names, *names, *NAMES]
        plan = [(name, whole(rng, 0, 3), 2.0 ** whole(rng, -3, 3)) for name in runs]
        plan = [plan[i] for i in torch.randperm(len(plan), generator=rng).tolist()]
        batches = [(size * torch.randn(*lead, k, generator=rng)).to(dtype) for _ in range(2)]
        plans.append((names, plan, batches))
        top = torch.stack([x.float().abs().flatten(0, -2).amax(0) for x in batches]).amax(0)
        rights.append({n: top * max(f for name, _, f in plan if name == n) for n in names})
    for pair, right in zip(student.drive(drive_plans, plans, -0.5), rights, strict=True):
        for maxima, factor in zip(pair, (1.0, 0.5), strict=True):
            assert isinstance(maxima, dict) and maxima.keys() == right.keys(), (
                f"maxima of {sorted(maxima)}, not of {sorted(right)}"
            )
            for name, x_max in right.items():
                expect_same(maxima[name], factor * x_max, f"x_max of {name!r}")
    calls, rights = [], []
    ratios = spread(rng, (1, 1, 1.0, 0.125, 0.5, 2, 3.5, 6.25, 10.5), 18)
    sizes = spread(rng, (-110, -26, 0, 30, 60), 18)
    for k, ratio, e in zip(spread(rng, (1, 2, 3, 8, 40, 301), 18), ratios, sizes, strict=True):
        # ratio times a median has less than 24 bits: limits are met exactly, or clearly missed
        x_max = torch.randint(1, 1025, (k,), generator=rng) * 2.0**e
        more = 2.0 ** torch.randint(1, 5, (k,), generator=rng)
        x_max = x_max * torch.where(torch.rand(k, generator=rng) < 0.3, more, 1.0)
        x_max[torch.rand(k, generator=rng) < (0.7 if whole(rng, 0, 3) == 0 else 0.1)] = 0.0
        calls.append(("outlier_channels", x_max, ratio))
        large = (x_max > 0) & (x_max.double() >= ratio * x_max.double().median())
        rights.append((expect_same, large.nonzero().flatten(), f"channels from {ratio} medians"))
    ramp = (torch.randperm(301, generator=rng) + 601) * 2.0 ** whole(rng, -25, 60)
    calls.append(("outlier_channels", ramp, 1))  # in bfloat16 several would equal the median
    large = (ramp >= ramp.median()).nonzero().flatten()
    rights.append((expect_same, large, "channels from the median up"))
    expect_each(rights, held(student, rng, calls))


# ---- exercise 2 ------------------------------------------------------------------------------


def w8a8(student, x, w, bias, kind, x_max=None):
    y = student.w8a8_linear(x, w, bias, kind, x_max=x_max)
    return expect_tensor(y, f"w8a8_linear({kind!r})", torch.float32, (*x.shape[:-1], w.shape[0]))


def drive_view(student, x, w, kind):
    """Runs beside the student's code: an input and a weight that are not contiguous.

    Returns w8a8_linear of both, the codes of the input, and whether gradients were on after a call
    with gradients and after one without.
    """
    import torch

    x = x.transpose(0, 1)
    codes, _ = student.int8_codes(x, x.abs().amax())
    y = student.w8a8_linear(x, w.T, None, kind)
    gradients = [torch.is_grad_enabled()]
    with torch.no_grad():
        student.w8a8_linear(x, w.T, None, kind)
        gradients.append(torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    return y, codes, gradients


@exercise(
    "ex2",
    points=2,
    invariant="all kinds equal integer sums, for [..., K], one token, without a bias, for "
    "transposed tensors; gradients stay on, or off",
    cause="view on tensors that are not contiguous, a scale per row of W or per sequence, a bias "
    "that is needed or changed, or x_max used where it does not belong",
)
def test_every_kind_against_integers(student, rng):
    w, w_codes = coded_tensor((5, 12), 0.02, rng)
    bias, w_hat = torch.randn(5, generator=rng), w_codes * 0.02
    steps = torch.rand(6, 1, generator=rng).double() * 3 + 0.01
    per_token, token_codes = coded((6, 12), steps, rng)
    per_tensor, tensor_codes = coded_tensor((6, 12), 0.3, rng)
    static = torch.tensor(0.3 * QMAX)
    for kind, x, x_hat, x_max in (
        ("token", per_token, token_codes * steps, None),
        ("tensor", per_tensor, tensor_codes * 0.3, None),
        ("static", per_tensor, tensor_codes * 0.3, static),
    ):
        for b in (bias, None):
            y, bound = product(x_hat, w_hat, b)
            expect_within(w8a8(student, x, w, b, kind, x_max), y, bound, kind)
        y, bound = product(x_hat, w_hat)
        if kind != "static":  # the calibrated maximum is for "static" alone
            expect_within(w8a8(student, x, w, None, kind, static / 9), y, bound, f"{kind}, x_max")
        for shape in ((2, 3, 12), (2, 3, 1, 12)):
            more = w8a8(student, x.view(shape), w, None, kind, x_max)
            expect_within(more.view(6, 5), y, bound, f"{kind}, {list(shape)}")
        if kind != "tensor":  # of which one token has another scale
            alone = w8a8(student, x[:1], w, bias, kind, x_max)
            expect_within(alone, *product(x_hat[:1], w_hat, bias), f"{kind}, one token")
        if kind != "static":
            turned = x.view(2, 3, 12).transpose(0, 1).contiguous()
            seen, codes, on = student.drive(drive_view, turned, w.T.contiguous(), kind)
            assert on == [True, False], f"gradients were on, then off; after {kind}: {on}"
            expect_tensor(codes, "codes of a view", torch.int8, (2, 3, 12))
            steps = x.double().view(2, 3, 12) * QMAX / x.double().abs().max()
            sure = (steps - steps.floor() - 0.5).abs() > CLEAR
            assert (codes.double() == steps.round())[sure].all(), "codes of a view differ"
            expect_tensor(seen, "w8a8_linear", torch.float32, (2, 3, 5))
            expect_within(seen.view(6, 5), y, bound, f"{kind}, not contiguous")
            y, bound = product(x_hat.flip(0, 1) * 2, w_hat.flip(0))  # the same shapes again
            seen = w8a8(student, x.flip(0, 1) * 2, w.flip(0), None, kind)
            expect_within(seen, y, bound, f"{kind}, another x and w")


@exercise(
    "ex2",
    points=1,
    invariant="static: the grid is that of x_max, and what is larger is clipped to it",
    cause="the maximum of x used where it is smaller or larger, no clamp, or a step in bfloat16",
)
def test_static_scales(student, rng):
    w = torch.eye(4)
    drawn = 2 + 3 * torch.rand((), generator=rng)
    for x_max in (drawn, torch.tensor(2.984375).bfloat16()):  # 191 / 64, exact; / 127 it is not
        top, what = x_max.float(), f"x_max in {x_max.dtype}"
        x = torch.tensor([[10.0, -20, 0.3, 0.6]]) * top
        y = w8a8(student, x, w, None, "static", x_max)
        clipped = torch.tensor([1.0, -1.0]) * top
        expect_close(y[0, :2], clipped, what=f"clipped values, {what}", rtol=8 * FLOAT32)
        small = torch.tensor([[0.003, 0.005, -0.011, 0.02]]) * top  # .381, .635, -1.397, 2.54 steps
        y = w8a8(student, small, w, None, "static", x_max)[0] * QMAX / top
        right = torch.tensor([0.0, 1, -1, 3])
        expect_close(y, right, what=f"codes of small x, {what}", atol=32 * FLOAT32 * 3)


@exercise(
    "ex2",
    points=1,
    invariant="tokens and weights that are all 0 give the bias, and leave the others alone; an "
    "x_max of 0 is one",
    cause="a scale of 0 (0 / 0 is NaN), also beside others that are none, or `if not x_max`, which "
    "takes an x_max of 0 for none",
)
def test_zeros(student, rng):
    x, codes = coded((3, 8), 0.25, rng)
    w, w_codes = coded_tensor((4, 8), 0.5, rng)
    bias = torch.randn(4, generator=rng)
    x[1], codes[1] = 0, 0
    seen, scale = student.int8_codes(torch.zeros(3), torch.tensor(0.0))
    assert scale > 0 and torch.isfinite(scale) and not seen.any(), (
        f"x = 0 with x_max = 0: codes {seen.tolist()}, scale {scale.item()}"
    )
    seen, scale = student.int8_codes(x, x.abs().amax(1, keepdim=True))
    expect_tensor(seen, "codes", torch.int8, (3, 8))
    expect_tensor(scale, "scale", torch.float32, (3, 1))
    assert (scale > 0).all() and torch.isfinite(scale).all(), f"a token of 0: {scale.tolist()}"
    assert (seen.double() == codes).all(), "codes where one token of three is 0"
    y, bound = product(codes * 0.25, w_codes * 0.5, bias)
    expect_within(w8a8(student, x, w, bias, "token"), y, bound, "a token of zeros")
    far = torch.tensor([1e12, -1e12, 3e30, 1.0])  # of what no int32 holds
    seen, _ = student.int8_codes(far, torch.tensor(1.0))
    expect_same(seen, torch.tensor([127, -127, 127, 127], dtype=torch.int8), "codes far outside")
    for kind, x_max in (("token", None), ("tensor", None), ("static", torch.tensor(0.0))):
        nothing = w8a8(student, torch.zeros(3, 8), w, bias, kind, x_max)
        assert torch.equal(nothing, bias.expand(3, 4)), f"{kind}: x = 0 gives {nothing[0]}"
        top = None if x_max is None else x.abs().max()
        nothing = w8a8(student, x, torch.zeros(4, 8), bias, kind, top)
        assert torch.equal(nothing, bias.expand(3, 4)), f"{kind}: w = 0 gives {nothing[0]}"


@exercise(
    "ex2",
    points=1,
    invariant="2^k x and -x have the same codes, and so have 2^k w and -w; y grows by 2^k and "
    "changes its sign",
    cause="a floor of the scale such as 1e-5, floor for round, or codes down to -128",
)
def test_scale_and_sign(student, rng):
    x, w = torch.randn(4, 10, generator=rng), torch.randn(3, 10, generator=rng)
    for kind in ("token", "tensor"):
        y = w8a8(student, x, w, None, kind)
        expect_at_most((y - x @ w.T).abs(), 1.0, f"{kind}: |y - x W^T|")
        for factor in (2.0**-40, 2.0**30, -1.0):
            for what, seen in (
                ("x", w8a8(student, x * factor, w, None, kind)),
                ("w", w8a8(student, x, w * factor, None, kind)),
            ):
                expect_close(
                    seen,
                    y * factor,
                    what=f"{kind}, {what} times {factor:g}",
                    atol=(64 * FLOAT32 * (x.abs() @ w.abs().T).max() * abs(factor)).item(),
                )


@exercise(
    "ex2",
    points=1,
    invariant="bfloat16 is computed in float32; wrong arguments raise ValueError",
    cause="arithmetic in bfloat16 (8 significant bits), or names taken for one another",
)
def test_bfloat16_and_arguments(student, rng):
    # steps of 2^-3 and values of at most 8 significant bits are exact in bfloat16
    codes = torch.randint(-126, 127, (4, 16), generator=rng).double()
    codes[:, 0] = QMAX
    w_codes = torch.randint(-126, 127, (6, 16), generator=rng).double()
    w_codes[0, 0] = QMAX
    x, w = (codes / 8).bfloat16(), (w_codes / 64).bfloat16()
    y, bound = product(codes / 8, w_codes / 64)
    for kind in ("token", "tensor"):
        expect_within(w8a8(student, x, w, None, kind), y, bound, f"bfloat16, {kind}")
    fine, fine_codes = coded_tensor((4, 16), 0.3, rng)  # values that bfloat16 does not hold
    y, bound = product(fine_codes * 0.3, w_codes / 64)
    expect_within(w8a8(student, fine, w, None, "tensor"), y, bound, "x float32, w bfloat16")
    fine, fine_codes = coded_tensor((6, 16), 0.03, rng)
    y, bound = product(codes / 8, fine_codes * 0.03)
    expect_within(w8a8(student, x, fine, None, "token"), y, bound, "x bfloat16, w float32")
    x = (torch.rand(200, generator=rng) * 3 + 0.1).bfloat16()
    steps = x.double() * QMAX / 3.1  # x_max = 3.1: no step that bfloat16 holds exactly
    clear = (steps - steps.floor() - 0.5).abs() > CLEAR
    seen, scale = student.int8_codes(x, torch.tensor(3.1))
    expect_tensor(seen, "codes", torch.int8, (200,))
    expect_tensor(scale, "scale", torch.float32, ())
    expect_close(scale, torch.tensor(3.1 / QMAX), what="scale", rtol=4 * FLOAT32)
    assert (seen.double() == steps.round())[clear].all(), "codes of bfloat16 values differ"
    x_max = torch.tensor([2.984375, 0.71875]).bfloat16()  # 191 / 64 and 23 / 32, exact
    _, scale = student.int8_codes(x.view(100, 2), x_max)
    expect_tensor(scale, "scale of a bfloat16 x_max", torch.float32, (2,))
    expect_close(scale, x_max.double() / QMAX, what="scale", rtol=4 * FLOAT32)
    x, expected = coded((4, 9), 1e-9, rng)  # a maximum for each row
    for size in (1.0, 1e10):
        seen, scale = student.int8_codes(x * size, (x * size).abs().amax(1, keepdim=True))
        expect_tensor(seen, "codes", torch.int8, (4, 9))
        expect_tensor(scale, "scale", torch.float32, (4, 1))
        assert (seen.double() == expected).all(), f"x_max [4, 1], steps of {1e-9 * size:g}"
    x = (codes / 8).bfloat16()
    others = [("row", None), ("static", None), ("row", torch.tensor(3.1))]
    others += [("tokens", None), ("Tensor", None), ("", torch.tensor(3.1))]
    for kind, x_max in others:
        with pytest.raises(ValueError):
            student.w8a8_linear(x, w, None, kind, x_max)


def drive_swap_llama(student, config, state, names, ids):
    """Runs beside the student's code: a Llama whose layers `names` become functions, one half of
    them in a first swap and the other in a second one.

    Returns (logits of the model, with every second layer tripled, after the second swap, (with all
    layers swapped anew, for one function that they share, and the same for a model with the
    parameters -state), names that the second one called, logits of the model after every parameter
    of its copies was set to 0), or None if no model came back.
    """
    import torch
    from torch import nn

    from efflib.models.llama import Llama, LlamaConfig

    model = Llama(LlamaConfig(**config)).double()
    model.load_state_dict(state)
    called = []

    def function(name, factor):
        def computed(x, weight, bias):
            called.append(name)
            return nn.functional.linear(factor * x, weight, bias)

        return computed

    half = student.swap(model, {name: function(name, 3.0) for name in names[::2]})
    if not isinstance(half, nn.Module):
        return None
    both = student.swap(half, {name: function(name, 1.0) for name in names[1::2]})
    functions = dict.fromkeys(names, function("any", 1.0))
    again = student.swap(model, functions)
    other = Llama(LlamaConfig(**config)).double()  # of the same shapes, with other weights
    other.load_state_dict({name: -value for name, value in state.items()})
    moved = student.swap(other, functions)
    with torch.no_grad():
        plain, tripled = model(ids), half(ids)
        called.clear()
        logits = both(ids)
        order = list(called)
        same = again(ids), moved(ids)
        for parameter in [*half.parameters(), *again.parameters()]:
            parameter.zero_()
        return plain, tripled, logits, same, order, model(ids)


@exercise(
    "ex2",
    points=1,
    invariant="swap works on a Llama, twice in a row, on the same model again and on another one; "
    "what is done to the copy does not reach the model",
    cause="the model changed in place, parameters shared with the copy, functions kept from an "
    "earlier call, names with numbers in them not found, or one layer for a function that several "
    "names share",
)
def test_swap_in_a_llama(student, rng):
    from efflib.models.llama import Llama, LlamaConfig

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=rng)))
        model = Llama(LlamaConfig(**LLAMA)).double()
    state = {name: value.detach().clone() for name, value in model.state_dict().items()}
    linears = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    names = [name for name in linears if name != "lm_head"]
    ids = torch.randint(40, (2, 7), generator=rng)
    value = student.drive(drive_swap_llama, LLAMA, state, names, ids)
    assert value is not None, "swap must return a model"
    plain, tripled, logits, same, order, later = value
    with torch.no_grad():
        expected = model(ids)
        for name in names[::2]:
            model.get_submodule(name).weight.mul_(3)
        expect_close(tripled, model(ids), what="logits, every second layer tripled", atol=1e-9)
        expect_close(logits, model(ids), what="logits after a second swap", atol=1e-9)
    assert sorted(order) == sorted(names), f"after both swaps these were called: {order}"
    expect_close(same[0], expected, what="logits of the same model, swapped again", atol=1e-9)
    with torch.no_grad():
        model.load_state_dict({name: -value for name, value in state.items()})
        expect_close(same[1], model(ids), what="logits of another model, swapped", atol=1e-9)
    for what, seen in (("first", plain), ("at the end", later)):
        expect_close(seen, expected, what=f"logits of the model, {what}", atol=1e-9)


def drive_swap_same(student, x):
    """Runs beside the student's code: two layers get one function; which weights it was given."""
    from torch import nn

    model, got = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), []

    def function(x, matrix, offset):
        got.append(matrix.detach())
        return x + 1

    y = student.swap(model, {"0": function, "1": function})(x)
    return y.detach(), got, [layer.weight.detach() for layer in model]


def drive_swap_modes(student, state, x):
    """Runs beside the student's code: swaps q of a model of bfloat16 with q, a.q and a dropout.

    Returns (x as the function got it, what the copy gives, training modes of model and copy but for
    q, requires_grad of both but for q, are gradients on?), or None if no model came back.
    """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.a = nn.Linear(3, 4), nn.ModuleDict({"q": nn.Linear(3, 2)})
            self.drop, self.norm = nn.Dropout(0.5), nn.LayerNorm(3)

        def forward(self, x):
            return self.q(self.drop(x)), self.a["q"](x)

    model = Net().bfloat16()
    model.load_state_dict(state)
    model.drop.eval()
    model.a["q"].bias.requires_grad_(False)
    model.norm.weight.requires_grad_(False)
    got = []

    def function(x, matrix, offset):
        got.append(x.detach())
        return x.float() @ matrix.float().T / 3

    swapped = student.swap(model, {"q": function})
    if not isinstance(swapped, nn.Module):
        return None
    gradients = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    modes, trains = [], []
    for which in (model, swapped):
        modes.append({n: m.training for n, m in which.named_modules() if n.split(".")[0] != "q"})
        params = which.named_parameters()
        free = {n: p.requires_grad and p.grad is None for n, p in params}
        trains.append({n: on for n, on in free.items() if n.split(".")[0] != "q"})
    with torch.no_grad():
        y = swapped(x)
    return got[:1], y, modes, trains, gradients


@exercise(
    "ex2",
    points=1,
    invariant="a swapped layer passes on what it reads and what the function gives, in their "
    "dtypes; all else stays: layers whose names end alike, the mode of every module, requires_grad",
    cause="x flattened, the result cast to the dtype of x, the function called by keywords, names "
    "compared by their ends, model.eval() or model.train(), or parameters frozen",
)
def test_swap_leaves_the_rest(student, rng):
    x = torch.randn(2, 3, generator=rng)
    y, got, weights = student.drive(drive_swap_same, x)
    assert len(got) == 2, f"two layers with one function: it was called {len(got)} times"
    for seen, w in zip(got, weights, strict=True):
        expect_same(seen, w, "the weight that a function got which two layers have")
    expect_close(y, x + 2, what="what two layers with one function give", atol=1e-6)
    state = {"q.weight": (4, 3), "q.bias": (4,), "a.q.weight": (2, 3), "a.q.bias": (2,)}
    state |= {"norm.weight": (3,), "norm.bias": (3,)}
    state = {name: torch.randn(shape, generator=rng).bfloat16() for name, shape in state.items()}
    x = torch.randn(5, 2, 3, generator=rng).bfloat16()
    value = student.drive(drive_swap_modes, state, x)
    assert value is not None, "swap must return a model"
    got, (y, other), modes, trains, gradients = value
    assert got, "the function of q was not called"
    expect_tensor(got[0], "x of the function", torch.bfloat16, (5, 2, 3))
    expect_same(got[0], x, "x of the function")
    expect_tensor(y, "outputs of the swapped layer", torch.float32, (5, 2, 4))
    expected, bound = product(x, state["q.weight"])
    expect_within(y, expected / 3, bound, "outputs of the swapped layer")
    expect_tensor(other, "outputs of a.q", torch.bfloat16, (5, 2, 2))
    expected, size = product(x, state["a.q.weight"], state["a.q.bias"])
    bound = size + 2 * BFLOAT16 * (expected.abs() + state["a.q.bias"].double().abs())
    expect_within(other, expected, bound, "outputs of a.q, which was not swapped")
    for who, mode, train in zip(("model", "copy"), modes, trains, strict=True):
        off = sorted(name for name, training in mode.items() if not training)
        assert off == ["drop"], f"{who}: only drop was in eval mode, now {off}"
        frozen = sorted(name for name, free in train.items() if not free)
        right = ["a.q.bias", "norm.weight"]
        assert frozen == right, f"{who}: frozen were {right}, now {frozen}"
    assert gradients, "after swap gradients are switched off for everybody"


def expect_int8(value, x, x_max, what):
    assert isinstance(value, tuple) and len(value) == 2, "int8_codes: (codes, scale)"
    codes, scale = value
    expect_tensor(codes, f"{what}: codes", torch.int8, tuple(x.shape))
    expect_tensor(scale, f"{what}: scale", torch.float32, tuple(x_max.shape))
    assert ((scale > 0) & scale.isfinite()).all(), f"{what}: scales {scale.tolist()}"
    alive = x_max > 0
    right = x_max.double()[alive] / QMAX
    expect_close(scale[alive], right, what=f"{what}: scale", rtol=4 * FLOAT32)
    step = torch.where(alive, x_max.double() / QMAX, 1.0)
    x_hat, tie = rounded(x, x_max)
    off = (codes.double() - x_hat / step).abs()
    wrong = off > (tie / step) + 1e-6
    assert not wrong.any(), f"{what}: {int(wrong.sum())} of {wrong.numel()} codes differ"


def tokens(rng, k, lead, dtype, size):
    """x [*lead, k] with tokens of very different sizes, some of zeros."""
    x = size * torch.randn(*lead, k, generator=rng)
    x = x * 2.0 ** torch.randint(-6, 7, (*lead, 1), generator=rng)
    return torch.where(torch.rand(*lead, 1, generator=rng) < 0.2, 0.0, x).to(dtype)


@exercise(
    "ex2",
    points=1,
    invariant="codes and products, anywhere in what the card admits: every kind, x, w, bias and "
    "x_max each in a dtype of its own, of every size, in views; results stay when others are asked",
    cause="a corner where two others meet, such as bfloat16 in a view; or memory used again",
)
def test_anywhere_in_8_bits(student, rng):
    calls, checks = [], []
    kinds = {dims: spread(rng, ("token", "tensor", "static"), 4) for dims in (1, 2, 3)}
    types = {x: spread(rng, list(itertools.product(TYPES, (None, *TYPES))), 6) for x in TYPES}
    of_max, shapes = {x: spread(rng, TYPES, 6) for x in TYPES}, spread(rng, range(5), 12)
    for i, (k, lead, dtype, size) in enumerate(cases_in_pairs(rng, 50)):
        x, (of_w, of_bias) = tokens(rng, k, lead, dtype, size), types[dtype].pop()
        kind, of_x_max = kinds[len(lead)].pop(), of_max[dtype].pop()
        dims = [(), (-1,), tuple(range(len(lead))), tuple(range(len(lead) + 1)), (0,)][shapes[i]]
        x_max = x.abs().amax(dims, keepdim=True) if dims else x.abs().max()
        x_max = (x_max.float() * (0.5 + torch.rand((), generator=rng))).to(of_x_max)
        x_max = x_max[0] if shapes[i] == 4 else x_max  # [..., K] of one dimension less
        calls.append(("int8_codes", x, x_max))
        what = f"x {list(x.shape)} in {dtype}, x_max {list(x_max.shape)} in {of_x_max}"
        checks.append((expect_int8, x, x_max, what))
        n = 1 + i // 2 % 4
        w = (2.0 ** whole(rng, -40, 40) * torch.randn(n, k, generator=rng)).to(of_w)
        bias = None
        if of_bias:
            top = float(x.float().abs().max() * w.float().abs().max())
            bias = (top * torch.randn(n, generator=rng)).to(of_bias)
        top = {"token": x.abs().amax(-1, keepdim=True), "tensor": x.abs().max()}.get(kind)
        given = (x.float().abs().max() * (0.3 + torch.rand((), generator=rng))).to(of_x_max)
        calls.append(("w8a8_linear", x, w, bias, kind, given))
        top = given if top is None else top
        right = loose_product(rounded(x, top), rounded(w, w.abs().max()), bias)
        checks.append((expect_output, *right, f"{kind}, x {list(x.shape)} in {dtype}"))
    for dtype, of_x_max in itertools.product(TYPES, TYPES):  # bits of x_max that x has not
        x, w = torch.randn(4, 7, generator=rng).to(dtype), torch.randn(3, 7, generator=rng)
        given = torch.tensor(1 + (2 * whole(rng, 0, 15) + 1) / 2**9).to(of_x_max)
        calls.append(("w8a8_linear", x, w, None, "static", given))
        right = loose_product(rounded(x, given), rounded(w, w.abs().max()))
        checks.append((expect_output, *right, f"static, x_max in {of_x_max}, x in {dtype}"))
    expect_each(checks, held(student, rng, calls))
    leaves_gradients(student, [calls[0], calls[-1]])
    names = ("channel", "Token", "token ", "static ", "tok", "")
    calls = [("w8a8_linear", x, w, bias, name, given) for name in names]
    refused(student, [*calls, ("w8a8_linear", x, w, bias, "static", None)])


# ---- exercise 3 ------------------------------------------------------------------------------


def split(student, x, w, bias, threshold):
    y = student.llm_int8_linear(x, w, bias, threshold)
    return expect_tensor(y, "llm_int8_linear", torch.float32, (*x.shape[:-1], w.shape[0]))


def true_split(x, x_hat, w, w_hat, bias, outlier):
    """(y, bound) in float64: columns `outlier` of x and w as they are, the others rounded."""
    x, w = x.double(), w.double()
    mixed = torch.where(outlier, x, x_hat), torch.where(outlier, w, w_hat)
    return product(*mixed, bias)


THRESHOLDS = (6.0, 1.5, 24.0)  # powers of 2 apart: x 2^k has the codes of x


def split_case(rng, tokens=5, k=14, n=6, outliers=3):
    """x and w made from codes; `outliers` columns of x hold large values in one token or more.

    Large: from 6 up; all other columns stay below 5.1.  Token 1 and row 1 of w have tiny steps.
    """
    x_step = (0.01 + 0.03 * torch.rand(tokens, 1, generator=rng)).double()  # below 127 * 0.04 = 5.1
    x_step[1] *= 2.0**-40
    x, x_codes = coded((tokens, k), x_step, rng)
    w_step = (0.01 + 0.1 * torch.rand(n, 1, generator=rng)).double()
    w_step[1] *= 2.0**-40
    w, w_codes = coded((n, k), w_step, rng)
    outlier = torch.zeros(k, dtype=torch.bool)
    for j in range(outliers):
        column = 6 + 90 * torch.rand(tokens, generator=rng)
        column[1 + j % (tokens - 1) :] *= 0.01  # ordinary entries in an outlier column
        x = torch.cat([x, column[:, None]], 1)
        extra, extra_codes = coded((n, k), w_step, rng, reach=100)
        w = torch.cat([w, extra[:, :1].clamp(min=-90 * w_step, max=90 * w_step).float()], 1)
        outlier = torch.cat([outlier, torch.tensor([True])])
    missing = x.shape[1] - k
    x_hat = torch.cat([x_codes * x_step, torch.zeros(tokens, missing).double()], 1)
    w_hat = torch.cat([w_codes * w_step, torch.zeros(n, missing).double()], 1)
    return x, x_hat, w, w_hat, outlier


@exercise(
    "ex3",
    points=2,
    invariant="outlier columns in float, the others as integers with scales per token and per row",
    cause="one scale for all of W or X, or a floor for it, the bias lost or not made float32, or "
    "an outlier counted in both parts",
)
def test_split_against_both_sums(student, rng):
    for outliers in (0, 1, 4):
        for threshold in THRESHOLDS:
            x, x_hat, w, w_hat, outlier = split_case(rng, outliers=outliers)
            x, x_hat = x * (threshold / 6), x_hat * (threshold / 6)
            bias = torch.randn(w.shape[0], generator=rng)
            for b in (bias, bias.bfloat16(), None):
                y, bound = true_split(x, x_hat, w, w_hat, b, outlier)
                what = f"{outliers} outlier columns, threshold {threshold:g}"
                expect_within(split(student, x, w, b, threshold), y, bound, what)


@exercise(
    "ex3",
    points=2,
    invariant="the scale of a row of W comes from the whole row, outlier columns included",
    cause="W rounded after the outlier columns were taken out: then it depends on x",
)
def test_scale_of_a_row(student, rng):
    x, x_hat, w, _, outlier = split_case(rng, outliers=1)
    step = 0.5  # the largest weight of each row now meets the outlier
    codes = torch.randint(-20, 21, w.shape, generator=rng).double()
    w = ((codes + 0.8 * torch.rand(w.shape, generator=rng) - 0.4) * step).float()
    w[:, outlier] = QMAX * step
    for factor, threshold in ((1, 6.0), (4, 24.0)):
        y, bound = true_split(x * factor, x_hat * factor, w, codes * step, None, outlier)
        seen = split(student, x * factor, w, None, threshold)
        expect_within(seen, y, bound, f"a large weight at the outlier, threshold {threshold:g}")


@exercise(
    "ex3",
    points=2,
    invariant="the scale of a token comes from the columns that are left",
    cause="only entries above the threshold left out, so an outlier column still counts",
)
def test_scale_of_a_token(student, rng):
    x, codes = coded((4, 10), 0.002, rng)  # up to 0.254
    w, w_codes = coded((5, 11), 0.1, rng)
    column = torch.tensor([[50.0], [5.0], [-3.0], [0.0]])  # ordinary in tokens 1 to 3
    x = torch.cat([x, column], 1)
    x_hat = torch.cat([codes * 0.002, torch.zeros(4, 1).double()], 1)
    outlier = torch.arange(11) == 10
    y, bound = true_split(x, x_hat, w, w_codes * 0.1, None, outlier)
    for threshold in (6.0, 48.0):  # the column reaches 50, all else 0.254
        what = f"a column that is large once, threshold {threshold:g}"
        expect_within(split(student, x, w, None, threshold), y, bound, what)


@exercise(
    "ex3",
    points=1,
    invariant="nothing but outliers is a float product; an entry equal to the threshold is one",
    cause="> for >=, or a maximum over no columns",
)
def test_edges_of_the_split(student, rng):
    w, w_codes = coded((3, 8), 0.1, rng)
    x = 10 + torch.rand(2, 8, generator=rng)
    y, bound = product(x, w)
    expect_within(split(student, x, w, None, 6.0), y, bound, "only outliers")
    for factor in (1.0, 0.25, 4.0, 2.0**100, 2.0**-100):
        edge = torch.tensor([[6.0, -6.0, 5.9375, 0.0]]) * factor
        mask = student.outlier_columns(edge, 6.0 * factor)
        expect_tensor(mask, "outlier_columns", torch.bool, (4,))
        expected = [True, True, False, False]
        assert mask.tolist() == expected, f"{edge.tolist()}, {6 * factor:g}: {mask.tolist()}"
    mask = student.outlier_columns(x * 2.0**100, torch.inf)
    expect_tensor(mask, "outlier_columns", torch.bool, (8,))
    assert not mask.any(), f"no threshold at all (inf): {mask.tolist()}"
    x, codes = coded((2, 8), 1.0, rng)
    y, bound = product(codes, w_codes * 0.1)
    expect_within(split(student, x, w, None, torch.inf), y, bound, "threshold inf: no outliers")


def short_case(shape, rng):
    """(values in bfloat16 within 4, rounded in float64 with a scale per row), away from ties."""
    values = torch.randn(shape, generator=rng).clamp(-4, 4).bfloat16()
    top = values.double().abs().amax(-1, keepdim=True)
    steps = values.double() / top * QMAX
    clear = (steps - steps.floor() - 0.5).abs() > CLEAR
    return values * clear, (steps * clear).round() * top / QMAX


def drive_split_view(student, x, w, threshold):
    """Runs beside the student's code: an input and a weight that are not contiguous."""
    return student.llm_int8_linear(x.transpose(0, 1), w.T, None, threshold)


@exercise(
    "ex3",
    points=1,
    invariant="tokens of 0, rows of W that are 0, one token, [B, T, K] and bfloat16 work",
    cause="x[:, outlier] on three dimensions, 0 / 0 for a token or a row of zeros, or scales, "
    "codes or sums in bfloat16",
)
def test_shapes_of_the_split(student, rng):
    x, x_hat, w, w_hat, outlier = split_case(rng, tokens=6)
    x[5], x_hat[5] = 0, 0
    w[2], w_hat[2] = 0, 0
    y, bound = true_split(x, x_hat, w, w_hat, None, outlier)
    three = x.view(2, 3, -1)
    seen = split(student, three, w, None, 6.0).view(6, -1)
    expect_within(seen, y, bound, "[2, 3, K] with a token of zeros, and a row of W")
    turned = three.transpose(0, 1).contiguous()
    seen = student.drive(drive_split_view, turned, w.T.contiguous(), 6.0)
    expect_tensor(seen, "llm_int8_linear of views", torch.float32, (2, 3, w.shape[0]))
    expect_within(seen.reshape(6, -1), y, bound, "x and w are views")
    bias = torch.randn(w.shape[0], generator=rng)
    for what, nothing in (("x", (0 * x, w)), ("W", (x, 0 * w)), ("both", (0 * x, 0 * w))):
        seen = split(student, *nothing, bias, 6.0)
        expect_same(seen, bias.expand(6, -1), f"{what} = 0: what is left is the bias")
    # by itself, a token has its own outlier columns only: the first one has them all
    y, bound = true_split(x[:1], x_hat[:1], w, w_hat, None, outlier)
    expect_within(split(student, x[:1], w, None, 6.0), y, bound, "one token")
    large = (300 + 100 * torch.rand(2, 4, generator=rng)).bfloat16()
    w = (1 + torch.rand(3, 4, generator=rng)).bfloat16()
    exact = large.double() @ w.double().T  # needs more digits than bfloat16 has
    for same in (w.float(), w):
        seen = split(student, large, same, None, 6.0)
        expect_within(seen, exact, exact * 8 * FLOAT32, f"bfloat16 x, {same.dtype} w")
    (x, x_hat), (w, w_hat) = (short_case(shape, rng) for shape in ((6, 12), (4, 12)))
    column, extra = 50 * x[:, :1].abs().amax() + x[:, :1], w[:, :1] / 2  # below the row's largest
    x, x_hat = torch.cat([x, column], 1), torch.cat([x_hat, 0 * x_hat[:, :1]], 1)
    w, w_hat = torch.cat([w, extra], 1), torch.cat([w_hat, 0 * w_hat[:, :1]], 1)
    y, bound = true_split(x, x_hat, w, w_hat, None, torch.arange(13) == 12)
    seen = split(student, x, w, None, 8.0)
    expect_within(seen, y, bound, "x and w in bfloat16, one outlier column")


def outliers(rng, lead, k, share):
    """Mask [*lead, k]: of this share of the channels one token, and in half of the cases more."""
    tokens = torch.Size(lead).numel()
    mask = torch.randint(tokens, (k,), generator=rng) == torch.arange(tokens)[:, None]
    mask |= torch.rand(tokens, k, generator=rng) < (0.6 if whole(rng, 0, 1) else 0.0)
    return (mask & (torch.rand(k, generator=rng) < share)).reshape(*lead, k)


def loud(rng, shape, threshold):
    """Numbers of both signs, half of them as large as the threshold and half up to 9 times."""
    more = threshold * (1 + 8 * torch.rand(shape, generator=rng))
    more = torch.where(torch.rand(shape, generator=rng) < 0.5, more, threshold)
    return more * (1 - 2 * torch.randint(0, 2, shape, generator=rng))


@exercise(
    "ex3",
    points=1,
    invariant="both functions, anywhere in what the card admits: any threshold, any number of "
    "outlier columns, x, w and bias each in a dtype of its own, of every size, in views",
    cause="a corner where two others meet, such as bfloat16 in four dimensions; or memory used "
    "again",
)
def test_anywhere_in_the_split(student, rng):
    x, w = torch.randn(3, 8, generator=rng), torch.randn(5, 8, generator=rng)
    calls = [("outlier_columns", x, 1.0), ("llm_int8_linear", x, w, None, 1.0)]
    assert not student.drive(drive_switch, calls), "gradients are on, or off, otherwise than before"
    calls, checks = [], []
    types = {x: spread(rng, list(itertools.product(TYPES, (None, *TYPES))), 6) for x in TYPES}
    shares = spread(rng, (0.0, 0.2, 0.6, 1.0), 12)
    for i, (k, lead, dtype, size) in enumerate(cases_in_pairs(rng, 50)):
        threshold = whole(rng, 4, 60) * size  # 8 bits hold it
        x = (threshold / 4 * torch.randn(*lead, k, generator=rng)).clamp(-threshold, threshold)
        x = torch.where(x.abs() >= threshold * 0.98, 0.0, x)
        below = threshold * (1 - (2.0**-20 if dtype is torch.float32 else 2.0**-7))
        x = torch.where(torch.rand(x.shape, generator=rng) < 0.1, -below, x)
        x = torch.where(outliers(rng, lead, k, shares[i]), loud(rng, x.shape, threshold), x)
        x = torch.where(torch.rand(*lead, 1, generator=rng) < 0.2, 0.0, x).to(dtype)
        outlier = (x.double().abs() >= threshold).flatten(0, -2).any(0)
        calls.append(("outlier_columns", x, threshold))
        checks.append((expect_same, outlier, f"columns from {threshold:g}"))
        n, (of_w, of_bias) = 1 + i // 2 % 4, types[dtype].pop()
        kind = of_w
        powers = torch.randint(-40, 41 if i else -29, (n, 1), generator=rng)  # once all are tiny
        w = torch.randn(n, k, generator=rng) * 2.0**powers
        w = torch.where(torch.rand(n, 1, generator=rng) < 0.2, 0.0, w).to(of_w)
        bias = None
        if of_bias:
            top = float(x.float().abs().max() * w.float().abs().max())
            bias = (top * torch.randn(n, generator=rng)).to(of_bias)
        rest = torch.where(outlier, 0.0, x.double())
        (x_hat, of_x), (w_hat, of_w) = (
            rounded(v, v.double().abs().amax(-1, keepdim=True)) for v in (rest, w)
        )
        x_hat, w_hat = (
            torch.where(outlier, *v) for v in ((x.double(), x_hat), (w.double(), w_hat))
        )
        right = loose_product((x_hat, of_x * ~outlier), (w_hat, of_w * ~outlier), bias)
        calls.append(("llm_int8_linear", x, w, bias, threshold))
        checks.append(
            (expect_output, *right, f"x {list(x.shape)} in {dtype}, w {[n, k]} in {kind}")
        )
    expect_each(checks, held(student, rng, calls))
    leaves_gradients(student, calls[:1])


# ---- exercise 4 ------------------------------------------------------------------------------


def scales(student, x_max, weights, alpha):
    s = student.smoothing_scales(x_max, weights, alpha)
    return expect_tensor(s, "smoothing_scales", torch.float32, tuple(x_max.shape))


def true_scales(x_max, weights, alpha):
    w_max = torch.stack([w.double().abs().amax(0) for w in weights]).amax(0).clamp(min=FLOOR)
    return x_max.double().clamp(min=FLOOR) ** alpha / w_max ** (1 - alpha)


@exercise(
    "ex4",
    points=2,
    invariant="s = max|X_j|^alpha / max|W_:j|^(1 - alpha), for square weights and any alpha",
    cause="maxima over the rows of a square weight: nothing complains, and the scales are wrong",
)
def test_scales_against_float64(student, rng):
    for k, rows in ((6, (6,)), (5, (7, 3, 5)), (1, (4,)), (9, (1, 1))):
        drawn = 50 * torch.rand(k, generator=rng) + 0.01
        ones = [torch.randn(n, k, generator=rng) for n in rows]
        for size, of_w in ((1.0, 1.0), (1e-8, 1e4), (1e4, 1e-8)):
            x_max, weights = size * drawn, [of_w * w for w in ones]
            for alpha in (0.0, 0.3, 0.5, 0.85, 1.0):
                s = scales(student, x_max, weights, alpha)
                expected = true_scales(x_max, weights, alpha)
                what = f"s at alpha = {alpha}, X of size {size:g}, W of size {of_w:g}"
                expect_close(s, expected, what=what, rtol=64 * FLOAT32)


@exercise(
    "ex4",
    points=2,
    invariant="a channel that is 0 in X, or in W, counts as FLOOR: s is positive and finite",
    cause="no floor (s = 0 or infinite), or a floor for s in place of the maxima",
)
def test_dead_channels(student, rng):
    x_max = torch.tensor([0.0, 3.0, 0.0, 1e-7, 2.0])
    w = torch.randn(4, 5, generator=rng)
    w[:, 1:3] = 0
    w[:, 4] = 1e-6
    w[:, 3] *= 1e6  # s may be smaller than FLOOR
    for alpha in (0.0, 0.5, 1.0):
        s = scales(student, x_max, [w], alpha)
        assert torch.isfinite(s).all() and (s > 0).all(), f"alpha = {alpha}: s = {s.tolist()}"
        expected = true_scales(x_max, [w], alpha)
        expect_close(s, expected, what=f"s at alpha = {alpha}", rtol=64 * FLOAT32)


@exercise(
    "ex4",
    points=2,
    invariant="c X gives c^alpha s, and c W gives c^(alpha - 1) s",
    cause="s normalized afterwards, or powers applied to only one of the maxima",
)
def test_law_of_scales(student, rng):
    x_max = torch.rand(6, generator=rng) + 0.5
    w = torch.randn(5, 6, generator=rng)
    for alpha in (0.25, 0.5, 0.8):
        s = scales(student, x_max, [w], alpha)
        assert (s > 0).all() and torch.isfinite(s).all(), f"s = {s.tolist()}"
        for c in (10.0, 0.125):
            more_x, more_w = (
                scales(student, c * x_max, [w], alpha),
                scales(student, x_max, [c * w], alpha),
            )
            expect_close(more_x, s.double() * c**alpha, what="s of c X", rtol=64 * FLOAT32)
            expect_close(more_w, s.double() * c ** (alpha - 1), what="s of c W", rtol=64 * FLOAT32)


@exercise(
    "ex4",
    points=2,
    invariant="bfloat16 gives the float32 scales, FLOOR included; alpha outside 0..1 raises",
    cause="powers or a floor in bfloat16, x_max taken to the dtype of the weights, or no check of "
    "alpha",
)
def test_scales_of_bfloat16(student, rng):
    x_max = (9 * torch.rand(8, generator=rng)).bfloat16()
    weights = [torch.randn(3, 8, generator=rng).bfloat16() for _ in range(2)]
    s = scales(student, x_max, weights, 0.7)
    expect_close(s, true_scales(x_max, weights, 0.7), what="s of bfloat16", rtol=32 * FLOAT32)
    fine = 9 * torch.rand(8, generator=rng) + 0.1
    s = scales(student, fine, weights, 0.7)
    expected = true_scales(fine, weights, 0.7)
    expect_close(s, expected, what="s of x_max in float32, W in bfloat16", rtol=32 * FLOAT32)
    dead = torch.arange(8) > 0, torch.arange(8) < 7  # channel 0 of X, channel 7 of W
    zeros = x_max * dead[0], [w * dead[1] for w in weights]
    s, expected = scales(student, *zeros, 0.5), true_scales(*zeros, 0.5)
    expect_close(s, expected, what="s of bfloat16 with zeros", rtol=32 * FLOAT32)
    x_max, weights = x_max.float() * (torch.arange(8) > 0), [w.float() for w in weights]
    s = scales(student, x_max, weights, 0.5)
    expect_close(s, true_scales(x_max, weights, 0.5), what="s", rtol=32 * FLOAT32)
    for alpha in (-0.1, 1.1, -2.0, -1e-4, 1.0001):
        with pytest.raises(ValueError):
            student.smoothing_scales(x_max, weights, alpha)


@exercise(
    "ex4",
    points=1,
    invariant="scales, anywhere in what the card admits: any alpha and weights, each in a dtype of "
    "its own, of every size and with zeros, in views; results stay when others are asked",
    cause="a corner where two others meet, such as a bfloat16 weight among others; or memory used "
    "again",
)
def test_anywhere_in_the_scales(student, rng):
    calls, checks, alphas = [], [], spread(rng, (0, 1, 0.0, 1.0, None, None), 12)
    counts = spread(rng, (1, 2, 3, 4), 6)
    for i, (k, _, dtype, size) in enumerate(cases_in_pairs(rng, 40)):
        alpha = torch.rand((), generator=rng).item() if alphas[i] is None else alphas[i]
        x_max = size * torch.rand(k, generator=rng)
        x_max = torch.where(torch.rand(k, generator=rng) < 0.2, 0.0, x_max).to(dtype)
        dead, weights, of_w = torch.rand(k, generator=rng) < 0.2, [], 2.0 ** whole(rng, -20, 20)
        for kind in spread(rng, TYPES, counts[i // 2]):
            w = of_w * torch.randn(whole(rng, 1, 4), k, generator=rng)
            weights.append(torch.where(dead, 0.0, w).to(kind))
        calls.append(("smoothing_scales", x_max, weights, alpha))
        # the exponents are rounded, and times ln of 2^43 at most that is what a power is off by
        check = (expect_near, true_scales(x_max, weights, alpha), (16 + 4 * 30) * FLOAT32)
        checks.append((*check, f"s at alpha = {alpha}, x_max in {dtype}"))
    for dtype in TYPES:  # maxima whose product float32 does not hold
        x_max = (2.0**90 * (torch.rand(5, generator=rng) + 0.5)).to(dtype)
        weights = [(2.0**80 * torch.randn(3, 5, generator=rng)).to(dtype)]
        calls.append(("smoothing_scales", x_max, weights, 0.5))
        check = (expect_near, true_scales(x_max, weights, 0.5), (16 + 4 * 65) * FLOAT32)
        checks.append((*check, f"s of maxima of 1e27 and 1e24 in {dtype}"))
    x_max, w = torch.rand(5, generator=rng) + 0.5, torch.randn(300, 5, generator=rng)
    w[-1] = 20 + torch.rand(5, generator=rng)  # the last row of many counts
    calls.append(("smoothing_scales", x_max, [w[:2], w], 0.25))
    check = (expect_near, true_scales(x_max, [w], 0.25), (16 + 4 * 30) * FLOAT32)
    checks.append((*check, "s of 300 rows"))
    expect_each(checks, held(student, rng, calls))
    leaves_gradients(student, calls[:2])
    alphas = (-1e-9, 1 + 1e-9, -torch.inf, torch.inf, 2, -1)
    refused(student, [("smoothing_scales", x_max, weights, alpha) for alpha in alphas])


def expect_near(observed, expected, rtol, what):
    """As expect_close, and in float32."""
    expect_tensor(observed, what, torch.float32)
    expect_close(observed, expected, what=what, rtol=rtol)


# ---- exercise 5 ------------------------------------------------------------------------------


def drive_fold(student, state, frozen, groups, maxima, alpha, h):
    """Runs beside the student's code: a model with these parameters, and what `smooth` makes of it.

    Two blocks that read h, each a norm, q, k and a tail, summed and given to a head. A norm has a
    bias, or bias = None, or no such attribute, as `state` says.
    Returns ({name: parameter} of the smoothed model and of the model that came in, outputs, names
    of the parameters that train, training modes of the smoothed model and of the one that came in,
    names of its parameters that train, are gradients on?), or None if no model came back.
    """
    import torch
    from torch import nn

    class Norm(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.weight = nn.Parameter(torch.empty_like(state[f"{name}.weight"]))
            if f"{name}.bias" in state:
                self.bias = nn.Parameter(torch.empty_like(self.weight))
            elif name == "0.norm":
                self.bias = None

        def forward(self, h):
            y = h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.weight
            return y if getattr(self, "bias", None) is None else y + self.bias

    class Block(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.norm, self.tail = Norm(f"{name}.norm"), nn.Linear(8, 5)
            self.q, self.k = nn.Linear(5, 5), nn.Linear(5, 3, bias=False)

        def forward(self, h):
            x = self.norm(h)
            return self.tail(torch.cat([self.q(x), self.k(x)], -1))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("0", "1"):
                self.add_module(name, Block(name))
            self.head = nn.Linear(5, 4)

        def forward(self, h):
            return self.head(self.get_submodule("0")(h) + self.get_submodule("1")(h))

    model = Net().to(h.dtype)
    model.load_state_dict(state)
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    model.get_submodule("1").eval()
    smoothed = student.smooth(model, groups, maxima, alpha)
    if not isinstance(smoothed, nn.Module):
        return None
    gradients = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    with torch.no_grad():
        y = smoothed(h)
        after = {n: p.detach().clone() for n, p in smoothed.named_parameters()}
        for parameter in smoothed.parameters():  # what is done to the copy
            parameter.mul_(2)
    original = {n: p.detach().clone() for n, p in model.named_parameters()}
    trainable = [n for n, p in smoothed.named_parameters() if p.requires_grad and p.is_leaf]
    modes = {name: m.training for name, m in smoothed.named_modules()}
    before = {name: m.training for name, m in model.named_modules()}
    thawed = [n for n, p in model.named_parameters() if p.requires_grad]
    thawed += [f"{n} has a gradient" for n, p in model.named_parameters() if p.grad is not None]
    return after, original, y, trainable, modes, before, thawed, gradients


FROZEN = ["0.q.weight", "0.norm.bias", "1.norm.weight", "head.bias"]
EVAL = ["1", "1.k", "1.norm", "1.q", "1.tail"]
GROUPS = {"0.norm": ["0.q", "0.k"], "1.norm": ["1.k", "1.q"]}


def fold_case(rng, bias=True, dtype=torch.float64):
    """(state, maxima, h) of a model of `drive_fold`."""
    state = {}
    for block in ("0", "1"):
        state[f"{block}.norm.weight"] = torch.rand(5, generator=rng) + 0.5
        if bias:
            state[f"{block}.norm.bias"] = torch.randn(5, generator=rng)
        for name, rows, columns in (("q", 5, 5), ("k", 3, 5), ("tail", 5, 8)):
            state[f"{block}.{name}.weight"] = torch.randn(rows, columns, generator=rng)
        for name in ("q", "tail"):
            state[f"{block}.{name}.bias"] = torch.randn(5, generator=rng)
    state["head.weight"] = torch.randn(4, 5, generator=rng)
    state["head.bias"] = torch.randn(4, generator=rng)
    maxima = {"head": torch.full((5,), 1e3)}  # of a layer in no group
    for readers in GROUPS.values():
        x_max = torch.rand(5, generator=rng) * 30 + 0.1
        maxima |= {name: x_max.clone() for name in readers}
    h = torch.randn(7, 5, generator=rng).to(dtype)
    return {name: value.to(dtype) for name, value in state.items()}, maxima, h


def expect_parameters(observed, expected, rtol, what):
    """Fails unless both hold the same names, dtypes and shapes, and values up to rtol."""
    assert set(observed) == set(expected), (
        f"{what}: parameters appeared or vanished: {sorted(set(observed) ^ set(expected))}"
    )
    for name, value in expected.items():
        seen = expect_tensor(observed[name], f"{what}: {name}", None, tuple(value.shape))
        expect_close(seen.double(), value.double(), what=f"{what}: {name}", rtol=rtol)


def folded(student, case, alpha, groups=GROUPS):
    """(parameters after smoothing, outputs, names that train); the model that came in must be as
    it was sent, and modes and gradients as before, or no test of this exercise passes."""
    state, maxima, h = case
    frozen = [name for name in FROZEN if name in state]
    value = student.drive(drive_fold, state, frozen, groups, maxima, alpha, h)
    assert value is not None, "smooth must return a model"
    after, original, y, trainable, modes, before, free, gradients = value
    expect_parameters(original, state, 0.0, "the model that came in")
    right = sorted(set(state) - set(FROZEN))
    assert sorted(free) == right, f"the model that came in: {free} train, {right} did"
    assert gradients, "after smooth gradients are switched off for everybody"
    for who, seen in (("the model that came in", before), ("the copy", modes)):
        off = sorted(name for name, training in seen.items() if not training)
        assert off == EVAL, f"{who}: in eval mode were {EVAL}, now {off}"
    return after, y, trainable


def true_fold(state, groups, maxima, alpha):
    """{name: parameter in float64 after smoothing}."""
    after = {name: p.double() for name, p in state.items()}
    for norm, readers in groups.items():
        weights = [state[f"{name}.weight"] for name in readers]
        s = true_scales(maxima[readers[0]], weights, alpha)
        for name in readers:
            after[f"{name}.weight"] = state[f"{name}.weight"].double() * s
        for name in (f"{norm}.weight", f"{norm}.bias"):
            if name in state:
                after[name] = state[name].double() / s
    return after


def true_outputs(state, h):
    """(outputs of the model of `drive_fold` in float64, bound of what smoothing may move them by).

    One s, however rounded, stands in the norm and in the weights and cancels. What is left, in
    float32: g, 1 / s and their product are rounded, and w and w s; 5 roundings of every product,
    8 with the terms of second order and the float64 arithmetic.
    """
    total, size = 0.0, 0.0
    h_hat = h / (h.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    for block in ("0", "1"):
        part = {n[2:]: p for n, p in state.items() if n.startswith(block)}
        c = part.get("norm.bias", torch.zeros(5, dtype=h.dtype))
        both = torch.cat([part["q.weight"], part["k.weight"]])
        bias = torch.cat([part["q.bias"], torch.zeros(3, dtype=h.dtype)])
        y = (h_hat * part["norm.weight"] + c) @ both.T + bias
        reach = (h_hat.abs() * part["norm.weight"].abs() + c.abs()) @ both.abs().T
        total = total + y @ part["tail.weight"].T + part["tail.bias"]
        size = size + reach @ part["tail.weight"].abs().T
    y = total @ state["head.weight"].T + state["head.bias"]
    return y, 8 * FLOAT32 * size @ state["head.weight"].abs().T


def drive_pair(student, state, maxima, alpha):
    """Runs beside the student's code: a norm that one layer reads, after `smooth`.

    The model was smoothed before, with another alpha; that copy is looked at last, too, and is
    smoothed once more itself.
    """
    from torch import nn

    model = nn.Sequential(nn.LayerNorm(5), nn.Linear(5, 3))
    model.load_state_dict(state)
    copies = [student.smooth(model, {"0": ["1"]}, maxima, a) for a in (1.0 - alpha, alpha)]
    copies.append(student.smooth(copies[0], {"0": ["1"]}, maxima, alpha))
    return [{name: p.detach() for name, p in c.named_parameters()} for c in copies]


S_FLOAT32 = 64 * FLOAT32  # of s in float32 (as in exercise 4), and of what it is folded into


@exercise(
    "ex5",
    points=3,
    invariant="norms are divided by s and weights multiplied, each group with its own s",
    cause="one s for the whole model, s of one linear only, rows multiplied instead of columns, a "
    "second layer counted on, the copy of an earlier call, no FLOOR for a channel of zeros, or "
    "the model that came in changed",
)
def test_parameters_against_float64(student, rng):
    for alpha in (0.0, 0.4, 1.0):
        state, maxima, h = case = fold_case(rng)
        after, y, _ = folded(student, case, alpha)
        expected = true_fold(state, GROUPS, maxima, alpha)
        expect_parameters(after, expected, S_FLOAT32, f"alpha = {alpha}")
        expect_within(y, *true_outputs(state, h), f"alpha = {alpha}, outputs")
    state = {"0.weight": torch.rand(5, generator=rng) + 0.5, "0.bias": torch.ones(5)}
    state |= {"1.weight": torch.randn(3, 5, generator=rng), "1.bias": torch.ones(3)}
    state["1.weight"][:, 3] = 0
    maxima = {"1": torch.rand(5, generator=rng) + 0.1}
    maxima["1"][2] = 0  # calibration never saw it
    *copies, twice = student.drive(drive_pair, state, maxima, 0.4)
    for alpha, after in zip((0.6, 0.4), copies, strict=True):
        expected = true_fold(state, {"0": ["1"]}, maxima, alpha)
        expect_parameters(after, expected, S_FLOAT32, f"a norm that one layer reads, {alpha}")
    expected = true_fold(copies[0], {"0": ["1"]}, maxima, 0.4)
    expect_parameters(twice, expected, S_FLOAT32, "a model that was smoothed before")


@exercise(
    "ex5",
    points=2,
    invariant="norms with bias = None, or without the attribute, are smoothed as well",
    cause="norm.bias read where there is none, None divided, or the model that came in changed",
)
def test_norms_without_bias(student, rng):
    state, maxima, h = case = fold_case(rng, bias=False)
    after, y, _ = folded(student, case, 0.6)
    expect_parameters(after, true_fold(state, GROUPS, maxima, 0.6), S_FLOAT32, "no bias")
    expect_within(y, *true_outputs(state, h), "no bias, outputs")


def drive_three(student, weights, x_max, alpha):
    """Runs beside the student's code: one norm read by the last three of four linears, of whose
    names the first ends with the second one's; with gradients on, and off.

    Returns whether they were on or off afterwards, and all parameters, of both.
    """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, other = nn.LayerNorm(len(x_max)), nn.Linear(len(x_max), 2)
            other.weight.data.fill_(1.0)
            self.other = nn.ModuleDict({"q": other})
            for name, w in zip(("xq", "q", "k", "v"), weights, strict=True):
                linear = nn.Linear(w.shape[1], w.shape[0])
                linear.weight.data, linear.bias.data = w.clone(), w[:, 0].clone()
                self.add_module(name, linear)

    readers, found = ["q", "k", "v"], []
    for on in (True, False):
        torch.set_grad_enabled(on)
        made = student.smooth(Net(), {"norm": readers}, dict.fromkeys(readers, x_max), alpha)
        found.append((torch.is_grad_enabled() is on, dict(made.state_dict())))
    torch.set_grad_enabled(True)
    return found


def expect_three(student, rng):
    for loudest in range(4):  # whose weights count, but for the first
        weights = list(torch.randn(4, 5, 6, generator=rng))
        weights[loudest] *= 50
        x_max = torch.rand(6, generator=rng) + 0.1
        s = true_scales(x_max, weights[1:], 0.4)
        for same, state in student.drive(drive_three, weights, x_max, 0.4):
            assert same, "smooth left gradients on, or off, otherwise than it found them"
            expect_same(state["xq.weight"], weights[0], "the weight of a linear in no group")
            expect_same(state["other.q.weight"], torch.ones(2, 6), "the weight of other.q")
            expect_close(state["norm.weight"].double(), 1 / s, what="the norm", rtol=S_FLOAT32)
            for name, w in zip("qkv", weights[1:], strict=True):
                seen = state[f"{name}.weight"].double()
                expect_close(seen, w.double() * s, what=f"{name} of three", rtol=S_FLOAT32)


@exercise(
    "ex5",
    points=1,
    invariant="biases of linear layers and layers in no group stay bit by bit; every reader of a "
    "norm has a say in its scales; gradients stay on, or off",
    cause="the bias of a linear multiplied by s, every linear of the model smoothed, names "
    "compared by their ends, two readers of three, or the model that came in changed",
)
def test_what_must_stay(student, rng):
    expect_three(student, rng)
    state, maxima, h = case = fold_case(rng)
    after, _, _ = folded(student, case, 0.3)
    touched = ("norm.weight", "norm.bias", "q.weight", "k.weight")
    for name, value in state.items():
        if not name.endswith(touched):
            assert name in after, f"{name} is gone"
            expect_same(after[name], value, name)
    expected = true_fold(state, GROUPS, maxima, 0.3)["0.q.weight"]
    expect_close(after["0.q.weight"].double(), expected, what="0.q.weight", rtol=S_FLOAT32)
    first = {"0.norm": GROUPS["0.norm"]}
    after, _, _ = folded(student, case, 0.3, first)
    for name, value in state.items():
        if name.startswith("1."):
            assert name in after, f"{name} is gone"
            expect_same(after[name], value, f"{name}, of which no group knows")
    expected = true_fold(state, first, maxima, 0.3)
    expect_parameters(after, expected, S_FLOAT32, "one group of two")


def drive_llama(student, config, state, groups, maxima, alpha, ids):
    """Runs beside the student's code: a Llama with these parameters, and what `smooth` makes of it.

    Returns (state of the smoothed model, state of the model that came in, logits), or None.
    """
    import torch

    from efflib import zoo
    from efflib.models.llama import Llama, LlamaConfig

    model = zoo.with_offset(Llama(LlamaConfig(**config)), 2, 50.0).double()
    model.load_state_dict(state)
    smoothed = student.smooth(model, groups, maxima, alpha)
    original = {n: v.detach().clone() for n, v in model.state_dict().items()}
    if not isinstance(smoothed, torch.nn.Module):
        return None
    with torch.no_grad():
        logits = smoothed(ids)
    return {n: v.detach().clone() for n, v in smoothed.state_dict().items()}, original, logits


def llama_with_outliers(rng):
    """A small Llama in float64 whose norms give 50 more in two channels."""
    from efflib import zoo
    from efflib.models.llama import Llama, LlamaConfig

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=rng)))
        return zoo.with_offset(Llama(LlamaConfig(**LLAMA)), 2, 50.0).double()


@exercise(
    "ex5",
    points=2,
    invariant="a small Llama with outliers keeps its logits, and no channel of a norm stands out",
    cause="only the gain divided (these outliers are in the bias), or the model that came in "
    "changed",
)
def test_llama(student, rng):
    from efflib.models.groups import norm_groups

    model = llama_with_outliers(rng)
    state = {n: v.detach().clone() for n, v in model.state_dict().items()}
    groups = {g.name: list(g.linears) for g in norm_groups(model)}
    tops = {g.name: g.norm.bias.detach().abs().float() + 1 for g in norm_groups(model)}
    maxima = {name: tops[norm].clone() for norm, names in groups.items() for name in names}
    ids = torch.randint(40, (2, 12), generator=rng)
    value = student.drive(drive_llama, LLAMA, state, groups, maxima, 1.0, ids)
    assert value is not None, "smooth must return a model"
    after, original, logits = value
    expect_parameters(original, state, 0.0, "the model that came in")
    expected = true_fold(state, groups, maxima, 1.0)
    expect_parameters(after, expected, S_FLOAT32, "after smoothing")
    # with the parameters right up to float32, the logits are what these parameters give
    seen = []
    with torch.no_grad():
        model.load_state_dict({name: value.double() for name, value in after.items()})
        for group in norm_groups(model):
            group.norm.register_forward_hook(lambda m, args, out: seen.append(out.abs().max()))
        expect_close(logits.double(), model(ids), what="logits of the parameters", atol=1e-9)
    # without its bias, a norm of 32 channels gives at most sqrt(32) = 5.7; over s >= 1
    expect_at_most(torch.stack(seen), 1 + 5.7, "the largest channel of a norm")


@exercise(
    "ex5",
    points=1,
    invariant="parameters keep their dtype and stay parameters; what was frozen, and no other, is",
    cause="weights replaced by tensors or by float32 ones, requires_grad or eval mode lost, or the "
    "model that came in changed",
)
def test_parameters_stay_parameters(student, rng):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        state, maxima, _ = case = fold_case(rng, dtype=dtype)
        after, _, trainable = folded(student, case, 0.5)
        # a division or product, rounded to the dtype once (and s before it, at most)
        rtol = 4 * (BFLOAT16 if dtype == torch.bfloat16 else 16 * FLOAT32)
        expected = true_fold(state, GROUPS, maxima, 0.5)
        expect_parameters(after, expected, rtol, f"{dtype}")
        for name, value in after.items():
            assert value.dtype == dtype, f"{name} has become {value.dtype}, it was {dtype}"
        free = sorted(set(state) - set(FROZEN))
        assert sorted(trainable) == free, f"trainable: {sorted(trainable)}, expected {free}"


# ---- exercise 6 ------------------------------------------------------------------------------


def swept(student, x, weights, alphas, activations):
    errors = student.sweep(x, weights, alphas, activations)
    assert isinstance(errors, list), f"sweep returned {type(errors).__name__}, not a list"
    assert len(errors) == len(alphas), f"{len(errors)} errors for {len(alphas)} alphas"
    for error in errors:
        expect_number(error, "sweep: an error")
    return errors


def true_round(x, dim=None):
    """(x through its 8-bit grid, clear of ties?) in float64; one scale, or one per row (dim=-1)."""
    top = x.abs().amax() if dim is None else x.abs().amax(dim, keepdim=True)
    steps = x / top * QMAX
    clear = (steps - steps.floor() - 0.5).abs().min() > CLEAR
    return steps.round() * top / QMAX, bool(clear)


def true_error(x, weights, alpha, activations):
    """(root of the relative squared error, bound of its float32 rounding, clear of ties?)."""
    x, weights = x.double().flatten(0, -2), [w.double() for w in weights]
    s = true_scales(x.abs().amax(0), weights, alpha)
    x_hat, sure = true_round(x / s, None if activations == "tensor" else -1)
    error, size, slack = 0.0, 0.0, 0.0
    for w in weights:
        w_hat, clear = true_round(w * s)
        sure = sure and clear
        y, bound = product(x_hat, w_hat)
        exact, other = product(x, w)
        error += (y - exact).square().sum().item()
        size += exact.square().sum().item()
        slack += (4 * bound + other).square().sum().item()
    return (error / size) ** 0.5, (slack / size) ** 0.5, sure


def expect_errors(student, x, weights, alphas, activations):
    """Compare with float64 wherever no code is near a tie; how many were compared."""
    compared = 0
    errors = swept(student, x, weights, alphas, activations)
    for alpha, error in zip(alphas, errors, strict=True):
        expected, slack, sure = true_error(x, weights, alpha, activations)
        if sure:
            compared += 1
            assert error >= 0 and abs(error**0.5 - expected) <= slack + 16 * FLOAT32 * expected, (
                f"{activations}, alpha = {alpha}: error {error:.6g}, expected {expected**2:.6g}"
            )
    return compared


@exercise(
    "ex6",
    points=2,
    invariant="the errors are those of the formula in float64, for both kinds of scales",
    cause="W not multiplied by s, maxima taken over channels, or errors averaged over the weights",
)
def test_errors_against_float64(student, rng):
    compared = 0
    for rows, activations, size in (
        ((6,), "tensor", 1.0),
        ((4, 7), "token", 1e4),
        ((3, 3, 2), "tensor", 1e-8),
    ):
        x = size * torch.randn(5, 8, generator=rng)
        x[:, 2] *= 40
        weights = [torch.randn(n, 8, generator=rng) * (i + 1) for i, n in enumerate(rows)]
        compared += expect_errors(student, x, weights, [0.0, 0.2, 0.5, 0.7, 1.0], activations)
    assert compared >= 5, "the test drew too many ties"


@exercise(
    "ex6",
    points=2,
    invariant="control: where channels are equally large, alpha changes nothing",
    cause="an error that grows with s, because outputs are not compared at the same scale",
)
def test_control_is_flat(student, rng):
    x, _ = coded((6, 10), 2.0**-4, rng)
    x[0] = QMAX * 2.0**-4
    weights = [coded((5, 10), 2.0**-8, rng)[0] for _ in range(2)]
    for w in weights:
        w[0] = QMAX * 2.0**-8
    errors = swept(student, x, weights, [0.0, 0.25, 0.5, 0.75, 1.0], "tensor")
    expected, slack, _ = true_error(x, weights, 0.5, "tensor")
    assert expected > 10 * slack, "the test drew values without an error"
    for error in errors:
        assert abs(error**0.5 - expected) <= 4 * slack, f"errors {errors} for equal channels"


@exercise(
    "ex6",
    points=2,
    invariant="errors come in the order of the alphas, repeated or single ones too",
    cause="x divided again and again, so that an alpha feels those before it; or a sorted list",
)
def test_order_of_alphas(student, rng):
    x = torch.randn(6, 12, generator=rng)
    x[:, 3] *= 60
    weights = [torch.randn(5, 12, generator=rng), torch.randn(4, 12, generator=rng)]
    alone = {a: swept(student, x, weights, [a], "tensor")[0] for a in (0.0, 0.5, 1.0)}
    assert len(set(alone.values())) == 3, f"the errors do not depend on alpha: {alone}"
    order = [1.0, 0.0, 0.5, 0.0, 1.0]
    together = swept(student, x, weights, order, "tensor")
    for alpha, error in zip(order, together, strict=True):
        _, slack, sure = true_error(x, weights, alpha, "tensor")
        gap = abs(error**0.5 - alone[alpha] ** 0.5)
        assert gap <= 2 * slack or not sure, f"{together} for {order}, alone {alone}"
    assert swept(student, x, weights, [], "tensor") == [], "no alphas, no errors"


@exercise(
    "ex6",
    points=2,
    invariant="[B, T, K] and bfloat16 are treated as float32 tokens; gradients stay on, or off",
    cause="maxima per batch instead of per channel, arithmetic in bfloat16, or x taken to the "
    "dtype of the weights",
)
def test_shapes_of_the_sweep(student, rng):
    given = torch.randn(3, 8, generator=rng), [torch.randn(5, 8, generator=rng)], [0.0, 0.5]
    leaves_gradients(student, [("sweep", *given, kind) for kind in ("token", "tensor")])
    x = torch.randn(2, 3, 8, generator=rng)
    x[..., 1] *= 30
    weights = [torch.randn(5, 8, generator=rng)]
    alphas = [0.0, 0.3, 0.5, 0.8, 1.0]
    compared = expect_errors(student, x, weights, alphas, "token")
    assert compared >= 1, "the test drew too many ties"
    compared, mixed = 0, 0
    for _ in range(4):  # in bfloat16 half of a maximum is often a value: a tie at every alpha
        short = [torch.randn(5, 8, generator=rng).bfloat16()]
        loud = (torch.randn(2, 3, 8, generator=rng) * (1 + 29 * (torch.arange(8) == 1))).bfloat16()
        compared += expect_errors(student, loud, short, alphas, "tensor")
        mixed += expect_errors(student, x, short, alphas, "tensor")  # x in float32
    assert compared >= 1 and mixed >= 1, "the test drew too many ties"


@exercise(
    "ex6",
    points=1,
    invariant="errors, anywhere in what the card admits: both kinds, any alphas, any number of "
    "weights, each in a dtype of its own, of every size, in views",
    cause="a corner where two others meet, such as a bfloat16 weight among others, or four "
    "dimensions per token; alphas that are no floats",
)
def test_anywhere_in_the_sweep(student, rng):
    calls, checks = [], []
    kinds, counts = spread(rng, ("token", "tensor"), 12), spread(rng, (1, 2, 3), 6)
    for i, (k, lead, dtype, size) in enumerate(cases_in_pairs(rng, 40)):
        x = size * torch.randn(*lead, k, generator=rng) * 30 ** torch.rand(k, generator=rng)
        x, weights = x.to(dtype), []
        for j in range(counts[i // 2]):
            w = 2.0 ** whole(rng, -4, 4) * torch.randn(whole(rng, 1, 4), k, generator=rng)
            weights.append(w.to(TYPES[(i + j) % 2]))
        alphas = [0, torch.rand((), generator=rng).item(), 1, 0.5, 1.0, 0.0][whole(rng, 0, 3) :]
        calls.append(("sweep", x, weights, alphas, kinds[i]))
        checks.append((expect_swept, x, weights, alphas, kinds[i]))
    for i in range(6):  # a small weight in one dtype, and one in another that decides the error
        x = torch.randn(5, 24, generator=rng) * (1 + 29 * (torch.arange(24) == i))
        small, large = (torch.randn(n, 24, generator=rng) for n in (1, 6))
        weights = [small.to(TYPES[i % 2]), large.to(TYPES[1 - i % 2])]
        calls.append(("sweep", x, weights, [0.0, 0.5], kinds[i]))
        checks.append((expect_swept, x, weights, [0.0, 0.5], kinds[i]))
    x, w = torch.randn(300, 4, generator=rng), torch.randn(100, 4, generator=rng)
    x[-20:], w[-20:] = 5 * x[-20:], 5 * w[-20:]  # the last of many count most
    for lead, kind in itertools.product(((300,), (1,), (1, 1)), ("token", "tensor")):
        part = x[-lead[0] :].reshape(*lead, 4)
        calls.append(("sweep", part, [w], [0.5], kind))
        checks.append((expect_swept, part, [w], [0.5], kind))
    expect_each(checks, held(student, rng, calls))


def expect_swept(errors, x, weights, alphas, activations):
    """Errors against float64; a value near a tie may have either code."""
    assert isinstance(errors, list), f"sweep returned {type(errors).__name__}, not a list"
    assert len(errors) == len(alphas), f"{len(errors)} errors for {len(alphas)} alphas"
    x, weights = x.double().flatten(0, -2), [w.double() for w in weights]
    squares = len(x) * sum(map(len, weights))
    for alpha, found in zip(alphas, errors, strict=True):
        what = f"{activations}, alpha = {alpha}: the root of the error"
        found = expect_number(found, what)
        s = true_scales(x.abs().amax(0), weights, alpha)
        top = (
            (x / s).abs().amax(-1, keepdim=True) if activations == "token" else (x / s).abs().max()
        )
        # s has (16 + 4 * 30) roundings, as in exercise 4, and so have x / s and w s
        x_hat, error, size, slack = rounded(x / s, top, clear=2e-3), 0.0, 0.0, 0.0
        for w in weights:
            y, bound = loose_product(
                x_hat, rounded(w * s, (w * s).abs().max(), clear=2e-3), None, 280
            )
            exact, other = product(x, w)
            error += (y - exact).square().sum().item()
            size += exact.square().sum().item()
            slack += (bound + other).square().sum().item()
        right, slack = (error / size) ** 0.5, (slack / size) ** 0.5
        slack += max(1024, squares) * FLOAT32 * right  # of sums
        assert found >= 0, f"{what} is that of {found}"
        expect_close(found**0.5, right, what=what, atol=slack)
