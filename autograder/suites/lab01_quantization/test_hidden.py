"""Hidden tests of lab01: brute force in float64, and the inputs that break real code.

Inputs are drawn for each submission.  Where a code is compared exactly, the inputs keep clear of
rounding ties, so that x / s and x * (1 / s) give the same code, or meet them exactly.

Tolerances count roundings: n float32 roundings move a number by at most n U of the largest number
that takes part.  So every order of operations passes that the card allows.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.lab.again import drive_laid, held, refused
from efflib.models.llama import Llama, LlamaConfig

U = 2.0**-24  # relative error of one rounding to float32
SCALE = 4 * U  # of a scale: the difference, the division or a reciprocal and a product, one spare
CLEAR = 1e-3  # in steps: so far from a rounding tie, no float32 formula gives another code


def many(n, word):
    """'1 bit', '2 bits'."""
    return f"{n} {word}" + "s" * (n != 1)


def spread(rng, options, count):
    """`count` of the options, each as often as the others to within one, in an order drawn."""
    order = []
    while len(order) < count:
        order += [options[i] for i in torch.randperm(len(options), generator=rng).tolist()]
    return order[:count]


def size_in_pairs(rng, i, limit):
    """A power of 2: of two in a row one is large and one is small."""
    power = int(torch.randint(limit // 2, limit + 1, (), generator=rng))
    return 2.0 ** (power if i % 2 else -power)


def distinct(results):
    """All results of a held call, or the first where the others are the same, as they should be."""
    first, *others = ([x] if isinstance(x, torch.Tensor) else x for x in results)
    return results[:1] if all(same_tensors(first, other) for other in others) else results


def same_tensors(first, second):
    kinds = (type(first) is type(second) and isinstance(first, list | tuple)) and all(
        isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.dtype == b.dtype
        for a, b in zip(first, second, strict=False)
    )
    return kinds and len(first) == len(second) and all(map(torch.equal, first, second))


def drive_shared(student, calls):
    """Runs beside the student's code: of each call (name, *args), whether a result lies in the
    memory of an argument."""
    import torch

    def places(values):
        tensors = [x for x in values if isinstance(x, torch.Tensor) and x.numel()]
        return {x.untyped_storage().data_ptr() for x in tensors}

    shared = []
    for name, *args in calls:
        result = getattr(student, name)(*args)
        results = result if isinstance(result, list | tuple) else [result]
        shared.append(bool(places(results) & places(args)))
    return shared


def expect_new_tensors(student, *calls):
    """Of calls (name, *args) that change no number, each: what comes back is no argument."""
    for (name, *_), shared in zip(calls, student.drive(drive_shared, list(calls)), strict=True):
        assert shared is False, f"{name} gave an argument back, or a view of one: make a new tensor"


def part_of(rng, shape, dims, whole):
    """A shape that broadcasts to this one: its last dimensions, if not whole some of them 1."""
    kept = shape[len(shape) - dims :]
    return tuple(n if whole or torch.rand((), generator=rng) < 0.4 else 1 for n in kept)


def codes_of(bits, symmetric):
    """(qmin, qmax)."""
    top = 2 ** (bits - 1) - 1
    return (-top, top) if symmetric else (0, 2**bits - 1)


def widths():
    """(bits, symmetric) of every grid there is."""
    return [(b, False) for b in range(1, 9)] + [(b, True) for b in range(2, 9)]


def clear_of_ties(exact):
    return (exact - exact.floor() - 0.5).abs() > CLEAR


def true_grid(lo, hi, bits, symmetric):
    """(scale, zero, mask of zeros clear of a tie) of ranges [...], float64."""
    lo, hi = lo.double(), hi.double()
    _, qmax = codes_of(bits, symmetric)
    if symmetric:
        scale, exact = torch.maximum(lo.abs(), hi.abs()) / qmax, torch.zeros_like(lo)
    else:
        lo = lo.clamp(max=0.0)
        scale = (hi.clamp(min=0.0) - lo) / qmax
    scale = torch.where(scale == 0, 1.0, scale)
    exact = exact if symmetric else -lo / scale
    return scale, exact.round(), clear_of_ties(exact)


def true_codes(x, scale, zero, bits, symmetric):
    """(codes, mask of values clear of a tie), float64; scale and zero broadcast to x."""
    exact = x.double() / scale
    return (exact.round() + zero).clamp(*codes_of(bits, symmetric)), clear_of_ties(exact)


def true_round_trip(w, bits, granularity, symmetric):
    """(w_hat, mask of values clear of ties, step), group by group in float64.  w [N, K]."""
    rows = (w.reshape(1, -1) if granularity == "tensor" else w).double()
    length = rows.shape[1]
    size = length if granularity in ("tensor", "channel") else min(granularity, length)
    more = rows[:, -1:].expand(-1, -length % size)  # the last weight again: it is in that group
    groups = torch.cat([rows, more], 1).unflatten(1, (-1, size))  # [rows, groups, size]
    ends = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale, zero, sure = true_grid(*ends, bits, symmetric)
    codes, safe = true_codes(groups, scale, zero, bits, symmetric)
    parts = (codes - zero) * scale, safe & sure, scale.expand_as(groups)
    return tuple(part.flatten(1)[:, :length].reshape(w.shape) for part in parts)


def expect_quantized(w_hat, w, bits, granularity, symmetric, what):
    """Compares w_hat with float64; where a tie is near, half a step of the group's grid is left.

    A tie of z takes its group out of the comparison, a tie of a code its weight: 1 in 500 each.
    """
    expect_tensor(w_hat, what, torch.float32, tuple(w.shape))
    expected, clear, steps = true_round_trip(w, bits, granularity, symmetric)
    what = f"{what}, {many(bits, 'bit')}, {granularity!r}, symmetric={symmetric}"
    _, qmax = codes_of(bits, symmetric)
    # s: SCALE; s (q - z) or s q - s z: three more; |q| and |z| are at most qmax
    rounding = (SCALE + 3 * U) * qmax * steps
    off = torch.where(clear, (w_hat.double() - expected).abs(), 0.0)
    expect_at_most(off, rounding, f"{what}: distance from float64")
    error = (w_hat.double() - w.double()).abs()
    expect_at_most(error, (0.5 + CLEAR) * steps, f"{what}: error")


# ---- exercise 1 ------------------------------------------------------------------------------


def grid(student, lo, hi, bits, symmetric, dtype=None):
    """The student's (scale, zero) as float64. dtype: of zero."""
    value = student.affine_parameters(lo, hi, bits=bits, symmetric=symmetric)
    return expect_grid(value, lo, dtype)


def expect_grid(value, lo, dtype=None):
    scale, zero = expect_tuple(value, (torch.Tensor, torch.Tensor), "affine_parameters")
    expect_tensor(scale, "scale", torch.float32, tuple(lo.shape))
    expect_tensor(zero, "zero", dtype, tuple(lo.shape))
    assert not zero.is_complex(), f"zero has dtype {zero.dtype}"
    return scale.double(), zero.double()


def expect_true_grid(student, lo, hi, bits, symmetric, what, dtype=None):
    """Compares scale, and zero where no tie is near, with float64. Returns how many zeros."""
    value = student.affine_parameters(lo, hi, bits=bits, symmetric=symmetric)
    return expect_grid_of(value, lo, hi, bits, symmetric, what, dtype)


def expect_grid_of(value, lo, hi, bits, symmetric, what, dtype=None):
    scale, zero = expect_grid(value, lo, dtype)
    s, z, sure = true_grid(lo, hi, bits, symmetric)
    what = f"{what}, {many(bits, 'bit')}, symmetric={symmetric}"
    empty = (lo == 0) & (hi == 0)  # groups of zeros: any scale, and any code if there are several
    if empty.any():
        qmax = 0 if symmetric else codes_of(bits, symmetric)[1]
        fine = (scale > 0) & scale.isfinite() & (zero >= 0) & (zero <= qmax)
        assert fine[empty].all(), f"{what}: groups of zeros got {scale[empty]} and {zero[empty]}"
        scale, zero = torch.where(empty, s, scale), torch.where(empty, z, zero)
    expect_close(scale, s, what=f"{what}: scale", rtol=SCALE)
    expect_close(torch.where(sure, zero, z), z, what=f"{what}: zero")
    expect_close(zero, z, what=f"{what}: zero, ties included", atol=1.0)
    return int(sure.sum())


def drive_transposed_ends(student, lo, hi, bits):
    """Runs beside the student's code: bounds that are not contiguous."""
    return student.affine_parameters(lo.T, hi.T, bits=bits, symmetric=False)


@exercise(
    "ex1",
    points=1.5,
    invariant="s = range / number of steps and z = round(-lo / s), for each group by itself",
    cause="a step count or a rounding that is right for one width only, groups mixed up, or a "
    "fixed number of dimensions",
)
def test_parameters_of_every_width(student, rng):
    cases = []
    for i, (bits, symmetric) in enumerate(widths()):
        lo = -torch.rand(((5, 7), (2, 3, 4))[i % 2], generator=rng) * 10
        hi = lo + torch.rand(lo.shape, generator=rng) * 20  # some ranges lie below 0
        cases.append((lo, hi, bits, symmetric))
    each = [((lo, hi), {"bits": b, "symmetric": s}) for lo, hi, b, s in cases]
    for value, case in zip(student.many("affine_parameters", each), cases, strict=True):
        sure = expect_grid_of(value, *case, "drawn", torch.int32)
        assert sure > case[0].numel() / 2, "the test drew too many ties"
    lo, hi = torch.tensor(-1.3), torch.tensor(2.9)  # a single group, without dimensions
    expect_true_grid(student, lo, hi, 4, False, "shape []")
    lo = -torch.rand(3, 4, generator=rng)
    value = student.drive(drive_transposed_ends, lo, lo + 1.5, 4)
    scale, zero = expect_tuple(value, (torch.Tensor, torch.Tensor), "affine_parameters")
    expect_tensor(scale, "scale of transposed bounds", torch.float32, (4, 3))
    expect_tensor(zero, "zero of transposed bounds", torch.int32, (4, 3))
    steps = torch.maximum(lo.double() + 1.5, torch.zeros(())) - lo.double()
    expect_close(scale.double(), steps.T / 15, what="scale of transposed bounds", rtol=1.5 * SCALE)


@exercise(
    "ex1",
    points=1,
    invariant="the asymmetric range contains 0: a group in 5..6 has z = 0 and s = 6 / (2^b - 1)",
    cause="lo and hi used as they are: 0.0 has no code, or z is clamped and the grid ends at 1",
)
def test_range_on_one_side_of_zero(student, rng):
    a, b = (torch.rand(2, generator=rng) + torch.tensor([1.0, 3.0])).tolist()
    cases = []
    for bits, size in ((1, 1.0), (2, 1e-30), (4, 1e30), (8, 1.0)):
        lo, hi = (size * torch.tensor(end) for end in ([a, -b, b, -b], [b, -a, b, -b]))
        kinds = (False, True) if bits > 1 else (False,)
        cases += [(lo, hi, bits, symmetric, size) for symmetric in kinds]
    each = [((lo, hi), {"bits": bits, "symmetric": s}) for lo, hi, bits, s, _ in cases]
    for value, case in zip(student.many("affine_parameters", each), cases, strict=True):
        lo, hi, bits, symmetric, size = case
        (scale, zero), (_, qmax) = expect_grid(value, lo), codes_of(bits, symmetric)
        expected = [0, 0, 0, 0] if symmetric else [0, qmax, 0, qmax]
        assert zero.tolist() == expected, f"zero points {zero.tolist()}, expected {expected}"
        right = torch.full((4,), hi[0].item() / qmax, dtype=torch.float64)
        what = f"scale of ranges of size {size:g}, {many(bits, 'bit')}, symmetric={symmetric}"
        expect_close(scale, right, what=what, rtol=SCALE)


