"""Hidden tests of lab01: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.  Where a code is compared exactly, the inputs keep clear
of rounding ties, so that x / s and x * (1 / s) give the same code.
"""

import math

import pytest
import torch

from efflib.lab import exercise, expect_close

FLOAT32 = 2.0**-24  # relative error of one float32 rounding
CLEAR = 1e-3  # distance from a rounding tie, in steps, at which no float32 formula changes a code
TENSOR = torch.Tensor


def pair(value, call):
    ok = isinstance(value, tuple) and len(value) == 2 and all(isinstance(v, TENSOR) for v in value)
    assert ok, f"{call} must return two tensors, it returned {type(value).__name__}"
    return value


def check(value, call, dtype, shape):
    assert isinstance(value, TENSOR), f"{call} returned {type(value).__name__}"
    assert dtype is None or value.dtype == dtype, f"{call} has dtype {value.dtype}, not {dtype}"
    assert value.shape == shape, f"{call} has shape {list(value.shape)}, not {list(shape)}"
    return value


def code_range(bits, symmetric):
    top = 2 ** (bits - 1) - 1
    return (-top, top) if symmetric else (0, 2**bits - 1)


def widths():
    """(bits, symmetric) of every grid there is."""
    return [(b, False) for b in range(1, 9)] + [(b, True) for b in range(2, 9)]


def grid(student, lo, hi, bits, symmetric):
    """The student's (scale, zero) as float64."""
    value = student.affine_parameters(lo, hi, bits=bits, symmetric=symmetric)
    scale, zero = pair(value, "affine_parameters")
    check(scale, "scale", torch.float32, lo.shape)
    check(zero, "zero", None, lo.shape)
    return scale.double(), zero.double()


def true_grid(lo, hi, bits, symmetric):
    """(scale, zero, clear of a tie) of one range, Python floats."""
    qmin, qmax = code_range(bits, symmetric)
    if symmetric:
        return (max(abs(lo), abs(hi)) / qmax or 1.0), 0, True
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    scale = (hi - lo) / qmax or 1.0
    exact = -lo / scale
    return scale, round(exact), abs(exact - math.floor(exact) - 0.5) > CLEAR


def true_codes(x, scale, zero, bits, symmetric):
    """(codes, mask of values clear of a tie), float64, of x with one scale and zero."""
    qmin, qmax = code_range(bits, symmetric)
    exact = x.double() / scale
    clear = (exact - exact.floor() - 0.5).abs() > CLEAR
    return (exact.round() + zero).clamp(qmin, qmax), clear


def true_round_trip(w, bits, granularity, symmetric):
    """(w_hat, mask of values to compare, rounding error), group by group in float64.  w [N, K]."""
    n, k = w.shape
    size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
    rows = (w.reshape(1, -1) if granularity == "tensor" else w).double()
    w_hat, bound = torch.zeros_like(rows), torch.zeros_like(rows)
    clear = torch.zeros(rows.shape, dtype=torch.bool)
    for i in range(rows.shape[0]):
        for start in range(0, rows.shape[1], size):
            here = (i, slice(start, start + size))
            part = rows[here]
            scale, zero, sure = true_grid(part.min().item(), part.max().item(), bits, symmetric)
            codes, safe = true_codes(part, scale, zero, bits, symmetric)
            w_hat[here] = (codes - zero) * scale
            bound[here] = 16 * FLOAT32 * part.abs().max()
            clear[here] = safe & sure
    return tuple(x.reshape(n, k) for x in (w_hat, clear, bound))


def expect_quantized(w_hat, w, bits, granularity, symmetric, what):
    """Compare w_hat with the float64 brute force of w wherever no rounding tie is near.

    A tie of z takes its group out of the comparison, a tie of a code its weight: 1 in 500 each.
    """
    expected, clear, bound = true_round_trip(w, bits, granularity, symmetric)
    wrong = ((w_hat.double() - expected).abs() > bound) & clear
    assert not wrong.any(), (
        f"{what}, {bits} bits, {granularity!r}, symmetric={symmetric}: "
        f"{int(wrong.sum())} of {wrong.numel()} weights differ"
    )


# ---- exercise 1 ------------------------------------------------------------------------------


