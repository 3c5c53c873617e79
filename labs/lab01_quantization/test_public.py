"""Public tests of lab01: what lab.check runs.  Properties, and numbers to check by hand.

q is a code, qmin..qmax the codes of a grid of b bits, s a scale, z a zero point.
"""

import torch

from efflib.lab import exercise, expect_close, expect_error, expect_tensor, expect_tuple

FLOAT32 = 2.0**-24  # relative error of one float32 rounding


def codes_of(bits, symmetric):
    """(qmin, qmax)."""
    top = 2 ** (bits - 1) - 1
    return (-top, top) if symmetric else (0, 2**bits - 1)


def grid(student, lo, hi, bits, symmetric, dtype=None):
    """(scale, zero as float) of the student, with the checks that every use needs."""
    value = student.affine_parameters(lo, hi, bits=bits, symmetric=symmetric)
    scale, zero = expect_tuple(value, (torch.Tensor, torch.Tensor), "affine_parameters")
    expect_tensor(scale, "scale", torch.float32, lo.shape)
    expect_tensor(zero, "zero", dtype, lo.shape)
    assert torch.equal(zero.double(), zero.double().round()), (
        "zero holds numbers that are not whole"
    )
    return scale, zero.double()


def levels(values):
    return torch.unique(values).numel()


# ---- exercise 1: scale and zero point --------------------------------------------------------


@exercise(
    "ex1",
    points=1,
    invariant="the range -1..2 with 2 bits: asymmetric s = 1, z = 1; symmetric s = 2, z = 0",
    cause="2^b where 2^b - 1 steps are meant, the two kinds of grid mixed up, z of the wrong sign, "
    "or z as a number or in another dtype: it is an int32 tensor, also where it is 0",
)
def test_grid_by_hand(student, rng):
    lo, hi = torch.tensor(-1.0), torch.tensor(2.0)
    for symmetric, s, z in ((False, 1, 1), (True, 2, 0)):
        scale, zero = grid(student, lo, hi, 2, symmetric, torch.int32)
        kind = "symmetric" if symmetric else "asymmetric"
        assert (scale.item(), zero.item()) == (s, z), (
            f"{kind}: scale {scale.item():.6g} and zero {zero.item():g}, expected {s} and {z}"
        )


@exercise(
    "ex1",
    points=2,
    invariant="symmetric: the largest magnitude is the largest code, s = max(|lo|, |hi|) / qmax",
    cause="only hi (or the width hi - lo) was used, or 2^(b-1) instead of 2^(b-1) - 1",
)
def test_symmetric_range(student, rng):
    lo = torch.rand(6, generator=rng) + 0.1
    hi = lo * torch.tensor([3.0, 0.3, 1.5, 0.7, 1.0, 0.1])  # some reach farther down, some up
    for bits in (2, 4, 8):
        scale, zero = grid(student, -lo, hi, bits, True)
        largest = torch.maximum(lo, hi) / scale
        expect_close(
            largest,
            torch.full_like(largest, codes_of(bits, True)[1]),
            what=f"max(|lo|, |hi|) / scale at {bits} bits",
            rtol=4 * FLOAT32,
        )
        assert not zero.any(), f"zero must be 0 on a symmetric grid, got {zero.tolist()}"


