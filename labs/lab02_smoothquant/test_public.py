"""Public tests of lab02: what lab.check runs.  Properties, and numbers to check by hand.

X [..., K] are activations, W [N, K] a weight, s_x and s_w steps of 8-bit grids, s_j smoothing
scales.  Where codes matter, inputs are made from codes, with an offset of at most 0.4 of a step, so
that no way to compute x / s in float32 can give another code.
"""

import functools

import torch

from efflib.lab import exercise, expect_close, expect_error, expect_tensor, expect_tuple

FLOAT32 = 2.0**-24  # relative error of one float32 rounding


def coded(rows, columns, step, rng):
    """(values [rows, columns], codes): values = step (code + offset), each row reaches 127 steps.

    step: a number or [rows, 1].
    """
    codes = torch.randint(-120, 121, (rows, columns), generator=rng).double()
    values = codes + 0.8 * torch.rand(rows, columns, generator=rng) - 0.4
    for i in range(rows):
        j = int(torch.randint(columns, (1,), generator=rng))
        codes[i, j] = values[i, j] = 127 if i % 2 else -127
    return (values * step).float(), codes


def sums(x_codes, x_step, w_codes, w_step):
    """(s_x s_w Q_x Q_w^T in float64, bound of its float32 rounding)."""
    x, w = x_codes * x_step, w_codes * w_step
    return x @ w.T, (x.abs() @ w.abs().T) * FLOAT32 * (x.shape[-1] + 8)


def expect_within(observed, expected, bound, what):
    off = (observed.double() - expected).abs()
    wrong = ~(off <= bound)  # NaN is wrong, too
    worst = int(torch.where(wrong, (off - bound).nan_to_num(torch.inf), -torch.inf).argmax())
    assert not wrong.any(), (
        f"{what}: {observed.flatten()[worst]:.6g} where {expected.flatten()[worst]:.6g} is right; "
        f"{int(wrong.sum())} of {off.numel()} outputs differ"
    )


# ---- exercise 1: outlier channels ------------------------------------------------------------


def drive_maxima(student, batches):
    """Runs beside the student's code: maxima of two layers, and what the search leaves behind.

    That is: hooks, whether gradients were on in each forward pass, and (other people's hooks,
    training mode of every module, whether each parameter trains, gradients) as they are afterwards;
    before, the model was in training mode but for its relu, and the first weight was frozen.
    """
    import torch
    from torch import nn

    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, -1]]))
    model = nn.Sequential()
    model.add_module("first", first)
    model.add_module("relu", nn.ReLU())
    model.add_module("second", second)
    model.get_submodule("relu").eval()
    first.weight.requires_grad_(False)
    passes = []
    counter = model.register_forward_pre_hook(
        lambda module, args: passes.append(torch.is_grad_enabled())
    )
    other = first.register_forward_pre_hook(lambda module, args: None)
    model.to(batches[0].dtype)
    maxima = student.channel_maxima(model, ["first", "second"], batches)
    kept = (counter.id in model._forward_pre_hooks) + (other.id in first._forward_pre_hooks)
    modes = {name: module.training for name, module in model.named_modules()}
    trains = {name: p.requires_grad for name, p in model.named_parameters()}
    state = (kept, modes, trains, torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    counter.remove()
    other.remove()
    hooks = sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
        for m in model.modules()
    )
    return maxima, hooks, passes, state


def drive_calls(student, batch, short):
    """Runs beside the student's code: maxima of a layer that runs twice in a pass, on its input and
    on half of it; and what stays of a pass that raises, since `short` does not fit: hooks, and
    gradients (were they on after a search under no_grad, and after the error?).  The model is in
    eval mode and its layer in training mode; the last value holds these two modes after each.
    """
    import torch
    from torch import nn

    layer = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(3) / 2)
    model = nn.Sequential(layer, layer).eval()
    layer.train()
    with torch.no_grad():
        maxima = student.channel_maxima(model, ["0"], [batch])
        gradients, modes = [torch.is_grad_enabled()], [model.training, layer.training]
    try:
        student.channel_maxima(model, ["0"], [batch, short])
        raised = False
    except RuntimeError:
        raised = True
    gradients.append(torch.is_grad_enabled())
    torch.set_grad_enabled(True)
    hooks = len(layer._forward_pre_hooks) + len(layer._forward_hooks)
    return maxima, raised, hooks, gradients, [*modes, model.training, layer.training]


BATCHES = [
    torch.tensor([[1.0, -5.0, 0.5], [0.5, 2.0, -3.0]]),
    torch.tensor([[-2.0, 1.0, 0.25], [0.0, 1.0, 1.0]]),
]


@exercise(
    "ex1",
    points=2,
    invariant="maxima by hand: inputs of both layers, over tokens and batches, signs ignored",
    cause="no abs, only the last batch kept, all hooks writing to one name, or outputs of the "
    "layers measured in place of their inputs",
)
def test_maxima_by_hand(student, rng):
    maxima, _, _, _ = student.drive(drive_maxima, BATCHES)
    assert isinstance(maxima, dict), f"channel_maxima returned {type(maxima).__name__}, not a dict"
    # the second layer reads relu(x0, x1, -x2)
    expected = {"first": [2.0, 5.0, 3.0], "second": [1.0, 2.0, 3.0]}
    assert set(maxima) == set(expected), f"the names are {sorted(maxima)}"
    for name, values in expected.items():
        expect_tensor(maxima[name], f"x_max of {name!r}", torch.float32, (3,))
        assert maxima[name].tolist() == values, f"{name}: {maxima[name].tolist()}, not {values}"
    maxima, _, _, _ = student.drive(drive_maxima, [torch.stack(BATCHES)])
    seen = {name: maxima[name].tolist() for name in expected if name in maxima}
    assert seen == expected, f"both batches as one [2, 2, 3]: {seen}, not {expected}"
    again, _, _, _ = student.drive(drive_maxima, BATCHES[1:])
    seen = {name: again[name].tolist() for name in expected if name in again}
    right = {"first": [2.0, 1.0, 1.0], "second": [0.0, 1.0, 0.0]}
    assert seen == right, f"a second search, over the second batch alone: {seen}, not {right}"
    again, _, _, _ = student.drive(drive_maxima, [-2 * batch for batch in BATCHES])
    seen = {name: again[name].tolist() for name in expected if name in again}
    right = {"first": [4.0, 10.0, 6.0], "second": [4.0, 10.0, 2.0]}
    assert seen == right, f"a third search, over the batches times -2: {seen}, not {right}"
    maxima, _, _, _ = student.drive(drive_maxima, [batch.bfloat16() for batch in BATCHES])
    for name, values in expected.items():
        what = f"x_max of {name!r} in a model of bfloat16"
        seen = expect_tensor(maxima[name], what, torch.float32, (3,)).tolist()
        assert seen == values, f"{what}: {seen}, not {values}"