@exercise(
    "ex1",
    points=2,
    invariant="the asymmetric range contains 0: a group in 5..6 has z = 0 and s = 6 / (2^b - 1)",
    cause="lo and hi used as they are: 0.0 has no code, or z is clamped and the grid ends at 1",
)
def test_range_on_one_side_of_zero(student, rng):
    a, b = (torch.rand(2, generator=rng) + torch.tensor([1.0, 3.0])).tolist()
    for bits in (1, 2, 4, 8):
        qmax = 2**bits - 1
        lo, hi = torch.tensor([a, -b]), torch.tensor([b, -a])
        scale, zero = grid(student, lo, hi, bits, False)
        assert zero.tolist() == [0, qmax], f"zero points {zero.tolist()}, expected 0 and {qmax}"
        expect_close(scale, torch.tensor([b, b]).double() / qmax, what="scale", rtol=8 * FLOAT32)


@exercise(
    "ex1",
    points=3,
    invariant="s = range / number of steps and z = round(-lo / s), for each group by itself",
    cause="a step count or a rounding that is right for one width only, or groups mixed up",
)
def test_parameters_of_every_width(student, rng):
    for bits, symmetric in widths():
        lo = -torch.rand(5, 7, generator=rng) * 10
        hi = lo + torch.rand(5, 7, generator=rng) * 20  # some ranges lie below 0
        scale, zero = grid(student, lo, hi, bits, symmetric)
        compared = 0
        for i in range(5):
            for j in range(7):
                s, z, sure = true_grid(lo[i, j].item(), hi[i, j].item(), bits, symmetric)
                assert abs(scale[i, j] - s) <= 8 * FLOAT32 * s, f"scale {scale[i, j]}, expected {s}"
                if sure:
                    compared += 1
                    assert zero[i, j] == z, f"zero {zero[i, j]}, expected {z}"
        assert compared > 20, "the test drew too many ties"


@exercise(
    "ex1",
    points=2,
    invariant="a range 2^k times as wide has a scale 2^k times as large and the same zero point",
    cause="a floor such as clamp(min=1e-5): it coarsens groups of small weights",
)
def test_grid_follows_the_range(student, rng):
    lo, hi = torch.tensor([-1.0, -3.0, 0.0]), torch.tensor([2.0, 1.0, 5.0])
    hi = hi + torch.rand(3, generator=rng) * 0.1
    for bits, symmetric in ((4, False), (4, True), (8, False)):
        scale, zero = grid(student, lo, hi, bits, symmetric)
        for i, (low, high) in enumerate(zip(lo.tolist(), hi.tolist(), strict=True)):
            s, _, _ = true_grid(low, high, bits, symmetric)
            assert abs(scale[i] - s) <= 8 * FLOAT32 * s, f"scale {scale[i]}, expected {s}"
        for power in (-60, -20, 40):
            s, z = grid(student, lo * 2.0**power, hi * 2.0**power, bits, symmetric)
            expect_close(
                s, scale * 2.0**power, what=f"scale of a range times 2^{power}", rtol=8 * FLOAT32
            )
            assert torch.equal(z, zero), f"the zero point changed from {zero} to {z}"


@exercise(
    "ex1",
    points=1,
    invariant="bfloat16 bounds give the float32 scale of the numbers they hold",
    cause="arithmetic in bfloat16, which keeps 8 significant bits: convert with .float() first",
)
def test_bfloat16_bounds(student, rng):
    lo, hi = torch.tensor([-0.7, -3.3]).bfloat16(), torch.tensor([1.9, 0.4]).bfloat16()
    for bits, symmetric in ((4, False), (8, True)):
        scale, _ = grid(student, lo, hi, bits, symmetric)
        for i in range(2):
            s, _, _ = true_grid(lo[i].item(), hi[i].item(), bits, symmetric)
            assert abs(scale[i] - s) <= 8 * FLOAT32 * s, f"scale {scale[i]}, expected {s}"


@exercise(
    "ex1",
    points=1,
    invariant="1 bit exists asymmetric (s = hi - lo); symmetric 1 bit and 9 bits raise ValueError",
    cause="code_range is not called, so a grid without levels gives a division by 0",
)
def test_widths_that_do_not_exist(student, rng):
    lo, hi = torch.tensor([-1.0]), torch.tensor([3.0])
    scale, zero = grid(student, lo, hi, 1, False)
    assert (scale.item(), zero.item()) == (4, 0), f"scale {scale.item()}, zero {zero.item()}"
    for bits, symmetric in ((1, True), (9, False), (0, False)):
        with pytest.raises(ValueError):
            student.affine_parameters(lo, hi, bits=bits, symmetric=symmetric)


# ---- exercise 2 ------------------------------------------------------------------------------


def encode(student, x, scale, zero, bits, symmetric):
    codes = student.quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    return check(codes, "quantize(...)", torch.int8 if symmetric else torch.uint8, x.shape)


def drive_transposed(student, x, scale, zero, bits, symmetric):
    """Runs beside the student's code: quantize a view that is not contiguous."""
    return student.quantize(x.T, scale, zero, bits=bits, symmetric=symmetric)