@exercise(
    "ex1",
    points=2,
    invariant="asymmetric: lo..hi, stretched to 0, is 2^b - 1 steps wide and fits on the grid "
    "within half a step",
    cause="2^b steps, z not rounded or of the wrong sign, codes that do not start at 0, or lo and "
    "hi used as they come, without the stretch to 0",
)
def test_asymmetric_range(student, rng):
    lo, hi = torch.rand(2, 6, generator=rng).double() + 0.1
    lo = -lo
    for bits in (1, 2, 4, 8):
        qmin, qmax = codes_of(bits, False)
        scale, zero = grid(student, lo.float(), hi.float(), bits, False)
        scale = scale.double()
        steps = (hi - lo) / scale
        expect_close(
            steps,
            torch.full_like(steps, qmax),
            what=f"(hi - lo) / scale at {bits} bits",
            rtol=8 * FLOAT32,
        )
        assert ((zero >= qmin) & (zero <= qmax)).all(), (
            f"{bits} bits: zero must be a code, {qmin}..{qmax}; got {zero.tolist()}"
        )
        excess = torch.maximum(scale * (qmin - zero) - lo, hi - scale * (qmax - zero)) / scale
        assert excess.max() <= 0.5 + 1e-5, (
            f"{bits} bits: an end of the range lies {excess.max():.3f} steps outside the grid"
        )
        one_side = torch.tensor([2.0, -6.0]), torch.tensor([6.0, -2.0])
        scale, zero = grid(student, *one_side, bits, False)
        assert zero.tolist() == [0, qmax], (
            f"{bits} bits, ranges 2..6 and -6..-2: zero is {zero.tolist()}, expected 0 and {qmax}"
        )
        width = (scale.double() * qmax).tolist()
        assert all(abs(value - 6) <= 6 * 8 * FLOAT32 for value in width), (
            f"{bits} bits, ranges 2..6 and -6..-2: {qmax} steps are {width} wide; from 0 it is 6"
        )


@exercise(
    "ex1",
    points=1,
    invariant="a group of zeros gets a positive finite scale, other groups keep theirs, however "
    "small; a width that does not exist: ValueError",
    cause="a range of 0 gave s = 0, and -lo / s = NaN; a floor such as clamp(min=1e-8), which "
    "coarsens groups of small weights; or code_range, which checks the width, was not called",
)
def test_group_of_zeros(student, rng):
    lo, hi = torch.tensor([0.0, -3.0, -3e-18]), torch.tensor([0.0, 12.0, 12e-18])
    for symmetric, s in ((False, 1.0), (True, 12 / 7)):
        scale, zero = grid(student, lo, hi, 4, symmetric)
        assert torch.isfinite(scale).all() and scale[0] > 0, (
            f"symmetric={symmetric}: the scales of the ranges 0..0 and -3..12 are "
            f"{scale[:2].tolist()}"
        )
        for i, (name, factor) in enumerate((("-3..12", 1.0), ("-3e-18..12e-18", 1e-18)), start=1):
            right = torch.tensor(s * factor)
            expect_close(scale[i], right, what=f"scale of {name}", rtol=8 * FLOAT32)
        low, high = codes_of(4, symmetric)
        assert low <= zero[0] <= high, f"zero of the group of zeros is {zero[0].item()}"
    for bits, symmetric in ((1, True), (9, False)):
        expect_error(
            ValueError,
            lambda bits=bits, symmetric=symmetric: student.affine_parameters(
                lo, hi, bits=bits, symmetric=symmetric
            ),
            f"{bits} bits, symmetric={symmetric}",
        )


# ---- exercise 2: quantize and dequantize -----------------------------------------------------


def encode(student, x, scale, zero, bits, symmetric):
    codes = student.quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    return expect_tensor(codes, "quantize(...)", torch.int8 if symmetric else torch.uint8, x.shape)


def decode(student, codes, scale, zero):
    values = student.dequantize(codes, scale, zero)
    return expect_tensor(values, "dequantize(...)", torch.float32, codes.shape)


@exercise(
    "ex2",
    points=2,
    invariant="s = 0.5, z = 1, 2 bits: -0.5, 0.1, 0.4, 0.9 have the codes 0, 1, 2, 3",
    cause="floor or a cast where round is meant, z subtracted instead of added, int8 where uint8 "
    "is meant, or codes - zero in uint8, where 0 - 1 wraps around to 255",
)
def test_codes_by_hand(student, rng):
    x = torch.tensor([-0.5, 0.1, 0.4, 0.9])
    scale, zero = torch.tensor(0.5), torch.tensor(1, dtype=torch.int32)
    codes = encode(student, x, scale, zero, 2, False)
    assert codes.tolist() == [0, 1, 2, 3], f"the codes are {codes.tolist()}"
    values = decode(student, torch.tensor([0, 1, 2, 3], dtype=torch.uint8), scale, zero)
    assert values.tolist() == [-0.5, 0.0, 0.5, 1.0], f"dequantized: {values.tolist()}"