@exercise(
    "ex1",
    points=1,
    invariant="a range 2^k times as wide has a scale 2^k times as large and the same zero point; "
    "groups of zeros beside it change nothing",
    cause="a floor such as clamp(min=1e-5), which coarsens groups of small weights; or a guard "
    "for zeros that acts on all groups at once",
)
def test_grid_follows_the_range(student, rng):
    lo, hi = (
        torch.tensor([-1.0, -3.0, 0, -2, 0]),
        torch.tensor([2.0, 1.0, 5, 2, 0]),
    )  # -2 to 2: no zeros
    hi[:3] += torch.rand(3, generator=rng) * 0.1
    cases = [
        (lo * 2.0**power, hi * 2.0**power, bits, symmetric, power)
        for bits, symmetric in ((4, False), (4, True), (8, False))
        for power in (0, -20, -60, -100, 40, 100)
    ]
    each = [((low, high), {"bits": b, "symmetric": s}) for low, high, b, s, _ in cases]
    for value, case in zip(student.many("affine_parameters", each), cases, strict=True):
        *ends, bits, symmetric, power = case
        scale, zero = expect_grid(value, lo)
        s, z, sure = true_grid(*ends, bits, symmetric)
        what = f"range times 2^{power}"
        expect_close(scale[:4], s[:4], what=f"scale of a {what}", rtol=SCALE)
        off = torch.where(sure, 0.0, 1.0)[:4]
        expect_at_most((zero - z)[:4].abs(), off, f"zero of a {what}: distance")
        qmin, qmax = (0, 0) if symmetric else codes_of(bits, False)
        assert 0 < scale[4] < torch.inf and qmin <= zero[4] <= qmax, (
            f"a group of zeros got the scale {scale[4]:g} and the zero point {zero[4]:g}"
        )


@exercise(
    "ex1",
    points=0.5,
    invariant="bfloat16 bounds give the float32 scale of the numbers they hold",
    cause="arithmetic in bfloat16, which keeps 8 significant bits: convert with .float() first",
)
def test_bfloat16_bounds(student, rng):
    # 243 / 128 and 211 / 64 are not multiples of 7, 15, 127 or 255: no such scale is a bfloat16
    lo, hi = torch.tensor([-0.7, -3.3]).bfloat16(), torch.tensor([1.9, 0.4]).bfloat16()
    for bits, symmetric in ((4, False), (8, False), (4, True), (8, True)):
        expect_true_grid(student, lo, hi, bits, symmetric, "bfloat16")


@exercise(
    "ex1",
    points=0.5,
    invariant="1 bit exists asymmetric (s = hi - lo); symmetric 1 bit and 9 bits raise ValueError",
    cause="code_range is not called, so a grid without levels gives a division by 0",
)
def test_widths_that_do_not_exist(student, rng):
    lo, hi = torch.tensor([-1.0]), torch.tensor([3.0])
    scale, zero = grid(student, lo, hi, 1, False)
    assert (scale.item(), zero.item()) == (4, 0), f"scale {scale.item()}, zero {zero.item()}"
    grids = ((1, True), (0, True), (9, True), (0, False), (-1, False), (9, False))
    ends = ((lo, hi), (0 * lo, 0 * hi))
    refused(student, [("affine_parameters", *pair, *grid) for grid in grids for pair in ends])


def encode(student, *case):
    return encode_all(student, [case])[0]


def encode_all(student, cases):
    """quantize of all (x, scale, zero, bits, symmetric)."""
    each = [(case[:3], {"bits": case[3], "symmetric": case[4]}) for case in cases]
    found = student.many("quantize", each)
    return [expect_codes(codes, x.shape, s) for codes, (x, *_, s) in zip(found, cases, strict=True)]


def expect_codes(codes, shape, symmetric):
    dtype = torch.int8 if symmetric else torch.uint8
    return expect_tensor(codes, "quantize(...)", dtype, tuple(shape))


def decode(student, codes, scale, zero):
    return decode_all(student, [(codes, scale, zero)])[0]


def decode_all(student, each):
    """dequantize of all (codes, scale, zero)."""
    values = student.many("dequantize", [(args, {}) for args in each])
    for value, (codes, _, _) in zip(values, each, strict=True):
        expect_tensor(value, "dequantize(...)", torch.float32, tuple(codes.shape))
    return values


def expect_values(values, codes, scale, zero, what):
    """values = s (q - z): in float32 two roundings, or three as s q - s z."""
    scale, codes, zero = scale.double(), codes.double(), zero.double()
    bound = U * scale * (codes.abs() + zero.abs() + (codes - zero).abs())
    off = (values.double() - scale * (codes - zero)).abs()
    expect_at_most(off, bound, f"{what}: distance from s (q - z)")


def drive_transposed(student, cases):
    """Runs beside the student's code: quantize views that are not contiguous."""
    return [
        student.quantize(x.T, scale, zero, bits=bits, symmetric=symmetric)
        for x, scale, zero, bits, symmetric in cases
    ]


@exercise(
    "ex1",
    points=1.5,
    invariant="codes are clamp(round(x / s) + z), with the scale of their own row and of any size",
    cause="scale and zero not broadcast, x assumed contiguous (view instead of reshape), or "
    "something added to the scale, which small scales do not survive",
)
def test_codes_of_every_width(student, rng):
    sizes, cases = torch.tensor([1e-30, 1e-8, 1e-3, 1.0, 1e4, 1e20]), []
    for i, (bits, symmetric) in enumerate(widths()):
        qmin, qmax = codes_of(bits, symmetric)
        size = sizes if i % 3 else sizes[i % 2].expand(6)  # a row each, or all small
        x = torch.randn(9, 6, generator=rng) * (qmax - qmin) * size
        scale = (torch.rand(6, 1, generator=rng) + 0.5) * size[:, None]
        zero = torch.randint(qmin, qmax + 1, (6, 1), generator=rng, dtype=torch.int32)
        cases.append((x, scale, 0 * zero if symmetric else zero, bits, symmetric))
    found = student.drive(drive_transposed, cases)
    for codes, (x, scale, zero, bits, symmetric) in zip(found, cases, strict=True):
        expect_codes(codes, (6, 9), symmetric)
        expected, clear = true_codes(x.T, scale.double(), zero, bits, symmetric)
        wrong = (codes.double() != expected) & clear
        assert not wrong.any(), f"{many(bits, 'bit')}: {int(wrong.sum())} of 54 codes differ"
    each = [(codes, *case[1:3]) for codes, case in zip(found, cases, strict=True)]
    for value, args, case in zip(decode_all(student, each), each, cases, strict=True):
        expect_values(value, *args, f"{many(case[3], 'bit')}")


@exercise(
    "ex1",
    points=0.5,
    invariant="0.0 has the code z and comes back as exactly 0.0",
    cause="z used in one direction only, or the zero points of the rows mixed up",
)
def test_zero_is_exact(student, rng):
    x, cases = torch.tensor([[0.0, 0.31], [0.0, -0.29]]), []
    for bits in (2, 4, 8):
        z = torch.randint(1, 2**bits - 1, (2, 1), generator=rng, dtype=torch.int32)
        scale = torch.rand(2, 1, generator=rng) * 0.03 + 0.32  # 0.31 is less than a step
        cases.append((x, scale, z, bits, False))
    coded = encode_all(student, cases)
    for codes, (_, _, z, _, _) in zip(coded, cases, strict=True):
        assert torch.equal(codes[:, :1].int(), z), f"0.0 has the codes {codes[:, 0].tolist()}"
    each = [(codes, *case[1:3]) for codes, case in zip(coded, cases, strict=True)]
    for values in decode_all(student, each):
        assert (values[:, 0] == 0).all(), f"0.0 came back as {values[:, 0].tolist()}"
        assert values[0, 1] > 0 > values[1, 1], f"0.31 and -0.29 came back as {values[:, 1]}"