def decode(student, codes, scale, zero):
    values = student.dequantize(codes, scale, zero)
    return check(values, "dequantize(...)", torch.float32, codes.shape)


@exercise(
    "ex2",
    points=3,
    invariant="codes are clamp(round(x / s) + z) with the scale of their own row",
    cause="scale and zero not broadcast, or x assumed contiguous (view instead of reshape)",
)
def test_codes_of_every_width(student, rng):
    for bits, symmetric in widths():
        qmin, qmax = code_range(bits, symmetric)
        x = torch.randn(9, 6, generator=rng) * (qmax - qmin)
        scale = torch.rand(6, 1, generator=rng) + 0.5
        zero = torch.randint(qmin, qmax + 1, (6, 1), generator=rng, dtype=torch.int32)
        zero = torch.zeros_like(zero) if symmetric else zero
        codes = student.drive(drive_transposed, x, scale, zero, bits, symmetric)
        check(codes, "quantize(...)", torch.int8 if symmetric else torch.uint8, (6, 9))
        expected, clear = true_codes(x.T, scale.double(), zero, bits, symmetric)
        wrong = (codes.double() != expected) & clear
        assert not wrong.any(), f"{bits} bits: {int(wrong.sum())} of 54 codes differ"


@exercise(
    "ex2",
    points=2,
    invariant="0.0 has the code z and comes back as exactly 0.0",
    cause="z used in one direction only, or s * q - s * z in place of s * (q - z)",
)
def test_zero_is_exact(student, rng):
    x = torch.tensor([[0.0, 0.31], [0.0, -0.29]])
    for bits in (2, 4, 8):
        z = torch.randint(1, 2**bits - 1, (2, 1), generator=rng, dtype=torch.int32)
        scale = torch.rand(2, 1, generator=rng) * 0.1 + 0.25
        codes = encode(student, x, scale, z, bits, False)
        assert torch.equal(codes[:, :1].int(), z), f"0.0 has the codes {codes[:, 0].tolist()}"
        values = decode(student, codes, scale, z)
        assert (values[:, 0] == 0).all(), f"0.0 came back as {values[:, 0].tolist()}"
        assert values[0, 1] > 0 > values[1, 1], f"0.31 and -0.29 came back as {values[:, 1]}"


@exercise(
    "ex2",
    points=2,
    invariant="every code stands for s (q - z), and that value has the same code again",
    cause="codes - zero in uint8, where 3 - 5 is 254; or int8 for codes above 127",
)
def test_all_codes_survive(student, rng):
    for bits, symmetric in ((8, False), (8, True), (4, False), (1, False)):
        qmin, qmax = code_range(bits, symmetric)
        codes = torch.arange(qmin, qmax + 1).to(torch.int8 if symmetric else torch.uint8)
        middle = (qmin + qmax + 1) // 2
        zero = torch.tensor(0 if symmetric else middle, dtype=torch.int32)
        scale = torch.rand((), generator=rng) + 0.01
        values = decode(student, codes, scale, zero)
        expected = scale.double() * (torch.arange(qmin, qmax + 1) - zero)
        expect_close(values.double(), expected, what="values of all codes", rtol=4 * FLOAT32)
        again = encode(student, values, scale, zero, bits, symmetric)
        assert torch.equal(again, codes), f"{bits} bits: codes {codes} became {again}"


@exercise(
    "ex2",
    points=1,
    invariant="symmetric: the codes of -x are minus the codes of x, out of the range too",
    cause="clamp to -2^(b-1), which has no counterpart on the other side; or floor for round",
)
def test_change_of_sign(student, rng):
    x = torch.randn(200, generator=rng) * 3
    for bits in (2, 4, 8):
        scale, zero = torch.tensor(1.9 / 2 ** (bits - 1)), torch.tensor(0, dtype=torch.int32)
        plus = encode(student, x, scale, zero, bits, True)
        minus = encode(student, -x, scale, zero, bits, True)
        _, clear = true_codes(x, scale.double(), 0, bits, True)
        assert (plus.int() == -minus.int())[clear].all(), f"{bits} bits: codes are not mirrored"
        top = 2 ** (bits - 1) - 1
        assert (plus.min(), plus.max()) == (-top, top), f"codes {plus.min()} to {plus.max()}"