@exercise(
    "ex2",
    points=2,
    invariant="inside the range, |x_hat - x| is at most s / 2",
    cause="floor instead of round, s and z in the wrong order in one of the directions, or codes - "
    "zero in uint8, where 3 - 5 wraps around to 254 (an error of about 256 steps)",
)
def test_error_is_half_a_step(student, rng):
    for bits, symmetric, z in ((2, True, 0), (4, False, 6), (8, False, 200), (8, True, 0)):
        qmin, qmax = codes_of(bits, symmetric)
        scale, zero = torch.tensor(0.03), torch.tensor(z, dtype=torch.int32)
        u = torch.rand(500, generator=rng)
        x = 0.03 * (qmin - z + u * (qmax - qmin))  # all of it inside the range
        codes = encode(student, x, scale, zero, bits, symmetric)
        x_hat = decode(student, codes, scale, zero)
        errors = (x_hat - x).abs() / 0.03
        i = errors.argmax()
        assert errors[i] <= 0.5 + 1e-4, (
            f"{bits} bits, s = 0.03, z = {z}: {x[i]:.4f} got the code {codes[i]} and came back as "
            f"{x_hat[i]:.4f}, {errors[i]:.3f} steps away"
        )


@exercise(
    "ex2",
    points=2,
    invariant="values outside the range get the first or the last code",
    cause="no clamp, or a clamp after the cast to 8 bits, where numbers have wrapped around",
)
def test_clipping(student, rng):
    x = torch.tensor([-1e6, -40.0, 40.0, 1e6])
    for bits, symmetric, z in ((3, True, 0), (3, False, 2), (8, True, 0), (8, False, 100)):
        qmin, qmax = codes_of(bits, symmetric)
        zero = torch.tensor(z, dtype=torch.int32)
        codes = encode(student, x, torch.tensor(0.1), zero, bits, symmetric).tolist()
        assert codes == [qmin, qmin, qmax, qmax], (
            f"{bits} bits, symmetric={symmetric}: far outside, the codes are {codes}, "
            f"expected {qmin} and {qmax}"
        )


# ---- exercise 3: granularity -----------------------------------------------------------------


def round_trip(student, w, bits, granularity, symmetric):
    value = student.quantize_weight(w, bits=bits, granularity=granularity, symmetric=symmetric)
    return expect_tensor(value, f"quantize_weight({granularity!r})", torch.float32, w.shape)


def drive_unchanged(student, w, bits, granularity):
    """Runs beside the student's code: is w the same after quantize_weight?"""
    before = w.clone()
    student.quantize_weight(w, bits=bits, granularity=granularity, symmetric=False)
    return bool((w == before).all())


def groups_of(w, granularity):
    """The groups of w [N, K] as a list of flat tensors, for all three granularities."""
    if granularity == "tensor":
        return [w.flatten()]
    size = w.shape[1] if granularity == "channel" else granularity
    return [part for row in w for part in row.split(size)]


