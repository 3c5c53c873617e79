"""Public tests of lab01: what lab.check runs.  Properties, and numbers to check by hand.

q is a code, qmin..qmax the codes of a grid of b bits, s a scale, z a zero point.

Tolerances count roundings: n float32 roundings move a number by at most n U of the largest number
that takes part.  So every order of operations passes that the card allows.
"""

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_same,
    expect_tensor,
    expect_tuple,
)

U = 2.0**-24  # relative error of one rounding to float32
SCALE = 4 * U  # of a scale: the difference, the division or a reciprocal and a product, one spare
CLEAR = 1e-3  # in steps: so far from a rounding tie, no float32 formula gives another code


def codes_of(bits, symmetric):
    """(qmin, qmax)."""
    top = 2 ** (bits - 1) - 1
    return (-top, top) if symmetric else (0, 2**bits - 1)


def many(n, word):
    """'1 bit', '2 bits'."""
    return f"{n} {word}" + "s" * (n != 1)


def levels(values):
    return torch.unique(values).numel()


def rounded_to(x, digits):
    return [round(value, digits) for value in x.tolist()]


def drive_twice(student, name, first, second, options):
    """Runs beside the student's code: a call; the same tensors get other numbers; a second call."""
    tensors = [tensor.clone() for tensor in first]
    one = getattr(student, name)(*tensors, **options)
    for tensor, new in zip(tensors, second, strict=True):
        tensor.copy_(new)
    return one, getattr(student, name)(*tensors, **options)


def call_twice(student, name, first, second, **options):
    """What the student's function makes of `first`, and then of `second`, in the same tensors."""
    results = student.drive(drive_twice, name, first, second, options)
    return expect_tuple(results, (object, object), "drive_twice")


# ---- exercise 1: the grid --------------------------------------------------------------------


def grid(student, lo, hi, bits, symmetric, dtype=None):
    """(scale, zero), both as float64, of the student."""
    value = student.affine_parameters(lo, hi, bits=bits, symmetric=symmetric)
    return expect_grid(value, lo.shape, bits, symmetric, dtype)


def expect_grid(value, shape, bits, symmetric, dtype=None):
    """(scale, zero) as float64, with the checks that every use needs. dtype: of zero."""
    scale, zero = expect_tuple(value, (torch.Tensor, torch.Tensor), "affine_parameters")
    expect_tensor(scale, "scale", torch.float32, shape)
    expect_tensor(zero, "zero", dtype, shape)
    whole = not zero.is_complex() and torch.equal(zero.double(), zero.double().round())
    assert whole, "zero holds numbers that are not whole"
    assert (scale > 0).all() and scale.isfinite().all(), (
        f"scale must be positive and finite, got {scale.flatten().tolist()}"
    )
    qmin, qmax = (0, 0) if symmetric else codes_of(bits, False)
    assert ((zero >= qmin) & (zero <= qmax)).all(), (
        f"{many(bits, 'bit')}, symmetric={symmetric}: zero must lie in {qmin}..{qmax}, "
        f"got {zero.flatten().tolist()}"
    )
    return scale.double(), zero.double()


def expect_fits(scale, zero, lo, hi, bits, what):
    """lo..hi, which holds 0, is 2^b - 1 steps wide; both ends lie on the grid within half a step.

    Together these leave one whole number for z, two at a tie.
    """
    qmin, qmax = codes_of(bits, False)
    lo, hi = lo.double(), hi.double()
    expect_close(scale, (hi - lo) / qmax, what=f"scale of {what}, {many(bits, 'bit')}", rtol=SCALE)
    outside = torch.maximum(scale * (qmin - zero) - lo, hi - scale * (qmax - zero)) / scale
    # 1e-3: z may be rounded from -lo / s, qmin - lo / s or qmax - hi / s, all of them up to 255
    expect_at_most(
        outside, 0.5 + CLEAR, f"{what}, {many(bits, 'bit')}: steps from an end to the grid"
    )


@exercise(
    "ex1",
    points=0.5,
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
            f"{kind}: scale {scale.item():.9g} and zero {zero.item():.9g}, expected {s} and {z}"
        )


@exercise(
    "ex1",
    points=0.5,
    invariant="symmetric: the largest magnitude is the largest code, s = max(|lo|, |hi|) / qmax",
    cause="only hi, only |lo| or the width hi - lo was used, or 2^(b-1) instead of 2^(b-1) - 1",
)
def test_symmetric_range(student, rng):
    size = torch.rand(2, 3, 1, generator=rng) + 0.1
    lo = size * torch.tensor([[-1.0, -1.0, -3.0], [-1.0, 0.2, 0.0]])[..., None]
    hi = size * torch.tensor([[3.0, 0.3, -1.5], [1.0, 2.0, 1.0]])[..., None]
    for bits in (2, 4, 8):
        scale, _ = grid(student, lo, hi, bits, True)
        right = torch.maximum(lo.abs(), hi.abs()).double() / codes_of(bits, True)[1]
        expect_close(scale, right, what=f"scale at {many(bits, 'bit')}", rtol=SCALE)


@exercise(
    "ex1",
    points=0.5,
    invariant="asymmetric: lo..hi, stretched to 0, is 2^b - 1 steps wide and fits on the grid "
    "within half a step",
    cause="2^b steps, z not rounded or of the wrong sign, codes that do not start at 0, or lo and "
    "hi used as they come, without the stretch to 0",
)
def test_asymmetric_range(student, rng):
    lo, hi = torch.rand(2, 6, generator=rng) + 0.1
    # 3..3 comes last: without the stretch it has no width, which hides what is wrong with 2..6
    one_side = {"2..6 and -6..-2": ([2.0, -6.0], [6.0, -2.0]), "3..3": ([3.0], [3.0])}
    ends = {"ranges around 0": (-lo, hi)}
    ends |= {what: tuple(map(torch.tensor, bounds)) for what, bounds in one_side.items()}
    cases = [(bits, what, *pair) for bits in (1, 2, 4, 8) for what, pair in ends.items()]
    each = [((low, high), {"bits": bits, "symmetric": False}) for bits, _, low, high in cases]
    values = student.many("affine_parameters", each)
    for (bits, what, low, high), value in zip(cases, values, strict=True):
        scale, zero = expect_grid(value, low.shape, bits, False)
        if what in one_side:
            expected = [0 if bound > 0 else 2**bits - 1 for bound in low.tolist()]
            assert zero.tolist() == expected, (
                f"{many(bits, 'bit')}, {what}: zero is {zero.tolist()}, not {expected}"
            )
        expect_fits(scale, zero, low.clamp(max=0), high.clamp(min=0), bits, what)


@exercise(
    "ex1",
    points=0.5,
    invariant="a group of zeros gets a positive finite scale, other groups keep theirs, however "
    "small",
    cause="a range of 0 gave s = 0, and -lo / s = NaN; or a floor such as clamp(min=1e-8), which "
    "coarsens groups of small weights",
)
def test_group_of_zeros(student, rng):
    lo, hi = torch.tensor([0.0, -3.0, -3e-18]), torch.tensor([0.0, 12.0, 12e-18])
    for symmetric, s in ((False, 1.0), (True, 12 / 7)):
        scale, _ = grid(student, lo, hi, 4, symmetric)
        right = torch.tensor([s, s * 1e-18]).double()
        what = f"symmetric={symmetric}: scale of -3..12 and -3e-18..12e-18"
        # one rounding more than SCALE: 12e-18 itself is a rounded number
        expect_close(scale[1:], right, what=what, rtol=SCALE + U)