@exercise(
    "ex1",
    points=2,
    invariant="one forward pass per batch, in which a layer may run twice; afterwards the model is "
    "as it was, and gradients too, also if it raises",
    cause="handles not kept or not removed (in finally), a pass for every layer, hooks of others "
    "cleared, model.eval() or model.train(), which reach every module (those in eval mode, too), "
    "requires_grad_(False) or torch.set_grad_enabled(False) in place of torch.no_grad(), or the "
    "last call of a pass in place of all",
)
def test_no_hook_stays(student, rng):
    maxima, hooks, passes, state = student.drive(drive_maxima, BATCHES + BATCHES)
    assert maxima and len(maxima) == 2, "channel_maxima must return the maxima of both layers"
    for name, values in (("first", [2.0, 5.0, 3.0]), ("second", [1.0, 2.0, 3.0])):
        seen = expect_tensor(maxima[name], f"x_max of {name!r}", torch.float32, (3,)).tolist()
        assert seen == values, f"{name}: {seen}, not {values}"
    assert hooks == 0, f"{hooks} hooks are still on the model"
    assert len(passes) == 4, f"{len(passes)} forward passes for 4 batches"
    assert not any(passes), "the model ran with gradients on"
    kept, modes, trains, gradients = state
    assert kept == 2, f"2 other hooks were on the model before, {kept} are left"
    right = {"": True, "first": True, "relu": False, "second": True}
    assert modes == right, f"training modes before: {right}; now: {modes}"
    right = {"first.weight": False, "second.weight": True}
    assert trains == right, f"requires_grad before: {right}; now: {trains}"
    assert gradients, "gradients were on before, now they are off"
    maxima, raised, hooks, on, modes = student.drive(drive_calls, BATCHES[0], torch.ones(1, 2))
    assert raised, "the model raised a RuntimeError, channel_maxima must pass it on"
    assert hooks == 0, f"{hooks} hooks are still on a model that raised"
    assert modes == 2 * [False, True], (
        "a model in eval mode with its layer in training mode: modes of both after a search, and "
        f"after an error: {modes}"
    )
    assert on == [False, True], f"gradients were off, then on, before a search; after it {on}"
    seen = expect_tensor(maxima["0"], "x_max of '0'", torch.float32, (3,)).tolist()
    right = [1.0, 5.0, 3.0]
    assert seen == right, f"a layer that reads x, then x / 2, in one pass: {seen}, not {right}"


@exercise(
    "ex1",
    points=2,
    invariant="outliers are the channels from ratio times the median up",
    cause="> in place of >=, the mean instead of the median (outliers raise it), a quantile "
    "instead of torch.median, or values instead of indices",
)
def test_outliers_by_hand(student, rng):
    x_max = torch.tensor([1.0, 90.0, 2.0, 1.5, 0.0, 60.0, 3.0])
    for ratio, expected in ((10, [1, 5]), (30, [1, 5]), (31, [1]), (1.5, [1, 5, 6]), (100, [])):
        for factor in (1, 2**-8, 2**-40, 2**20):  # only the ratio counts, not the size
            found = student.outlier_channels(x_max * factor, ratio)
            expect_tensor(found, "outlier_channels(...)", torch.int64)
            assert found.tolist() == expected, (
                f"x_max {(x_max * factor).tolist()}, median {2 * factor:g}, ratio {ratio}: from "
                f"{2 * factor * ratio:g} up (itself included) the channels are {expected}, not "
                f"{found.tolist()}"
            )
    found = student.outlier_channels(x_max.roll(1), 10).tolist()
    assert found == [2, 6], f"x_max {x_max.roll(1).tolist()}, ratio 10: {found}, expected [2, 6]"
    found = student.outlier_channels(torch.tensor([0.0, 0.0, 5.0, 0.0, 9.0]), 3)
    expect_tensor(found, "outlier_channels(...)", torch.int64)
    assert found.tolist() == [2, 4], f"x_max 0, 0, 5, 0, 9: {found.tolist()}, expected [2, 4]"
    for ratio, expected in ((2, [0]), (0.5, [0, 1, 2, 3])):
        found = student.outlier_channels(torch.tensor([4.0, 1.0, 3.0, 2.0]), ratio).tolist()
        assert found == expected, (
            f"x_max 4, 1, 3, 2 (torch.median is 2), ratio {ratio}: {found}, expected {expected}"
        )


# ---- exercise 2: W8A8 ------------------------------------------------------------------------