@exercise(
    "ex3",
    points=2,
    invariant="each group uses at most 2^b values, and errs by at most half a step of its own "
    "grid; w stays as it was",
    cause="groups cut along the wrong dimension, one scale used for all, a last group (50 = 20 + "
    "20 + 10) left out or taken with its neighbours, or the result written into w",
)
def test_each_group_has_its_grid(student, rng):
    w = torch.randn(6, 50, generator=rng) * torch.logspace(-2, 2, 6)[:, None]
    for granularity in ("tensor", "channel", 20):
        name = f"groups of {granularity}" if granularity == 20 else f'"{granularity}"'
        for symmetric in (False, True):
            w_hat = round_trip(student, w, 3, granularity, symmetric)
            steps = 6 if symmetric else 7  # between the 2^b - 1 or 2^b levels
            for g, g_hat in zip(
                groups_of(w, granularity), groups_of(w_hat, granularity), strict=True
            ):
                width = (
                    2 * g.abs().max() if symmetric else g.max().clamp(min=0) - g.min().clamp(max=0)
                )
                error = ((g_hat - g).abs().max() / (width / steps)).item()
                assert levels(g_hat) <= steps + 1, (
                    f"{name}: a group of {len(g)} weights holds {levels(g_hat)} values, "
                    f"3 bits allow {steps + 1}"
                )
                assert error <= 0.5 + 1e-4, (
                    f"w [6, 50], {name}: a weight in a group of {len(g)} is off by {error:.3f} "
                    "steps of that group's grid"
                )
        same = student.drive(drive_unchanged, w, 3, granularity)
        assert same, f"{name}: quantize_weight wrote into its argument w"


@exercise(
    "ex3",
    points=2,
    invariant="per channel, a row does not feel the other rows; per tensor it does",
    cause='"channel" takes columns for rows, or the range is taken over the whole weight',
)
def test_rows_are_independent_per_channel(student, rng):
    w = torch.randn(4, 33, generator=rng)
    loud = w * torch.tensor([1.0, 1.0, 1000.0, 1.0])[:, None]
    quiet_rows = torch.tensor([0, 1, 3])
    change = {}
    for granularity in ("channel", 8, "tensor"):
        a = round_trip(student, w, 4, granularity, True)[quiet_rows]
        b = round_trip(student, loud, 4, granularity, True)[quiet_rows]
        change[granularity] = (a - b).abs().max().item()
    assert change["channel"] == 0 and change[8] == 0, (
        f"row 2 was multiplied by 1000 and the other rows moved by {change}"
    )
    assert change["tensor"] > 0.1, "per tensor, a row 1000 times larger must coarsen the others"


@exercise(
    "ex3",
    points=2,
    invariant="bits = N K b + groups (16 + b); a symmetric grid stores no zero point, and a group "
    "that is begun is a group",
    cause="scales or zero points left out, counted per weight instead of per group, zero points "
    "counted on a symmetric grid, or the shorter last group of a row not counted",
)
def test_bits_by_hand(student, rng):
    cases = {
        ((64, 128), 4, 32, False): 4 * 64 * 128 + 64 * 4 * (16 + 4),
        ((64, 128), 4, "channel", True): 4 * 64 * 128 + 64 * 16,
        ((64, 128), 8, "channel", False): 8 * 64 * 128 + 64 * (16 + 8),
        ((64, 128), 2, "tensor", False): 2 * 64 * 128 + 16 + 2,
        ((6, 50), 3, 20, True): 3 * 6 * 50 + 6 * 3 * 16,
        ((6, 50), 3, 80, False): 3 * 6 * 50 + 6 * (16 + 3),
    }
    for (shape, bits, granularity, symmetric), expected in cases.items():
        total = student.weight_bits(shape, bits=bits, granularity=granularity, symmetric=symmetric)
        assert type(total) is int, f"weight_bits returned {type(total).__name__}, not int"
        assert total == expected, (
            f"{list(shape)}, {bits} bits, granularity {granularity!r}, symmetric={symmetric}: "
            f"{total} bits, expected {expected}"
        )


# ---- exercise 4: k-means ---------------------------------------------------------------------