@exercise(
    "ex2",
    points=1,
    invariant="bfloat16 values and single numbers are quantized like float32",
    cause="x / scale in bfloat16: a code above 256 cannot even be held",
)
def test_bfloat16_and_scalars(student, rng):
    x = (torch.rand(100, generator=rng) * 50).bfloat16()
    scale, zero = torch.tensor(0.21), torch.tensor(3, dtype=torch.int32)
    codes = encode(student, x, scale, zero, 8, False)
    expected, clear = true_codes(x, scale.double(), 3, 8, False)
    assert (codes.double() == expected)[clear].all(), "codes of bfloat16 values differ"
    one = encode(student, torch.tensor(1.0), torch.tensor(0.25), zero, 8, False)
    assert one.item() == 7, f"the code of 1.0 is {one.item()}"
    assert decode(student, one, torch.tensor(0.25), zero).item() == 1.0, "1.0 did not come back"


# ---- exercise 3 ------------------------------------------------------------------------------


def round_trip(student, w, bits, granularity, symmetric):
    value = student.quantize_weight(w, bits=bits, granularity=granularity, symmetric=symmetric)
    return check(value, f"quantize_weight({granularity!r})", torch.float32, w.shape)


def expect_round_trip(student, w, bits, granularity, symmetric):
    w_hat = round_trip(student, w, bits, granularity, symmetric)
    expect_quantized(w_hat, w, bits, granularity, symmetric, "a weight")


@exercise(
    "ex3",
    points=3,
    invariant="each group of each row goes through its own grid, the shorter last one as well",
    cause="ragged groups dropped or filled with their neighbours, or cut down the columns",
)
def test_every_group_against_float64(student, rng):
    for bits, symmetric in ((1, False), (2, False), (3, True), (4, False), (8, True)):
        w = torch.randn(5, 23, generator=rng) * torch.rand(5, 1, generator=rng) + 0.3
        for granularity in ("tensor", "channel", 1, 7, 23, 100):
            expect_round_trip(student, w, bits, granularity, symmetric)


@exercise(
    "ex3",
    points=2,
    invariant="the last group has its own range, whatever stands in the groups before it",
    cause="the last group merged with its neighbour, or left in float",
)
def test_ragged_last_group(student, rng):
    w = torch.randn(4, 19, generator=rng)
    w[:, :16] *= 1000
    for symmetric in (False, True):
        w_hat = round_trip(student, w, 2, 8, symmetric)
        tail, tail_hat = w[:, 16:], w_hat[:, 16:]
        low, high = tail.amin(1).clamp(max=0), tail.amax(1).clamp(min=0)
        step = tail.abs().amax(1) if symmetric else (high - low) / 3
        error = ((tail_hat - tail).abs().amax(1) / step).max().item()
        assert error <= 0.5 + 1e-4, f"the last 3 weights of a row err by {error:.2f} steps"
        assert not torch.equal(tail, tail_hat), "the last 3 weights of a row are not quantized"