@exercise(
    "ex2",
    points=1,
    invariant="x_max = 63.5: the step is 0.5, and codes are round(x / 0.5) within -127..127",
    cause="codes that are not int8, 128 or 255 in place of 127, no clamp, something else than "
    "torch.round, a scale of 0 where x_max is 0, a floor of the scale, or x / s not in float32",
)
def test_codes_by_hand(student, rng):
    x = torch.tensor([0.1, 0.3, -0.9, 10.0, 63.5, -63.5, 70.0, -1000.0])
    value = student.int8_codes(x, torch.tensor(63.5))
    codes, scale = expect_tuple(value, (torch.Tensor, torch.Tensor), "int8_codes(x, x_max)")
    expect_tensor(codes, "codes", torch.int8, x.shape)
    expect_tensor(scale, "scale", torch.float32, ())
    assert abs(scale.item() - 0.5) <= FLOAT32, f"the scale is {scale.item()}, expected 0.5"
    assert codes.tolist() == [0, 1, -2, 20, 127, -127, 127, -127], f"codes {codes.tolist()}"
    x = torch.tensor([0.25, 0.75, 1.25, -0.25, -1.25])
    codes, _ = student.int8_codes(x, torch.tensor(63.5))
    right = [0, 2, 2, 0, -2]
    assert codes.tolist() == right, (
        f"x / s 0.5, 1.5, 2.5, -0.5, -2.5: {codes.tolist()}, not {right}"
    )
    codes, _ = student.int8_codes(x * 2.0**-20, torch.tensor(63.5 * 2.0**-20))
    assert codes.tolist() == right, f"x and x_max times 2^-20: codes {codes.tolist()}, not {right}"
    codes, scale = student.int8_codes(torch.zeros(3), torch.tensor(0.0))
    fine = codes.tolist() == [0, 0, 0] and 0 < scale.item() < torch.inf
    assert fine, f"x_max = 0: codes {codes.tolist()}, scale {scale.item()}"
    x = torch.randn(200, generator=rng).bfloat16()
    x_max = x.abs().amax()
    exact = x.double() * 127 / x_max.double()
    clear = (exact - exact.floor() - 0.5).abs() > 1e-3  # no tie within float32
    codes, _ = student.int8_codes(x, x_max)
    wrong = int((codes[clear] != exact.round()[clear]).sum())
    assert not wrong, f"x in bfloat16: {wrong} of {int(clear.sum())} codes are not round(x / s)"


def linear(student, x, w, bias, kind, x_max=None):
    """w8a8_linear of the student; shapes that do not fit together are told in words."""
    try:
        y = student.w8a8_linear(x, w, bias, kind, x_max=x_max)
    except RuntimeError as fault:
        one = "[..., 1] (keepdim)" if kind == "token" else "[]"
        raise AssertionError(
            f"{kind!r}, x {list(x.shape)}, w {list(w.shape)}: {fault}; the x_max of {kind!r} has "
            f"the shape {one}"
        ) from None
    what = f"w8a8_linear(..., {kind!r})"
    return expect_tensor(y, what, torch.float32, (*x.shape[:-1], w.shape[0]))


@exercise(
    "ex2",
    points=2,
    invariant="y is s_x s_w times sums of integers, plus the bias",
    cause="only one of the two factors rounded, a scale for every row of w, a bias that is "
    "multiplied by the scales, sums that overflow in int8, or y in another dtype than float32",
)
def test_outputs_are_integer_sums(student, rng):
    w, w_codes = coded(1, 6 * 24, 0.01, rng)
    w, w_codes, bias = w.view(6, 24), w_codes.view(6, 24), torch.randn(6, generator=rng)
    seen = linear(student, torch.eye(24), w, None, "token")  # tokens that are exact in any grid
    expected, bound = sums(torch.eye(24).double(), 1, w_codes, 0.01)
    expect_within(seen, expected, bound, "x = I shows the rounded weight (one scale for all of it)")
    seen = linear(student, torch.eye(24), -2 * w, None, "token")
    expect_within(seen, -2 * expected, 2 * bound, "another weight of that shape, -2 W")
    steps = torch.tensor([[0.03], [0.5], [2.0], [0.25]]).double()
    x, x_codes = coded(4, 24, steps, rng)
    expected, bound = sums(x_codes, steps, w_codes, 0.01)
    expect_within(linear(student, x, w, None, "token"), expected, bound, "a scale per token")
    seen = linear(student, x, w, bias, "token")
    expect_within(seen, expected + bias, bound + 4 * FLOAT32, "a scale per token, with a bias")
    x, x_codes = coded(1, 4 * 24, 0.07, rng)
    expected, bound = sums(x_codes.view(4, 24), 0.07, w_codes, 0.01)
    seen = linear(student, x.view(4, 24), w, bias, "tensor")
    expect_within(seen, expected + bias, bound + 4 * FLOAT32, "one scale for x, with a bias")
    short = x.view(4, 24).bfloat16(), w.bfloat16(), bias.bfloat16()
    seen = linear(student, *short, "tensor")  # float32, too
    same = linear(student, *(v.float() for v in short), "tensor").double()
    what = "x, w and bias in bfloat16, beside the same numbers in float32"
    expect_within(seen, same, bound + 4 * FLOAT32, what)


def drive_turned(student, x, w, kind, x_max):
    """Runs beside the student's code: x [T, B, K] and w [K, N], turned, are not contiguous."""
    return student.w8a8_linear(x.transpose(0, 1), w.T, None, kind, x_max=x_max)


