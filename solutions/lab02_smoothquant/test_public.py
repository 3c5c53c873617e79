"""Public tests of lab02: what lab.check runs.  Properties, and numbers to check by hand.

X [..., K] are activations, W [N, K] a weight, s_x and s_w steps of 8-bit grids, s_j smoothing
scales.  Where codes matter, inputs are made from codes, with an offset of at most 0.4 of a step, so
that no way to compute x / s in float32 can give another code.
"""

import torch

from efflib.lab import exercise, expect_close, expect_tensor

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
    worst = int((off - bound).flatten().argmax())
    assert (off <= bound).all(), (
        f"{what}: {observed.flatten()[worst]:.6g} where {expected.flatten()[worst]:.6g} is right; "
        f"{int((off > bound).sum())} of {off.numel()} outputs differ"
    )


# ---- exercise 1: outlier channels ------------------------------------------------------------


def drive_maxima(student, batches):
    """Runs beside the student's code: maxima of two layers, hooks left behind, forward passes."""
    import torch
    from torch import nn

    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, -1]]))
    model = nn.Sequential()
    model.add_module("first", first)
    model.add_module("relu", nn.ReLU())
    model.add_module("second", second)
    passes = []
    counter = model.register_forward_pre_hook(lambda module, args: passes.append(1))
    maxima = student.channel_maxima(model, ["first", "second"], batches)
    counter.remove()
    hooks = sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
        for m in model.modules()
    )
    return maxima, hooks, len(passes)


BATCHES = [
    torch.tensor([[1.0, -5.0, 0.5], [0.5, 2.0, -3.0]]),
    torch.tensor([[-2.0, 1.0, 0.25], [0.0, 1.0, 1.0]]),
]


@exercise(
    "ex1",
    points=2,
    invariant="maxima by hand: inputs of both layers, over tokens and batches, signs ignored",
    cause="no abs, only the last batch kept, or all hooks writing to one name",
)
def test_maxima_by_hand(student, rng):
    maxima, _, _ = student.drive(drive_maxima, BATCHES)
    assert isinstance(maxima, dict), f"channel_maxima returned {type(maxima).__name__}, not a dict"
    # the second layer reads relu(x0, x1, -x2)
    expected = {"first": [2.0, 5.0, 3.0], "second": [1.0, 2.0, 3.0]}
    assert set(maxima) == set(expected), f"the names are {sorted(maxima)}"
    for name, values in expected.items():
        expect_tensor(maxima[name], f"x_max of {name!r}", torch.float32, (3,))
        assert maxima[name].tolist() == values, f"{name}: {maxima[name].tolist()}, not {values}"


@exercise(
    "ex1",
    points=2,
    invariant="one forward pass per batch, and no hook stays on the model",
    cause="handles not kept or not removed, or a pass for every layer",
)
def test_no_hook_stays(student, rng):
    maxima, hooks, passes = student.drive(drive_maxima, BATCHES + BATCHES)
    assert maxima and len(maxima) == 2, "channel_maxima must return the maxima of both layers"
    assert hooks == 0, f"{hooks} hooks are still on the model"
    assert passes == 4, f"{passes} forward passes for 4 batches"


@exercise(
    "ex1",
    points=2,
    invariant="outliers are the channels from ratio times the median up",
    cause="the mean instead of the median (outliers raise it), or values instead of indices",
)
def test_outliers_by_hand(student, rng):
    x_max = torch.tensor([1.0, 90.0, 2.0, 1.5, 0.0, 60.0, 3.0])
    for ratio, expected in ((10, [1, 5]), (30, [1, 5]), (31, [1]), (1.5, [1, 5, 6]), (100, [])):
        found = student.outlier_channels(x_max, ratio)
        expect_tensor(found, "outlier_channels(...)", torch.int64)
        assert found.tolist() == expected, (
            f"median 2, ratio {ratio}: channels {found.tolist()}, expected {expected}"
        )