def cluster(student, values, bits, iterations):
    """(codebook, codes as int64) of the student, with the checks that every use needs."""
    value = student.kmeans_codebook(values, bits=bits, iterations=iterations)
    codebook, codes = expect_tuple(value, (torch.Tensor, torch.Tensor), "kmeans_codebook")
    expect_tensor(codebook, "codebook", torch.float32, (2**bits,))
    expect_tensor(codes, "codes", None, values.shape)
    assert not codes.is_floating_point() and not codes.is_complex(), (
        f"codes must be integers, got {codes.dtype}"
    )
    codes = codes.long()
    assert codes.numel() == 0 or (0 <= codes.min() and codes.max() < 2**bits), (
        f"codes run from {codes.min()} to {codes.max()}, the codebook from 0 to {2**bits - 1}"
    )
    return codebook, codes


@exercise(
    "ex4",
    points=2,
    invariant="the example of Deep Compression: from the even start -1.08 .. 2.12 (0 iterations) "
    "to -1.00, 0.00, 1.50, 2.00",
    cause="the start is not linspace(min, max), `iterations` is not used, or centroids are not the "
    "means of their values",
)
def test_lecture_example(student, rng):
    w = torch.tensor(
        [
            [2.09, -0.98, 1.48, 0.09],
            [0.05, -0.14, -1.08, 2.12],
            [-0.91, 1.92, 0.00, -1.03],
            [1.87, 0.00, 1.53, 1.49],
        ]
    )
    codebook, codes = cluster(student, w, 2, 0)
    start = torch.linspace(-1.08, 2.12, 4)
    expect_close(codebook, start, what="codebook after 0 iterations", atol=16 * 2.12 * FLOAT32)
    codebook, codes = cluster(student, w, 2, 10)
    expect_close(
        codebook, torch.tensor([-1.0, 0.0, 1.5, 2.0]), what="codebook", atol=16 * 2.12 * FLOAT32
    )
    expected = [[3, 0, 2, 1], [1, 1, 0, 3], [0, 3, 1, 0], [3, 1, 2, 2]]
    assert codes.tolist() == expected, f"codes {codes.tolist()}"


@exercise(
    "ex4",
    points=2,
    invariant="the codebook ascends, and each value has the code of its nearest entry",
    cause="codes from before the last update, or a codebook sorted after the codes were made",
)
def test_codes_point_to_the_nearest(student, rng):
    values = torch.randn(30, 20, generator=rng)
    for iterations in (1, 3, 30):
        codebook, codes = cluster(student, values, 3, iterations)
        assert (codebook.diff() >= 0).all(), f"the codebook does not ascend: {codebook.tolist()}"
        distance = (values.double()[..., None] - codebook.double()).abs()  # [30, 20, 8]
        own = distance.gather(-1, codes[..., None])[..., 0]
        worse = (own - distance.min(dim=-1).values).max().item()
        assert levels(codes) >= 4, f"600 normal values use {levels(codes)} of 8 clusters"
        assert worse <= 1e-5, (
            f"after {iterations} iterations a value lies {worse:.4f} farther than it need"
        )


@exercise(
    "ex4",
    points=2,
    invariant="once nothing moves, every centroid is the mean of its values; one without values "
    "stays where it is",
    cause="medians or midpoints instead of means, a step towards the mean, too few iterations, or "
    "0 / 0 = NaN where a centroid has no values",
)
def test_centroids_are_means(student, rng):
    values = torch.randn(200, generator=rng)
    codebook, codes = cluster(student, values, 3, 300)
    used = 0
    for j in range(8):
        members = values[codes == j].double()
        if len(members):
            used += 1
            gap = (members.mean() - codebook[j].double()).abs().item()
            assert gap <= 200 * 4 * FLOAT32, (
                f"centroid {j} is {codebook[j]:.4f}, the mean of its {len(members)} values "
                f"{members.mean():.4f}"
            )
    assert used >= 6, f"200 normal values ended in {used} of 8 clusters"
    codebook, codes = cluster(student, torch.tensor([0.0, 0.1, 0.2, 9.0]), 2, 5)
    expect_close(
        codebook,
        torch.tensor([0.1, 3.0, 6.0, 9.0]),  # from 0, 3, 6, 9: only the first has to move
        what="the codebook of 0, 0.1, 0.2, 9",
        atol=16 * 9 * FLOAT32,
    )
    assert codes.tolist() == [0, 0, 0, 3], f"the codes of 0, 0.1, 0.2, 9 are {codes.tolist()}"