@exercise(
    "ex2",
    points=1,
    invariant='"token": no token feels another; "tensor": all do; only "static" looks at x_max; '
    "how x and w lie in memory changes nothing",
    cause='the maximum taken along the wrong dimension, x_max ignored by "static" or used by the '
    "other kinds, the maximum of x in its place, a scale for each sequence, any other name "
    "accepted, or view where x is not contiguous",
)
def test_who_shares_a_scale(student, rng):
    w = torch.randn(5, 16, generator=rng)
    x = torch.randn(3, 16, generator=rng)
    loud = x * torch.tensor([1.0, 1.0, 1000.0])[:, None]
    change = {}
    for kind, x_max in (("token", None), ("tensor", None), ("static", torch.tensor(4.0))):
        a, b = linear(student, x, w, None, kind, x_max), linear(student, loud, w, None, kind, x_max)
        change[kind] = (a - b)[:2].abs().max().item()
        off = ((a - x @ w.T).norm() / (x @ w.T).norm()).item()
        assert off < 0.1, f"{kind!r}: |y - x W^T| is {off:.2g} of |x W^T|, 8 bits leave about 0.01"
        if kind != "static":
            same = torch.equal(linear(student, loud, w, None, kind, torch.tensor(4.0)), b)
            assert same, f"{kind!r} must ignore x_max; with x_max = 4 the outputs are others"
        flat = linear(student, torch.cat([x, loud]), w, None, kind, x_max)
        three = linear(student, torch.stack([x, loud]), w, None, kind, x_max)
        off = ((three.view(6, 5) - flat).norm() / flat.norm()).item()
        assert off <= 16 * FLOAT32, f"{kind!r}: x [2, 3, 16] gives other outputs than as [6, 16]"
        whole = torch.stack([x, loud]).transpose(0, 1).contiguous()  # [3, 2, 16]
        turned = student.drive(drive_turned, whole, w.T.contiguous(), kind, x_max)
        off = ((turned.reshape(6, 5) - flat).norm() / flat.norm()).item()
        assert off <= 16 * FLOAT32, f"{kind!r}: x and w that are not contiguous give other outputs"
    assert change["token"] == 0 and change["static"] == 0 and change["tensor"] > 0.1, (
        f"token 2 was multiplied by 1000; the outputs of the others moved by {change}"
    )
    for kind in ("static", "row"):  # without x_max
        call = functools.partial(student.w8a8_linear, x, w, None, kind)
        expect_error(ValueError, call, f"{kind!r} without x_max")


def drive_swap(student, state, names, x):
    """Runs beside the student's code: a model of four layers, of which `names` are swapped for
    functions that note what they are given.

    Returns (outputs of the swapped model, of the model that came in, what the functions got in the
    first of these passes, in the order of their calls), or None if no model came back.  The model
    that came in runs first, and has no weights but zeros afterwards.
    """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)
            inner = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2))
            self.block = nn.ModuleDict({"inner": inner, "first": nn.Linear(2, 2)})

        def forward(self, x):
            return self.block["first"](self.block["inner"](self.first(x)))

    model = Net()
    model.load_state_dict(state)
    got = []

    def function(name):
        def noted(x, weight, bias):
            got.append((name, weight.detach(), None if bias is None else bias.detach()))
            return 2 * (x @ weight.T) + (0 if bias is None else bias)

        return noted

    swapped = student.swap(model, {name: function(name) for name in names})
    if not isinstance(swapped, nn.Module):
        return None
    with torch.no_grad():
        plain = model(x)
        got.clear()
        for parameter in model.parameters():  # the copy must not notice
            parameter.zero_()
        return swapped(x), plain, got


LAYERS = ("first", "block.inner.0", "block.inner.2", "block.first")


def swap_case(rng):
    """(parameters of the model of `drive_swap`, x [5, 3])."""
    sizes = ((3, 3), (4, 3), (2, 4), (2, 2))
    shapes = dict(zip(LAYERS, sizes, strict=True))
    state = {f"{n}.weight": torch.randn(shape, generator=rng) for n, shape in shapes.items()}
    biased = [name for name in shapes if name != "block.inner.0"]
    state |= {f"{name}.bias": torch.randn(shapes[name][0], generator=rng) for name in biased}
    return state, torch.randn(5, 3, generator=rng)


def net_outputs(state, x, doubled=()):
    """Outputs of that model in float64, with the products of the layers `doubled` times 2."""
    x = x.double()
    for name in LAYERS:
        product = x @ state[f"{name}.weight"].double().T
        x = (2 if name in doubled else 1) * product + state.get(f"{name}.bias", torch.zeros(()))
        x = x.relu() if name == "block.inner.0" else x
    return x


@exercise(
    "ex2",
    points=2,
    invariant="the named layers of a copy give functions[name](x, weight, bias), each with its own "
    "weight and bias; all other layers, and the model that came in, give what they gave",
    cause="no copy, weights shared with the model that came in, every function bound to the last "
    "name of the loop, the dot of a name not followed, or layers that were not named swapped too "
    "(block.first ends with first, and is another layer)",
)
def test_swap_of_some_layers(student, rng):
    state, x = swap_case(rng)
    sizes = {name: value.abs() for name, value in state.items()}
    for names in (["block.inner.2", "first"], ["block.inner.0", "block.first"], []):
        try:
            value = student.drive(drive_swap, state, names, x)
        except RuntimeError as fault:
            raise AssertionError(
                f"{names} were swapped, and the model that came back failed: {fault}. Does a layer "
                "call the function, or pass on the weight, of another one?"
            ) from None
        assert value is not None, "swap must return a model"
        y, plain, got = value
        # 4 layers, each with at most 4 products, a bias and a factor: 7 roundings a layer
        expected, bound = net_outputs(state, x), 28 * FLOAT32 * net_outputs(sizes, x.abs())
        expect_within(plain, expected, bound, "outputs of the model that came in, afterwards")
        called = [name for name, *_ in got]
        order = [name for name in LAYERS if name in names]
        assert called == order, f"{names} were swapped; the functions called are those of {called}"
        for name, weight, bias in got:
            own = state[f"{name}.weight"], state.get(f"{name}.bias")
            assert torch.equal(weight, own[0]), f"the function of {name!r} got another weight"
            same = bias is own[1] if None in (bias, own[1]) else torch.equal(bias, own[1])
            assert same, f"the function of {name!r} got the bias {bias}, its layer has {own[1]}"
        expected = net_outputs(state, x, names)
        bound = 28 * FLOAT32 * net_outputs(sizes, x.abs(), names)
        expect_within(y, expected, bound, f"outputs with {names} swapped")


# ---- exercise 3: the split -------------------------------------------------------------------