# ---- exercise 2: W8A8 ------------------------------------------------------------------------


@exercise(
    "ex2",
    points=2,
    invariant="x_max = 63.5: the step is 0.5, and codes are round(x / 0.5) within -127..127",
    cause="128 or 255 in place of 127, no clamp, or a cast that cuts instead of rounding",
)
def test_codes_by_hand(student, rng):
    x = torch.tensor([0.1, 0.3, -0.9, 10.0, 63.5, -63.5, 70.0, -1000.0])
    value = student.int8_codes(x, torch.tensor(63.5))
    assert isinstance(value, tuple) and len(value) == 2, "int8_codes must return (codes, scale)"
    codes = expect_tensor(value[0], "codes", torch.int8, x.shape)
    scale = expect_tensor(value[1], "scale", torch.float32, ())
    assert abs(scale.item() - 0.5) <= FLOAT32, f"the scale is {scale.item()}, expected 0.5"
    assert codes.tolist() == [0, 1, -2, 20, 127, -127, 127, -127], f"codes {codes.tolist()}"


@exercise(
    "ex2",
    points=2,
    invariant="y is s_x s_w times sums of integers, plus the bias",
    cause="only one of the two factors rounded, or sums that overflow in int8",
)
def test_outputs_are_integer_sums(student, rng):
    w, w_codes = coded(1, 6 * 24, 0.01, rng)
    w, w_codes, bias = w.view(6, 24), w_codes.view(6, 24), torch.randn(6, generator=rng)
    steps = torch.tensor([[0.03], [0.5], [2.0], [0.25]]).double()
    x, x_codes = coded(4, 24, steps, rng)
    expected, bound = sums(x_codes, steps, w_codes, 0.01)
    y = expect_tensor(
        student.w8a8_linear(x, w, bias, "token"), "w8a8_linear(...)", torch.float32, (4, 6)
    )
    expect_within(y, expected + bias, bound + 4 * FLOAT32, "a scale per token")
    x, x_codes = coded(1, 4 * 24, 0.07, rng)
    expected, bound = sums(x_codes.view(4, 24), 0.07, w_codes, 0.01)
    y = student.w8a8_linear(x.view(4, 24), w, bias, "tensor")
    expect_within(
        expect_tensor(y, "w8a8_linear(...)"), expected + bias, bound + 4 * FLOAT32, "one scale"
    )


@exercise(
    "ex2",
    points=2,
    invariant='"token": no token feels another; "tensor": all do; "static": only x_max counts',
    cause="the maximum taken along the wrong dimension, or x_max ignored",
)
def test_who_shares_a_scale(student, rng):
    w = torch.randn(5, 16, generator=rng)
    x = torch.randn(3, 16, generator=rng)
    loud = x * torch.tensor([1.0, 1.0, 1000.0])[:, None]
    change = {}
    for kind, x_max in (("token", None), ("tensor", None), ("static", torch.tensor(4.0))):
        a = expect_tensor(student.w8a8_linear(x, w, None, kind, x_max=x_max), kind, None, (3, 5))
        b = expect_tensor(student.w8a8_linear(loud, w, None, kind, x_max=x_max), kind, None, (3, 5))
        change[kind] = (a - b)[:2].abs().max().item()
        assert (a - x @ w.T).norm() < 0.1 * (x @ w.T).norm(), f"{kind}: far from x W^T"
    assert change["token"] == 0 and change["static"] == 0 and change["tensor"] > 0.1, (
        f"token 2 was multiplied by 1000; the outputs of the others moved by {change}"
    )


# ---- exercise 3: the split -------------------------------------------------------------------