@exercise(
    "ex1",
    points=0.5,
    invariant="bfloat16 bounds give the float32 grid of the numbers they hold; a width that does "
    "not exist: ValueError",
    cause="arithmetic in bfloat16, which keeps 8 significant bits; or code_range, which checks the "
    "width, was not called",
)
def test_bfloat16_and_missing_widths(student, rng):
    lo, hi = torch.tensor([-0.7, -3.3]).bfloat16(), torch.tensor([1.9, 0.4]).bfloat16()
    scale, zero = grid(student, lo, hi, 4, False)
    expect_fits(scale, zero, lo, hi, 4, "bfloat16 bounds")
    scale, _ = grid(student, lo, hi, 4, True)
    largest = torch.maximum(lo.abs(), hi.abs()).double()
    expect_close(scale, largest / 7, what="symmetric scale of bfloat16 bounds", rtol=SCALE)
    for bits, symmetric in ((1, True), (9, True), (0, False), (9, False)):
        expect_error(
            ValueError,
            lambda bits=bits, symmetric=symmetric: student.affine_parameters(
                lo, hi, bits=bits, symmetric=symmetric
            ),
            f"{many(bits, 'bit')}, symmetric={symmetric}",
        )


@exercise(
    "ex1",
    points=0.5,
    invariant="every call answers for the numbers it is given now",
    cause="a result kept from an earlier call, or found again by the shape or identity of lo",
)
def test_grid_of_each_call(student, rng):
    lo, hi = torch.rand(2, 2, 5, generator=rng) + 0.1
    hi[1] *= 100
    both = call_twice(
        student, "affine_parameters", [-lo[0], hi[0]], [-lo[1], hi[1]], bits=4, symmetric=False
    )
    for i, value in enumerate(both):
        scale, zero = expect_grid(value, (5,), 4, False)
        expect_fits(scale, zero, -lo[i], hi[i], 4, f"call {i + 1}")


def encode(student, x, scale, zero, bits, symmetric):
    codes = student.quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    return expect_codes(codes, x.shape, symmetric)


def expect_codes(codes, shape, symmetric):
    dtype = torch.int8 if symmetric else torch.uint8
    return expect_tensor(codes, "quantize(...)", dtype, shape)


def decode(student, codes, scale, zero):
    values = student.dequantize(codes, scale, zero)
    return expect_tensor(values, "dequantize(...)", torch.float32, codes.shape)


def true_codes(x, scale, zero, bits, symmetric):
    """(codes, mask of values clear of a tie), float64."""
    exact = x.double() / scale.double()
    clear = (exact - exact.floor() - 0.5).abs() > CLEAR
    return (exact.round() + zero).clamp(*codes_of(bits, symmetric)), clear


def expect_true_codes(codes, x, scale, zero, bits, symmetric, what):
    """Compares the student's codes with float64 wherever no tie is near."""
    expected, clear = true_codes(x, scale, zero, bits, symmetric)
    wrong = (codes.double() != expected) & clear
    if wrong.any():
        i = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{what}: {int(wrong.sum())} of {wrong.numel()} codes differ; at {list(i)} the code of "
            f"{x[i]:.6g} is {codes[i]}, expected {expected[i]:g}"
        )