@exercise(
    "ex3",
    points=2,
    invariant="a channel is an outlier column if one token reaches the threshold, with either sign",
    cause="> in place of >=, `all` for `any`, no abs, or the maximum taken over channels",
)
def test_columns_by_hand(student, rng):
    yes, no = True, False
    cases = (
        ("an entry equal to the threshold counts", [[6.0, 5.9, 8.0]], [yes, no, yes]),
        ("signs are ignored", [[-7.0, 1.0, -5.9]], [yes, no, no]),
        ("one token is enough", [[7.0, 0.0, 1.0], [0.0, 1.0, 9.0]], [yes, no, yes]),
        ("[B, T, K]", [[[1.0, 7, 0], [0, 1, 0]], [[2, 0, 0], [1, 3, -6]]], [no, yes, yes]),
    )
    for rule, x, expected in cases:
        for factor in (1.0, 0.5):
            mask = student.outlier_columns(torch.tensor(x) * factor, 6.0 * factor)
            expect_tensor(mask, "outlier_columns", torch.bool, (len(expected),))
            assert mask.tolist() == expected, (
                f"{rule}: x {x} times {factor:g}, threshold {6 * factor:g}: {mask.tolist()}, "
                f"expected {expected}"
            )


@exercise(
    "ex3",
    points=2,
    invariant="outlier columns are multiplied exactly, however large they are",
    cause="the outlier part rounded as well, or multiplied in bfloat16, or a column missing",
)
def test_outliers_are_exact(student, rng):
    x = torch.zeros(4, 10)
    x[:, [2, 7]] = 1000 * torch.randn(4, 2, generator=rng) + 3000
    w, bias = torch.randn(5, 10, generator=rng), torch.randn(5, generator=rng)
    y = student.llm_int8_linear(x, w, bias, threshold=6.0)
    expect_tensor(y, "llm_int8_linear(...)", torch.float32, (4, 5))
    exact = x.double() @ w.double().T + bias
    bound = (x.double().abs() @ w.double().abs().T + 4) * 16 * FLOAT32
    expect_within(y, exact, bound, "only outlier columns are not 0")
    y = student.llm_int8_linear(x[:, [2, 7]], w[:, [2, 7]], bias, threshold=6.0)
    expect_tensor(y, "llm_int8_linear(...)", torch.float32, (4, 5))
    expect_within(y, exact, bound, "nothing but outlier columns")
    x, w = x.bfloat16(), w.bfloat16()
    y = student.llm_int8_linear(x, w, bias, threshold=6.0)
    expect_tensor(y, "llm_int8_linear(...)", torch.float32, (4, 5))
    exact = x.double() @ w.double().T + bias
    expect_within(y, exact, bound, "only outlier columns are not 0, x and w in bfloat16")


@exercise(
    "ex3",
    points=2,
    invariant="the other columns are products of integers, on grids that no outlier stretches",
    cause="scales taken from x with its outliers (all the rest pays for them), one scale for all "
    "of x or of w, w rounded after the split, entries split off in place of columns, no rounding "
    "at all, or a bias forgotten where there is no outlier",
)
def test_the_rest_does_not_pay(student, rng):
    x_step = torch.tensor([0.03, 0.01, 0.02, 0.005])[:, None].double()  # below 127 * 0.03 = 3.81
    w_step = torch.tensor([0.01, 0.2, 0.05, 0.02, 0.1])[:, None].double()
    rest, x_codes = coded(4, 20, x_step, rng)
    w, w_codes = coded(5, 21, w_step, rng)
    for i, j in enumerate(w_codes.abs().argmax(1).tolist()):  # each row is largest in channel 20
        w[i, [j, 20]], w_codes[i, [j, 20]] = w[i, [20, j]], w_codes[i, [20, j]]
    bias = torch.randn(5, generator=rng)
    loud = torch.tensor([[1.0], [0.2], [-0.0301], [0.0]])  # one channel, with ordinary entries too
    # x / 2 has the codes of x, so half the threshold gives half of y
    for size, factor in ((0.0, 1.0), (50.0, 1.0), (5000.0, 1.0), (50.0, 0.5), (10.0, 2.0)):
        x = torch.cat([rest, size * loud], 1)
        # in double: outlier column as it is, the others through their grids
        x_mixed = torch.cat([x_codes * x_step, (size * loud).double()], 1)
        w_mixed = w_codes * w_step
        w_mixed[:, 20] = w[:, 20].double()
        expected, bound = sums(x_mixed * factor, 1, w_mixed, 1)
        y = student.llm_int8_linear(x * factor, w, bias * factor, threshold=6.0 * factor)
        expect_tensor(y, "llm_int8_linear(...)", torch.float32, (4, 5))
        expected, bound = expected + bias * factor, bound + 8 * FLOAT32 * factor
        floats = x.double() @ w.double().T + bias
        what = f"channel 20 reaches {size * factor:g}, the threshold is {6 * factor:g}"
        assert size or ((y.double() - floats).abs() > bound).any(), (
            f"{what}: no outlier, but y is the product of x and w without any rounding"
        )
        name_the_mistake(y, x * factor, w, bias * factor, 6.0 * factor, bound, what)
        expect_within(y, expected, bound, what)


def name_the_mistake(y, x, w, bias, threshold, bound, what):
    """Fails, with the mistake, if y is what one of two usual ones gives (where they matter)."""

    def rounded(v):
        step = v.double().abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
        return (v.double() / step).round() * step

    large = (x.abs() >= threshold).any(0)
    rest, floats = x.masked_fill(large, 0), x[:, large].double() @ w[:, large].double().T + bias
    mistakes = {
        "takes the scale of a token from x with its outliers": rounded(x).masked_fill(large, 0)
        @ rounded(w).T,
        "takes the scale of a row of W from the columns that are left, not from the whole row": (
            rounded(rest) @ rounded(w.masked_fill(large, 0)).T
        ),
    }
    right = rounded(rest) @ rounded(w).T
    for mistake, y_rest in mistakes.items():
        same = ((y.double() - y_rest - floats).abs() <= bound).all()
        assert not same or ((y_rest - right).abs() <= bound).all(), (
            f"{what}: y is what one gets who {mistake}"
        )


# ---- exercise 4: smoothing scales ------------------------------------------------------------