@exercise(
    "ex1",
    points=1,
    invariant="every code stands for s (q - z), and that value has the same code again",
    cause="codes - zero in uint8, where 3 - 5 is 254; or int8 for codes above 127",
)
def test_all_codes_survive(student, rng):
    each, grids = [], []
    for bits, symmetric in ((8, False), (8, True), (4, False), (1, False)):
        qmin, qmax = codes_of(bits, symmetric)
        codes = torch.arange(qmin, qmax + 1).to(torch.int8 if symmetric else torch.uint8)
        for z in (0,) if symmetric else (0, (qmax + 1) // 2, qmax):
            zero = torch.tensor(z, dtype=torch.int32)
            each.append((codes, torch.rand((), generator=rng) + 0.01, zero))
            grids.append(({"bits": bits, "symmetric": symmetric}, f"{many(bits, 'bit')}, z = {z}"))
    values, back = decode_all(student, each), []
    for value, args, (grid_of, what) in zip(values, each, grids, strict=True):
        expect_values(value, *args, f"all codes of {what}")
        back.append(((value, *args[1:]), grid_of))
    found = student.many("quantize", back)
    for again, (codes, *_), (grid_of, what) in zip(found, each, grids, strict=True):
        expect_codes(again, codes.shape, grid_of["symmetric"])
        assert torch.equal(again, codes), f"{what}: {codes} became {again}"
    codes, zero = torch.arange(100).to(torch.uint8), torch.tensor(255, dtype=torch.int32)
    scale = each[-1][1]
    expect_values(decode(student, codes, scale, zero), codes, scale, zero, "codes below z = 255")
    far = torch.tensor([3e38, -3e38])  # and z is added
    ends = encode(student, far, torch.tensor(1.0), torch.tensor(5, dtype=torch.int32), 4, False)
    assert ends.tolist() == [15, 0], f"codes of x far outside of the grid: {ends.tolist()}"


@exercise(
    "ex1",
    points=0.5,
    invariant="symmetric: the codes of -x are minus the codes of x, at ties and out of the range "
    "too; values far outside have the last code",
    cause="clamp to -2^(b-1), which has no counterpart on the other side; floor or floor(x + 0.5) "
    "for round; or a cast to integers before the clamp",
)
def test_change_of_sign(student, rng):
    scale, zero, cases = torch.tensor(0.5), torch.tensor(0, dtype=torch.int32), []
    for bits in (2, 4, 8):
        top = 2 ** (bits - 1) - 1
        ties = 0.5 * (torch.arange(0, top + 3) + 0.5)  # exact with s = 0.5
        x = torch.cat(
            [ties, torch.randn(200, generator=rng) * top, torch.tensor([2e9, 1e19, 1e30])]
        )
        cases += [(x, scale, zero, bits, True), (-x, scale, zero, bits, True)]
    coded = encode_all(student, cases)
    for (x, _, _, bits, _), plus, minus in zip(cases[::2], coded[::2], coded[1::2], strict=True):
        top = 2 ** (bits - 1) - 1
        ties = x[: top + 3]
        _, clear = true_codes(x, 0.5, 0, bits, True)
        clear[: len(ties)] = True
        assert (plus.int() == -minus.int())[clear].all(), (
            f"{many(bits, 'bit')}: codes are not mirrored"
        )
        expected = (ties.double() / 0.5).round().clamp(max=top)
        expect_close(
            plus[: len(ties)].double(), expected, what=f"{many(bits, 'bit')}: codes at ties"
        )
        assert (plus[-3:] == top).all(), (
            f"{many(bits, 'bit')}: far outside, codes {plus[-3:].tolist()}"
        )


@exercise(
    "ex1",
    points=1,
    invariant="bfloat16 values are quantized like float32; single numbers, no numbers and scales "
    "along any dimension work",
    cause="x / scale in bfloat16, which keeps 8 significant bits; or a fixed number of dimensions",
)
def test_bfloat16_and_shapes(student, rng):
    zero, cases = torch.tensor(3, dtype=torch.int32), []  # of one shape with scale, or for all rows
    for scale in (torch.tensor(0.20555), torch.tensor([[0.20555], [0.4111]])):
        x = (torch.rand(2, 100, generator=rng) * 50).bfloat16()
        cases.append((x, scale, zero, 8, False))
    for x in (torch.tensor(1.0), torch.zeros(0, 3)):
        cases.append((x, torch.tensor(0.25), zero, 8, False))
    coded = encode_all(student, cases)
    for codes, (x, scale, *_) in zip(coded, cases[:2], strict=False):
        expected, clear = true_codes(x, scale.double(), 3, 8, False)
        wrong = int(((codes.double() != expected) & clear).sum())
        assert not wrong, f"{wrong} of 200 codes of bfloat16 values differ"
    assert coded[2].item() == 7, f"the code of 1.0 is {coded[2].item()}"
    each = [(codes, *case[1:3]) for codes, case in zip(coded, cases, strict=True)]
    *both, one, _ = decode_all(student, each)
    for values, args in zip(both, each, strict=False):
        expect_values(values, *args, "values of bfloat16")
    assert one.item() == 1.0, "1.0 did not come back"
    calls, turned = drawn_calls(rng), []
    alone = torch.tensor(0.25)  # one for all of a view
    columns = torch.tensor([0.25, 0.5, 1.0, 2.0])  # of a square: one for each column
    for shape, symmetric, scale in (
        ((3, 4), True, alone), ((2, 3, 4), False, alone), ((4, 4), True, columns),
        ((4, 4), False, columns), ((4, 4, 4), False, columns),
    ):  # fmt: skip
        x, zero = torch.randn(shape, generator=rng), torch.tensor(0 if symmetric else 7).int()
        turned.append(("quantize", x, scale, zero, 4, symmetric))
        codes = torch.arange(x.numel()).reshape(shape) % 8
        turned.append(
            ("dequantize", codes.to(torch.int8 if symmetric else torch.uint8), scale, zero)
        )
    found = held(student, rng, calls) + list(
        zip(*student.drive(drive_laid, turned, [1]), strict=True)
    )
    for (name, *args), results in zip(calls + turned, found, strict=True):
        for value in distinct(results):
            if name == "affine_parameters":
                expect_grid_of(value, *args, f"lo in {args[0].dtype}", torch.int32)
            elif name == "dequantize":
                expect_tensor(value, "dequantize(...)", torch.float32, tuple(args[0].shape))
                expect_values(value, *args, f"scale {list(args[1].shape)}")
            else:
                expect_drawn_codes(value, *args)


def expect_drawn_codes(value, x, scale, zero, bits, symmetric):
    expect_codes(value, x.shape, symmetric)
    expected, clear = true_codes(x, scale.double(), zero, bits, symmetric)
    # of a power of 2 every formula meets ties exactly, and where z is even all round them alike
    exact = ((scale.log2() % 1 == 0) & (zero % 2 == 0)).expand(x.shape)
    wrong = (value.double() != expected) & (clear | exact)
    assert not wrong.any(), (
        f"x {list(x.shape)} in {x.dtype}, scale {list(scale.shape)}, {many(bits, 'bit')}, "
        f"symmetric={symmetric}: {int(wrong.sum())} other codes"
    )


DRAWN = (  # shape of x, dimensions of scale, of zero
    *(((), 0, 0), ((1,), 0, 1), ((5,), 1, 0), ((0, 3), 1, 2), ((3, 4), 2, 1), ((3, 4), 0, 2)),
    *(((2, 3, 4), 3, 0), ((2, 3, 4), 2, 3), ((2, 3, 4), 3, 1), ((2, 3, 4), 1, 3)),
    *(((2, 1100), 2, 2), ((2200,), 1, 1)),
)


def drawn_grid(rng, drawn, i, bits, symmetric):
    """(scale, zero) that broadcast to the shape, each its own way, of one size or another."""
    shape, of_scale, of_zero = drawn
    qmin, qmax = codes_of(bits, symmetric)
    of_scale, of_zero = (
        part_of(rng, shape, dims, i % 2 or dims == 3) for dims in (of_scale, of_zero)
    )
    scale = (torch.rand(of_scale, generator=rng) * 0.9 + 0.1) * size_in_pairs(rng, i, 95)
    zero = torch.randint(qmin, qmax + 1, of_zero, generator=rng, dtype=torch.int32)
    return scale, (0 if symmetric else 1) * torch.where(zero % 3 == 0, qmax, zero)


def drawn_values(rng, shape, scale, zero, bits, symmetric, factor=0.7):
    """x of this shape: the middle of the grid, some of it outside."""
    qmin, qmax = codes_of(bits, symmetric)
    steps = (torch.rand(shape, generator=rng) - 0.5) * 2 * factor * (qmax - qmin + 2)
    return (steps + (qmax + qmin) / 2 - zero) * scale


def drawn_calls(rng):
    """Calls of all three functions: any dtype, shape and size, scale and zero of other shapes;
    ties of all codes; and each tensor of numbers a second time, the other way round."""
    calls = []
    kinds = spread(rng, (torch.float32, torch.bfloat16), 15)
    shapes = spread(rng, DRAWN, 15)
    for i, (bits, symmetric) in enumerate(spread(rng, widths(), 15)):
        kind, shape = kinds[i], shapes[i][0]
        scale, zero = drawn_grid(rng, shapes[i], i, bits, symmetric)
        x = drawn_values(rng, shape, scale, zero, bits, symmetric).to(kind)
        calls.append(("quantize", x, scale, zero, bits, symmetric))
        qmin, qmax = codes_of(bits, symmetric)
        kept = torch.int8 if symmetric else torch.uint8
        codes = torch.randint(qmin, qmax + 1, shape, generator=rng).to(kept)
        calls.append(("dequantize", codes, scale, zero))
        size = scale.mean()
        lo = (torch.rand(shape, generator=rng) - 1.5) * size
        lo, hi = lo.to(kind), (lo + size * (1 + 2 * torch.rand((), generator=rng))).to(kind)
        if lo.numel():
            calls.append(("affine_parameters", lo, hi, bits, symmetric))
            zeros = torch.zeros_like(lo)  # in all groups
            calls.append(("affine_parameters", zeros, zeros, bits, symmetric))
    for i, (bits, symmetric) in enumerate(spread(rng, widths(), 15)[:8] + [(8, False), (8, True)]):
        qmin, qmax = codes_of(bits, symmetric)
        size = size_in_pairs(rng, i, 90)
        zero = 0 if symmetric or bits == 1 else 2 * int(torch.randint(qmax // 2, (), generator=rng))
        ties = (torch.arange(qmin - 2, qmax + 3) - zero + 0.5) * size
        scale, zero = torch.tensor([size]), torch.tensor(zero, dtype=torch.int32)
        for x in (ties, ties.flip(0)):  # of one sum
            calls.append(("quantize", x, scale, zero, bits, symmetric))
    return calls


# ---- exercise 2 ------------------------------------------------------------------------------


def expect_products(student, cases):
    """cases: of (codes [T, K], codes [N, K], zero points [T], [N], all int64, what): exact.

    Before `what` may stand how often each of the K columns is.
    """
    each, right = zip(*(sums_of(*case[:-1]) for case in cases), strict=True)
    values = student.many("integer_product", [(args, {}) for args in each])
    for value, expected, case in zip(values, right, cases, strict=True):
        expect_tensor(value, "integer_product(...)", torch.int32, tuple(expected.shape))
        expect_close(value.long(), expected, what=case[-1])


def sums_of(x_codes, w_codes, x_zero, w_zero, counts=None):
    """(the arguments of integer_product, its value as int64); counts: how often each column is."""
    counts = torch.ones(x_codes.shape[1]).long() if counts is None else counts
    each, x_sums = x_codes * counts, (x_codes * counts).sum(1)
    products, w_sums = exact(each, w_codes), (w_codes * counts).sum(1)
    expected = exact((x_codes - x_zero[:, None]) * counts, w_codes - w_zero[:, None])
    for part in (products, expected, x_sums, w_sums):
        assert -(2**31) <= part.min() and part.max() < 2**31, "the test drew what no int32 holds"
    sums = [part.to(torch.int32) for part in (products, x_sums, w_sums)]
    zeros = [zero.to(torch.int32) for zero in (x_zero, w_zero)]
    return (*sums, int(counts.sum()), *zeros), expected


def exact(x, w):
    """x @ w.T of int64, by float64: exact below 2^53, and ten times as fast."""
    return (x.double() @ w.double().T).long()


def drawn_codes(rng, t, n, k, lo, hi):
    shapes = ((t, k), (n, k), (t,), (n,))
    return [torch.randint(lo, hi + 1, shape, generator=rng) for shape in shapes]


@exercise(
    "ex2",
    points=3,
    invariant="the sum over k of (q_x - z_x) (q_w - z_w), exactly, whatever T, N and K are",
    cause="tensors [T] and [N] mixed up where T = N, or k taken from a shape",
)
def test_product_of_every_shape(student, rng):
    cases = []
    for t, n, k in ((1, 1, 1), (1, 5, 3), (6, 1, 2), (3, 3, 3), (2, 7, 40), (8, 8, 5)):
        for bits in (1, 2, 4, 8):
            drawn = drawn_codes(rng, t, n, k, 0, 2**bits - 1)
            if bits == 1:
                drawn[2:] = torch.ones(t).long(), torch.ones(n).long()
            cases.append((*drawn, f"[{t}, {k}] x [{n}, {k}], {many(bits, 'bit')}"))
    drawn = drawn_codes(rng, 3, 4, 6, 1, 15)
    for side in (0, 1):  # codes of 0 are not values of 0
        codes = [0 * part if i == side else part for i, part in enumerate(drawn)]
        cases.append((*codes, f"all codes of {'xw'[side]} are 0"))
    expect_products(student, cases)


@exercise(
    "ex2",
    points=2,
    invariant="with zero points of 0 on one side, only the other side is corrected",
    cause="a sum multiplied by the zero point of its own side, or the last term without one of "
    "its two zero points",
)
def test_one_side_at_a_time(student, rng):
    cases = []
    for side in (2, 3):
        drawn = drawn_codes(rng, 4, 4, 10, 1, 255)
        cases.append((*drawn, "both zero points"))
        drawn[side] = torch.zeros(4).long()
        cases.append((*drawn, f"zero points of {'xw'[side - 2]} are 0"))
        drawn[side] = torch.tensor([3, -7, 7, -3])
        cases.append((*drawn, f"zero points of {'xw'[side - 2]} add up to 0"))
    expect_products(student, cases)
    sums, none = torch.ones(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    products = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    expect_new_tensors(student, ("integer_product", products, sums, sums, 3, none, none))


@exercise(
    "ex2",
    points=2.5,
    invariant="the result is exact up to the last sum that int32 holds: K = 33 025 products of "
    "255 and 255; single terms may be larger than that",
    cause="float32, which keeps 24 bits; int16 for sums or zero points; or terms that are clamped",
)
def test_exact_up_to_the_last_bit(student, rng):
    k, cases = 33_025, []
    codes = torch.tensor([[0], [255]])
    for x_zero, w_zero in (([0, 0], [255, 0]), ([255, 255], [0, 0]), ([255, 0], [255, 0])):
        zeros, what = (torch.tensor(x_zero), torch.tensor(w_zero)), f"{x_zero}, {w_zero}"
        cases.append((codes, codes, *zeros, torch.tensor([k]), f"zero points {what}"))
    counts = torch.full((25,), k // 25)
    cases.append((*drawn_codes(rng, 3, 4, 25, 0, 255), counts, "drawn codes"))
    drawn = drawn_codes(rng, 3, 4, 25, 95, 105)  # z_x z_w K and both sums times z: over 2^31
    drawn[2:] = torch.tensor([108, 109, 110]), torch.tensor([255, 254, 253, 252])
    cases.append((*drawn, torch.full((25,), 4000), "single terms beyond int32"))
    # 2^31 - 1 = 255 255 K + 255 129 + 127, and one less; -2^31 = -128 64 2^18, and one more
    x, w = torch.tensor([[255, 255, 127], [255, 255, 126]]), torch.tensor([[255, 129, 1]])
    none, most = torch.tensor([0]), torch.tensor([k, 1, 1])
    cases.append((x, w, none.expand(2), none, most, "the largest number of an int32"))
    x, w = torch.tensor([[-128, 0], [-128, 1]]), torch.tensor([[64, 1]])
    least = torch.tensor([2**18, 1])
    cases.append((x, w, none.expand(2), none, least, "the least number of an int32"))
    x, w = torch.tensor([[0, 128], [0, 129]]), torch.tensor([[64, 1]])
    cases.append((x, w, none.expand(2) + 128, none, least, "the least, by zero points"))
    expect_products(student, cases)


@exercise(
    "ex2",
    points=1.5,
    invariant="signed codes, and zero points below 0, as kernels for int8 have them; sums may be "
    "views, and results stay when others are asked for",
    cause="zero points or sums taken for unsigned numbers, or cut off at 0; or memory used again",
)
def test_signed_codes(student, rng):
    calls, rights = [], []
    ranges = spread(rng, ((-128, 127), (-127, -1), (-8, 7), (0, 255), (0, 0)), 10)
    sizes = spread(rng, ((1, 1), (5, 3), (1, 70), (300, 1), (65, 65)), 10)
    lengths = spread(rng, (1, 25, 33_025), 10)
    sides = 5 * [(1, 1)] + spread(rng, ((1, 1), (0, 1), (1, 0), (0, 0)), 5)
    for (lo, hi), (t, n), k, (x_side, w_side) in zip(ranges, sizes, lengths, sides, strict=True):
        drawn = drawn_codes(rng, t, n, min(k, 25), lo, hi)
        drawn[2][0], drawn[3][0], drawn[2][-1], drawn[3][-1] = hi, hi, lo, lo
        counts = torch.full((min(k, 25),), max(k // 25, 1))
        drawn[2], drawn[3] = x_side * drawn[2], w_side * drawn[3]
        args, right = sums_of(*drawn, counts)
        calls.append(("integer_product", *args))
        rights.append((right, f"codes {lo}..{hi}, k = {args[3]}"))
    for (right, what), results in zip(rights, held(student, rng, calls), strict=True):
        for value in distinct(results):
            expect_tensor(value, "integer_product(...)", torch.int32, tuple(right.shape))
            expect_close(value.long(), right, what=what)


# ---- exercise 3 ------------------------------------------------------------------------------


def round_trip(student, w, bits, granularity, symmetric):
    value = student.quantize_weight(w, bits=bits, granularity=granularity, symmetric=symmetric)
    return expect_tensor(value, f"quantize_weight({granularity!r})", torch.float32, tuple(w.shape))


def round_trips(student, cases):
    """quantize_weight of all cases (w, bits, granularity, symmetric)."""
    each = [((w,), {"bits": b, "granularity": g, "symmetric": s}) for w, b, g, s in cases]
    return student.many("quantize_weight", each)


def expect_round_trips(student, cases):
    for w_hat, case in zip(round_trips(student, cases), cases, strict=True):
        expect_quantized(w_hat, *case, "a weight")


@exercise(
    "ex3",
    points=2,
    invariant="each group of each row goes through its own grid, the shorter last one as well",
    cause="ragged groups dropped or filled with their neighbours, or cut down the columns",
)
def test_every_group_against_float64(student, rng):
    grids, cases = ((1, False), (2, False), (3, True), (4, False), (8, True), (8, False)), []
    for i, (bits, symmetric) in enumerate(grids):
        w = torch.randn(5, 23, generator=rng) * torch.rand(5, 1, generator=rng) + 0.3
        each = enumerate(("tensor", "channel", 1, 7, 23, 100), i)  # each with every size, in turn
        scaled = [((1.0, 1e-8, 1e4)[j % 3] * w, bits, g, symmetric) for j, g in each]
        cases += [case for j, case in enumerate(scaled) if (i + j) % 2 == 0 or i > 3]
    wide = torch.randn(2, 2100, generator=rng)
    wide[:, 70] *= 30  # one in a thousand
    for granularity in ("tensor", "channel", 1500):
        cases.append((wide, 3, granularity, granularity == "channel"))
    expect_round_trips(student, cases)


@exercise(
    "ex3",
    points=1.5,
    invariant="the last group has its own range, whatever stands in the groups before it",
    cause="the last group merged with its neighbour, or left in float",
)
def test_ragged_last_group(student, rng):
    w = torch.randn(4, 19, generator=rng)
    w[:, :16] *= 1000
    for symmetric in (False, True):
        w_hat = round_trip(student, w, 2, 8, symmetric)
        expect_quantized(w_hat, w, 2, 8, symmetric, "a last group of 3")
        tail, tail_hat = w[:, 16:], w_hat[:, 16:]
        assert not torch.equal(tail, tail_hat), "the last 3 weights of a row are not quantized"


@exercise(
    "ex3",
    points=1.5,
    invariant="N K b + groups x (16 + b if there is a zero point); a started group is a group",
    cause="N * K // G groups, zero points counted on a symmetric grid, or one group per column",
)
def test_sizes_by_counting(student, rng):
    for bits, symmetric in ((1, False), (3, False), (3, True), (8, True)):
        n, k = torch.randint(3, 40, (2,), generator=rng).tolist()
        each = ("tensor", "channel", 1, 4, 7, 64)
        options = [{"bits": bits, "granularity": g, "symmetric": symmetric} for g in each]
        totals = student.many("weight_bits", [(((n, k),), option) for option in options])
        for granularity, total in zip(each, totals, strict=True):
            size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
            rows = 1 if granularity == "tensor" else n
            groups = sum(1 for _ in range(rows) for _ in range(0, n * k // rows, size))
            expected = n * k * bits + groups * (16 if symmetric else 16 + bits)
            assert type(total) is int, f"weight_bits returned {type(total).__name__}"
            assert total == expected, (
                f"[{n}, {k}], {many(bits, 'bit')}, {granularity!r}: {total}, not {expected}"
            )
    large = 8_191, 152_065  # as an output layer, odd: whoever counts groups in a loop can, too
    grids, each = ((1, False), (8, True), (8, False)), (("channel", 8_191), ("tensor", 1))
    cases = [(*grid, *size) for grid in grids for size in each]
    options = [{"bits": b, "granularity": g, "symmetric": s} for b, s, g, _ in cases]
    totals = student.many("weight_bits", [((large,), option) for option in options])
    for total, (bits, symmetric, granularity, groups) in zip(totals, cases, strict=True):
        expected = bits * 8_191 * 152_065 + (16 if symmetric else 16 + bits) * groups
        what = f"{large}, {many(bits, 'bit')}, {granularity!r}, symmetric={symmetric}"
        assert type(total) is int and total == expected, f"{what}: {total}, not {expected}"


@exercise(
    "ex3",
    points=1.5,
    invariant="constant, negative, transposed, bfloat16, single weights and huge outliers work; "
    "what is no granularity raises ValueError",
    cause="view on a transposed weight, bfloat16 arithmetic, 0 / 0, or a granularity that is used "
    "before it is checked",
)
def test_awkward_weights(student, rng):
    w = torch.randn(12, 6, generator=rng)
    outlier = w.clone()
    outlier[3, 2] = 1e30
    weights = (-w.abs() - 1, w.bfloat16(), w[:1, :1], w[:1], w[:, :1], outlier)
    cases = [(case, 4, group, False) for case in weights for group in ("tensor", "channel", 5)]
    high, wide = torch.randn(100, 3, generator=rng), torch.randn(1, 300, generator=rng)
    cases += [(high, 4, "channel", False), (wide, 4, 1, False)]  # 300 groups in a row
    expect_round_trips(student, [*cases, (w.bfloat16(), 8, 5, True)])
    grids = ((3, False), (3, True), (1, False))
    flat = [(torch.full((3, 7), x), b, 4, s) for x in (0.0, -2.5) for b, s in grids]
    for w_hat, (right, *_) in zip(round_trips(student, flat), flat, strict=True):
        # s rounded as SCALE, times one code
        expect_close(w_hat, right, what=f"constant {right[0, 0]}", rtol=SCALE + 3 * U)
    expect_views(student, rng)
    flat, codes = torch.full((2, 8), 0.5), torch.arange(8, dtype=torch.uint8)
    calls = [("quantize_weight", x, 4, 8, False) for x in (flat, 0 * flat)]
    calls += [("quantize_weight", flat[:, :1], 8, g, True) for g in ("tensor", "channel", 1)]
    expect_new_tensors(student, *calls, ("pack_codes", codes, 8), ("pack_codes", codes[:1], 8))
    wrong = ("row", "8", "", "Tensor", "CHANNEL", "channel ", "tensors", 0, -3, 2.5, 100.5, None)
    grids, weights = spread(rng, widths(), 12), spread(rng, (w, w.bfloat16(), 0 * w, w[:1, :1]), 12)
    refused(
        student,
        [
            ("quantize_weight", weights[i], bits, wrong[i], symmetric)
            for i, (bits, symmetric) in enumerate(grids)
        ],
    )


def expect_views(student, rng):
    """Weights and codes that lie in memory in every way, of any size, also with one outlier."""
    calls, kinds = [], spread(rng, (torch.float32, torch.bfloat16), 10)
    groups = spread(rng, ("tensor", "channel", 1, 4, 7, 1500), 10)
    shapes = spread(rng, ((1, 1), (1, 9), (6, 12), (12, 1), (2, 2100)), 10)
    longs, lengths = spread(rng, (0, 0, 1), 10), spread(rng, ((), (7,), (3, 5), (2, 3, 5)), 10)
    for i, (bits, symmetric) in enumerate(spread(rng, widths(), 10)):
        w = size_in_pairs(rng, i, 80) * torch.randn(shapes[i], generator=rng)
        w = torch.where(torch.rand(w.shape, generator=rng) < 0.1, 0.0, w)
        if i % 3 == 0:
            w[-1, -1] = 50 * w.abs().max()
        group = 700 if len(w) == 2 and groups[i] in (1, 4, 7) else groups[i]  # no loop of 2100
        calls.append(("quantize_weight", w.to(kinds[i]), bits, group, symmetric))
        shape = (3001,) if longs[i] else lengths[i]
        codes = torch.randint(2**bits, shape, generator=rng, dtype=torch.uint8)
        calls.append(("pack_codes", codes, bits))
        if codes.dim():
            calls.append(("pack_codes", codes.flip(-1), bits))
    for (name, *args), results in zip(calls, held(student, rng, calls), strict=True):
        for value in distinct(results):
            if name == "pack_codes":
                expect_packed(value, *args)
            else:
                expect_quantized(value, *args, f"a weight in {args[0].dtype}, perhaps a view")


def expect_packed(packed, codes, bits):
    """The bytes hold the codes in order, each with its lowest bit first, and then zeros."""
    length = math.ceil(codes.numel() * bits / 8)
    expect_tensor(packed, "pack_codes(...)", torch.uint8, (length,))
    stream = codes.flatten()[:, None] >> torch.arange(bits) & 1  # [N, b], the lowest bit first
    stream = F.pad(stream.flatten(), (0, 8 * length - stream.numel())).view(length, 8)
    right = (stream << torch.arange(8)).sum(1).to(torch.uint8)
    expect_close(packed, right, what=f"{many(bits, 'bit')}: bytes of {codes.numel()} codes")


def drive_packing(student, pairs):
    """Runs beside the student's code: of each (codes, others, bits) two calls with one tensor."""
    results = []
    for first, second, bits in pairs:
        codes = first.clone()
        one = student.pack_codes(codes, bits)
        codes.copy_(second)
        results.append((one, student.pack_codes(codes, bits)))
    return results


@exercise(
    "ex3",
    points=2.5,
    invariant="N codes of b bits take ceil(N b / 8) bytes, which hold them in order, lowest bit "
    "first, and zeros at the end; for any N and b, in every call",
    cause="a width that fills bytes unevenly, a last byte that is dropped or not 0 behind the last "
    "code, int8, or a result kept from an earlier call",
)
def test_packed_bytes(student, rng):
    pairs = []
    for bits in range(1, 9):
        for count in (1, 7, 8, 9, 100):
            codes = torch.randint(2**bits, (2, count), generator=rng, dtype=torch.uint8)
            codes[0, -1] = 2**bits - 1
            pairs.append((*codes, bits))
    for both, (*codes, bits) in zip(student.drive(drive_packing, pairs), pairs, strict=True):
        for packed, row in zip(both, codes, strict=True):
            expect_packed(packed, row, bits)
    nothing = torch.zeros(2, 5, dtype=torch.uint8)
    shapes = ((3, 4, 5), (4, 5), (1, 1), ())
    cubes = [torch.randint(1, 8, shape, generator=rng, dtype=torch.uint8) for shape in shapes]
    long = torch.randint(8, (22_001,), generator=rng, dtype=torch.uint8)
    each = [nothing, *cubes, long]  # the last one: more bits than 16 bits can count
    found = student.many("pack_codes", [((codes, 3), {}) for codes in each])
    for packed, codes in zip(found, each, strict=True):
        expect_packed(packed, codes, 3)


# ---- exercise 4 ------------------------------------------------------------------------------


def cluster(student, values, bits, iterations):
    return clusters(student, [(values, bits, iterations)])[0]


def clusters(student, cases):
    """(codebook, codes) of each case (values, bits, iterations), checked."""
    each = [((values,), {"bits": b, "iterations": n}) for values, b, n in cases]
    found = student.many("kmeans_codebook", each)
    return [expect_codebook(value, *case[:2]) for value, case in zip(found, cases, strict=True)]


def expect_codebook(value, values, bits):
    """(codebook as float64, codes as int64) of the student, checked."""
    codebook, codes = expect_tuple(value, (torch.Tensor, torch.Tensor), "kmeans_codebook")
    expect_tensor(codebook, "codebook", torch.float32, (2**bits,))
    expect_tensor(codes, "codes", None, tuple(values.shape))
    assert not (codes.is_floating_point() or codes.is_complex() or codes.dtype == torch.bool), (
        f"codes must be integers, got {codes.dtype}"
    )
    codes, codebook = codes.long(), codebook.double()
    assert codebook.isfinite().all(), "the codebook is not finite"
    assert 0 <= codes.min() and codes.max() < 2**bits, "a code points outside the codebook"
    bound = 2 * (mean_error(values) + start_error(values))  # means of equal values may differ
    expect_at_most(-codebook.diff(), bound, "the codebook must ascend: a step down")
    return codebook, codes


def mean_error(values):
    """How far a mean of some of these values may be off, added up in float32 in any order.

    n numbers take n - 1 additions, a division and one rounding of the result.
    """
    return (values.numel() + 1) * U * values.abs().max().item()


def start_error(values):
    """lo + i (hi - lo) / n in float32: four roundings, of up to twice the largest value."""
    return 8 * U * values.abs().max().item()


def even_start(values, bits):
    """float64 [2^b]."""
    return torch.linspace(values.min().item(), values.max().item(), 2**bits, dtype=torch.float64)


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


def as_array(values):
    """numpy's float64 [n]: some hundred steps of k-means take it half as long as torch."""
    return values.double().flatten().numpy()


def step(v, centroids):
    """(codes, centroids after one iteration, least difference of squared distances), arrays."""
    codes = nearest_of(v, centroids)
    middles = np.concatenate([[-np.inf], (centroids[1:] + centroids[:-1]) / 2, [np.inf]])
    # |v - c|^2 - |v - c'|^2 of neighbours is 2 (c' - c) (middle - v)
    apart = np.concatenate([[np.inf], 2 * np.diff(centroids), [np.inf]])
    below = (v - middles[codes]) * apart[codes]
    gap = np.minimum(below, (middles[codes + 1] - v) * apart[codes + 1])
    return codes, means(v, codes, centroids), float(gap.min())


def nearest_of(v, centroids):
    return np.searchsorted((centroids[1:] + centroids[:-1]) / 2, v)


def means(v, codes, centroids):
    """Array [2^b]: of the values of each centroid; one without values stays."""
    counts = np.bincount(codes, minlength=len(centroids))
    sums = np.bincount(codes, weights=v, minlength=len(centroids))
    return np.where(counts > 0, sums / np.maximum(counts, 1), centroids)


def history(values, bits, iterations):
    """([codebook, codes] after 0, 1, 2, ... iterations; how far any value is from a tie)."""
    v, centroids, rows, clear = as_array(values), even_start(values, bits).numpy(), [], math.inf
    for _ in range(iterations + 1):
        codes, moved, gap = step(v, centroids)
        rows.append([torch.from_numpy(centroids), torch.from_numpy(codes).reshape(values.shape)])
        centroids, clear = moved, min(clear, gap)
    return rows, clear


def drawn_clear(draw, bits, iterations):
    """Values whose nearest centroid no rounding can change within these iterations."""
    while True:
        values = draw()
        rows, gap = history(values, bits, iterations)
        # centroids may be off as well, by mean_error: of distances up to the range, squared
        span = (values.max() - values.min()).item()
        moved = 4 * span * (mean_error(values) + start_error(values))
        if gap > max(1e-4 * span**2, 2 * square_error(values) + moved):
            return values, rows


@exercise(
    "ex4",
    points=3,
    invariant="iteration by iteration: nearest entry, then the mean of each cluster; the codes are "
    "those of the final codebook",
    cause="another start (random, quantiles), an update that is not the mean, iterations ignored, "
    "or codes from before the last update",
)
def test_iterations_one_by_one(student, rng):
    draws = (
        lambda: torch.randn(6, 5, generator=rng).exp(),
        lambda: 1e-4 * torch.randn(30, generator=rng),
        lambda: 1e-8 * torch.randn(30, generator=rng),
        lambda: 1e4 * torch.randn(30, generator=rng),
        lambda: 10 - torch.randn(2, 3, 5, generator=rng).exp(),
    )
    cases, counts = [], (0, 1, 2, 7)
    for draw, bits in zip(spread(rng, draws, 8), spread(rng, (1, 2, 3), 8), strict=True):
        values, rows = drawn_clear(draw, bits, 7)
        cases += [(values, bits, t, *rows[t]) for t in counts]
    # 5000 values, of which many are equal
    values, rows = drawn_clear(lambda: 1.0 * torch.randint(14, (50, 100), generator=rng), 2, 3)
    cases.append((values, 2, 3, *rows[3]))
    for bits in spread(rng, (4, 5, 6, 7), 4)[:1] + spread(rng, (6, 7), 1):
        t = int(torch.randint(11, 14, (), generator=rng))
        values, codebook = dominoes(rng, bits, 13, t)
        cases.append((values, bits, t, codebook, None))
    values, codebook = dominoes(rng, 4, 13, 12)  # steps below 1e-8
    cases.append((2.0**-15 * values, 4, 12, 2.0**-15 * codebook, None))
    each = [((values,), {"bits": bits, "iterations": t}) for values, bits, t, *_ in cases]
    found = student.many("kmeans_codebook", each)
    for (values, bits, t, expected, right), value in zip(cases, found, strict=True):
        codebook, codes = expect_codebook(value, values, bits)
        what = f"{2**bits} centroids of {values.numel()} values after {many(t, 'iteration')}"
        expect_close(codebook, expected, what=what, atol=mean_error(values) + start_error(values))
        right = nearest(values, expected) if right is None else right
        assert torch.equal(codes, right), f"{what}: other codes than those of the nearest"


def nearest(values, codebook):
    return torch.bucketize(values.double(), (codebook[1:] + codebook[:-1]) / 2)


def dominoes(rng, bits, links, iterations):
    """(values, float64 codebook): in each iteration one centroid more starts to move.

    Before, centroid i has two values, of 0.42 steps to its left and right.  The first one moves
    right and takes the left one of its neighbour, which then does the same with the next.  No value
    comes nearer to a tie than 0.1 of a step; squares in float32 decide that for 8 bits as well.
    """
    last = 2**bits - 1
    places = torch.arange(1.0, links + 1)[:, None] + torch.tensor([-0.42, 0.42])
    first = torch.full((8,), 0.42)
    places = torch.cat([places.flatten(), first]) + 0.01 * (
        torch.rand(2 * links + 8, generator=rng) - 0.5
    )
    places = torch.cat([places, torch.tensor([0.0, last])]) - last / 2
    places = places[torch.randperm(len(places), generator=rng)]
    sign = 1 if torch.rand((), generator=rng) < 0.5 else -1
    values = sign * size_in_pairs(rng, bits, 20) * places
    v, centroids = as_array(values), even_start(values, bits).numpy()
    for _ in range(iterations):
        centroids = means(v, nearest_of(v, centroids), centroids)
    return values, torch.from_numpy(centroids)


def iterations_needed(values, bits, limit):
    """After how many iterations of k-means, in float64, nothing moves."""
    v, c = as_array(values), even_start(values, bits).numpy()
    for t in range(limit):
        new = means(v, nearest_of(v, c), c)
        if np.array_equal(new, c):
            return t
        c = new
    return limit


def drawn_slow(rng):
    """2000 values on which 16 centroids need at least 45 iterations."""
    while True:
        values = 0.02 * torch.randn(2000, generator=rng)
        if 45 <= iterations_needed(values, 4, 120) < 120:
            return values


@exercise(
    "ex4",
    points=2,
    invariant="no iteration increases the squared error, and in the end each centroid is the mean "
    "of its values",
    cause="an end before nothing moves: after a fixed number of iterations, or once steps are "
    "small; a step towards the mean; medians",
)
def test_runs_until_nothing_moves(student, rng):
    values = drawn_slow(rng)
    errors, counts = [], (0, 1, 20, 250)
    found = clusters(student, [(values, 4, n) for n in counts])
    for iterations, (codebook, codes) in zip(counts, found, strict=True):
        expect_nearest(values, codebook, codes, f"after {many(iterations, 'iteration')}")
        errors.append((values.double() - codebook[codes]).square().sum().item())
    for before, after in zip(errors, errors[1:], strict=False):
        # each value's error moves by at most the rounding of its centroid
        slack = 2 * (before * values.numel()) ** 0.5 * mean_error(values)
        expect_at_most(after, before + slack, f"squared error by iterations {errors}")
    for j in codes.unique().tolist():
        members = values[codes == j].double()
        off = (codebook[j] - members.mean()).abs()
        expect_at_most(off, mean_error(members), f"centroid {j}, minus the mean of its values")
    values, expected = dominoes(rng, 8, 254, 250)  # goes on for 255
    codebook, codes = cluster(student, values, 8, 250)
    atol = mean_error(values) + start_error(values)
    expect_close(codebook, expected, what="256 centroids after 250 iterations", atol=atol)


@exercise(
    "ex4",
    points=2,
    invariant="a centroid without values stays where it is, and never becomes NaN",
    cause="a mean over nothing is 0 / 0; or empty centroids fall to 0 or go back to the start",
)
def test_empty_clusters(student, rng):
    far = 50 + torch.rand((), generator=rng).item()
    for sign in (1, -1):
        values = sign * torch.tensor([1.0, 1.0, far, 1.0])
        start = even_start(values, 3)
        for codebook, codes in clusters(student, [(values, 3, n) for n in (1, 10)]):
            expect_close(codebook, start, what="codebook", atol=start_error(values))
            right = [0, 0, 7, 0] if sign > 0 else [7, 7, 0, 7]
            assert codes.tolist() == right, f"codes {codes.tolist()}"
    # the third of four centroids has three values, moves, and then loses them to its neighbours;
    # or it has none at first, and then gets the last but one
    loses, wins = (0.0, 0, 11, 46, 53, 53, 79, 88, 100), (0.0, 1, 6, 20, 21, 23, 34, 49, 100)
    cancels = (-1.0, 1, 9, 9)  # a sum of 0 is not a sum of nothing
    half = (1.0, 2, 3, 19, 21, 30)  # centroids move both ways, and their sum does not
    mirrored = (*half, *(-x for x in half))
    for case, off, bits, counts in (
        (loses, 7, 2, (1, 2, 3, 6)),
        (wins, 7, 2, (1, 2, 4)),
        (cancels, 0, 1, (1, 4)),
        (mirrored, 0, 2, (1, 2, 5)),
    ):
        values = far * torch.tensor(case) - off
        rows, _ = history(values, bits, 6)
        found = clusters(student, [(values, bits, n) for n in counts])
        for iterations, (codebook, codes) in zip(counts, found, strict=True):
            atol = mean_error(values) + start_error(values)
            expect_close(codebook, rows[iterations][0], what="codebook", atol=atol)
            assert torch.equal(codes, rows[iterations][1]), f"codes {codes.tolist()}"


@exercise(
    "ex4",
    points=2,
    invariant="constant, single and few values are exact; 256 entries, bfloat16 and transposed "
    "values work",
    cause="a midpoint between equal centroids, view on transposed values, sums kept in bfloat16, "
    "or codes above 127 in int8",
)
def test_awkward_values(student, rng):
    value = torch.randn((), generator=rng).item()
    few, near = torch.tensor([0.0, 3.0, 1.0]), torch.tensor([1.0, 1.0 + 2**-23])
    alike = [torch.full((3, 4), value), torch.tensor(value), torch.tensor([value]), few]
    found = clusters(student, [(values, 2, 5) for values in alike])
    for values, (codebook, codes) in zip(alike, found, strict=True):
        atol = mean_error(values) + start_error(values)
        expect_close(codebook[codes], values.double(), what="values", atol=atol)
        if values is not few:
            expect_close(codebook - value, 0 * codebook, what="entries, of equal values", atol=atol)
    pairs = ((near, 2, 1), (near, 8, 1), (-near, 3, 1))  # entries are equal, the last ones too
    for (values, *_), (codebook, codes) in zip(pairs, clusters(student, pairs), strict=True):
        expect_nearest(values, codebook, codes, "values beside one another")
    four = torch.arange(4.0)
    expect_new_tensors(student, *(("kmeans_codebook", four, 2, n) for n in (0, 1)))
    many_of_one = torch.cat([torch.rand(68_000, generator=rng), torch.tensor([2.0])])
    codebook, codes = cluster(student, many_of_one, 1, 1)
    mean = many_of_one[many_of_one < 1].double().mean()
    expect_close(codebook[0], mean, what="a mean of 68,000", atol=mean_error(many_of_one))
    values = torch.randn(60, 40, generator=rng)
    expect_several(student, rng)
    rounded = values.bfloat16()
    found = clusters(student, [(values, 1, 50), (rounded, 1, 50)])
    for plain, (codebook, codes) in zip((values, rounded.float()), found, strict=True):
        low, high = plain[codes == 0].double(), plain[codes == 1].double()
        means = torch.stack([low.mean(), high.mean()])
        expect_close(codebook, means, what="two centroids", atol=mean_error(plain))
        assert low.max() < high.min(), "the two clusters overlap"
    for bits in (5, 8):
        codebook, codes = cluster(student, values, bits, 1)
        expect_nearest(values, codebook, codes, f"{2**bits} centroids")
        start, _ = cluster(student, values, bits, 0)
        expect_close(start, even_start(values, bits), what="start", atol=start_error(values))


def expect_several(student, rng):
    """Values that lie in memory in every way, of every size, against float64."""
    calls, right = [], []
    kinds = spread(rng, (torch.float32, torch.bfloat16), 4)
    for i, (bits, iterations) in enumerate(spread(rng, ((1, 1), (2, 3), (3, 2), (2, 6)), 4)):
        size, kind = size_in_pairs(rng, i, 30), kinds[i]
        values, rows = drawn_clear(
            lambda size=size, kind=kind: (
                (size * (torch.randn(6, 5, generator=rng) + 1)).to(kind).float()
            ),
            bits,
            iterations,
        )
        calls.append(("kmeans_codebook", values.to(kind), bits, iterations))
        right.append((values, bits, rows[iterations]))
    for (values, bits, (entries, expected)), results in zip(
        right, held(student, rng, calls), strict=True
    ):
        for value in results:
            codebook, codes = expect_codebook(value, values, bits)
            atol = mean_error(values) + start_error(values)
            expect_close(codebook, entries, what="codebook of perhaps a view", atol=atol)
            assert torch.equal(codes, expected), "codes of perhaps a view differ"


# ---- exercise 5 ------------------------------------------------------------------------------


def drive_gradient(student, x, scale, zero, bits, symmetric, upstream):
    """Runs beside the student's code: value of fake_quantize, gradient of sum(upstream * it)."""
    import torch

    x = x.clone().requires_grad_(True)
    y = student.fake_quantize(x, scale, zero, bits=bits, symmetric=symmetric)
    if not isinstance(y, torch.Tensor) or not y.requires_grad:
        return y, None
    (y * upstream).sum().backward()
    return y.detach(), x.grad


def drive_gradients(student, cases):
    """Runs beside the student's code: of each (x, ..., upstream) what fake_quantize gives, the
    gradient of x, the result for an x that needs none, and what else they changed, in words.

    x has a gradient already, and what arrives goes to another tensor as well.  Every second case is
    one of views; all results are there when the last call is made.
    """
    import torch

    def view(x):
        if x.dim() >= 2:
            return x.mT.clone(memory_format=torch.contiguous_format).mT
        return x.repeat_interleave(2, -1)[..., ::2] if x.dim() else x

    results = []
    for i, (given, scale, zero, bits, symmetric, upstream) in enumerate(cases):
        if i % 2:
            given, scale, zero = view(given), view(scale), view(zero)
        x, before = given.detach().requires_grad_(True), torch.ones_like(given)
        other, more = torch.zeros(x.shape, requires_grad=True), ""
        x.grad = before
        y = student.fake_quantize(x, scale, zero, bits=bits, symmetric=symmetric)
        grad = None
        if isinstance(y, torch.Tensor) and y.requires_grad and y.shape == x.shape:
            total, given_back = y + other, view(upstream) if i % 2 else upstream
            given_back, kept = given_back.to(total.dtype), upstream.clone()
            torch.autograd.grad(total, [x, other], given_back, retain_graph=True)  # and once more
            grad, also = torch.autograd.grad(total, [x, other], given_back)
            if not torch.equal(also, kept):
                more = "the gradient that others get changed"
            y = y.detach()
        if x.grad is not before or not (before == 1).all():
            more = "the gradient that x had changed"
        with torch.set_grad_enabled(i % 4 < 2):
            plain = student.fake_quantize(given, scale, zero, bits=bits, symmetric=symmetric)
            if torch.is_grad_enabled() != (i % 4 < 2):
                more = "afterwards gradients are switched on or off that were not"
        if given.requires_grad or isinstance(plain, torch.Tensor) and plain.requires_grad:
            more = "without a gradient of x, something needs one"
            plain = plain.detach()
        results.append((y, grad, plain, more))
    return results


def drive_transposed_gradient(student, x, scale, zero, bits, symmetric, upstream):
    """Runs beside the student's code: as above for x.T, which is not contiguous."""
    import torch

    x = x.clone().requires_grad_(True)
    y = student.fake_quantize(x.T, scale, zero, bits=bits, symmetric=symmetric)
    if not isinstance(y, torch.Tensor) or not y.requires_grad:
        return y, None
    (y * upstream).sum().backward()
    return y.detach(), x.grad


def expect_fake(student, x, scale, zero, bits, symmetric, upstream):
    """Value and gradient against float64. Returns how many x lay inside and outside the grid."""
    y, grad = student.drive(drive_gradient, x, scale, zero, bits, symmetric, upstream)
    return expect_value_and_gradient(y, grad, x, scale, zero, bits, symmetric, upstream)


def expect_value_and_gradient(y, grad, x, scale, zero, bits, symmetric, upstream):
    expect_tensor(y, "fake_quantize(...)", torch.float32, tuple(x.shape))
    assert grad is not None, "no gradient reaches x"
    expect_tensor(grad, "the gradient", x.dtype, tuple(x.shape))
    expect_fake_values(y, x, scale, zero, bits, symmetric)
    return expect_straight_through(grad, x, scale, zero, bits, symmetric, upstream)


def expect_fake_values(y, x, scale, zero, bits, symmetric):
    """y is dequantize(quantize(x)) in float64, wherever no tie is near."""
    scale = scale.double()
    codes, clear = true_codes(x, scale, zero, bits, symmetric)
    off = torch.where(clear, (y.double() - scale * (codes - zero)).abs(), 0.0)
    # x + (x_hat - x), or x / s, + z, - z, * s: at most eight roundings of these sizes
    sizes = x.double().abs() + scale * (codes.abs() + zero.abs())
    expect_at_most(
        off, 8 * U * sizes, f"{many(bits, 'bit')}: distance from dequantize(quantize(x))"
    )


def expect_straight_through(grad, x, scale, zero, bits, symmetric, upstream):
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
    passed, stopped = off <= allowed, grad == 0
    assert passed[inside].all(), f"{many(bits, 'bit')}: gradient inside the range"
    assert stopped[outside].all(), f"{many(bits, 'bit')}: a gradient where x is clipped"
    assert (passed | stopped).all(), (
        f"{many(bits, 'bit')}: gradient within half a step of the range"
    )
    return inside.sum().item(), outside.sum().item()


@exercise(
    "ex5",
    points=3,
    invariant="the gradient that arrives passes unchanged inside the range and stops outside it",
    cause="the mask uses one row's range for all rows, or z is forgotten in it",
)
def test_gradient_by_rows(student, rng):
    for bits, symmetric in ((2, False), (3, True), (4, False), (8, False)):
        qmin, qmax = codes_of(bits, symmetric)
        scale = torch.tensor([[1e-8], [0.1], [10.0], [1e4]])
        zero = torch.zeros(4, 1, dtype=torch.int32)
        if not symmetric:
            zero += torch.tensor([qmin, qmin + 1, qmax, qmax - 1], dtype=torch.int32)[:, None]
        x = scale * (torch.randn(4, 60, generator=rng) * (qmax - qmin))
        upstream = torch.randn(4, 60, generator=rng)
        inside, outside = expect_fake(student, x, scale, zero, bits, symmetric, upstream)
        assert inside > 20 and outside > 20, "the test drew a one-sided case"


@exercise(
    "ex5",
    points=2,
    invariant="values equal dequantize(quantize(x)) and the gradient is masked, for every width; "
    "the first and the last level are inside",
    cause="a range that is right for one width only; 1 bit has the codes 0 and 1; < for <=",
)
def test_every_width(student, rng):
    cases = []
    for bits, symmetric in widths():
        qmin, qmax = codes_of(bits, symmetric)
        z = 0 if symmetric else (qmax + 1) // 2
        zero = torch.tensor(z, dtype=torch.int32)
        x = torch.randn(80, generator=rng) * (qmax - qmin) * 0.3
        cases.append((x, torch.tensor(0.3), zero, bits, symmetric, torch.ones(80)))
        levels = 0.25 * (torch.arange(qmin - 3, qmax + 4) - z)  # exact; three past each end
        upstream = torch.randn(levels.shape, generator=rng)
        cases.append((levels, torch.tensor(0.25), zero, bits, symmetric, upstream))
    # ties inside: there |x_hat - x| may be above s / 2 by a rounding
    ties, middle = (torch.arange(-100, 100) + 0.5) * 0.3, torch.tensor(127, dtype=torch.int32)
    cases.append((ties, torch.tensor(0.3), middle, 8, False, torch.ones(200)))
    # so many steps outside that what counts them in 16 or 32 bits is inside again
    far = torch.tensor([65539.0, -65533.0, 2.0**32, -(2.0**32), 2.0**40])
    middle = torch.tensor(8, dtype=torch.int32)
    cases.append((0.25 * far, torch.tensor(0.25), middle, 4, False, torch.ones(5)))
    expect_gradients(student, cases)


def drive_training(student, w, target, scale, zero, steps, rate):
    """Runs beside the student's code: gradient descent on w, and where it was at every step."""
    import torch

    w = w.clone().requires_grad_(True)
    path = []
    for _ in range(steps):
        y = student.fake_quantize(w, scale, zero, bits=3, symmetric=False)
        if not isinstance(y, torch.Tensor) or not y.requires_grad:
            return None
        (grad,) = torch.autograd.grad((y - target).square().sum(), [w])
        path.append(torch.stack([w.detach(), y.detach(), grad]))
        with torch.no_grad():
            w -= rate * grad
    return torch.stack(path)


@exercise(
    "ex5",
    points=2,
    invariant="gradient descent through the rounding moves every code to its target",
    cause="a gradient that is 0, has the wrong sign, or is lost on the way; or a result kept from "
    "an earlier step",
)
def test_training_reaches_the_target(student, rng):
    scale, zero = torch.tensor(0.5), torch.tensor(4, dtype=torch.int32)
    target = (torch.randint(0, 8, (20,), generator=rng) - 4) * 0.5  # any level
    start = (torch.randint(1, 7, (20,), generator=rng) - 4) * 0.5  # not an outermost one
    w = start + 0.4 * (torch.rand(20, generator=rng) - 0.5)  # rounds to start, away from ties
    steps = 60  # 3.5 is the farthest; a level nearer is at most 10 of them
    path = student.drive(drive_training, w, target, scale, zero, steps, 0.05)
    assert path is not None, "no gradient reaches the weights"
    expect_tensor(path, "the path of the weights", torch.float32, (steps, 3, 20))
    weights, values, grads = path.unbind(1)
    expect_same(weights[0], w, "the first weights")
    expect_fake_values(values, weights, scale, zero, 3, False)
    # all weights stay inside the grid, where the gradient is 2 (y - target)
    expect_close(grads, 2 * (values - target), what="gradients", atol=8 * U * 16)
    expect_close(weights[1:], weights[:-1] - 0.05 * grads[:-1], what="steps", atol=8 * U * 16)
    expect_close(values[-1], target, what=f"values after {steps} steps", atol=8 * U * 16)


@exercise(
    "ex5",
    points=1,
    invariant="bfloat16 x: float32 values, bfloat16 gradient; any dimensions, scales along any of "
    "them, views, single numbers and none",
    cause="arithmetic in bfloat16, a fixed number of dimensions, or view on a transposed x",
)
def test_bfloat16(student, rng):
    zero = torch.tensor(5, dtype=torch.int32)
    for shape, size in (((), ()), ((0, 3), (3,)), ((2, 3, 4), (3, 1)), ((2, 3, 4), (2, 1, 1))):
        x, upstream = torch.randn(shape, generator=rng), torch.ones(shape)
        scale = torch.rand(size, generator=rng) * 0.1 + 0.2
        expect_fake(student, x, scale, zero, 4, False, upstream)
    x = 1e-7 * torch.randn(3, 4, generator=rng)
    scale, upstream = 1e-8 * (torch.rand(4, 1, generator=rng) + 2), torch.ones(4, 3)
    value = student.drive(drive_transposed_gradient, x, scale, zero, 4, False, upstream)
    y, grad = expect_tuple(value, (torch.Tensor, torch.Tensor), "of a transposed x")
    expect_tensor(y, "fake_quantize of a transposed x", torch.float32, (4, 3))
    expect_tensor(grad, "the gradient of x", torch.float32, (3, 4))
    expect_fake_values(y, x.T, scale, zero, 4, False)
    expect_straight_through(grad.T, x.T, scale, zero, 4, False, upstream)
    cases, kinds = [], spread(rng, (torch.float32, torch.bfloat16), 15)
    shapes = spread(rng, DRAWN, 15)
    for i, (bits, symmetric) in enumerate(spread(rng, widths(), 15)):
        scale, zero = drawn_grid(rng, shapes[i], i, bits, symmetric)
        x = drawn_values(rng, shapes[i][0], scale, zero, bits, symmetric, 1.5).to(kinds[i])
        cases.append((x, scale, zero, bits, symmetric, torch.randn(x.shape, generator=rng)))
    # one scale for all: of views, and of bfloat16, where half a step past an end is a rounding away
    zero = torch.tensor(129, dtype=torch.int32)
    for x in 2 * [torch.randn(3, 4, generator=rng)] + 2 * [torch.randn(2, 3, 4, generator=rng)]:
        cases.append((x, torch.tensor(0.01), zero, 8, False, torch.ones(x.shape)))
    for shape in ((4, 4), (4, 4, 4)):  # a scale for each column
        x, zeros = torch.randn(shape, generator=rng), torch.tensor([129, 1, 60, 255]).int()
        columns = torch.tensor([0.25, 0.5, 1.0, 2.0])
        cases.append((x, columns, zeros, 8, False, torch.ones(shape)))
    ends = torch.cat([torch.arange(-136, -123, 0.5), torch.arange(120, 128, 0.5)]).bfloat16()
    cases.append((ends, torch.tensor(127 / 126.7), zero, 8, False, torch.ones(len(ends))))
    expect_gradients(student, cases)
    expect_new_tensors(
        student, ("fake_quantize", torch.arange(4.0), torch.tensor(1.0), 0 * zero, 4, False)
    )


def expect_gradients(student, cases):
    """cases: of (x, scale, zero, bits, symmetric, upstream)."""
    found = student.drive(drive_gradients, cases)
    for (y, grad, plain, more), case in zip(found, cases, strict=True):
        expect_value_and_gradient(y, grad, *case)
        expect_tensor(plain, "fake_quantize without gradients", torch.float32, tuple(y.shape))
        expect_fake_values(plain, *case[:-1])
        assert not more, f"x {list(case[0].shape)} in {case[0].dtype}: {more}"


def drive_batches(student, xs, scales, zeros, bits, symmetric, upstreams):
    """Runs beside the student's code: a call for each x = 2 w, all of one shape; one backward.

    Gives the values, the gradients of all w, and the gradient of x itself without the function.
    """
    import torch

    leaves = [(x / 2).requires_grad_(True) for x in xs]
    doubled = [2 * w for w in leaves]
    ys = [
        student.fake_quantize(x, s, z, bits=bits, symmetric=symmetric)
        for x, s, z in zip(doubled, scales, zeros, strict=True)
    ]
    loss = sum((y * upstream).sum() for y, upstream in zip(ys, upstreams, strict=True))
    grads = torch.autograd.grad(loss, leaves, retain_graph=True)
    (alone,) = torch.autograd.grad((doubled[0] * upstreams[0]).sum(), [leaves[0]])
    return [y.detach() for y in ys], list(grads), alone


@exercise(
    "ex5",
    points=1,
    invariant="each of several calls before one backward keeps its own mask; x may be the result "
    "of other operations and be used elsewhere too",
    cause="the mask stored where the next call overwrites it, results found again by shape, or a "
    "hook left on x",
)
def test_several_calls(student, rng):
    xs, upstreams = torch.randn(2, 3, 40, generator=rng)
    scales = [torch.tensor(0.5), torch.tensor(0.0625), torch.tensor(0.125)]
    zeros = [torch.tensor(z, dtype=torch.int32) for z in (8, 1, 12)]
    parts = [list(xs), scales, zeros, 4, False, list(upstreams)]
    ys, grads, alone = student.drive(drive_batches, *parts)
    for x, y, grad, s, z, upstream in zip(xs, ys, grads, scales, zeros, upstreams, strict=True):
        expect_tensor(y, "fake_quantize(...)", torch.float32, (40,))
        expect_tensor(grad, "the gradient", torch.float32, (40,))
        expect_fake_values(y, x, s, z, 4, False)
        expect_straight_through(grad / 2, x, s, z, 4, False, upstream)
    expect_close(alone, 2 * upstreams[0], what="the gradient of 2 w alone", rtol=4 * U)


# ---- exercise 6 ------------------------------------------------------------------------------

NO_MODES = {"eval": [], "frozen": []}
LINEAR = ("Linear", "NoBias", "Own")


def drive_model(student, layers, ties, state, modes, x, calls):
    """Runs beside the student's code: builds a model, quantizes it for each (bits, granularity).

    Returns states of the model and of the last copy, requires_grad and training flags, the totals,
    what the copy makes of x, both states after 1 was added to the copy's tied weights, the state of
    the first copy after that, and of the model when all numbers of the copies are 0.
    """
    import torch
    from torch import nn

    class Own(nn.Linear):
        pass

    def build(kind, sizes):
        if kind in ("Parameter", "Buffer"):
            return (nn.Parameter if kind == "Parameter" else nn.Buffer)(torch.zeros(sizes))
        if kind == "NoBias":
            return nn.Linear(*sizes, bias=False)
        return Own(*sizes) if kind == "Own" else getattr(nn, kind)(*sizes)

    def look(module):
        return {
            "state": {name: value.detach().clone() for name, value in module.state_dict().items()},
            "training": {name: part.training for name, part in module.named_modules()},
            "requires_grad": {name: p.requires_grad for name, p in module.named_parameters()},
        }

    model = nn.Module()
    for name, kind, *sizes in layers:
        *path, last = name.split(".")
        owner = model
        for part in path:
            owner = owner._modules.setdefault(part, nn.Module())
        layer = model.get_submodule(sizes[0]) if kind == "same" else build(kind, sizes)
        if name:
            setattr(owner, last, layer)
        else:
            model = layer
    for name, other in ties:
        model.get_submodule(name).weight = model.get_submodule(other).weight
    model.load_state_dict(state)
    for name in modes["eval"]:
        model.get_submodule(name).eval()
    for name in modes["frozen"]:
        model.get_parameter(name).requires_grad_(False)
    totals, copies = [], []
    for bits, granularity in calls:
        answer = student.quantize_model(model, bits=bits, granularity=granularity)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            return None
        copied, total = answer
        if not isinstance(copied, nn.Module):
            return None
        totals.append(total)
        copies.append(copied)
    grad_mode = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    seen = {"model": look(model), "copy": look(copied), "totals": totals, "grad_mode": grad_mode}
    seen["output"] = None if x is None else copied(x).detach()
    with torch.no_grad():
        for name, _ in ties:
            copied.get_submodule(name).weight.add_(1)
        seen |= {"model later": look(model), "copy later": look(copied), "first": look(copies[0])}
        for number in [n for c in copies for part in (c.parameters(), c.buffers()) for n in part]:
            number.zero_()
    return seen | {"model at last": look(model)}


def drawn_state(layers, ties, rng):
    """Values of these layers by name; what is one parameter is one tensor here."""
    state = {}
    for name, kind, *sizes in layers:
        if kind == "same":
            old = sizes[0]
            state |= {name + k[len(old) :]: v for k, v in state.items() if k.startswith(old + ".")}
            continue
        if kind in ("Parameter", "Buffer"):
            state[name] = torch.randn(sizes, generator=rng)
            continue
        prefix = f"{name}." if name else ""
        shape = sizes if kind in ("Embedding", "LayerNorm") else [sizes[1], sizes[0], *sizes[2:]]
        state[f"{prefix}weight"] = torch.randn(shape, generator=rng)
        if kind not in ("NoBias", "Embedding"):
            state[f"{prefix}bias"] = torch.randn(shape[0], generator=rng)
    for name, other in ties:
        state[f"{name}.weight"] = state[f"{other}.weight"]
    return state


def names_to_quantize(layers, state):
    """Names of weights that go through a grid."""
    embedded = [state[f"{n}.weight"] for n, kind, *_ in layers if kind == "Embedding"]
    kinds = {n: kind for n, kind, *_ in layers}
    kinds |= {n: kinds[sizes[0]] for n, kind, *sizes in layers if kind == "same"}
    chosen = set()
    for name, kind in kinds.items():
        weight = state.get(f"{name}.weight" if name else "weight")
        if kind in LINEAR and name.split(".")[-1] != "lm_head":
            if not any(weight is table for table in embedded):
                chosen.add(id(weight))
    return {name for name, value in state.items() if id(value) in chosen}


def quantized_model(student, rng, layers, ties, *calls, modes=NO_MODES, x=None):
    """(what was sent, what drive_model saw). The model that came in must be as it was."""
    state = drawn_state(layers, ties, rng)
    seen = student.drive(drive_model, layers, ties, state, modes, x, calls)
    assert seen, "quantize_model must return a tuple (model, total bits)"
    expect_state(seen["model"]["state"], state, "the model that came in")
    expect_state(seen["model later"]["state"], state, "with a change of the copy, the model")
    expect_state(seen["model at last"]["state"], state, "with copies of zeros, the model")
    assert seen["grad_mode"] is True, "gradients are switched off after the call"
    return state, seen


def expect_state(state, expected, what):
    """Fails unless a model holds these values under these names."""
    more = sorted(set(state) ^ set(expected))
    assert not more, f"{what} has other parameters than were sent; the difference: {more}"
    moved = [name for name in expected if not torch.equal(state[name], expected[name])]
    assert not moved, f"{what} changed in {moved}"


def expect_weights(seen, state, layers, bits, granularity):
    """Of the copy: all weights to be quantized against float64, all else as it was sent."""
    chosen, copied = names_to_quantize(layers, state), seen["copy"]["state"]
    rest = {name: value for name, value in state.items() if name not in chosen}
    expect_state({n: v for n, v in copied.items() if n not in chosen}, rest, "besides, the copy")
    for name in sorted(chosen):
        assert name in copied, f"the copy has no {name}"
        expect_quantized(copied[name], state[name], bits, granularity, False, name)
    assert not any(torch.equal(copied[n], state[n]) for n in chosen), "a weight is as it was"


def expect_ties(seen, state, ties):
    """1 was added to the copy's weight of each tie: all names of it show it, and no other."""
    expected, after = dict(seen["copy"]["state"]), seen["copy later"]["state"]
    for name, _ in ties:
        nudged = [n for n in state if state[n] is state[f"{name}.weight"]]
        expected |= {n: expected[n] + 1 for n in nudged}
    expect_state(after, expected, "with 1 added to its tied weights, the copy")


def expect_total(seen, state, layers, *calls, buffers=()):
    """The total of each call, counted group by group."""
    chosen = names_to_quantize(layers, state)
    names = {id(value): name for name, value in state.items() if name not in buffers}
    names |= {id(state[name]): name for name in chosen}  # what is one parameter counts once
    rest = 16 * sum(state[name].numel() for name in names.values() if name not in chosen)
    expected = []
    for bits, granularity in calls:
        shapes = [state[name].shape for name in names.values() if name in chosen]
        sizes = [size_of(*shape, bits, granularity) for shape in shapes]
        expected.append(sum(sizes) + rest)
    kinds = {type(total).__name__ for total in seen["totals"]}
    assert kinds == {"int"}, f"totals of type {kinds}"
    assert seen["totals"] == expected, f"{calls}: totals {seen['totals']}, expected {expected}"


def size_of(n, k, bits, granularity):
    """Bits of a weight [n, k] on asymmetric grids."""
    size = {"tensor": n * k, "channel": k}.get(granularity, granularity)
    groups = 1 if granularity == "tensor" else n * len(range(0, k, size))
    return n * k * bits + groups * (16 + bits)


MIXED = (
    ("conv", "Conv1d", 4, 4, 3),
    ("norm", "LayerNorm", 10),
    ("mlp.up", "Linear", 10, 15),
    ("mlp.lm_head", "Linear", 15, 4),
    ("lm_head_norm", "Linear", 4, 9),
    ("gain", "Parameter", 7),
    ("mlp.shift", "Parameter", 3, 5),
    ("mixer.weight", "Parameter", 6, 4),  # of a module that is no nn.Linear
    ("table", "Buffer", 30),
)


def drive_changed(student, weights, bias, bits):
    """Runs beside the student's code: a model that is quantized, written into and quantized again.

    Its two layers share their bias. Returns the weights of the first layer in both copies, and the
    total.
    """
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(6, 4))
    model[1].bias = model[0].bias
    found = []
    for weight in weights:
        with torch.no_grad():
            model[0].weight.copy_(weight)
            model[0].bias.copy_(bias)
        copied, total = student.quantize_model(model, bits=bits, granularity="channel")
        found.append(copied[0].weight.detach().clone())
    return found, total


@exercise(
    "ex6",
    points=2,
    invariant="each quantized weight is the asymmetric round trip of exercise 3, at any bits and "
    "granularity; nothing else changes, in the copy or in the model",
    cause="a symmetric grid, a fixed granularity, the bits argument not passed on, biases or other "
    "parameters rounded too, or the model that came in changed",
)
def test_new_weights(student, rng):
    for bits, granularity in ((2, "tensor"), (8, "channel"), (1, 4)):
        state, seen = quantized_model(student, rng, MIXED, (), (bits, granularity))
        expect_weights(seen, state, MIXED, bits, granularity)
    weights, bias = torch.randn(2, 4, 6, generator=rng), torch.randn(4, generator=rng)
    weights = [*weights, 0 * weights[0]]  # which no grid moves
    found, total = student.drive(drive_changed, weights, bias, 3)
    for w_hat, w in zip(found, weights, strict=True):
        expect_quantized(w_hat, w, 3, "channel", False, "of a model that was written into")
    right = 2 * (24 * 3 + 4 * (16 + 3)) + 4 * 16
    assert total == right, f"two layers that share a bias: {total} bits, not {right}"


NAMES = (
    ("lm_head.inner", "Linear", 6, 5),  # only the last part of a name counts
    ("my_lm_head", "NoBias", 6, 4),
    ("lm_head2", "Own", 4, 6),
    ("deep.down.lm_head", "Linear", 6, 6),
    ("lm_head_2.lm_head", "Own", 6, 3),
    ("deep.LM_head", "Linear", 6, 4),  # another name
    ("copycat", "NoBias", 6, 13),  # the embedding's shape and values, and another parameter
    ("embed_tokens", "Embedding", 13, 6),
)


@exercise(
    "ex6",
    points=2,
    invariant="lm_head is the last part of a name and not a part of a word; any nn.Linear counts, "
    "a subclass or the model itself too; tied means the same parameter",
    cause="'lm_head' in name or name.endswith('lm_head'), type(layer) == nn.Linear, ties by shape "
    "or by equal values, or only children looked at",
)
def test_names_and_kinds(student, rng):
    for bits, granularity in ((3, "channel"), (2, 4)):
        state = drawn_state(NAMES, (), rng)
        state["copycat.weight"] = state["embed_tokens.weight"].clone()
        parts = [NAMES, (), state, NO_MODES, None, [(bits, granularity)]]
        seen = student.drive(drive_model, *parts)
        assert seen, "quantize_model must return a tuple (model, total bits)"
        expect_state(seen["model"]["state"], state, "the model that came in")
        expect_weights(seen, state, NAMES, bits, granularity)
    for root in ((("", "Linear", 8, 5),), (("", "Own", 8, 5),)):
        x = torch.randn(3, 8, generator=rng)
        state, seen = quantized_model(student, rng, root, (), (4, "channel"), x=x)
        expect_weights(seen, state, root, 4, "channel")
        weight, bias = seen["copy"]["state"]["weight"].double(), state["bias"].double()
        output = expect_tensor(seen["output"], "output of the copy", torch.float32, (3, 5))
        off = (output - (x.double() @ weight.T + bias)).abs()
        # 8 products and 8 additions
        bound = 10 * U * (x.double().abs() @ weight.abs().T + bias.abs())
        expect_at_most(off, bound, "output of the copy: distance from x w_hat^T + b")


TIED = (
    ("proj", "Linear", 6, 6),
    ("head", "NoBias", 6, 13),
    ("embed_tokens", "Embedding", 13, 6),  # after the layer that shares its weight
    ("places", "Embedding", 9, 6),
    ("out.output", "Linear", 6, 9),  # tied under another name, to the second embedding
)


@exercise(
    "ex6",
    points=1,
    invariant="an output layer tied to any embedding stays in float and stays tied, whatever its "
    "name and wherever the embedding stands",
    cause="only the name lm_head is skipped, so the embedding is rounded too; only the first "
    "embedding is looked at, or only those that come before the layer; or the tie is cut",
)
def test_tied_output_layer(student, rng):
    ties = (("head", "embed_tokens"), ("out.output", "places"))
    state, seen = quantized_model(student, rng, TIED, ties, (2, "channel"))
    expect_weights(seen, state, TIED, 2, "channel")
    expect_ties(seen, state, ties)
    expect_total(seen, state, TIED, (2, "channel"))


SHARED = (
    ("first", "NoBias", 6, 6),
    ("second", "same", "first"),
    ("third", "Linear", 6, 6),
    ("last", "Linear", 6, 3),
    ("wide", "NoBias", 1100, 2),
)


@exercise(
    "ex6",
    points=1,
    invariant="one layer under two names, or one weight in two layers, is quantized and counted "
    "once, and stays one",
    cause="a sum over names instead of over parameters, or a new nn.Parameter in each layer",
)
def test_shared_layer(student, rng):
    ties = (("third", "first"),)
    for bits, granularity in ((3, "channel"), (2, "tensor"), (8, 450)):
        state, seen = quantized_model(student, rng, SHARED, ties, (bits, granularity))
        expect_weights(seen, state, SHARED, bits, granularity)
        expect_ties(seen, state, ties)
        expect_total(seen, state, SHARED, (bits, granularity))


@exercise(
    "ex6",
    points=2,
    invariant="16 bits for each parameter that is not quantized, frozen or not, nothing for "
    "buffers, the same in every call; modes stay as they were",
    cause="biases, norms, convolutions, frozen or bare parameters or a nested lm_head missed, "
    "buffers counted, a bill that goes on from the last call; or requires_grad or training lost",
)
def test_total_counts_everything(student, rng):
    frozen = ["conv.weight", "mlp.up.weight", "mlp.lm_head.bias", "gain"]
    modes = {"eval": ["mlp.up", "norm"], "frozen": frozen}
    for calls in ([(8, "tensor"), (4, "channel")], [(5, 7), (2, "tensor")], [(3, 100), (5, 7)]):
        state, seen = quantized_model(student, rng, MIXED, (), *calls, modes=modes)
        expect_total(seen, state, MIXED, *calls, buffers=("table",))
        expect_weights({"copy": seen["first"]}, state, MIXED, *calls[0])
        assert not torch.equal(seen["copy"]["state"]["mlp.up.weight"], state["mlp.up.weight"])
        for who in ("model", "copy"):
            off = {name for name, on in seen[who]["training"].items() if not on}
            assert off == {"mlp.up", "norm"}, f"{who}: in eval mode are {sorted(off)}"
            off = {name for name, on in seen[who]["requires_grad"].items() if not on}
            assert off == set(frozen), f"{who}: without requires_grad are {sorted(off)}"


CONFIG = {
    "vocab_size": 20,
    "hidden_size": 24,
    "intermediate_size": 30,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}


def drive_llama(student, config, state, ids, bits, granularity):
    """Runs beside the student's code: a small Llama's quantized state, logits and total."""
    import torch

    from efflib.models.llama import Llama, LlamaConfig

    model = Llama(LlamaConfig(**config))
    model.load_state_dict(state)
    quantized, total = student.quantize_model(model, bits=bits, granularity=granularity)
    with torch.no_grad():
        logits = quantized(ids)
    after = [{n: p.detach() for n, p in m.state_dict().items()} for m in (model, quantized)]
    return *after, total, logits


@exercise(
    "ex6",
    points=1,
    invariant="a small Llama, with an output layer of its own or tied: every projection quantized, "
    "the size counted, and the copy computes with the new weights",
    cause="something that only works on the models of the public tests",
)
def test_llama(student, rng):
    ids = torch.randint(0, 20, (2, 6), generator=rng)
    for tied, bits in ((False, 8), (True, 3)):
        config = CONFIG | {"tie_word_embeddings": tied}
        reference = Llama(LlamaConfig(**config))
        shapes = {name: value.shape for name, value in reference.state_dict().items()}
        state = {n: 0.3 * torch.randn(s, generator=rng) for n, s in shapes.items()}
        if tied:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        sent = [config, state, ids, bits, 16]
        model, copied, total, logits = student.drive(drive_llama, *sent)
        expect_state(model, state, "the model that came in")
        chosen = [n for n in state if "_proj" in n]
        expected = 0
        for name, values in state.items():
            n, k = values.shape if values.ndim == 2 else (1, values.numel())
            if name in chosen:
                expect_quantized(copied[name], values, bits, 16, False, name)
                expected += n * k * bits + n * math.ceil(k / 16) * (16 + bits)
            else:
                expect_same(copied[name], values, name)
                expected += 0 if tied and name == "lm_head.weight" else 16 * n * k
        assert type(total) is int and total == expected, (
            f"{many(bits, 'bit')}: {total}, not {expected}"
        )
        reference.load_state_dict(copied, assign=True)
        right = reference.double()(ids).detach()
        # float32 against float64 with the same weights; the next grid is 1e-2 away
        expect_close(logits, right, what="logits", atol=1e-4 * right.abs().max().item())