# ---- exercise 5: fake quantization -----------------------------------------------------------


def drive_gradient(student, x, scale, zero, bits, symmetric, upstream):
    """Runs beside the student's code: value of fake_quantize and gradient of sum(upstream * it)."""
    import torch

    x = x.clone().requires_grad_(True)
    y = student.fake_quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    if not isinstance(y, torch.Tensor):
        return None, None
    if not y.requires_grad:
        return y.detach(), None
    (y * upstream).sum().backward()
    return y.detach(), x.grad


def gradient(student, x, scale, zero, bits, symmetric, upstream=None):
    upstream = torch.ones(x.shape) if upstream is None else upstream
    y, grad = student.drive(drive_gradient, x, scale, zero, bits, symmetric, upstream)
    expect_tensor(y, "fake_quantize(...)", torch.float32, x.shape)
    assert grad is not None, "no gradient reaches x: the result does not depend on it for autograd"
    return y, expect_tensor(grad, "the gradient", None, x.shape)


@exercise(
    "ex5",
    points=2,
    invariant="the values are those of dequantize(quantize(x)), and a gradient comes back",
    cause="x returned as it is, or the rounding inside no_grad without a way for the gradient",
)
def test_values_on_the_grid(student, rng):
    x = torch.tensor([-3.0, -0.6, -0.1, 0.3, 0.9, 1.4])
    zero = torch.tensor(1, dtype=torch.int32)
    y, grad = gradient(student, x, torch.tensor(0.5), zero, 2, False)
    expect_close(
        y, torch.tensor([-0.5, -0.5, 0.0, 0.5, 1.0, 1.0]), what="values", atol=4 * 3 * FLOAT32
    )
    assert grad.abs().sum() > 0, "the gradient is 0 everywhere: nothing could be trained"


@exercise(
    "ex5",
    points=2,
    invariant="inside the range the gradient that arrives passes unchanged, as without rounding",
    cause="the derivative of round (0), a factor of s or 1 / s left in, the incoming gradient "
    "ignored; or the mask: z forgotten, x in place of round(x / s) + z, the first and last level "
    "taken for clipped, the range of the data in place of that of the grid",
)
def test_gradient_inside(student, rng):
    u = 2 * torch.rand(60, generator=rng) - 1
    upstream = torch.randn(60, generator=rng)
    for bits, z, lo, hi in ((2, 1, -0.5, 1.0), (4, 8, -1.1, 1.1), (4, 15, -7.4, -4.3)):
        # the grids run from -0.5 to 1, -4 to 3.5 and -7.5 to 0
        x = (lo + hi) / 2 + u * (hi - lo) / 2
        x[:2] = torch.tensor([lo, hi])
        zero = torch.tensor(z, dtype=torch.int32)
        y, grad = gradient(student, x, torch.tensor(0.5), zero, bits, False, upstream)
        assert levels(y) <= 2**bits, f"{levels(y)} values, {bits} bits allow {2**bits}"
        wrong = (grad.float() != upstream).nonzero().flatten().tolist()
        if wrong:
            places, i = x[wrong], wrong[0]
            raise AssertionError(
                f"s = 0.5, z = {z}, {bits} bits: {len(wrong)} of 60 gradients are wrong, at x from "
                f"{places.min():.3g} to {places.max():.3g}; at x = {x[i]:.3g}, where x_hat is "
                f"{y[i]:.3g}, {upstream[i]:.3g} arrives and {grad[i]:.3g} leaves"
            )