@exercise(
    "ex1",
    points=0.5,
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
    "ex1",
    points=0.5,
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
        what = f"{many(bits, 'bit')}, s = 0.03, z = {z}: |x_hat - x| in steps"
        expect_at_most(errors, 0.5 + CLEAR, what)


@exercise(
    "ex1",
    points=0.5,
    invariant="values outside the range get the first or the last code, however far they are",
    cause="no clamp, or a clamp after a cast: in 8 bits 256 is 0, and no integer type holds 1e30",
)
def test_clipping(student, rng):
    far = torch.tensor([41.0, 1e6, 1e12, 1e30])
    for bits, symmetric, z in ((3, True, 0), (3, False, 2), (8, True, 0), (8, False, 100)):
        zero = torch.tensor(z, dtype=torch.int32)
        for x, end in ((-far, 0), (far, 1)):
            codes = encode(student, x, torch.tensor(0.1), zero, bits, symmetric).tolist()
            right = [codes_of(bits, symmetric)[end]] * 4
            assert codes == right, (
                f"{many(bits, 'bit')}, symmetric={symmetric}, s = 0.1: the codes of {x.tolist()} "
                f"are {codes}, expected {right}"
            )


@exercise(
    "ex1",
    points=0.5,
    invariant="torch.round takes ties to the even number: 0.5 to 0, 1.5 and 2.5 to 2; past the "
    "ends of the grid as well",
    cause="floor(x + 0.5), which takes all ties up; or values just outside the grid that wrap "
    "around instead of being clamped",
)
def test_ties_go_to_even(student, rng):
    # s is a power of two, so x / s and x * (1 / s) are exact; z is even, so it may come first
    for bits, symmetric, z in ((3, True, 0), (4, False, 6), (8, True, 0), (8, False, 128)):
        qmin, qmax = codes_of(bits, symmetric)
        steps = torch.arange(qmin - z - 4, qmax - z + 4) + 0.5
        zero = torch.tensor(z, dtype=torch.int32)
        codes = encode(student, steps * 0.25, torch.tensor(0.25), zero, bits, symmetric)
        what = f"{many(bits, 'bit')}, symmetric={symmetric}, codes of x = s (k + 0.5)"
        expect_close(codes.double(), (steps.double().round() + z).clamp(qmin, qmax), what=what)


@exercise(
    "ex1",
    points=0.5,
    invariant="each row uses its own s and z; transposed, bfloat16 and single values work",
    cause="one scale for all, view where reshape is needed, or x / s in bfloat16, which keeps 8 "
    "significant bits",
)
def test_rows_views_and_bfloat16(student, rng):
    scale = torch.tensor([0.02, 0.3, 4.0])[:, None]
    zero = torch.tensor([0, 9, 15], dtype=torch.int32)[:, None]
    x = torch.randn(20, 3, generator=rng) * 6 * scale.T
    codes = student.drive(drive_transposed, x, scale, zero, 4, False)
    expect_codes(codes, (3, 20), False)
    expect_true_codes(codes, x.T, scale, zero, 4, False, "x [3, 20], a view; scale [3, 1]")
    values = decode(student, codes, scale, zero).double()
    right = scale.double() * (codes.double() - zero)
    # s (q - z) or s q - s z, all up to 15 s: the products, the difference
    expect_at_most((values - right).abs(), 3 * U * 15 * scale, "dequantize, scale [3, 1]: error")
    x = torch.arange(1, 50, 0.25).bfloat16()  # exact in bfloat16; s is not
    scale, zero = torch.tensor(0.20555), torch.tensor(3, dtype=torch.int32)
    codes = encode(student, x, scale, zero, 8, False)
    expect_true_codes(codes, x, scale, zero, 8, False, "x in bfloat16, s = 0.20555, z = 3")
    one = encode(student, torch.tensor(1.0), torch.tensor(0.25), zero, 8, False)
    assert one.item() == 7, f"s = 0.25, z = 3: the code of the single number 1.0 is {one.item()}"


def drive_transposed(student, x, scale, zero, bits, symmetric):
    """Runs beside the student's code: quantize a view that is not contiguous."""
    return student.quantize(x.T, scale, zero, bits=bits, symmetric=symmetric)


@exercise(
    "ex1",
    points=0.5,
    invariant="every call answers for the numbers it is given now",
    cause="a result kept from an earlier call, or found again by the shape or identity of x",
)
def test_codes_of_each_call(student, rng):
    x = torch.rand(2, 30, generator=rng) * torch.tensor([[4.0], [8.0]])
    x[:, 0] = torch.tensor([0.1, 7.9])
    scales = [torch.tensor(0.3), torch.tensor(0.6)]
    zeros = [torch.tensor(z, dtype=torch.int32) for z in (1, 2)]
    both = [[x[i], scales[i], zeros[i]] for i in range(2)]
    codes = call_twice(student, "quantize", *both, bits=4, symmetric=False)
    for i in range(2):
        expect_codes(codes[i], (30,), False)
        expect_true_codes(codes[i], *both[i], 4, False, f"call {i + 1}")
    codes = [torch.arange(i, 16 + i, dtype=torch.uint8) for i in range(2)]
    both = [[codes[i], scales[i], zeros[i]] for i in range(2)]
    for i, values in enumerate(call_twice(student, "dequantize", *both)):
        expect_tensor(values, "dequantize(...)", torch.float32, (16,))
        right = scales[i].double() * (codes[i].double() - zeros[i])
        expect_close(values, right, what=f"values, call {i + 1}", atol=3 * U * 16 * 0.6)


# ---- exercise 2: a product of integers -------------------------------------------------------


def sums_of(x_codes, w_codes, x_zero, w_zero):
    """What the student gets for codes [T, K] and [N, K], int64, and zero points [T] and [N]."""
    products, x_sums, w_sums = x_codes @ w_codes.T, x_codes.sum(1), w_codes.sum(1)
    parts = [t.to(torch.int32) for t in (products, x_sums, w_sums, x_zero, w_zero)]
    return {
        "products": parts[0],
        "x_sums": parts[1],
        "w_sums": parts[2],
        "k": x_codes.shape[1],
        "x_zero": parts[3],
        "w_zero": parts[4],
    }


def definition(x_codes, w_codes, x_zero, w_zero):
    """The sum over k of (q_x - z_x) (q_w - z_w), int64 [T, N]."""
    return (x_codes - x_zero[:, None]) @ (w_codes - w_zero[:, None]).T


def drawn_codes(rng, t, n, k, lo=0, hi=255):
    """(x_codes [t, k], w_codes [n, k], x_zero [t], w_zero [n]), int64 in lo..hi."""
    shapes = ((t, k), (n, k), (t,), (n,))
    return [torch.randint(lo, hi + 1, shape, generator=rng) for shape in shapes]


def expect_product(value, drawn, what):
    """value is the definition, exactly, in int32."""
    expected = definition(*drawn)
    expect_tensor(value, "integer_product(...)", torch.int32, tuple(expected.shape))
    expect_close(value.long(), expected, what=what)


@exercise(
    "ex2",
    points=1,
    invariant="codes 5, 1 with z = 2 times codes 4, 0 with z = 3: 3 * 1 + (-1) * (-3) = 6",
    cause="a correction of the wrong sign, the term with both zero points left out or without the "
    "factor k; or, if it gives 8, each sum multiplied by the zero point of its own side",
)
def test_product_by_hand(student, rng):
    x_codes, x_zero = torch.tensor([[5, 1]]), torch.tensor([2])
    w_codes, w_zero = torch.tensor([[4, 0]]), torch.tensor([3])
    sums = sums_of(x_codes, w_codes, x_zero, w_zero)
    value = student.integer_product(**sums)
    expect_tensor(value, "integer_product(...)", torch.int32, (1, 1))
    assert value.item() == 6, f"product 20, sums 6, 4, k = 2, z 2, 3: {value.item()}, expected 6"


@exercise(
    "ex2",
    points=1.5,
    invariant="row t and column n: x_zero[t] and x_sums[t] belong to row t, w_zero[n] and "
    "w_sums[n] to column n",
    cause="a sum multiplied by the zero point of its own side; a tensor [T] broadcast along the "
    "columns: where T = N torch does not complain; or one zero point used for all rows",
)
def test_product_by_definition(student, rng):
    for t, n, k in ((5, 3, 7), (4, 4, 6), (4, 4, 4)):
        drawn = drawn_codes(rng, t, n, k)
        value = student.integer_product(**sums_of(*drawn))
        expect_product(value, drawn, f"T = {t}, N = {n}, K = {k}: a sum")


@exercise(
    "ex2",
    points=1.5,
    invariant="codes and zero points moved by one number give the same sums: uint8 or int8, the "
    "grid is the same",
    cause="a correction that is right for some zero points only, for example with the last term "
    "dropped",
)
def test_codes_may_be_shifted(student, rng):
    x_codes, w_codes, x_zero, w_zero = drawn_codes(rng, 3, 4, 9)
    x_zero[0], w_zero[0] = 5, 9  # below 0 once they are moved by -128
    for a, b in ((0, 0), (-128, -128), (-128, 0), (0, 10)):
        drawn = x_codes + a, w_codes + b, x_zero + a, w_zero + b
        value = student.integer_product(**sums_of(*drawn))
        expect_product(value, drawn, f"codes and zero points moved by {a} and {b}: a sum")


@exercise(
    "ex2",
    points=1,
    invariant="sums beyond 2^24 are exact: everything stays an integer",
    cause="float32 keeps 24 bits, so a sum of some thousand products is rounded; or int16",
)
def test_large_sums_are_exact(student, rng):
    drawn = drawn_codes(rng, 3, 5, 4099, lo=200)
    drawn[2], drawn[3] = torch.tensor([0, 1, 13]), torch.tensor([7, 0, 2, 255, 129])
    value = student.integer_product(**sums_of(*drawn))
    expect_product(value, drawn, "K = 4099, codes from 200 to 255: a sum")


@exercise(
    "ex2",
    points=1,
    invariant="every call answers for the numbers it is given now",
    cause="a result kept from an earlier call, or corrections found again by shape",
)
def test_product_of_each_call(student, rng):
    both = [drawn_codes(rng, 3, 2, 6) for _ in range(2)]
    names = ("products", "x_sums", "w_sums", "x_zero", "w_zero")
    sums = [sums_of(*drawn) for drawn in both]
    values = student.drive(drive_products, *([s[n] for n in names] for s in sums), 6)
    expect_tuple(values, (object, object), "drive_products")
    for i, value in enumerate(values):
        expect_product(value, both[i], f"call {i + 1}: a sum")


def drive_products(student, first, second, k):
    """Runs beside the student's code: a call; the same tensors get other numbers; a second call."""
    tensors = [tensor.clone() for tensor in first]
    one = student.integer_product(*tensors[:3], k, *tensors[3:])
    for tensor, new in zip(tensors, second, strict=True):
        tensor.copy_(new)
    return one, student.integer_product(*tensors[:3], k, *tensors[3:])


# ---- exercise 3: granularity -----------------------------------------------------------------


def round_trip(student, w, bits, granularity, symmetric):
    value = student.quantize_weight(w, bits=bits, granularity=granularity, symmetric=symmetric)
    return expect_tensor(value, f"quantize_weight({granularity!r})", torch.float32, w.shape)


def groups_of(w, granularity):
    """The groups of w [N, K] as a list of flat tensors, for all three granularities."""
    if granularity == "tensor":
        return [w.flatten()]
    size = w.shape[1] if granularity == "channel" else granularity
    return [part for row in w for part in row.split(size)]


def expect_grids(w_hat, w, bits, granularity, symmetric, what=""):
    """Each group holds at most as many values as there are codes, and errs by half a step."""
    qmin, qmax = codes_of(bits, symmetric)
    name = f"{what}{many(bits, 'bit')}, granularity {granularity!r}, symmetric={symmetric}"
    for g, g_hat in zip(groups_of(w, granularity), groups_of(w_hat, granularity), strict=True):
        g = g.double()
        width = 2 * g.abs().max() if symmetric else g.max().clamp(min=0) - g.min().clamp(max=0)
        error = (g_hat.double() - g).abs()
        most = (0.5 + CLEAR) * width / (qmax - qmin)
        expect_at_most(error, most, f"{name}: error in a group of {len(g)} weights")
        assert levels(g_hat) <= qmax - qmin + 1, (
            f"{name}: a group of {len(g)} weights holds {levels(g_hat)} values, "
            f"the grid has {qmax - qmin + 1}"
        )


@exercise(
    "ex3",
    points=0.5,
    invariant="each group uses at most 2^b values, and errs by at most half a step of its own grid",
    cause="groups cut along the wrong dimension, one scale used for all, a last group (50 = 20 + "
    "20 + 10) left out or taken with its neighbours, or bits or symmetric not passed on",
)
def test_each_group_has_its_grid(student, rng):
    w = torch.randn(6, 50, generator=rng) * torch.logspace(-2, 2, 6)[:, None]
    w[:, 40:] *= 0.01  # a last group that needs a grid of its own
    grids = ((3, False), (3, True), (2, True), (6, False))
    cases = [
        (bits, g, symmetric) for g in ("tensor", "channel", 20, 64) for bits, symmetric in grids
    ]
    each = [((w,), {"bits": b, "granularity": g, "symmetric": s}) for b, g, s in cases]
    for w_hat, case in zip(student.many("quantize_weight", each), cases, strict=True):
        expect_tensor(w_hat, f"quantize_weight({case[1]!r})", torch.float32, w.shape)
        expect_grids(w_hat, w, *case)


@exercise(
    "ex3",
    points=0.5,
    invariant="the largest weight of a group, qmax steps of s from 0, comes back as it was",
    cause="a scale rounded to fp16: its 16 bits are only counted; or a group without its largest",
)
def test_largest_weight_comes_back(student, rng):
    w = torch.rand(8, 30, generator=rng) + 0.1
    for granularity, bits, symmetric in (("channel", 4, False), (10, 3, True), (7, 8, False)):
        w_hat = round_trip(student, w, bits, granularity, symmetric)
        expect_grids(w_hat, w, bits, granularity, symmetric)
        largest, found = (
            torch.stack([group.max() for group in groups_of(each, granularity)])
            for each in (w, w_hat)
        )
        what = f"{many(bits, 'bit')}, granularity {granularity!r}: largest weight of each group"
        # s, and s q or s (q + z) - s z with z = 0
        expect_close(found.double(), largest.double(), what=what, rtol=SCALE + 3 * U)


@exercise(
    "ex3",
    points=0.5,
    invariant="per channel and in groups, a row does not feel the other rows; per tensor it does",
    cause="groups that run across rows, columns taken for rows, or one range for the whole weight",
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
        f"row 2 was multiplied by 1000; per channel the other rows moved by {change['channel']:.3g}"
        f", in groups of 8 by {change[8]:.3g}, expected 0 and 0"
    )
    assert change["tensor"] > 0.1, (
        "row 2 was multiplied by 1000; per tensor the other rows moved by at most "
        f"{change['tensor']:.3g}, expected more than 0.1: they share its scale"
    )


@exercise(
    "ex3",
    points=1,
    invariant="bits = N K b + groups (16 + b); a symmetric grid stores no zero point, and a group "
    "that is begun is a group",
    cause="scales or zero points left out, counted per weight instead of per group, zero points "
    "counted on a symmetric grid, the shorter last group of a row not counted, or codes counted "
    "for what fills it up",
)
def test_bits_by_hand(student, rng):
    cases = {
        ((64, 128), 4, 32, False): 4 * 64 * 128 + 64 * 4 * (16 + 4),
        ((64, 128), 4, "channel", True): 4 * 64 * 128 + 64 * 16,
        ((64, 128), 8, "channel", False): 8 * 64 * 128 + 64 * (16 + 8),
        ((64, 128), 2, "tensor", False): 2 * 64 * 128 + 16 + 2,
        ((64, 128), 2, "tensor", True): 2 * 64 * 128 + 16,
        ((6, 50), 3, 20, True): 3 * 6 * 50 + 6 * 3 * 16,
        ((6, 50), 3, 80, False): 3 * 6 * 50 + 6 * (16 + 3),
    }
    for (shape, bits, granularity, symmetric), expected in cases.items():
        total = student.weight_bits(shape, bits=bits, granularity=granularity, symmetric=symmetric)
        assert type(total) is int, f"weight_bits returned {type(total).__name__}, not int"
        assert total == expected, (
            f"{list(shape)}, {many(bits, 'bit')}, granularity {granularity!r}, "
            f"symmetric={symmetric}: {total} bits, expected {expected}"
        )


def drive_transposed_weight(student, w, bits, granularity):
    """Runs beside the student's code: a weight that is not contiguous."""
    return student.quantize_weight(w.T, bits=bits, granularity=granularity, symmetric=False)


@exercise(
    "ex3",
    points=1,
    invariant="bfloat16, transposed, constant and single weights work; what is no granularity "
    "raises ValueError",
    cause="view where reshape is needed, arithmetic in bfloat16, or a granularity that is used "
    "before it is checked: a string, a fraction and numbers below 1 are wrong too",
)
def test_views_bfloat16_and_no_granularity(student, rng):
    w = torch.randn(9, 4, generator=rng)
    for granularity in ("tensor", "channel", 5):
        w_hat = student.drive(drive_transposed_weight, w, 4, granularity)
        expect_tensor(w_hat, "quantize_weight(...)", torch.float32, (4, 9))
        expect_grids(w_hat, w.T, 4, granularity, False, "transposed, ")
        short = w.bfloat16()
        expect_grids(
            round_trip(student, short, 8, granularity, False), short, 8, granularity, False
        )
        expect_grids(round_trip(student, w[:1, :1], 4, granularity, True), w[:1, :1], 4, 1, True)
        zeros = torch.zeros(2, 6)
        expect_close(round_trip(student, zeros, 3, granularity, False), zeros, what="zeros")
    for granularity in ("row", 0, 2.5):
        expect_error(
            ValueError,
            lambda granularity=granularity: student.quantize_weight(
                w, bits=4, granularity=granularity, symmetric=False
            ),
            f"granularity {granularity!r}",
        )


@exercise(
    "ex3",
    points=0.5,
    invariant="every call answers for the weight it is given now",
    cause="grids or a result kept from an earlier call, or found again by the shape of w",
)
def test_weight_of_each_call(student, rng):
    w = torch.randn(2, 4, 10, generator=rng)
    w[1] *= 100
    both = call_twice(
        student, "quantize_weight", [w[0]], [w[1]], bits=3, granularity=5, symmetric=False
    )
    for i, w_hat in enumerate(both):
        expect_tensor(w_hat, "quantize_weight(...)", torch.float32, (4, 10))
        expect_grids(w_hat, w[i], 3, 5, False, f"call {i + 1}, ")


def drive_packing(student, cases):
    """Runs beside the student's code: of each (codes, bits) the bytes, and those of codes.T, which
    is not contiguous."""
    return [(student.pack_codes(x, bits), student.pack_codes(x.T, bits)) for x, bits in cases]


def expect_packed(packed, codes, bits, what):
    """The bytes hold the codes in order, each with its lowest bit first, and then zeros."""
    length = -(-codes.numel() * bits // 8)
    expect_tensor(packed, "pack_codes(...)", torch.uint8, (length,))
    digits = "".join(f"{code:0{bits}b}"[::-1] for code in codes.flatten().tolist())
    right = [int(digits[i : i + 8][::-1], 2) for i in range(0, len(digits), 8)]
    expect_close(
        packed, torch.tensor(right, dtype=torch.uint8), what=f"{what}, {many(bits, 'bit')}: bytes"
    )


@exercise(
    "ex3",
    points=1,
    invariant="codes 1, 2, 3: with 2 bits the byte 57, with 3 bits the bytes 209 and 0, with 4 "
    "bits 33 and 3",
    cause="the highest bit first, codes that do not run on across the end of a byte, or a last "
    "byte that is not written or not filled with zeros",
)
def test_packing_by_hand(student, rng):
    codes = torch.tensor([1, 2, 3], dtype=torch.uint8)
    for bits, right in ((2, [57]), (3, [209, 0]), (4, [33, 3]), (8, [1, 2, 3])):
        packed = student.pack_codes(codes, bits)
        expect_tensor(packed, "pack_codes(...)", torch.uint8)
        assert packed.tolist() == right, (
            f"{many(bits, 'bit')}: bytes {packed.tolist()}, expected {right}"
        )


@exercise(
    "ex3",
    points=1,
    invariant="every code of every width finds its place; two dimensions are read row by row",
    cause="a width for which bytes are not filled evenly (3, 5, 6, 7), codes above 127 in int8, or "
    "columns before rows",
)
def test_packing_of_many_codes(student, rng):
    cases = []
    for bits in range(1, 9):
        codes = torch.randint(2**bits, (5, 9), generator=rng, dtype=torch.uint8)
        codes[0, :2] = 2**bits - 1
        cases.append((codes, bits))
    found = student.drive(drive_packing, cases)
    for (packed, turned), (codes, bits) in zip(found, cases, strict=True):
        expect_packed(packed, codes, bits, "codes [5, 9]")
        expect_packed(turned, codes.T, bits, "a transposed view [9, 5]")


# ---- exercise 4: k-means ---------------------------------------------------------------------


def cluster(student, values, bits, iterations):
    """(codebook as float64, codes as int64) of the student."""
    value = student.kmeans_codebook(values, bits=bits, iterations=iterations)
    return expect_codebook(value, values, bits)


def expect_codebook(value, values, bits):
    """(codebook as float64, codes as int64), with the checks that every use needs."""
    codebook, codes = expect_tuple(value, (torch.Tensor, torch.Tensor), "kmeans_codebook")
    expect_tensor(codebook, "codebook", torch.float32, (2**bits,))
    expect_tensor(codes, "codes", None, values.shape)
    assert not (codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool), (
        f"codes must be integers, got {codes.dtype}"
    )
    codes, codebook = codes.long(), codebook.double()
    assert codebook.isfinite().all(), f"the codebook is not finite: {codebook.tolist()[:8]}"
    assert 0 <= codes.min() and codes.max() < 2**bits, (
        f"codes run from {codes.min()} to {codes.max()}, the codebook from 0 to {2**bits - 1}"
    )
    bound = 2 * (mean_error(values) + start_error(values))  # means of equal values may differ
    expect_at_most(-codebook.diff(), bound, "the codebook must ascend: a step down")
    return codebook, codes


def start_error(values):
    """lo + i (hi - lo) / n in float32: four roundings, of up to twice the largest value."""
    return 8 * U * values.abs().max().item()


def mean_error(values):
    """How far a mean of some of these values may be off, added up in float32 in any order.

    n numbers take n - 1 additions, a division and one rounding of the result.
    """
    return (values.numel() + 1) * U * values.abs().max().item()


def expect_nearest(values, codebook, codes, what):
    """No value lies farther from its entry than from another one."""
    distance = (values.double()[..., None] - codebook).abs()  # [..., 2^b]
    own = distance.gather(-1, codes[..., None])[..., 0]
    farther = own.square() - distance.min(dim=-1).values.square()
    what = f"{what}: own squared distance minus the least"
    expect_at_most(farther, square_error(values), what)


def square_error(values):
    """How far a squared distance may be off in float32.

    v^2 - 2 v c + c^2, as torch.cdist has it, takes eight roundings of up to four squares of the
    largest value; midpoints and differences are closer.
    """
    return 32 * U * values.abs().max().item() ** 2


def even_start(values, bits):
    """float64 [2^b]."""
    return torch.linspace(values.min().item(), values.max().item(), 2**bits, dtype=torch.float64)


def iterations_needed(values, bits, limit=1000):
    """After how many iterations of k-means, in float64, nothing moves."""
    v, c = values.double().flatten(), even_start(values, bits)
    for t in range(limit):
        codes = torch.bucketize(v, (c[1:] + c[:-1]) / 2)
        counts = torch.bincount(codes, minlength=2**bits)
        sums = torch.bincount(codes, weights=v, minlength=2**bits)
        new = torch.where(counts > 0, sums / counts, c)
        if torch.equal(new, c):
            return t
        c = new
    return limit


@exercise(
    "ex4",
    points=1,
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
    expected = {
        0: [-1.08, -0.0133333, 1.0533333, 2.12],
        1: [-1.0, 0.0, 1.5, 2.0],
        10: [-1.0, 0.0, 1.5, 2.0],
    }
    for iterations, right in expected.items():
        codebook, codes = cluster(student, w, 2, iterations)
        what, atol = (
            f"codebook after {many(iterations, 'iteration')}",
            mean_error(w) + start_error(w),
        )
        expect_close(codebook, torch.tensor(right).double(), what=what, atol=atol)
        codes_now = [[3, 0, 2, 1], [1, 1, 0, 3], [0, 3, 1, 0], [3, 1, 2, 2]]
        assert codes.tolist() == codes_now, (
            f"after {many(iterations, 'iteration')}: codes {codes.tolist()}"
        )


@exercise(
    "ex4",
    points=1,
    invariant="the codebook ascends, and each value has the code of its nearest entry",
    cause="codes from before the last update, or a codebook sorted after the codes were made",
)
def test_codes_point_to_the_nearest(student, rng):
    values = torch.randn(30, 20, generator=rng)
    for iterations in (1, 3, 30):
        codebook, codes = cluster(student, values, 3, iterations)
        assert levels(codes) >= 4, f"600 normal values use {levels(codes)} of 8 clusters"
        expect_nearest(values, codebook, codes, f"after {many(iterations, 'iteration')}")


@exercise(
    "ex4",
    points=1,
    invariant="once nothing moves, every centroid is the mean of its values",
    cause="medians or midpoints instead of means, a step towards the mean, or an end before "
    "nothing moves: after a fixed number of iterations, or once the steps are small",
)
def test_centroids_are_means(student, rng):
    values = 0.01 * torch.randn(1500, generator=rng)
    while not 30 <= iterations_needed(values, 4) <= 200:
        values = 0.01 * torch.randn(1500, generator=rng)
    codebook, codes = cluster(student, values, 4, 250)
    assert levels(codes) >= 12, f"1500 normal values ended in {levels(codes)} of 16 clusters"
    for j in codes.unique().tolist():
        members = values[codes == j]
        what = f"centroid {j}, minus the mean of its {len(members)} values"
        off = (codebook[j] - members.double().mean()).abs()
        expect_at_most(off, mean_error(members), what)
    expect_nearest(values, codebook, codes, "after 250 iterations")


@exercise(
    "ex4",
    points=1,
    invariant="a centroid without values stays where it is",
    cause="0 / 0 = NaN where a centroid has no values, a fall to 0, a return to the start, or a "
    "leap to the next value",
)
def test_centroids_without_values(student, rng):
    factor = 1 + torch.rand((), generator=rng).item()
    cases = {  # values: centroids after 1 and 5 iterations, codes at the end
        (0.0, 0.1, 0.2, 9.0): ([0.1, 3, 6, 9], [0.1, 3, 6, 9], [0, 0, 0, 3]),
        # 66.7 moves to 185 / 3, the mean of 53, 53 and 79; then all three are nearer to others
        (0.0, 0.0, 11.0, 46.0, 53.0, 53.0, 79.0, 88.0, 100.0): (
            [11 / 3, 46, 185 / 3, 94],
            [11 / 3, 152 / 3, 185 / 3, 89],
            [0, 0, 0, 1, 1, 1, 3, 3, 3],
        ),
    }
    for numbers, (first, last, right) in cases.items():
        values = factor * torch.tensor(numbers)
        for iterations, expected in ((1, first), (5, last)):
            codebook, codes = cluster(student, values, 2, iterations)
            what = f"{list(numbers)} times {factor:.3g}, {many(iterations, 'iteration')}: codebook"
            expected = factor * torch.tensor(expected, dtype=torch.float64)
            atol = mean_error(values) + start_error(values)
            expect_close(codebook, expected, what=what, atol=atol)
        assert codes.tolist() == right, f"codes of {list(numbers)}: {codes.tolist()}, not {right}"


@exercise(
    "ex4",
    points=1,
    invariant="256 entries, 1 bit, bfloat16, transposed values and any shape work",
    cause="codes above 127 in int8, sums or the start in bfloat16, view where reshape is needed, "
    "or the shape of the values lost",
)
def test_shapes_and_types(student, rng):
    values = torch.randn(20, 30, generator=rng)
    codebook, codes = cluster(student, values, 8, 2)
    assert levels(codes) > 100, f"600 normal values use {levels(codes)} of 256 clusters"
    expect_nearest(values, codebook, codes, "8 bits")
    turned = student.drive(drive_transposed_values, values, 3, 2)
    expect_nearest(values.T, *expect_codebook(turned, values.T, 3), "transposed")
    cube = values.reshape(2, 20, 15).bfloat16()
    cube[0, 0, :2] = torch.tensor([-4.5, 4.0])  # no seventh part of 8.5 is a bfloat16
    for bits in (1, 3):
        start, _ = cluster(student, cube, bits, 0)
        what = "start from bfloat16 values"
        expect_close(start, even_start(cube, bits), what=what, atol=start_error(cube))
        codebook, codes = cluster(student, cube, bits, 200)
        expect_nearest(cube.float(), codebook, codes, "bfloat16")
        for j in codes.unique().tolist():
            members = cube[codes == j].double()
            what = f"bfloat16: centroid {j}, minus the mean of its {len(members)} values"
            expect_at_most((codebook[j] - members.mean()).abs(), mean_error(members), what)


def drive_transposed_values(student, values, bits, iterations):
    """Runs beside the student's code: values that are not contiguous."""
    return student.kmeans_codebook(values.T, bits=bits, iterations=iterations)


@exercise(
    "ex4",
    points=1,
    invariant="every call starts anew, from the values it is given now",
    cause="a codebook kept from an earlier call, or found again by the shape of the values",
)
def test_codebook_of_each_call(student, rng):
    values = torch.randn(2, 50, generator=rng)
    values[1] = 10 * values[1] + 30
    both = call_twice(student, "kmeans_codebook", [values[0]], [values[1]], bits=2, iterations=0)
    for i, value in enumerate(both):
        codebook, codes = expect_codebook(value, values[i], 2)
        what = f"codebook before any iteration, call {i + 1}"
        expect_close(codebook, even_start(values[i], 2), what=what, atol=start_error(values[i]))
        expect_nearest(values[i], codebook, codes, f"call {i + 1}")


# ---- exercise 5: fake quantization -----------------------------------------------------------


def drive_gradient(student, x, scale, zero, bits, symmetric, upstream):
    """Runs beside the student's code: value of fake_quantize and gradient of sum(upstream * it)."""
    import torch

    x = x.clone().requires_grad_(True)
    y = student.fake_quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    if not isinstance(y, torch.Tensor) or not y.requires_grad:
        return y, None
    (y * upstream).sum().backward()
    return y.detach(), x.grad


def drive_without_gradient(student, x, scale, zero, bits, symmetric):
    """Runs beside the student's code: an x that needs no gradient; what needs one afterwards?"""
    x = x.clone()
    y = student.fake_quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    needs = x.requires_grad, bool(getattr(y, "requires_grad", False))
    return (y.detach() if hasattr(y, "detach") else y), *needs


def gradient(student, x, scale, zero, bits, symmetric, upstream=None):
    """(value, gradient) of the student for the gradient `upstream` that arrives."""
    upstream = torch.ones(x.shape) if upstream is None else upstream
    y, grad = student.drive(drive_gradient, x, scale, zero, bits, symmetric, upstream)
    expect_tensor(y, "fake_quantize(...)", torch.float32, x.shape)
    assert grad is not None, "no gradient reaches x: the result does not depend on it for autograd"
    return y, expect_tensor(grad, "the gradient", x.dtype, x.shape)


def expect_values(y, x, scale, zero, bits, symmetric, what="values"):
    """y is dequantize(quantize(x)) in float64, wherever no tie is near."""
    codes, clear = true_codes(x, scale, zero, bits, symmetric)
    scale = scale.double()
    off = torch.where(clear, (y.double() - scale * (codes - zero)).abs(), 0.0)
    # x + (x_hat - x), or x / s, + z, - z, * s: at most eight roundings of these sizes
    sizes = x.double().abs() + scale * (codes.abs() + zero.abs())
    expect_at_most(off, 8 * U * sizes, f"{what}: distance from dequantize(quantize(x))")


def expect_straight_through(grad, x, scale, zero, bits, symmetric, upstream, what="gradient"):
    """upstream inside the grid, 0 outside; one of the two up to half a step past its ends."""
    qmin, qmax = codes_of(bits, symmetric)
    place = x.double() / scale.double() + zero  # in codes
    # an end is inside; it is met exactly where s is a power of two
    slack = 0.0 if (scale.log2() % 1 == 0).all() else CLEAR
    inside = (place >= qmin + slack) & (place <= qmax - slack)
    outside = (place < qmin - 0.5 - CLEAR) | (place > qmax + 0.5 + CLEAR)
    off = (grad.double() - upstream.double()).abs()
    # (g s) / s or (g s) (1 / s), and the dtype of x: 8 significant bits in bfloat16
    allowed = (4 * U + (2.0**-8 if x.dtype == torch.bfloat16 else 0)) * upstream.double().abs()
    either = ~inside & ~outside & (grad != 0)
    wrong = ~(off <= allowed) & (inside | either) | ~(grad == 0) & outside
    if wrong.any():
        i = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{what}, {many(bits, 'bit')}, symmetric={symmetric}: {int(wrong.sum())} of "
            f"{wrong.numel()} are wrong; at x = {x[i]:.4g}, {place[i] - qmin:.4g} steps from the "
            f"first of {qmax - qmin + 1} levels, {upstream[i]:.4g} arrives and {grad[i]:.4g} leaves"
        )


@exercise(
    "ex5",
    points=1,
    invariant="the values are those of dequantize(quantize(x)), with or without gradients, and a "
    "gradient comes back",
    cause="x returned as it is, the rounding inside no_grad without a way for the gradient, or "
    "something that works only on an x that requires a gradient, or that makes x require one",
)
def test_values_on_the_grid(student, rng):
    x = torch.tensor([-3.0, -0.6, -0.1, 0.3, 0.9, 1.4])
    scale, zero = torch.tensor(0.5), torch.tensor(1, dtype=torch.int32)
    y, grad = gradient(student, x, scale, zero, 2, False)
    plain, *needs = student.drive(drive_without_gradient, x, scale, zero, 2, False)
    expect_tensor(plain, "fake_quantize without gradients", torch.float32, x.shape)
    assert needs == [False, False], (
        f"x needed no gradient; afterwards x has requires_grad={needs[0]}, the result {needs[1]}"
    )
    for values in (y, plain):
        expect_close(
            values, torch.tensor([-0.5, -0.5, 0.0, 0.5, 1.0, 1.0]), what="values", atol=8 * U * 3
        )
    total = grad.abs().sum().item()
    assert 0 < total < torch.inf, f"the gradient is {grad.tolist()}: nothing could be trained"


@exercise(
    "ex5",
    points=1,
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
        scale, zero = torch.tensor(0.5), torch.tensor(z, dtype=torch.int32)
        y, grad = gradient(student, x, scale, zero, bits, False, upstream)
        expect_values(y, x, scale, zero, bits, False)
        what = f"s = 0.5, z = {z}: gradient"
        expect_straight_through(grad, x, scale, zero, bits, False, upstream, what)


@exercise(
    "ex5",
    points=1,
    invariant="where x is clipped the gradient is 0, from 0.6 steps past an end on; 1 inside",
    cause="x + (x_hat - x).detach() alone passes the gradient everywhere; or a range that ends a "
    "step too late, at qmin - 1 or qmax + 1",
)
def test_gradient_outside(student, rng):
    near, inside = torch.tensor([0.3, 0.5, 0.7, 2.75, 48.0]), torch.tensor([-1.0, 0.2, 1.0])
    # s = 0.5: `near` is 0.6, 1, 1.4, 5.5 and 96 steps past the ends
    for symmetric, z, first, last in ((True, 0, -3.5, 3.5), (False, 5, -2.5, 5.0)):
        x = torch.cat([first - near.flip(0), inside, last + near])
        zero = torch.tensor(z, dtype=torch.int32)
        _, grad = gradient(student, x, torch.tensor(0.5), zero, 4, symmetric)
        right = torch.tensor([0.0] * 5 + [1.0] * 3 + [0.0] * 5)
        what = f"s = 0.5, levels from {first} to {last}: gradient at x = {rounded_to(x, 2)}"
        expect_close(grad, right, what=what, atol=4 * U)


@exercise(
    "ex5",
    points=1,
    invariant="each row has its own range and mask; bfloat16 x: float32 values, and a bfloat16 "
    "gradient",
    cause="the range of one row used for all, |x| <= s qmax on an asymmetric grid, a range a step "
    "too wide, or arithmetic in bfloat16",
)
def test_rows_and_bfloat16(student, rng):
    scale = torch.tensor([0.3, 0.05, 4.1])[:, None]
    zero = torch.tensor([0, 7, 13], dtype=torch.int32)[:, None]
    x = 12 * scale * torch.randn(3, 40, generator=rng)
    upstream = torch.randn(3, 40, generator=rng)
    for values in (x, x.bfloat16()):
        y, grad = gradient(student, values, scale, zero, 4, False, upstream)
        expect_values(y, values, scale, zero, 4, False, f"values for {values.dtype}")
        what = f"gradient for {values.dtype}"
        expect_straight_through(grad, values, scale, zero, 4, False, upstream, what)
    x = torch.arange(1, 40, 0.25).bfloat16()  # exact in bfloat16; s, a single number, is not
    scale, zero = torch.tensor(0.20555), torch.tensor(3, dtype=torch.int32)
    y, grad = gradient(student, x, scale, zero, 8, False)
    expect_values(y, x, scale, zero, 8, False, "values for bfloat16, one scale")
    ones = torch.ones(x.shape)
    expect_straight_through(grad, x, scale, zero, 8, False, ones, "gradient for bfloat16")


def drive_several_calls(student, x, scales, zero, bits, symmetric, upstreams, own):
    """Runs beside the student's code: values of two calls with one x, and the gradient of both.

    x is also used without the student's function: sum(own * x) is part of what is derived.
    """
    x = x.clone().requires_grad_(True)
    calls = [student.fake_quantize(x, s, zero, bits=bits, symmetric=symmetric) for s in scales]
    loss = (own * x).sum()
    for y, upstream in zip(calls, upstreams, strict=True):
        loss = loss + (y * upstream).sum()
    loss.backward()
    return [y.detach() for y in calls], x.grad


@exercise(
    "ex5",
    points=2,
    invariant="of two calls before one backward each keeps its own mask; x stays usable elsewhere",
    cause="the mask stored where the second call overwrites it, a result kept from the first call, "
    "or a hook left on x, which also changes gradients from elsewhere",
)
def test_two_calls_before_backward(student, rng):
    x = 4 * torch.randn(60, generator=rng)
    x[:4] = torch.tensor([7.75, -7.75, 7.75 / 8, -7.75 / 8])  # less than a step past an end
    scales, zero = [torch.tensor(1.0), torch.tensor(0.125)], torch.tensor(0, dtype=torch.int32)
    upstreams, own = list(torch.randn(2, 60, generator=rng)), torch.randn(60, generator=rng)
    ys, grad = student.drive(drive_several_calls, x, scales, zero, 4, True, upstreams, own)
    expect_tensor(grad, "the gradient", torch.float32, x.shape)
    expected = own.double()
    for y, scale, upstream in zip(ys, scales, upstreams, strict=True):
        expect_tensor(y, "fake_quantize(...)", torch.float32, x.shape)
        what = f"values with s = {scale:g}, one of two calls"
        expect_values(y, x, scale, zero, 4, True, what)
        expected = expected + torch.where(x.abs() <= 7 * scale, upstream.double(), 0.0)
    # half a step past an end either gradient will do: those x are not compared
    end = torch.stack([(x.abs() / scale - 7.25).abs() < 0.25 + CLEAR for scale in scales]).any(0)
    sizes = own.abs() + sum(upstream.abs() for upstream in upstreams)
    off = torch.where(end, 0.0, (grad.double() - expected).abs())
    expect_at_most(off, 8 * U * sizes, "gradient of two calls and of x itself: error")


# ---- exercise 6: a whole model ---------------------------------------------------------------

# name, kind, sizes; a second name of a layer is of kind "same"
LAYERS = (
    ("embed_tokens", "Embedding", 11, 8),
    ("block.up", "Linear", 8, 12),
    ("block.down", "Own", 12, 8),
    ("block.norm", "LayerNorm", 8),
    ("head.lm_head", "NoBias", 8, 11),
    ("lm_head_in", "NoBias", 8, 5),
    ("my_lm_head", "NoBias", 8, 4),
    ("output", "NoBias", 8, 11),
    ("last.out", "NoBias", 8, 5),  # before the embedding whose weight it shares
    ("last.places", "Embedding", 5, 8),
)
TIES = (("output", "embed_tokens"), ("last.out", "last.places"))
QUANTIZED = ("block.up.weight", "block.down.weight", "lm_head_in.weight", "my_lm_head.weight")


def drive_model(student, layers, ties, state, modes, calls):
    """Runs beside the student's code: builds a model, quantizes it for each (bits, granularity).

    Returns, for the model and the last copy, state, training flags, requires_grad and gradients;
    the totals; and the states again after 1 was added to every weight of the copy that is tied.
    """
    import torch
    from torch import nn

    class Own(nn.Linear):
        pass

    def no_bias(*sizes):
        return nn.Linear(*sizes, bias=False)

    def look(module):
        found = dict(module.named_parameters())
        return {
            "state": {name: value.detach().clone() for name, value in module.state_dict().items()},
            "training": {name: part.training for name, part in module.named_modules()},
            "requires_grad": {name: p.requires_grad for name, p in found.items()},
            "grad": {n: p.grad.clone() for n, p in found.items() if p.grad is not None},
        }

    kinds = {"Own": Own, "NoBias": no_bias}
    model = nn.Module()
    for name, kind, *sizes in layers:
        *path, last = name.split(".")
        owner = model
        for part in path:
            owner = owner._modules.setdefault(part, nn.Module())
        layer = model.get_submodule(sizes[0]) if kind == "same" else None
        owner.add_module(last, layer or (kinds.get(kind) or getattr(nn, kind))(*sizes))
    for name, other in ties:
        model.get_submodule(name).weight = model.get_submodule(other).weight
    model.load_state_dict(state)
    for name in modes["eval"]:
        model.get_submodule(name).eval()
    for name in modes["frozen"]:
        model.get_parameter(name).requires_grad_(False)
    for name, grad in modes["grad"].items():
        model.get_parameter(name).grad = grad.clone()
    copies, totals = [], []
    for bits, granularity in calls:
        answer = student.quantize_model(model, bits=bits, granularity=granularity)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            return None
        if not isinstance(answer[0], nn.Module):
            return None
        copies, totals = [*copies, answer[0]], [*totals, answer[1]]
    seen = {"model": look(model), "copy": look(copies[-1]), "totals": totals}
    seen["gradients"] = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    with torch.no_grad():
        for name, _ in ties:
            copies[-1].get_submodule(name).weight.add_(1)
    return seen | {"model later": look(model), "copy later": look(copies[-1])}


def drawn_state(layers, ties, rng):
    """Values for the parameters of these layers, by name."""
    state = {}
    for name, kind, *sizes in layers:
        if kind == "same":
            old = sizes[0]
            state |= {name + k[len(old) :]: v for k, v in state.items() if k.startswith(old + ".")}
            continue
        shape = sizes if kind == "Embedding" else sizes[::-1]
        state[f"{name}.weight"] = torch.randn(shape, generator=rng)
        if kind in ("Linear", "Own", "LayerNorm"):
            state[f"{name}.bias"] = torch.randn(sizes[-1], generator=rng)
    for name, other in ties:
        state[f"{name}.weight"] = state[f"{other}.weight"]
    return state


def small_model(student, rng, *calls):
    """(values that were sent, modes that were sent, what drive_model saw of the model and copy).

    The model that came in must be as it was, in every test.
    """
    state = drawn_state(LAYERS, TIES, rng)
    modes = {
        "eval": ["block.norm", "last"],
        "frozen": ["embed_tokens.weight", "block.up.bias", "block.down.weight"],
        "grad": {"block.up.weight": torch.randn(12, 8, generator=rng)},
    }
    seen = student.drive(drive_model, LAYERS, TIES, state, modes, calls)
    assert seen, "quantize_model must return a tuple (model, total bits)"
    expect_state(seen["model"]["state"], state, "the model that came in")
    return state, modes, seen


def expect_state(state, expected, what):
    """Fails unless a model holds these values under these names."""
    more = sorted(set(state) ^ set(expected))
    assert not more, f"{what} has other parameters than were sent; the difference: {more}"
    moved = [name for name in expected if not torch.equal(state[name], expected[name])]
    assert not moved, f"{what} changed in {moved}"


@exercise(
    "ex6",
    points=2,
    invariant="the weights of nn.Linear go through their grids, except layers named lm_head and "
    "weights tied to an embedding; all else stays",
    cause="a layer called head.lm_head or an embedding rounded too (also by way of a tied layer); "
    "lm_head_in or my_lm_head taken for lm_head; nn.Linear compared by type(), which leaves out "
    "subclasses; or biases treated like weights",
)
def test_which_parameters_change(student, rng):
    for bits, granularity in ((3, "channel"), (2, "tensor"), (4, 5)):
        state, _, seen = small_model(student, rng, (bits, granularity))
        after = seen["copy"]["state"]
        more = sorted(set(after) ^ set(state))
        assert not more, f"the copy has other parameters than the model; the difference: {more}"
        changed = sorted(name for name in state if not torch.equal(state[name], after[name]))
        assert changed == sorted(QUANTIZED), f"changed: {changed}, expected {sorted(QUANTIZED)}"
        for name in changed:
            expect_tensor(after[name], name, torch.float32, tuple(state[name].shape))
            expect_grids(after[name], state[name], bits, granularity, False, f"{name}, ")


@exercise(
    "ex6",
    points=2,
    invariant="total = codes, scales, zero points of what is quantized + 16 bits for the rest, "
    "each parameter once",
    cause="biases, norms, embeddings or frozen parameters left out or counted with 32 bits, a tied "
    "weight counted twice, head.lm_head counted as quantized, or a bill kept from an earlier call",
)
def test_total_of_a_small_model(student, rng):
    rest = 11 * 8 + 12 + 8 + 8 + 8 + 8 * 11 + 5 * 8  # embedding, biases, norm, lm_head, embedding
    weights = 12 * 8 + 8 * 12 + 5 * 8 + 4 * 8
    for bits, granularity, groups in (
        (4, "channel", 12 + 8 + 5 + 4),
        (2, "tensor", 4),
        (3, 5, 12 * 2 + 8 * 3 + 5 * 2 + 4 * 2),
    ):
        state, _, seen = small_model(student, rng, (8, 100), (bits, granularity))
        first = 8 * weights + (12 + 8 + 5 + 4) * (16 + 8) + 16 * rest
        second = bits * weights + groups * (16 + bits) + 16 * rest
        kind = type(seen["totals"][0]).__name__
        assert kind == "int", f"the total is of type {kind}, not int"
        assert seen["totals"] == [first, second], (
            f"8 bits in groups of 100, then {many(bits, 'bit')}, {granularity!r}: totals "
            f"{seen['totals']}, expected {first} and {second}"
        )
        changed = [n for n in state if not torch.equal(state[n], seen["copy"]["state"].get(n))]
        assert sorted(changed) == sorted(QUANTIZED), f"changed: {sorted(changed)}"


@exercise(
    "ex6",
    points=1,
    invariant="the new model is another object that shares nothing with the old one, and what was "
    "one parameter in it still is",
    cause="weights assigned in place, a shallow copy that shares its tensors, or "
    "parameters made anew that other layers still hold, which cuts a tie",
)
def test_copy_is_its_own(student, rng):
    state, _, seen = small_model(student, rng, (2, "tensor"))
    expect_state(seen["model later"]["state"], state, "after the copy was changed, the model")
    expected = dict(seen["copy"]["state"])
    for name, other in TIES:
        for key in (f"{name}.weight", f"{other}.weight"):
            expected[key] = state[key] + 1
    what = "after 1 was added to output.weight and last.out.weight of the copy, the copy"
    expect_state(seen["copy later"]["state"], expected, what)
    name = "block.up.weight"
    expect_grids(expected[name], state[name], 2, "tensor", False, f"{name}, ")


@exercise(
    "ex6",
    points=1,
    invariant="in all else model and copy are as the model was: training mode, requires_grad; the "
    "model keeps its gradients",
    cause="train() or eval() called on the whole model, nn.Parameter(...) without the old "
    "requires_grad, requires_grad_(False) or zero_grad on the model that came in, or "
    "set_grad_enabled(False) in place of torch.no_grad()",
)
def test_modes_stay(student, rng):
    state, modes, seen = small_model(student, rng, (3, 4))
    off = ("block.norm", "last", "last.places", "last.out")
    for who in ("model", "copy"):
        for name, training in seen[who]["training"].items():
            assert training == (name not in off), f"{who}: {name!r} has training={training}"
        for name, requires in seen[who]["requires_grad"].items():
            right = name not in modes["frozen"]
            assert requires == right, f"{who}: {name} has requires_grad={requires}"
    assert seen["gradients"] is True, "after the call gradients are switched off for everybody"
    grads = seen["model"]["grad"]
    assert list(grads) == ["block.up.weight"], f"gradients in the model: {sorted(grads)}"
    expect_same(grads["block.up.weight"], modes["grad"]["block.up.weight"], "its gradient")
    name = "block.up.weight"
    expect_grids(seen["copy"]["state"][name], state[name], 3, 4, False, f"{name}, ")