@exercise(
    "ex3",
    points=2,
    invariant="N K b + groups x (16 + b if there is a zero point); a started group is a group",
    cause="N * K // G groups, zero points counted on a symmetric grid, or one group per column",
)
def test_sizes_by_counting(student, rng):
    for bits, symmetric in ((1, False), (3, False), (3, True), (8, True)):
        n, k = torch.randint(3, 40, (2,), generator=rng).tolist()
        for granularity in ("tensor", "channel", 1, 4, 7, 64):
            size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
            rows = 1 if granularity == "tensor" else n
            groups = sum(1 for _ in range(rows) for _ in range(0, n * k // rows, size))
            expected = n * k * bits + groups * (16 if symmetric else 16 + bits)
            total = student.weight_bits(
                (n, k), bits=bits, granularity=granularity, symmetric=symmetric
            )
            assert type(total) is int, f"weight_bits returned {type(total).__name__}"
            assert total == expected, (
                f"[{n}, {k}], {bits} bits, {granularity!r}: {total}, not {expected}"
            )


def drive_transposed_weight(student, w, granularity):
    """Runs beside the student's code: a weight that is not contiguous, and is it unchanged?"""
    before = w.clone()
    w_hat = student.quantize_weight(w.T, bits=4, granularity=granularity, symmetric=False)
    return w_hat, bool((w == before).all())


@exercise(
    "ex3",
    points=2,
    invariant="constant, negative, transposed, bfloat16, single weights and huge outliers work",
    cause="view on a transposed weight, bfloat16 arithmetic, 0 / 0, or the argument changed",
)
def test_awkward_weights(student, rng):
    w = torch.randn(12, 6, generator=rng)
    outlier = w.clone()
    outlier[3, 2] = 1e30
    for case in (-w.abs() - 1, w.bfloat16(), w[:1, :1], outlier):
        for granularity in ("tensor", "channel", 5):
            expect_round_trip(student, case, 4, granularity, False)
    for value in (0.0, -2.5):
        flat = torch.full((3, 7), value)
        expect_close(
            round_trip(student, flat, 3, 4, False), flat, what=f"constant {value}", rtol=4 * FLOAT32
        )
    for granularity in ("tensor", "channel", 5):
        w_hat, same = student.drive(drive_transposed_weight, w, granularity)
        check(w_hat, "quantize_weight(...)", torch.float32, (6, 12))
        expect_quantized(w_hat, w.T, 4, granularity, False, "a transposed weight")
        assert same, "quantize_weight changed its argument"
    with pytest.raises(ValueError):
        student.quantize_weight(w, bits=4, granularity="row", symmetric=False)


# ---- exercise 4 ------------------------------------------------------------------------------


def drive_transposed_values(student, values, bits, iterations):
    """Runs beside the student's code: values that are not contiguous."""
    return student.kmeans_codebook(values.T, bits=bits, iterations=iterations)


def cluster(student, values, bits, iterations):
    value = student.kmeans_codebook(values, bits=bits, iterations=iterations)
    return expect_codebook(value, values, bits)


def expect_codebook(value, values, bits):
    codebook, codes = pair(value, "kmeans_codebook")
    check(codebook, "codebook", torch.float32, (2**bits,))
    check(codes, "codes", None, values.shape)
    assert not codes.is_floating_point(), f"codes must be integers, got {codes.dtype}"
    codes = codes.long()
    assert 0 <= codes.min() and codes.max() < 2**bits, "a code points outside the codebook"
    assert (codebook.diff() >= 0).all(), f"the codebook does not ascend: {codebook}"
    return codebook.double(), codes


def inertia(values, codebook, codes):
    return (values.double() - codebook[codes]).square().sum().item()


@exercise(
    "ex4",
    points=3,
    invariant="from the even grid on, no iteration increases the squared error; it ends far lower",
    cause="another start (random, quantiles), an update that is not the mean, iterations ignored",
)
def test_error_falls(student, rng):
    for bits in (2, 3, 4):
        values = torch.randn(40, 25, generator=rng).exp()
        errors = []
        for iterations in (0, 1, 2, 5, 30):
            codebook, codes = cluster(student, values, bits, iterations)
            errors.append(inertia(values, codebook, codes))
            if iterations == 0:
                start = torch.linspace(values.min(), values.max(), 2**bits)
                expect_close(
                    codebook,
                    start.double(),
                    what="codebook before any iteration",
                    atol=8 * FLOAT32 * values.max().item(),
                )
        for before, after in zip(errors, errors[1:], strict=False):
            assert after <= before * (1 + 1e-5), f"squared error by iterations: {errors}"
        assert errors[-1] < 0.7 * errors[0], f"squared error by iterations: {errors}"


@exercise(
    "ex4",
    points=2,
    invariant="one iteration: nearest entry of the even grid, then the mean of each cluster",
    cause="a step towards the mean, a median, or two halves of an iteration in the wrong order",
)
def test_one_iteration(student, rng):
    drawn = torch.randn(300, generator=rng)
    for bits in (1, 2, 3):
        start = torch.linspace(drawn.min(), drawn.max(), 2**bits).double()
        distance = (drawn.double()[:, None] - start).abs()  # [300, 2^b]
        nearest, runner_up = distance.sort(dim=1).values[:, :2].T
        clear = runner_up - nearest > 1e-5  # both ends are clear, so the start stays the same
        values, codes = drawn[clear], distance.argmin(dim=1)[clear]
        expected = [
            values[codes == j].double().mean() if (codes == j).any() else start[j]
            for j in range(2**bits)
        ]
        codebook, _ = cluster(student, values, bits, 1)
        expect_close(
            codebook,
            torch.stack(expected),
            what=f"{2**bits} centroids after one iteration",
            atol=300 * 4 * FLOAT32,
        )


@exercise(
    "ex4",
    points=2,
    invariant="a centroid without values stays where it is, and never becomes NaN",
    cause="a mean over nothing is 0 / 0; or empty centroids fall to 0",
)
def test_empty_clusters(student, rng):
    far = 50 + torch.rand((), generator=rng).item()
    values = torch.tensor([1.0, 1.0, far, 1.0])
    start = torch.linspace(1.0, far, 8).double()
    for iterations in (1, 10):
        codebook, codes = cluster(student, values, 3, iterations)
        expect_close(codebook, start, what="codebook", atol=8 * FLOAT32 * far)
        assert codes.tolist() == [0, 0, 7, 0], f"codes {codes.tolist()}"


@exercise(
    "ex4",
    points=2,
    invariant="constant, single and few values are exact; bfloat16 and transposed values work",
    cause="a midpoint between equal centroids, view on transposed values, sums kept in bfloat16",
)
def test_awkward_values(student, rng):
    value = torch.randn((), generator=rng).item()
    for values in (torch.full((3, 4), value), torch.tensor([value]), torch.tensor([0.0, 3.0, 1.0])):
        codebook, codes = cluster(student, values, 2, 5)
        expect_close(codebook[codes], values.double(), what="values", atol=8 * FLOAT32 * 3)
    values = torch.randn(60, 40, generator=rng)
    turned = student.drive(drive_transposed_values, values.T.contiguous(), 1, 50)
    rounded = values.bfloat16()
    for plain, (codebook, codes) in (
        (values, expect_codebook(turned, values, 1)),
        (rounded.float(), cluster(student, rounded, 1, 50)),
    ):
        low, high = plain[codes == 0].double(), plain[codes == 1].double()
        means = torch.stack([low.mean(), high.mean()])
        expect_close(codebook, means, what="two centroids", atol=2400 * 4 * FLOAT32)
        assert low.max() < high.min(), "the two clusters overlap"


# ---- exercise 5 ------------------------------------------------------------------------------


def drive_gradient(student, x, scale, zero, bits, symmetric, upstream):
    """Runs beside the student's code: value, gradient of sum(upstream * value), x unchanged?"""
    import torch

    x = x.clone().requires_grad_(True)
    before = x.detach().clone()
    y = student.fake_quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    if not isinstance(y, torch.Tensor) or not y.requires_grad:
        return None, None, True
    (y * upstream).sum().backward()
    return y.detach(), x.grad, bool((x.detach() == before).all())


def fake(student, x, scale, zero, bits, symmetric, upstream):
    y, grad, same = student.drive(drive_gradient, x, scale, zero, bits, symmetric, upstream)
    assert y is not None, "no gradient reaches x"
    check(y, "fake_quantize(...)", torch.float32, x.shape)
    check(grad, "the gradient", x.dtype, x.shape)
    return y, grad, same


def expect_fake(student, x, scale, zero, bits, symmetric, upstream):
    """Value and gradient against float64, away from ties and from the half step past each end."""
    qmin, qmax = code_range(bits, symmetric)
    y, grad, same = fake(student, x, scale, zero, bits, symmetric, upstream)
    codes, clear = true_codes(x, scale.double(), zero, bits, symmetric)
    expected = (codes - zero) * scale.double()
    bound = 8 * FLOAT32 * max(x.abs().max().item(), expected.abs().max().item())
    assert (((y - expected).abs() * clear) <= bound).all(), f"{bits} bits: values differ"
    position = x.double() / scale.double() + zero
    inside = (position > qmin + CLEAR) & (position < qmax - CLEAR)
    outside = (position < qmin - 0.5 - CLEAR) | (position > qmax + 0.5 + CLEAR)
    assert torch.equal(grad[inside], upstream.to(x.dtype)[inside]), f"{bits} bits: gradient inside"
    assert not grad[outside].any(), f"{bits} bits: a gradient where x is clipped"
    return inside.sum().item(), outside.sum().item(), same


@exercise(
    "ex5",
    points=3,
    invariant="the gradient that arrives passes unchanged inside the range and stops outside it",
    cause="the mask uses one row's range for all rows, or z is forgotten in it",
)
def test_gradient_by_rows(student, rng):
    for bits, symmetric in ((2, False), (3, True), (4, False), (8, False)):
        qmin, qmax = code_range(bits, symmetric)
        scale = torch.logspace(-1, 1, 4)[:, None]
        zero = torch.zeros(4, 1, dtype=torch.int32)
        if not symmetric:
            zero += torch.tensor([qmin, qmin + 1, qmax, qmax - 1], dtype=torch.int32)[:, None]
        x = scale * (torch.randn(4, 60, generator=rng) * (qmax - qmin))
        upstream = torch.randn(4, 60, generator=rng)
        inside, outside, _ = expect_fake(student, x, scale, zero, bits, symmetric, upstream)
        assert inside > 20 and outside > 20, "the test drew a one-sided case"


@exercise(
    "ex5",
    points=2,
    invariant="values equal dequantize(quantize(x)) and the gradient is masked, for every width",
    cause="a range that is right for one width only; 1 bit has the codes 0 and 1",
)
def test_every_width(student, rng):
    for bits, symmetric in widths():
        qmin, qmax = code_range(bits, symmetric)
        zero = torch.tensor(0 if symmetric else (qmax + 1) // 2, dtype=torch.int32)
        x = torch.randn(80, generator=rng) * (qmax - qmin) * 0.3
        expect_fake(student, x, torch.tensor(0.3), zero, bits, symmetric, torch.ones(80))


def drive_training(student, w, target, scale, zero, steps, rate):
    """Runs beside the student's code: gradient descent on w through fake_quantize."""
    import torch

    w = w.clone().requires_grad_(True)
    losses = []
    for _ in range(steps):
        y = student.fake_quantize(w, scale, zero, bits=3, symmetric=False)
        loss = (y - target).square().sum()
        losses.append(loss.item())
        if not loss.requires_grad:
            break
        (grad,) = torch.autograd.grad(loss, [w])
        with torch.no_grad():
            w -= rate * grad
    return losses


@exercise(
    "ex5",
    points=2,
    invariant="gradient descent through the rounding moves every code to its target",
    cause="a gradient that is 0, has the wrong sign, or is lost on the way",
)
def test_training_reaches_the_target(student, rng):
    scale, zero = torch.tensor(0.5), torch.tensor(4, dtype=torch.int32)
    target = (torch.randint(0, 8, (20,), generator=rng) - 4) * 0.5  # any level
    start = (torch.randint(1, 7, (20,), generator=rng) - 4) * 0.5  # not an outermost one
    w = start + 0.4 * (torch.rand(20, generator=rng) - 0.5)  # rounds to start, away from ties
    first = (start - target).square().sum().item()
    losses = student.drive(drive_training, w, target, scale, zero, 300, 0.05)
    assert isinstance(losses, list) and len(losses) == 300, "no gradient reaches the weights"
    assert abs(losses[0] - first) <= 1e-4, (
        f"the first loss is {losses[0]:.4g}, on the grid it is {first:.4g}"
    )
    assert losses[-1] < 1e-6, f"the loss went from {losses[0]:.3g} to {losses[-1]:.3g}"


@exercise(
    "ex5",
    points=2,
    invariant="bfloat16 x: float32 values, bfloat16 gradient; x itself is not changed",
    cause="arithmetic in bfloat16, or an in-place clamp of the argument",
)
def test_bfloat16_and_no_side_effects(student, rng):
    x = (torch.randn(50, generator=rng) * 4).bfloat16()
    zero = torch.tensor(5, dtype=torch.int32)
    *_, same = expect_fake(student, x, torch.tensor(0.4), zero, 4, False, torch.ones(50))
    assert same, "fake_quantize changed its argument"


# ---- exercise 6 ------------------------------------------------------------------------------


def drive_model(student, kind, bits, granularity):
    """Runs beside the student's code: parameters of a model before and after, and what is tied."""
    import torch
    from torch import nn

    def tied(name):
        model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(13, 6),
                "proj": nn.Linear(6, 6),
                name: nn.Linear(6, 13, bias=False),
            }
        )
        model[name].weight = model["embed_tokens"].weight
        return model

    def shared():
        layer = nn.Linear(6, 6, bias=False)
        other = nn.Linear(6, 6)
        other.weight = layer.weight
        return nn.ModuleDict(
            {"first": layer, "second": layer, "third": other, "last": nn.Linear(6, 3)}
        )

    def mixed():
        model = nn.ModuleDict(
            {
                "conv": nn.Conv1d(4, 4, 3),
                "norm": nn.LayerNorm(10),
                "mlp": nn.ModuleDict({"up": nn.Linear(10, 15), "lm_head": nn.Linear(15, 4)}),
                "lm_head_norm": nn.Linear(4, 9),
            }
        )
        model.register_buffer("table", torch.randn(30))
        return model

    torch.manual_seed(1)
    models = {
        "tied lm_head": lambda: tied("lm_head"),
        "tied output": lambda: tied("output"),
        "shared": shared,
        "mixed": mixed,
    }
    model = models[kind]()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    answer = student.quantize_model(model, bits=bits, granularity=granularity)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], nn.Module)):
        return before, {}, 0, []
    quantized, total = answer
    names = [n for n, p in quantized.named_parameters(remove_duplicate=False)]
    values = dict(quantized.named_parameters(remove_duplicate=False))
    after = {n: p.detach().clone() for n, p in values.items()}
    ties = [[a, b] for a in names for b in names if a < b and values[a] is values[b]]
    return before, after, total, ties