def scales(student, x_max, weights, alpha):
    try:
        s = student.smoothing_scales(x_max, weights, alpha)
    except ValueError as fault:
        raise AssertionError(f"alpha = {alpha:g} is allowed, it raised {fault!r}") from None
    return expect_tensor(s, "smoothing_scales(...)", torch.float32, x_max.shape)


@exercise(
    "ex4",
    points=2,
    invariant="the lecture's example: s = 1, 4, 1, 3",
    cause="maxima over the wrong dimension of W, no abs, the two maxima swapped, or powers in "
    "bfloat16",
)
def test_lecture_example(student, rng):
    x = torch.tensor([[1.0, -16, 2, 6], [-2, 8, -1, -9]])
    w = torch.tensor([[2.0, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]]).T.contiguous()
    s = scales(student, x.abs().amax(0), [w], 0.5)
    expect_close(s, torch.tensor([1.0, 4.0, 1.0, 3.0]), what="s", rtol=16 * FLOAT32)
    half = torch.tensor([3.0, 5.0, 7.0, 9.0]).bfloat16()  # 1 / 3 and the others need float32
    s = scales(student, torch.ones(4).bfloat16(), [half[None]], 0.0)
    expect_close(s, 1 / half.float(), what="s of bfloat16 at alpha = 0", rtol=16 * FLOAT32)


@exercise(
    "ex4",
    points=2,
    invariant="alpha = 1 makes all channels of X equally large, alpha = 0 all columns of W; alpha "
    "outside 0..1 raises ValueError",
    cause="alpha and 1 - alpha swapped, no abs on the weights, the ratio taken without its powers, "
    "or the range of alpha not checked",
)
def test_ends_of_alpha(student, rng):
    x_max = 10 * torch.rand(7, generator=rng) + 0.1
    w = torch.randn(4, 7, generator=rng)
    w[:, 0] = -w[:, 0].abs()  # nothing positive in this column
    level_x = x_max / scales(student, x_max, [w], 1.0)
    level_w = w.abs().amax(0) * scales(student, x_max, [w], 0.0)
    ones = torch.ones(7)
    expect_close(level_x, ones, what="max|X_j| / s_j at alpha = 1", rtol=16 * FLOAT32)
    expect_close(level_w, ones, what="max|W_:j| s_j at alpha = 0", rtol=16 * FLOAT32)
    for alpha in (-0.1, 1.1):
        expect_error(
            ValueError,
            lambda alpha=alpha: student.smoothing_scales(x_max, [w], alpha),
            f"alpha = {alpha}",
        )


@exercise(
    "ex4",
    points=2,
    invariant="one s for all weights that read X: the maximum is over the rows of all of them; "
    "a maximum of 0 counts as FLOOR",
    cause="only the first weight used, a mean over the weights, those of an earlier call, or no "
    "floor, or one for s",
)
def test_weights_share_the_scales(student, rng):
    x_max = torch.tensor([4.0, 4.0, 9.0])
    weights = [torch.tensor([[1.0, -0.1, 0.1]]), torch.tensor([[0.1, 4.0, 0.2], [0.3, 0.1, -1.0]])]
    for order in (weights, weights[::-1]):
        s = scales(student, x_max, order, 0.5)
        expect_close(s, torch.tensor([2.0, 1.0, 3.0]), what="s", rtol=16 * FLOAT32)
    # other weights of these shapes: with W / 4 every s is twice as large
    s = scales(student, x_max, [w / 4 for w in weights], 0.5)
    expect_close(s, torch.tensor([4.0, 2.0, 6.0]), what="s for W / 4", rtol=16 * FLOAT32)
    # a channel that is 0 in X or in W counts as 1e-5, before the square root
    w = torch.tensor([[1.0, 0.0, 4.0]])
    s = scales(student, torch.tensor([0.0, 1.0, 4.0]), [w], 0.5)
    expected = torch.tensor([1e-5**0.5, 1e5**0.5, 1.0])
    expect_close(s, expected, what="s where X or W is 0", rtol=32 * FLOAT32)


# ---- exercise 5: folding ---------------------------------------------------------------------


def drive_smooth(student, state, frozen, x_max, alpha, h):
    """Runs beside the student's code: a small model with these parameters, and what `smooth` makes
    of it.

    Returns (parameters of the smoothed model, parameters of the model that came in, X / s of both
    norms, outputs, names of the parameters that train and perhaps "eval mode"), or None if no model
    came back.
    """
    import torch
    from torch import nn

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.late = nn.LayerNorm(6), nn.LayerNorm(6, bias=False)
            self.q, self.k = nn.Linear(6, 6), nn.Linear(6, 5, bias=False)
            self.v, self.out = nn.Linear(6, 2, bias=False), nn.Linear(6, 3)

        def forward(self, h):
            first, second = self.norm(h), self.late(h)
            self.seen = torch.cat([first, second], dim=-1)
            outputs = self.out(self.q(first)), self.k(first), self.v(second)
            return torch.cat(outputs, dim=-1)

    model = Small().to(h.dtype)
    model.load_state_dict(state)
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    maxima = {"q": x_max[:6], "k": x_max[:6].clone(), "v": x_max[6:]}
    smoothed = student.smooth(model, {"norm": ["q", "k"], "late": ["v"]}, maxima, alpha)
    original = {name: p.detach().clone() for name, p in model.named_parameters()}
    if not isinstance(smoothed, nn.Module):
        return None
    trainable = [name for name, p in smoothed.named_parameters() if p.requires_grad]
    if not (smoothed.training and model.training):
        trainable.append("eval mode")
    after = {name: p.detach().clone() for name, p in smoothed.named_parameters()}
    with torch.no_grad():
        y = smoothed(h)
    return after, original, smoothed.seen.detach(), y, trainable