@exercise(
    "ex3",
    points=2,
    invariant="a channel is an outlier column if one token reaches the threshold, with either sign",
    cause="no abs, `all` for `any`, or the maximum taken over channels",
)
def test_columns_by_hand(student, rng):
    x = torch.tensor([[[0.0, -6.0, 5.9, 7.0], [1.0, 0.0, 5.9, 8.0]], [[2.0, 0.0, -5.9, 9.0]] * 2])
    for threshold, expected in ((6.0, [False, True, False, True]), (8.5, [False] * 3 + [True])):
        mask = expect_tensor(
            student.outlier_columns(x, threshold), "outlier_columns", torch.bool, (4,)
        )
        assert mask.tolist() == expected, f"threshold {threshold}: {mask.tolist()}"


@exercise(
    "ex3",
    points=2,
    invariant="outlier columns are multiplied exactly, however large they are",
    cause="the outlier part rounded as well, or a column missing from the sum",
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


@exercise(
    "ex3",
    points=2,
    invariant="the other columns err by at most half a step of their own grids",
    cause="scales taken from x with its outliers: all the rest pays for them",
)
def test_the_rest_does_not_pay(student, rng):
    x, w = torch.randn(6, 40, generator=rng).clamp(-4, 4), torch.randn(8, 40, generator=rng)
    for size in (0.0, 50.0, 5000.0):
        loud = x.clone()
        loud[:, 3] += size
        y = student.llm_int8_linear(loud, w, None, threshold=6.0)
        expect_tensor(y, "llm_int8_linear(...)", None, (6, 8))
        exact = loud.double() @ w.double().T
        # |x_hat w_hat - x w| <= |x| s_w / 2 + |w| s_x / 2 + s_x s_w / 4, summed over channels
        half_x, half_w = 4 / 127 / 2, w.abs().amax(1).double() / 127 / 2
        bound = x.double().abs().sum(1)[:, None] * half_w + w.double().abs().sum(1) * half_x
        bound = bound + 40 * half_x * half_w
        bound = bound + (loud.double().abs() @ w.double().abs().T) * 64 * FLOAT32
        expect_within(y, exact, bound, f"channel 3 plus {size:g}")


# ---- exercise 4: smoothing scales ------------------------------------------------------------


def scales(student, x_max, weights, alpha):
    s = student.smoothing_scales(x_max, weights, alpha)
    return expect_tensor(s, "smoothing_scales(...)", torch.float32, x_max.shape)


@exercise(
    "ex4",
    points=2,
    invariant="the lecture's example: s = 1, 4, 1, 3",
    cause="maxima over the wrong dimension of W, or the two maxima swapped",
)
def test_lecture_example(student, rng):
    x = torch.tensor([[1.0, -16, 2, 6], [-2, 8, -1, -9]])
    w = torch.tensor([[2.0, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]]).T.contiguous()
    s = scales(student, x.abs().amax(0), [w], 0.5)
    expect_close(s, torch.tensor([1.0, 4.0, 1.0, 3.0]), what="s", rtol=16 * FLOAT32)


@exercise(
    "ex4",
    points=2,
    invariant="alpha = 1 makes all channels of X even, alpha = 0 all columns of W",
    cause="alpha and 1 - alpha swapped, or the ratio taken without its powers",
)
def test_ends_of_alpha(student, rng):
    x_max = 10 * torch.rand(7, generator=rng) + 0.1
    w = torch.randn(4, 7, generator=rng)
    even_x = x_max / scales(student, x_max, [w], 1.0)
    even_w = w.abs().amax(0) * scales(student, x_max, [w], 0.0)
    ones = torch.ones(7)
    expect_close(even_x, ones, what="max|X_j| / s_j at alpha = 1", rtol=16 * FLOAT32)
    expect_close(even_w, ones, what="max|W_:j| s_j at alpha = 0", rtol=16 * FLOAT32)


@exercise(
    "ex4",
    points=2,
    invariant="one s for all weights that read X: the maximum is over the rows of all of them",
    cause="only the first weight used, or a mean over the weights",
)
def test_weights_share_the_scales(student, rng):
    x_max = torch.tensor([4.0, 4.0, 9.0])
    weights = [torch.tensor([[1.0, -0.1, 0.1]]), torch.tensor([[0.1, 4.0, 0.2], [0.3, 0.1, -1.0]])]
    for order in (weights, weights[::-1]):
        s = scales(student, x_max, order, 0.5)
        expect_close(s, torch.tensor([2.0, 1.0, 3.0]), what="s", rtol=16 * FLOAT32)


# ---- exercise 5: folding ---------------------------------------------------------------------


def drive_smooth(student, alpha):
    """Runs beside the student's code: a small model before and after, in float64."""
    import copy

    import torch
    from torch import nn

    torch.manual_seed(3)
    parts = {"norm": nn.LayerNorm(6), "q": nn.Linear(6, 4), "k": nn.Linear(6, 5, bias=False)}
    parts["out"] = nn.Linear(4, 3)

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            for name, module in parts.items():
                self.add_module(name, module)

        def forward(self, h):
            self.seen = self.norm(h)
            return torch.cat([self.out(self.q(self.seen)), self.k(self.seen)], dim=-1)

    model = Small().double()
    with torch.no_grad():
        model.norm.weight.copy_(torch.rand(6) + 0.5)
        model.norm.bias.copy_(torch.tensor([0.0, 40.0, 0, 0, -3.0, 0.1]))
    h = torch.randn(9, 6).double()
    with torch.no_grad():
        y = model(h)
    x = model.seen
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    x_max = x.abs().amax(0).float()
    smoothed = student.smooth(model, {"norm": ["q", "k"]}, {"q": x_max, "k": x_max}, alpha)
    original = {name: p.detach().clone() for name, p in model.named_parameters()}
    if not isinstance(smoothed, nn.Module):
        return x, y, before, original, None, None, None
    smoothed = copy.deepcopy(smoothed)
    with torch.no_grad():
        y_after = smoothed(h)
    after = {name: p.detach().clone() for name, p in smoothed.named_parameters()}
    return x, y, before, original, smoothed.seen, y_after, after


def smooth_small(student, alpha):
    x, y, before, original, x_after, y_after, after = student.drive(drive_smooth, alpha)
    assert after is not None, "smooth must return a model"
    assert set(after) == set(before), f"the parameters became {sorted(after)}"
    return x, y, before, original, x_after, y_after, after


@exercise(
    "ex5",
    points=2,
    invariant="the smoothed model gives the same outputs, from other activations",
    cause="another s for each linear, the norm's bias forgotten, or a bias of a linear scaled",
)
def test_same_function(student, rng):
    for alpha in (0.0, 0.5, 1.0):
        x, y, *_, x_after, y_after, _ = smooth_small(student, alpha)
        gap = (y - y_after).abs().max().item()
        assert gap <= 1e-10, f"alpha = {alpha}: the outputs moved by {gap:.3g}"
        assert (x - x_after).abs().max() > 0.1, f"alpha = {alpha}: the activations did not change"


@exercise(
    "ex5",
    points=2,
    invariant="the norm gives X / s: at alpha = 1 every channel reaches exactly 1",
    cause="s multiplied into the norm and divided out of the weights, or maxima of W only",
)
def test_activations_are_divided(student, rng):
    *_, x_after, _, _ = smooth_small(student, 1.0)
    expect_close(
        x_after.abs().amax(0).float(), torch.ones(6), what="max|X_j| / s_j", rtol=16 * FLOAT32
    )


@exercise(
    "ex5",
    points=2,
    invariant="the model that came in is the same afterwards, and so are layers in no group",
    cause="no copy, or a shallow one; or every linear layer multiplied",
)
def test_nothing_else_changes(student, rng):
    _, _, before, original, _, _, after = smooth_small(student, 0.5)
    moved = [name for name in before if not torch.equal(before[name], original[name])]
    assert not moved, f"the original changed in {moved}"
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    expected = {"norm.weight", "norm.bias", "q.weight", "k.weight"}
    assert changed == expected, f"changed: {sorted(changed)}, expected {sorted(expected)}"


# ---- exercise 6: the sweep -------------------------------------------------------------------


def swept(student, x, weights, alphas, activations):
    errors = student.sweep(x, weights, alphas, activations)
    ok = isinstance(errors, list) and all(type(e) is float for e in errors)
    assert ok, f"sweep must return a list of floats, it returned {errors!r:.80}"
    assert len(errors) == len(alphas), f"{len(errors)} errors for {len(alphas)} alphas"
    return errors


@exercise(
    "ex6",
    points=2,
    invariant="X and W whose channels are even already: the error of plain W8A8, for every alpha",
    cause="an error that is not relative, not squared, or left over from the alpha before",
)
def test_even_channels(student, rng):
    # all channels of X reach 127 steps of 2^-5, all columns of W 127 steps of 2^-7
    x, x_codes = coded(8, 12, 2.0**-5, rng)
    w, w_codes = coded(9, 12, 2.0**-7, rng)
    x[0], x_codes[0], w[0], w_codes[0] = 127 / 32, 127, 127 / 128, 127
    exact = x.double() @ w.double().T
    y, bound = sums(x_codes, 2.0**-5, w_codes, 2.0**-7)
    expected = ((y - exact).norm() / exact.norm()).item()
    slack = (bound.norm() / exact.norm()).item()
    alphas = [0.0, 0.5, 1.0]
    for alpha, error in zip(alphas, swept(student, x, [w], alphas, "tensor"), strict=True):
        assert abs(error**0.5 - expected) <= 4 * slack, (
            f"alpha = {alpha}: the error is {error:.4g}, plain W8A8 has {expected**2:.4g}"
        )


@exercise(
    "ex6",
    points=2,
    invariant="with outliers the error is least between the ends",
    cause="X smoothed but not W, or scales that do not depend on alpha",
)
def test_u_shape(student, rng):
    k = 128
    x = torch.randn(32, k, generator=rng)
    x[:, 5] += 300.0  # one steady outlier channel, and nearly all of the output
    weights = [torch.randn(24, k, generator=rng), torch.randn(16, k, generator=rng)]
    left, middle, right = swept(student, x, weights, [0.0, 0.5, 1.0], "tensor")
    # At alpha = 0 every channel of X pays for the outlier, M: K (M / 127)^2 / 12 of the M^2 in the
    # output. What no alpha repairs is the rounding of the outlier's own weights, (max / rms)^2 /
    # (12 * 127^2), some 10 in place of K = 128. At alpha = 1 every column of W pays instead.
    assert middle < left / 4 and middle < right / 4, (
        f"errors {left:.3g}, {middle:.3g}, {right:.3g} at alpha = 0, 0.5, 1"
    )


@exercise(
    "ex6",
    points=2,
    invariant="all weights count: the error of two is between those of each, weighted by size",
    cause="errors averaged instead of summed before the division, or only one weight measured",
)
def test_all_weights_count(student, rng):
    x = torch.randn(32, 16, generator=rng)
    a, b = torch.randn(8, 16, generator=rng), 3 * torch.randn(4, 16, generator=rng)
    # columns of equal size in both: then s is the same for one weight and for two
    a[0], b[0] = 4.0, 4.0 * 3
    a_size, b_size = ((x @ w.T).square().sum().item() for w in (a, b))
    one, two = (swept(student, x, [w], [1.0], "token")[0] for w in (a, b))
    both = swept(student, x, [a, b], [1.0], "token")[0]
    expected = (one * a_size + two * b_size) / (a_size + b_size)
    assert one > 0 and two > 0, f"errors {one} and {two}: rounding leaves an error"
    assert abs(both - expected) <= 1e-3 * expected, f"both: {both:.5g}, expected {expected:.5g}"