def quantized_model(student, kind, bits, granularity):
    before, after, total, ties = student.drive(drive_model, kind, bits, granularity)
    assert after, "quantize_model must return (model, total bits)"
    return before, after, total, ties


@exercise(
    "ex6",
    points=2,
    invariant="each quantized weight is the asymmetric round trip of exercise 3",
    cause="a symmetric grid, a fixed granularity, or the bits argument not passed on",
)
def test_new_weights(student, rng):
    for bits, granularity in ((2, "tensor"), (4, "channel"), (3, 4), (8, "channel")):
        before, after, _, _ = quantized_model(student, "mixed", bits, granularity)
        for name in ("mlp.up.weight", "lm_head_norm.weight"):
            expect_quantized(after[name], before[name], bits, granularity, False, name)


@exercise(
    "ex6",
    points=3,
    invariant="an output layer tied to the embedding stays in float and stays tied, under any name",
    cause="only the name lm_head is skipped, so the embedding is rounded too; or the tie is cut",
)
def test_tied_output_layer(student, rng):
    for kind, head in (("tied lm_head", "lm_head"), ("tied output", "output")):
        before, after, total, ties = quantized_model(student, kind, 2, "channel")
        kept = torch.equal(after["embed_tokens.weight"], before["embed_tokens.weight"])
        assert kept, f"the embedding was rounded along with {head}"
        assert sorted(["embed_tokens.weight", f"{head}.weight"]) in ties, "the tie was cut"
        expect_quantized(
            after["proj.weight"], before["proj.weight"], 2, "channel", False, "proj.weight"
        )
        expected = 13 * 6 * 16 + 6 * 6 * 2 + 6 * (16 + 2) + 6 * 16
        assert total == expected, f"total {total}, expected {expected}: a tied weight counts once"