def small_model(rng):
    """(parameters, h [9, 6], X [9, 12] of both norms, maxima of X): both have outlier channels."""
    state = {"norm.weight": torch.rand(6, generator=rng) + 0.5}
    state["norm.bias"] = torch.tensor([0.0, 40.0, 0, 0, -3.0, 0.1])
    state["late.weight"] = torch.tensor([0.5, 30.0, 1.0, 2.0, 0.25, 1.0])
    for name, rows in (("q", 6), ("k", 5), ("v", 2), ("out", 3)):
        state[f"{name}.weight"] = torch.randn(rows, 6, generator=rng)
    state["q.weight"][0, 2], state["k.weight"][0, 3] = 8.0, -8.0  # each decides about a channel
    state |= {"q.bias": torch.randn(6, generator=rng), "out.bias": torch.randn(3, generator=rng)}
    state = {name: value.double() for name, value in state.items()}
    h = torch.randn(9, 6, generator=rng).double()
    flat = torch.nn.functional.layer_norm(h, (6,))
    x = torch.cat(
        [flat * state["norm.weight"] + state["norm.bias"], flat * state["late.weight"]], 1
    )
    return state, h, x, x.abs().amax(0).float()


def small_outputs(state, x):
    """Outputs of the small model for the activations x [9, 12]."""
    first, second = x[:, :6], x[:, 6:]
    q = first @ state["q.weight"].T + state["q.bias"]
    outputs = q @ state["out.weight"].T + state["out.bias"], first @ state["k.weight"].T
    return torch.cat([*outputs, second @ state["v.weight"].T], -1)


def smooth_small(student, case, alpha, frozen=()):
    """(parameters, X / s, outputs, names that train) after smoothing.

    The model that came in must be as it was: everything else builds on that.
    """
    state, h, _, x_max = case
    value = student.drive(drive_smooth, state, list(frozen), x_max, alpha, h)
    assert value is not None, "smooth must return a model"
    after, original, x_after, y_after, trainable = value
    moved = [name for name in state if not torch.equal(original[name], state[name])]
    assert not moved, f"the model that came in has changed in {moved}: smooth a copy"
    assert set(after) == set(state), f"the parameters became {sorted(after)}"
    for name, seen in after.items():
        expect_tensor(seen, name, state[name].dtype, tuple(state[name].shape))
    return after, x_after, y_after, trainable


@exercise(
    "ex5",
    points=2,
    invariant="the smoothed model gives the same outputs, from other activations",
    cause="another s for each linear, rows of the weights multiplied instead of columns, the "
    "norm's bias forgotten (or bias = None not expected), a bias of a linear scaled, or the model "
    "that came in changed",
)
def test_same_function(student, rng):
    case = state, h, x, _ = small_model(rng)
    # s itself cancels; g (or c), 1 / s and their product are rounded to float32, and w and w s: 5
    # roundings of each product g h w and c w, 8 with terms of second order
    flat = torch.nn.functional.layer_norm(h, (6,)).abs()
    size = {name: value.abs() for name, value in state.items()}
    first, second = flat * state["norm.weight"] + size["norm.bias"], flat * state["late.weight"]
    bound = 8 * FLOAT32 * small_outputs(size, torch.cat([first, second], 1))
    for alpha in (0.0, 0.5, 1.0):
        _, x_after, y_after, _ = smooth_small(student, case, alpha)
        expect_within(y_after, small_outputs(state, x), bound, f"alpha = {alpha}, outputs")
        assert (x - x_after).abs().max() > 0.1, f"alpha = {alpha}: the activations did not change"


@exercise(
    "ex5",
    points=2,
    invariant="s is that of exercise 4 for all weights of the group: at alpha = 1 every channel of "
    "X reaches 1, at alpha = 0 every column of the weights",
    cause="alpha ignored, s from one linear only or from X alone, only the first group smoothed or "
    "its s used for all, s multiplied into the norm and divided out of the weights, or the model "
    "that came in changed",
)
def test_activations_are_divided(student, rng):
    # roundings: s up to 12 (two powers and a quotient), on either side, and 5 where it is folded in
    ones, rtol = torch.ones(12), 32 * FLOAT32
    case = small_model(rng)
    for alpha in (1.0, 0.0, 0.5):
        after, x_after, _, _ = smooth_small(student, case, alpha)
        x_max = x_after.abs().amax(0).float()
        both = torch.cat([after["q.weight"], after["k.weight"]])
        w_max = torch.cat([both.abs().amax(0), after["v.weight"].abs().amax(0)]).float()
        where = f"after smoothing with alpha = {alpha:g}"
        if alpha == 1:
            expect_close(x_max, ones, what=f"max|X_j| {where}", rtol=rtol)
        elif alpha == 0:
            expect_close(w_max, ones, what=f"max|W_:j|, of q and k, then of v, {where}", rtol=rtol)
        else:
            expect_close(x_max, w_max, what=f"max|X_j|, beside max|W_:j|, {where}", rtol=rtol)


@exercise(
    "ex5",
    points=2,
    invariant="the model that came in is the same afterwards, so are layers in no group, and "
    "parameters that were frozen stay frozen",
    cause="no copy, or a shallow one; every linear layer multiplied; or new parameters that "
    "train, or do not, other than before; or eval mode",
)
def test_nothing_else_changes(student, rng):
    state, *_ = case = small_model(rng)
    after, _, _, trainable = smooth_small(student, case, 0.5, frozen=["q.weight", "out.bias"])
    changed = {name for name in state if not torch.equal(state[name], after[name])}
    expected = {"norm.weight", "norm.bias", "q.weight", "k.weight", "late.weight", "v.weight"}
    assert changed == expected, f"changed: {sorted(changed)}, expected {sorted(expected)}"
    assert "eval mode" not in trainable, "the model was in training mode, the copy is in eval mode"
    free = set(state) - {"q.weight", "out.bias"}
    assert set(trainable) == free, f"trainable: {sorted(trainable)}, expected {sorted(free)}"


# ---- exercise 6: the sweep -------------------------------------------------------------------