@exercise(
    "ex5",
    points=2,
    invariant="where x is clipped the gradient is 0, and 1 beside it",
    cause="x + (x_hat - x).detach() alone passes the gradient everywhere",
)
def test_gradient_outside(student, rng):
    x = torch.tensor([-100.0, -9.0, -1.0, 0.2, 1.0, 9.0, 100.0])
    y, grad = gradient(student, x, torch.tensor(0.5), torch.tensor(0, dtype=torch.int32), 4, True)
    # codes -7..7: the grid ends at +-3.5
    assert grad.tolist() == [0, 0, 1, 1, 1, 0, 0], f"gradient {grad.tolist()} at x = {x.tolist()}"


# ---- exercise 6: a whole model ---------------------------------------------------------------


def drive_model(student, bits, granularity):
    """Runs beside the student's code: parameters of a small model before and after."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(11, 8),
            "block": nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 8, bias=False)),
            "norm": nn.LayerNorm(8),
            "head": nn.ModuleDict({"lm_head": nn.Linear(8, 11, bias=False)}),
            "output": nn.Linear(8, 11, bias=False),
        }
    )
    model["output"].weight = model["embed"].weight  # tied: one parameter under two names
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    answer = student.quantize_model(model, bits=bits, granularity=granularity)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], nn.Module)):
        return before, {}, {}, None
    quantized, total = answer
    original = {name: p.detach().clone() for name, p in model.named_parameters()}
    after = {name: p.detach().clone() for name, p in quantized.named_parameters()}
    return before, original, after, total


def small_model(student, bits, granularity):
    before, original, after, total = student.drive(drive_model, bits, granularity)
    assert after, "quantize_model must return (model, total bits)"
    return before, original, after, total


@exercise(
    "ex6",
    points=2,
    invariant="the weights of nn.Linear change, except lm_head; embeddings, norms and biases stay",
    cause="a layer called head.lm_head or the embedding quantized too (also by way of an output "
    "layer tied to it), a tie cut by a new nn.Parameter, or biases treated like weights",
)
def test_which_parameters_change(student, rng):
    before, _, after, _ = small_model(student, 3, "channel")
    more = sorted(set(after) ^ set(before))
    assert not more, f"the copy has other parameters than the model; the difference: {more}"
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"block.0.weight", "block.2.weight"}, f"changed: {sorted(changed)}"
    for name in sorted(changed):
        most = max(levels(row) for row in after[name])
        assert most <= 8, f"a row of {name} holds {most} values, 3 bits allow 8"


@exercise(
    "ex6",
    points=2,
    invariant="total = codes, scales, zero points of what is quantized + 16 bits for the rest",
    cause="biases, norms or embeddings left out or counted with 32 bits, a tied weight counted "
    "twice, or head.lm_head counted as quantized",
)
def test_total_of_a_small_model(student, rng):
    rest = 11 * 8 + 12 + 8 + 8 + 11 * 8  # embedding, bias, norm weight and bias, lm_head
    for bits, granularity, groups in (
        (4, "channel", 12 + 8),
        (2, "tensor", 2),
        (3, 5, 12 * 2 + 8 * 3),
    ):
        *_, total = small_model(student, bits, granularity)
        assert type(total) is int, f"the total is of type {type(total).__name__}, not int"
        expected = bits * (12 * 8 + 8 * 12) + groups * (16 + bits) + 16 * rest
        assert total == expected, f"{bits} bits, {granularity!r}: {total}, expected {expected}"


@exercise(
    "ex6",
    points=2,
    invariant="the model that came in is the same afterwards; the new one is another object",
    cause="weights assigned in place, or a shallow copy that shares its tensors",
)
def test_original_model_stays(student, rng):
    before, original, after, _ = small_model(student, 2, "tensor")
    moved = [name for name in before if not torch.equal(before[name], original[name])]
    assert not moved, f"the original changed in {moved}"
    assert levels(after["block.0.weight"]) <= 4, "the new model is not quantized"