@exercise(
    "ex6",
    points=1,
    invariant="one layer under two names, or one weight in two layers, is quantized and counted "
    "once, and stays one",
    cause="a sum over names instead of over parameters, or a new nn.Parameter in each layer",
)
def test_shared_layer(student, rng):
    before, after, total, ties = quantized_model(student, "shared", 3, "channel")
    for a, b in (("first", "second"), ("first", "third")):
        assert [f"{a}.weight", f"{b}.weight"] in ties, f"{a} and {b} no longer share a weight"
    expect_quantized(
        after["first.weight"], before["first.weight"], 3, "channel", False, "first.weight"
    )
    expected = 36 * 3 + 6 * 19 + 6 * 16 + 18 * 3 + 3 * 19 + 3 * 16
    assert total == expected, f"total {total}, expected {expected}"


@exercise(
    "ex6",
    points=2,
    invariant="16 bits for each parameter that is not quantized, nothing for buffers",
    cause="biases, norms, convolutions or a nested lm_head missed, or buffers counted",
)
def test_total_counts_everything(student, rng):
    for bits, granularity, groups in ((4, "channel", 15 + 9), (2, "tensor", 2), (5, 7, 15 * 2 + 9)):
        before, after, total, _ = quantized_model(student, "mixed", bits, granularity)
        quantized = {n for n in before if not torch.equal(before[n], after[n])}
        assert quantized == {"mlp.up.weight", "lm_head_norm.weight"}, f"changed: {quantized}"
        rest = sum(p.numel() for n, p in before.items() if n not in quantized)
        expected = bits * (150 + 36) + groups * (16 + bits) + 16 * rest
        assert total == expected, f"{bits} bits, {granularity!r}: {total}, expected {expected}"