def swept(student, x, weights, alphas, activations):
    """The errors, as floats also where they are tensors of one number: one test asks for floats."""
    errors = student.sweep(x, weights, alphas, activations)
    ok = isinstance(errors, list) and all(isinstance(e, float | torch.Tensor) for e in errors)
    assert ok, f"sweep must return a list of floats, it returned {errors!r:.80}"
    assert len(errors) == len(alphas), f"{len(errors)} errors for {len(alphas)} alphas"
    return [float(e) for e in errors]


@exercise(
    "ex6",
    points=2,
    invariant="X and W whose channels are equally large already: the error of plain W8A8 for every "
    "alpha, with the scales that `activations` asks for",
    cause="an error that is not relative, not squared, or left over from the alpha before; or "
    "`activations` not passed on",
)
def test_even_channels(student, rng):
    # row 0 makes all channels of X reach 127 of the largest steps, all columns of W 127 of 2^-7
    w, w_codes = coded(9, 12, 2.0**-7, rng)
    w[0], w_codes[0] = 127 / 128, 127
    for activations in ("tensor", "token"):
        if activations == "tensor":  # the other rows end at 15.4 of the same steps
            steps = 2.0**-5
            codes = torch.randint(-15, 16, (8, 12), generator=rng).double()
            x = ((codes + 0.8 * torch.rand(8, 12, generator=rng) - 0.4) * steps).float()
        else:  # each row reaches 127 steps of its own
            steps = 2.0 ** -torch.tensor([5, 6, 8, 6, 7, 9, 5, 8]).double()[:, None]
            x, codes = coded(8, 12, steps, rng)
        x[0], codes[0] = 127 / 32, 127
        exact = x.double() @ w.double().T
        y, bound = sums(codes, steps, w_codes, 2.0**-7)
        expected = ((y - exact).norm() / exact.norm()).item()
        slack = (bound.norm() / exact.norm()).item()
        alphas = [0.0, 0.5, 1.0]
        errors = swept(student, x, [w], alphas, activations)
        for alpha, error in zip(alphas, errors, strict=True):
            assert abs(error**0.5 - expected) <= 4 * slack, (
                f"{activations!r}, alpha = {alpha}: the error is {error:.4g}, plain W8A8 has "
                f"{expected**2:.4g}"
            )


@exercise(
    "ex6",
    points=2,
    invariant="with outliers the error is least between the ends; errors come in the order asked",
    cause="X smoothed but not W, s inverted (X s and W / s), no abs, scales that do not depend on "
    "alpha, alphas sorted, or taken once each, or tensors in place of floats (.item() is missing)",
)
def test_u_shape(student, rng):
    k = 128
    x = torch.randn(32, k, generator=rng)
    x[:, 5] -= 300.0  # one steady outlier channel, and nearly all of the output
    weights = [torch.randn(24, k, generator=rng), torch.randn(16, k, generator=rng)]
    right, left, middle, again = swept(student, x, weights, [1.0, 0.0, 0.5, 1.0], "tensor")
    # At alpha = 0 every channel of X pays for the outlier, M: K (M / 127)^2 / 12 of the M^2 in the
    # output. What no alpha repairs is the rounding of the outlier's own weights, (max / rms)^2 /
    # (12 * 127^2), some 10 in place of K = 128. At alpha = 1 every column of W pays instead.
    assert middle < left / 4 and middle < right / 4, (
        f"errors {left:.3g}, {middle:.3g}, {right:.3g} at alpha = 0, 0.5, 1"
    )
    assert again == right, f"alphas 1, 0, 0.5, 1: the error at 1 is {right:.6g}, then {again:.6g}"
    errors = student.sweep(x, weights, [0.5], "tensor")
    assert type(errors[0]) is float, f"errors are floats, not {type(errors[0]).__name__}: {errors}"


@exercise(
    "ex6",
    points=2,
    invariant="all weights count, with one s for all; where their grids end alike, as here, two "
    "weights have the error of the one weight that holds the rows of both",
    cause="an s for each weight, errors averaged instead of summed before the division, only one "
    "weight measured, one grid for all weights, tokens of [B, T, K] not flattened, or bfloat16 not "
    "made float32",
)
def test_all_weights_count(student, rng):
    x = torch.randn(32, 16, generator=rng)
    a, b = torch.randn(8, 16, generator=rng), 3 * torch.randn(4, 16, generator=rng)
    # channel 0 is the largest in X, in a and in b: with one s, the grids of a s, of b s and of both
    # below one another end at the same value
    x[0, 0], a[0, 0], b[0, 0] = 8.0, 16.0, -16.0
    alphas = [0.0, 0.5, 1.0]
    together = swept(student, x, [a, b], alphas, "token")
    stacked = swept(student, x, [torch.cat([a, b])], alphas, "token")
    for alpha, two, one in zip(alphas, together, stacked, strict=True):
        assert one > 0, f"alpha = {alpha}: an error of {one}, but rounding leaves some"
        assert abs(two - one) <= 1e-3 * one, (
            f"alpha = {alpha}: the error of two weights is {two:.5g}, that of one weight with the "
            f"rows of both {one:.5g}"
        )
    # 64 W has the codes of W, in a grid of its own: relative to its outputs the error is the same
    single, pair = (swept(student, x, ws, alphas, "token") for ws in ([a], [a, 64 * a]))
    for alpha, one, two in zip(alphas, single, pair, strict=True):
        assert abs(two - one) <= 1e-2 * one, (
            f"alpha = {alpha}: W alone has the error {one:.5g}, so has 64 W, but both {two:.5g}"
        )
    x, a = x.bfloat16(), a.bfloat16()
    right = swept(student, x.float(), [a.float()], alphas, "tensor")
    for what, given in (("[2, 16, K]", x.view(2, 16, 16)), ("[32, K]", x)):
        seen = swept(student, given, [a], alphas, "tensor")
        off = max(abs(one - two) / two for one, two in zip(seen, right, strict=True))
        assert off <= 1e-3, (
            f"x {what} in bfloat16: errors {seen}, those of the same float32 numbers, as [32, K], "
            f"are {right}"
        )