def drive_llama(student):
    """Runs beside the student's code: how far a small Llama's logits move, and sizes, by bits."""
    import torch

    from efflib.models.llama import Llama, LlamaConfig

    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    model = Llama(config)
    ids = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        plain = model(ids)
        rows = []
        for bits in (8, 5, 2):
            quantized, total = student.quantize_model(model, bits=bits, granularity=16)
            rows.append([(quantized(ids) - plain).abs().mean().item(), total])
    return (
        rows,
        [list(p.shape) for n, p in model.named_parameters() if "_proj" in n],
        sum(p.numel() for n, p in model.named_parameters() if "_proj" not in n),
    )


@exercise(
    "ex6",
    points=1,
    invariant="a small Llama: fewer bits, smaller total and larger error of the logits",
    cause="something that only works on the models of the public tests",
)
def test_llama(student, rng):
    rows, shapes, rest = student.drive(drive_llama)
    errors = [error for error, _ in rows]
    assert 0 < errors[0] < errors[1] < errors[2], f"logits move by {errors} at 8, 5, 2 bits"
    for (_, total), bits in zip(rows, (8, 5, 2), strict=True):
        groups = sum(n * math.ceil(k / 16) for n, k in shapes)
        expected = sum(n * k for n, k in shapes) * bits + groups * (16 + bits) + 16 * rest
        assert total == expected, f"{bits} bits: {total}, expected {expected}"
