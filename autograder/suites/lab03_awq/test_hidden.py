"""Hidden tests of lab03: brute force in float64, and the inputs that break real code.

Inputs are drawn anew for each submission.  Where a code decides, inputs keep clear of rounding
ties, so that w / scale and w * (1 / scale) give the same code.
"""

import itertools
import math

import pytest
import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_number,
    expect_same,
    expect_tensor,
    expect_tuple,
)
from efflib.lab.again import held, refused

FLOAT32 = 2.0**-24  # relative error of one float32 rounding
HALF_STEP = 0.5 + 2**8 * 8 * FLOAT32  # a value of at most 2^8 steps, rounded a few times
BFLOAT16 = 2.0**-8  # of one rounding to bfloat16
CLEAR = 1e-4  # distance from a tie, in steps, at which no float32 formula changes a code
RATIOS, FLOOR = [i / 20 for i in range(20)], 1e-4


def whole(rng, low, high):
    """A number from low to high, both included."""
    return int(torch.randint(low, high + 1, (), generator=rng))


def one_of(rng, options):
    return options[whole(rng, 0, len(options) - 1)]


def power(rng, limit):
    """2^e, where e is drawn from -limit to limit."""
    return 2.0 ** whole(rng, -limit, limit)


def spread(rng, options, count):
    """`count` of the options, each as often as the others to within one, in an order drawn."""
    order = []
    while len(order) < count:
        order += [options[i] for i in torch.randperm(len(options), generator=rng).tolist()]
    return order[:count]


def cases_in_pairs(rng, limit):
    """12 cases (n, groups, group_size, lead, dtype, size), each of two in a row of one shape.

    lead: dimensions in front of the last, each number of them in each dtype; size: a power of 2, up
    to 2^limit and down to 2^-limit in each pair.  All else is spread over what it can be: one pair
    has many rows, one many groups, one many tokens.
    """
    kinds = list(itertools.product((1, 2, 3), (torch.float32, torch.bfloat16)))
    rows = spread(rng, ((1, 1), (1, 4), (3, 1), (9, 4), (130, 2), (2, 130)), 6)
    sizes, cases = spread(rng, (1, 2, 3, 5, 9, 40), 6), []
    for (dims, dtype), shape, group_size in zip(spread(rng, kinds, 6), rows, sizes, strict=True):
        lead, large = [whole(rng, 2, 4) for _ in range(dims)], whole(rng, 0, 1)
        lead = [1] if lead == [2] else lead
        lead = [1100, *[1] * (dims - 1)] if shape == (1, 4) else lead
        group_size = max(group_size, 5) if 130 in shape else group_size
        for sign in (large, 1 - large):
            size = 2.0 ** ((2 * sign - 1) * whole(rng, limit // 2, limit))
            cases.append((*shape, group_size, lead, dtype, size))
    return cases


def expect_each(checks, found):
    """Both results of each call pass the check (function, *args) of that call."""
    for (check, *args), results in zip(checks, found, strict=True):
        for result in results:
            check(result, *args)


def drive_same(student, calls, others):
    """Runs beside the student's code: what calls (name, *args) give; what they give once more, of
    the very same tensors, when others wrote into the results; and when the tensors hold the values
    of the other calls."""
    import torch

    def copied(x):
        if isinstance(x, dict):
            return {key: copied(part) for key, part in x.items()}
        if isinstance(x, list | tuple):
            return type(x)(map(copied, x))
        return x.detach().clone() if isinstance(x, torch.Tensor) else x

    def tensors(x):
        if isinstance(x, dict):
            x = list(x.values())
        if isinstance(x, list | tuple):
            return [tensor for part in x for tensor in tensors(part)]
        return [x] if isinstance(x, torch.Tensor) else []

    def memory(x):
        return x.untyped_storage().data_ptr()

    def all_of():
        return [getattr(student, name)(*args) for name, *args in given]

    given = copied(calls)
    results = all_of()
    rounds, mine = [copied(results)], set(map(memory, tensors(given)))
    for x in tensors(results):
        if memory(x) not in mine and 0 not in x.stride():
            x.detach().zero_()
    rounds.append(copied(all_of()))
    for x, other in zip(tensors(given), tensors(others), strict=True):
        x.copy_(other)
    return [*rounds, copied(all_of())]


def expect_same_tensors(student, rng, pairs, expect):
    """Two calls of one form each: the first twice, then with one of its tensors (or dicts of them)
    refilled by that of the second.  expect(result, name, *args)."""
    calls, others = [first for first, _ in pairs], []
    for first, second in pairs:
        places = [i for i, x in enumerate(first) if isinstance(x, torch.Tensor | dict)]
        place = one_of(rng, places)
        others.append((*first[:place], second[place], *first[place + 1 :]))
    rounds = student.drive(drive_same, calls, others)
    for results, asked in zip(rounds, (calls, calls, others), strict=True):
        for result, call in zip(results, asked, strict=True):
            expect(result, *call)


def drive_refused_views(student, calls):
    """Runs beside the student's code: what calls (name, *args) raise where tensors are views."""
    import torch

    def lay(x):
        if not isinstance(x, torch.Tensor) or not x.dim():
            return x
        made = x.repeat_interleave(2, -1)[..., ::2]
        return made if not made.is_contiguous() else x.clone()  # see drive_laid

    said = []
    for name, *args in calls:
        try:
            getattr(student, name)(*map(lay, args))
            said.append("nothing")
        except Exception as error:
            said.append("ValueError" if isinstance(error, ValueError) else type(error).__name__)
    return said


def refused_in_any_layout(student, calls):
    """As refused(), and of views as well."""
    refused(student, calls)
    for (name, *args), kind in zip(calls, student.drive(drive_refused_views, calls), strict=True):
        what = f"{name} of views, shape {list(args[0].shape)}"
        assert kind == "ValueError", f"{what}: {kind} was raised, not ValueError"


def expect_near(observed, expected, rtol, what):
    """As expect_close, and in float32."""
    expect_tensor(observed, what, torch.float32)
    expect_close(observed, expected, what=what, rtol=rtol)


def off_tie(exact):
    return (exact - exact.floor() - 0.5).abs() > CLEAR


def true_groups(w, bits, group_size):
    """(codes [N, K], scale, zero [N, K/G], clear [N, K] of ties) in float64."""
    groups = w.double().reshape(w.shape[0], -1, group_size)
    lo, hi = groups.amin(-1, keepdim=True).clamp(max=0), groups.amax(-1, keepdim=True).clamp(min=0)
    scale = (hi - lo) / (2**bits - 1)
    scale = torch.where(scale > 0, scale, 1.0)
    zero = (-lo / scale).round()
    codes = ((groups / scale).round() + zero).clamp(0, 2**bits - 1)
    clear = off_tie(groups / scale) & off_tie(-lo / scale)
    return codes.reshape(w.shape), scale[..., 0], zero[..., 0], clear.reshape(w.shape)


def true_values(codes, scale, zero):
    """The weight [N, K] in float64."""
    groups = codes.double().reshape(*scale.shape, -1)
    return ((groups - zero.double()[..., None]) * scale.double()[..., None]).reshape(codes.shape)


def expect_values(value, codes, scale, zero):
    """As true_values, with the roundings of two products and of their difference: an error of 2
    roundings of (code + zero) scale, or of less where the difference is taken first."""
    expect_tensor(value, "dequantize_groups(...)", torch.float32, codes.shape)
    off = (value.double() - true_values(codes, scale, zero)).abs()
    expect_at_most(off, 3 * FLOAT32 * true_values(codes, scale, -zero), "the error of a value")


def true_rtn(w, bits, group_size):
    """(w_hat [N, K] in float64, clear [N, K])."""
    codes, scale, zero, clear = true_groups(w, bits, group_size)
    return true_values(codes, scale, zero), clear


def expect_rounded(w_hat, w, bits, group_size, what, kept=()):
    """Compare with the float64 brute force of w, away from ties; columns `kept` exactly."""
    expected, clear = true_rtn(w, bits, group_size)
    bound = 16 * FLOAT32 * w.double().abs().reshape(w.shape[0], -1, group_size).amax(-1)
    bound = bound.repeat_interleave(group_size, dim=1)
    rounded = torch.ones(w.shape[1], dtype=torch.bool)
    rounded[list(kept)] = False
    wrong = ~((w_hat.double() - expected).abs() <= bound) & clear & rounded  # NaN is wrong, too
    assert not wrong.any(), (
        f"{what}, {bits} bits, G = {group_size}: {int(wrong.sum())} of {wrong.numel()} differ"
    )
    assert clear.double().mean() > 0.5, "the test drew too many ties"
    columns = list(kept)
    assert torch.equal(w_hat[:, columns], w[:, columns].float()), "kept columns have changed"


# ---- exercise 1 ------------------------------------------------------------------------------


def encode(student, w, bits, group_size):
    value = student.quantize_groups(w, bits=bits, group_size=group_size)
    codes, scale, zero = expect_tuple(value, (torch.Tensor,) * 3, "quantize_groups")
    groups = (w.shape[0], w.shape[1] // group_size)
    expect_tensor(codes, "codes", torch.uint8, w.shape)
    expect_tensor(scale, "scale", torch.float32, groups)
    expect_tensor(zero, "zero", torch.int32, groups)
    return codes, scale, zero


def round_trip(student, w, bits, group_size):
    value = student.dequantize_groups(*encode(student, w, bits, group_size))
    return expect_tensor(value, "dequantize_groups(...)", torch.float32, w.shape)


@exercise(
    "ex1",
    points=1,
    invariant="scale, zero point and codes of every group are those of its own range",
    cause="groups across rows or strided, or a formula that is right for one width only",
)
def test_every_group_against_float64(student, rng):
    for bits, group_size in ((1, 4), (2, 24), (3, 8), (4, 3), (5, 12), (7, 6), (8, 8)):
        w = torch.randn(7, 24, generator=rng) * torch.logspace(-1, 1, 24) + 0.2
        expected, scale_64, zero_64, clear = true_groups(w, bits, group_size)
        codes, scale, zero = encode(student, w, bits, group_size)
        expect_close(scale, scale_64, what=f"scales at {bits} bits", rtol=8 * FLOAT32)
        group_clear = clear.reshape(*zero.shape, -1).any(-1)
        assert torch.equal(zero.double()[group_clear], zero_64[group_clear]), "zero points differ"
        wrong = (codes.double() != expected) & clear
        assert not wrong.any(), f"{bits} bits, G = {group_size}: {int(wrong.sum())} codes differ"
        expect_rounded(round_trip(student, w, bits, group_size), w, bits, group_size, "w")


@exercise(
    "ex1",
    points=1,
    invariant="groups on one side of 0 contain 0; groups 2^k times as large have the same codes",
    cause="lo and hi used as they are (z is clamped, and 5..6 comes back as 1), or a large floor",
)
def test_one_sided_and_small_groups(student, rng):
    u = torch.rand(3, 8, generator=rng)
    w = torch.stack([5 + u[0], -7 + 2 * u[1], torch.zeros(8), u[2] - 0.4])
    plain = round_trip(student, w, 4, 8)
    step = torch.tensor([6 / 15, 7 / 15, 1.0, 1.0])[:, None]
    error = ((plain - w).abs() / step).max()
    expect_at_most(error, HALF_STEP, "the largest error, in steps of a range that contains 0,")
    assert (plain[2] == 0).all(), "a group of zeros has changed"
    for bits in (2, 4, 8):
        codes, scale, zero = encode(student, w, bits, 8)
        for power in (-60, 30, 118):  # scales up to 8e35; at 8 bits 255 w would overflow
            again = encode(student, w * 2.0**power, bits, 8)
            alive = torch.tensor([0, 1, 3])
            assert torch.equal(again[0][alive], codes[alive]), f"codes of w times 2^{power} differ"
            expect_close(
                again[1][alive], scale[alive] * 2.0**power, what="their scales", rtol=8 * FLOAT32
            )


@exercise(
    "ex1",
    points=0.5,
    invariant="any code q of a group with scale D and zero point z stands for D (q - z)",
    cause="codes - zero in uint8, int8 for codes above 127, or the group size taken as fixed",
)
def test_values_of_any_codes(student, rng):
    for n_groups, size, step in ((1, 6, 1.0), (3, 5, 1e-8), (4, 1, 1e4)):
        codes = torch.randint(0, 256, (5, n_groups * size), generator=rng).to(torch.uint8)
        codes[0, 0] = 255
        scale = (torch.rand(5, n_groups, generator=rng) + 1) * step
        zero = torch.randint(0, 256, (5, n_groups), generator=rng, dtype=torch.int32)
        expect_values(student.dequantize_groups(codes, scale, zero), codes, scale, zero)


def drive_transposed(student, w, bits, group_size):
    """Runs beside the student's code: a weight that is not contiguous."""
    codes, scale, zero = student.quantize_groups(w.T, bits=bits, group_size=group_size)
    return student.dequantize_groups(codes, scale, zero)


@exercise(
    "ex1",
    points=1,
    invariant="transposed and bfloat16 weights are rounded like others",
    cause="view on a transposed weight, or arithmetic in bfloat16",
)
def test_transposed_and_bfloat16(student, rng):
    w = torch.randn(16, 6, generator=rng)
    w_hat = student.drive(drive_transposed, w, 4, 8)
    expect_tensor(w_hat, "dequantize_groups(...)", torch.float32, (6, 16))
    expect_rounded(w_hat, w.T.contiguous(), 4, 8, "a transposed weight")
    half = torch.randn(9, 32, generator=rng).bfloat16()
    expect_rounded(round_trip(student, half, 6, 16), half.float(), 6, 16, "a bfloat16 weight")


@exercise(
    "ex1",
    points=0.5,
    invariant="G = 1 and G = K work; what does not divide K raises ValueError",
    cause="the last group cut off or filled up, or a RuntimeError of reshape",
)
def test_group_sizes(student, rng):
    w = torch.randn(4, 12, generator=rng)
    for group_size in (1, 12):
        expect_rounded(round_trip(student, w + 3, 3, group_size), w + 3, 3, group_size, "w")
    for group_size in (5, 7, 24, 0, -4):
        with pytest.raises(ValueError):
            student.quantize_groups(w, bits=4, group_size=group_size)


@exercise(
    "ex1",
    points=1,
    invariant="mean |X_j| over all tokens in float32, for 2 to 4 dimensions and bfloat16",
    cause="a mean over the first dimension only, sums in bfloat16, or abs after the mean",
)
def test_scores_against_float64(student, rng):
    for shape, size in (((1, 9), 1e-8), ((5, 9), 1.0), ((3, 4, 9), 1e4), ((2, 3, 2, 9), 1.0)):
        x = size * (torch.randn(shape, generator=rng) - 0.3)
        score = expect_tensor(student.mean_magnitude(x), "mean_magnitude(x)", torch.float32, (9,))
        expected = x.double().abs().reshape(-1, 9).mean(0)
        expect_close(score, expected, what=f"scores of {list(shape)}", rtol=64 * FLOAT32)
        again = expect_tensor(student.mean_magnitude(2 * x), "mean_magnitude(2 x)", torch.float32)
        expect_close(again, 2 * expected, what="scores of 2 x", rtol=64 * FLOAT32)
    x = torch.tensor([[[0.0, 0.0], [2.0, -6.0]], [[0.0, 0.0], [0.0, 0.0]]])
    score = student.mean_magnitude(x)  # a token of zeros is one of them
    expect_near(score, torch.tensor([0.5, 1.5]), 8 * FLOAT32, "scores of 1 token and 3 of zeros")
    x = (torch.rand(3000, 4, generator=rng) + 1).bfloat16()
    score = expect_tensor(student.mean_magnitude(x), "mean_magnitude(x)", torch.float32, (4,))
    expect_close(score, x.double().mean(0), what="scores in bfloat16", rtol=3000 * FLOAT32)


@exercise(
    "ex1",
    points=1,
    invariant="max(1, round(fraction K)) different channels, none with a smaller score left in",
    cause="int() or ceil() for round, |score| for score, or a threshold in place of a rank: "
    "scores that are equal to the last chosen one push out a larger one",
)
def test_ranks(student, rng):
    score = torch.randn(40, generator=rng)
    for size in (1e-8, 1e4):
        found = student.top_channels(size * score, 0.1).tolist()
        best = sorted(score.topk(4).indices.tolist())
        assert sorted(found) == best, f"scores of size {size:g}: {sorted(found)}, not {best}"
    for fraction, count in ((0.03, 1), (0.05, 2), (0.09, 4), (0.52, 21), (0.99, 40), (0.001, 1)):
        channels = expect_tensor(student.top_channels(score, fraction), "top_channels", torch.int64)
        assert channels.shape == (count,), f"fraction {fraction} of 40: {len(channels)} channels"
        assert len(set(channels.tolist())) == count, "a channel was chosen twice"
        left = torch.ones(40, dtype=torch.bool)
        left[channels] = False
        if left.any():
            assert score[channels].min() >= score[left].max(), "a larger score was left out"
    first, last = torch.arange(40.0), torch.arange(40.0).flip(0)  # one after the other
    found = [sorted(student.top_channels(score, 0.05).tolist()) for score in (first, last)]
    assert found == [[38, 39], [0, 1]], "another score of the same length: the same channels"
    assert student.top_channels(torch.tensor([-3.0]), 1.0).tolist() == [0], "K = 1"
    equal = student.top_channels(torch.tensor([2.0, 1.0]).repeat(10), 0.25).tolist()
    assert len(set(equal)) == len(equal) == 5 and not any(j % 2 for j in equal), "equal scores"
    for place in range(5):  # the largest score comes before and behind the equal ones
        found = student.top_channels(2.0 + torch.eye(5)[place], 0.4).tolist()
        assert len(set(found)) == 2 and place in found, f"of 2, .. 3 at {place} .. 2: {found}"
    for fraction in (-0.1, 0.0, 1.001, math.nan):
        with pytest.raises(ValueError):
            student.top_channels(score, fraction)


def keep(student, w, channels, bits, group_size):
    w_hat = student.keep_channels(w, channels, bits=bits, group_size=group_size)
    return expect_tensor(w_hat, "keep_channels(...)", torch.float32, w.shape)


@exercise(
    "ex1",
    points=1,
    invariant="kept columns exactly; the others rounded in groups that still hold the kept ones",
    cause="kept columns set to 0 (or taken out) before the rounding, or rows kept",
)
def test_kept_against_float64(student, rng):
    for bits, group_size, shape in ((4, 8, (5, 24)), (3, 4, (24, 24)), (2, 12, (9, 12))):
        w = torch.randn(shape, generator=rng)
        channels = torch.randperm(shape[1], generator=rng)[:3]
        w[:, channels] *= 30
        for size in (1.0, 1e-8, 1e4):
            w_hat = keep(student, size * w, channels, bits, group_size)
            what = f"a weight of size {size:g}"
            expect_rounded(w_hat, size * w, bits, group_size, what, kept=channels.tolist())


@exercise(
    "ex1",
    points=1,
    invariant="no channel, all channels and bfloat16 weights work",
    cause="a result in bfloat16, an empty index that fails, or channel 0 taken for none",
)
def test_none_all_and_bfloat16(student, rng):
    w = torch.randn(6, 8, generator=rng)
    none = torch.zeros(0, dtype=torch.int64)
    expect_rounded(keep(student, w, none, 3, 4), w, 3, 4, "no channel kept")
    everything = torch.randperm(8, generator=rng)
    assert torch.equal(keep(student, w, everything, 3, 4), w), "all channels kept, and w differs"
    half, one = w.bfloat16(), torch.tensor([5])
    expect_rounded(keep(student, half, one, 4, 8), half.float(), 4, 8, "bfloat16", kept=[5])
    of_one_shape = ((w, [1, 6]), (w.flip(0), [1, 6]), (w, [2, 3]))
    for case, kept in (*of_one_shape, (w, [0]), (w, [7])):
        w_hat = keep(student, case, torch.tensor(kept), 2, 4)
        expect_rounded(w_hat, case, 2, 4, "another weight of that shape", kept=kept)


def drawn_weight(rng, n, k, group_size):
    """[n, k]: each group of another size; of both signs or of one, of zeros, ties or equals."""
    groups = torch.randn(n, k // group_size, group_size, generator=rng)
    kind = torch.randint(0, 6, (n, k // group_size, 1), generator=rng)
    groups = torch.where(kind == 1, groups.abs() + 3, groups)
    groups = torch.where(kind == 2, -groups.abs(), groups)
    groups = torch.where(kind == 3, 0.0, groups)
    groups = torch.where(kind == 4, (4 * groups).round(), groups)
    groups = torch.where(kind == 5, groups[..., :1], groups)
    exponents = torch.randint(-100, 101, kind.shape, generator=rng)
    exponents[0, 0] = one_of(rng, (-100, 100))
    groups[0, 0] += 1.0  # not zero
    return (groups * 2.0**exponents).reshape(n, k)


def expect_grid(w_hat, w, bits, group_size, what, kept=()):
    """As expect_rounded; at ties either neighbour will do."""
    expect_tensor(w_hat, what, torch.float32, w.shape)
    expected, clear = true_rtn(w, bits, group_size)
    groups = w.double().reshape(w.shape[0], -1, group_size)
    step = groups.amax(-1).clamp(min=0) - groups.amin(-1).clamp(max=0)
    step = (step / (2**bits - 1)).repeat_interleave(group_size, dim=1)
    size = groups.abs().amax(-1).repeat_interleave(group_size, dim=1)
    good = (w_hat.double() - expected).abs() <= 16 * FLOAT32 * size
    good |= ~clear & ((w_hat.double() - w.double()).abs() <= HALF_STEP * step)
    kept = torch.as_tensor(kept, dtype=torch.int64)
    good[:, kept] = w_hat[:, kept] == w[:, kept].float()
    assert good.all(), f"{what}, {bits} bits, G = {group_size}: {int((~good).sum())} values differ"


def expect_codes(parts, w, bits, group_size, what):
    codes, scale, zero = expect_tuple(parts, (torch.Tensor,) * 3, "quantize_groups")
    expected, scale_64, zero_64, clear = true_groups(w, bits, group_size)
    expect_tensor(codes, f"{what}: codes", torch.uint8, w.shape)
    expect_tensor(scale, f"{what}: scale", torch.float32, scale_64.shape)
    expect_tensor(zero, f"{what}: zero", torch.int32, scale_64.shape)
    alive = (w != 0).reshape(*scale.shape, -1).any(-1)
    dead = scale[~alive]
    assert ((dead > 0) & dead.isfinite()).all(), f"{what}: scales {dead.tolist()} of zeros"
    name = f"{what}: scales at {bits} bits"
    expect_close(scale[alive], scale_64[alive], what=name, rtol=8 * FLOAT32)
    sure = clear.reshape(*scale.shape, -1).any(-1)
    assert (zero.double() == zero_64)[sure].all(), f"{what}: zero points differ"
    assert (codes.double() == expected)[clear].all(), f"{what}, {bits} bits: codes differ"
    expect_grid(true_values(codes, scale, zero).float(), w, bits, group_size, what)


def expect_top(found, score, count, what):
    expect_tensor(found, what, torch.int64, (count,))
    assert 0 <= found.min() and found.max() < len(score), f"{what}: channels {found.tolist()}"
    left = torch.ones(len(score), dtype=torch.bool)
    left[found] = False
    assert int(left.sum()) == len(score) - count, f"{what}: a channel was chosen twice"
    if left.any():
        assert score[found].min() >= score[left].max(), f"{what}: a larger score was left out"


def drawn_scores(rng, k, count, size, kind):
    """(score [K], fraction): `count` channels, and no fraction near a tie of round()."""
    ranks, normal = torch.rand(k, generator=rng).argsort(), torch.randn(k, generator=rng)
    equal = torch.randint(0, 3, (k,), generator=rng).float()
    score = (normal, equal, 1 + ranks * 2.0**-23, -1 - ranks * 2.0**-23)[kind]
    share = (count + 0.8 * torch.rand((), generator=rng).item() - 0.4) / k
    return score * size, min(max(share, 1e-9), 1.0)


def drawn_x(rng, lead, k, size, dtype):
    """x [*lead, k]: some entries are 0, in half of the draws a whole channel."""
    x = size * torch.randn(*lead, k, generator=rng)
    x = torch.where(torch.rand(x.shape, generator=rng) < 0.3, 0.0, x)
    if whole(rng, 0, 1):
        x[..., whole(rng, 0, k - 1)] = 0.0
    return x.to(dtype)


def expect_means(score, x):
    rtol = (x.numel() // x.shape[-1] + 8) * FLOAT32
    what = f"means of x {list(x.shape)} in {x.dtype}"
    expect_near(score, x.double().abs().flatten(0, -2).mean(0), rtol, what)


def expect_of_groups(result, name, *args):
    """What a function of exercise 1 gave for args."""
    what = f"{name} of {list(args[0].shape)} in {args[0].dtype}"
    if name == "quantize_groups":
        expect_codes(result, *args, what)
    elif name == "dequantize_groups":
        expect_values(result, *args)
    elif name == "mean_magnitude":
        expect_means(result, *args)
    elif name == "top_channels":
        count = max(1, round(args[1] * len(args[0])))
        expect_top(result, args[0], count, f"fraction {args[1]:g} of {len(args[0])}")
    else:
        w, columns, bits, group_size = args
        expect_grid(result, w, bits, group_size, what, columns)


def calls_of_groups(rng, n, groups, group_size, bits, dtypes, lead, size, share):
    """A call of each function of exercise 1 but top_channels; `share` of the columns is kept."""
    k, (of_w, of_x) = groups * group_size, dtypes
    codes = torch.randint(0, 256, (n, k), generator=rng).to(torch.uint8)
    zero = torch.randint(0, 256, (n, groups), generator=rng, dtype=torch.int32)
    scale = (torch.rand(n, groups, generator=rng) + 1) * size
    w = drawn_weight(rng, n, k, group_size).to(of_w)
    columns = torch.randperm(k, generator=rng)[: math.ceil(share * k)]
    return [
        ("quantize_groups", w, bits, group_size),
        ("keep_channels", w, columns, bits, group_size),
        ("dequantize_groups", codes, scale, zero),
        ("mean_magnitude", drawn_x(rng, lead, k, size, of_x)),
    ]


def corners_of_groups(rng):
    """Small calls in which every two of: width, group size, dtype, magnitude, one row or group, how
    many are kept, which fraction and which scores, come together."""
    types, calls = (torch.float32, torch.bfloat16), []
    forms = list(itertools.product(types, (1, 8), (1, 24), (2.0**-90, 2.0**90)))
    kept = spread(rng, (0, 1, 9, 24), len(forms))
    for i, (dtype, bits, group_size, size) in enumerate(forms):
        for n, groups in ((1, whole(rng, 1, 2)), (whole(rng, 2, 3), 24 // group_size)):
            w = (size * torch.randn(n, groups * group_size, generator=rng)).to(dtype)
            columns = torch.randperm(w.shape[1], generator=rng)[: kept[i]]
            calls.append(("quantize_groups", w, bits, group_size))
            calls.append(("keep_channels", w, columns, bits, group_size))
    for share, kind, k in itertools.product((1.0, 0.001), range(4), (1, 12)):
        for size in (2.0**-90, 2.0**90):
            calls.append(("top_channels", drawn_scores(rng, k, 1, size, kind)[0], share))
    for dims, dtype in itertools.product((1, 2, 3), types):
        calls.append(("mean_magnitude", drawn_x(rng, [1] * dims, 1, 1.0, dtype)))
    return calls


def refused_groups(rng):
    """Calls of exercise 1 that are a ValueError, each with a weight or scores of another kind."""
    calls, types = [], (torch.float32, torch.bfloat16)
    sizes = (2.0**-90, 1.0, 2.0**90)
    bits, kinds = spread(rng, (1, 4, 8), 42), spread(rng, range(4), 48)
    for i, (g, dtype) in enumerate(itertools.product((5, 8, 24, 0, -1, -12, 36), types)):
        for j, size in enumerate(sizes):
            w = (size * torch.randn((1, 4)[(i + j) % 2], 12, generator=rng)).to(dtype)
            calls.append(("quantize_groups", w, bits[3 * i + j], g))
    calls += [("quantize_groups", torch.ones(1, 1), 4, g) for g in (0, -1, 2)]
    wrong = (-0.0, 0.0, 1 + 1e-9, 1.001, -1e-9, -0.1, 2, math.nan)
    for i, (fraction, k, size) in enumerate(itertools.product(wrong, (1, 12), sizes)):
        calls.append(("top_channels", drawn_scores(rng, k, 1, size, kinds[i])[0], fraction))
    return [*calls, ("top_channels", torch.ones(12), math.inf)]


@exercise(
    "ex1",
    points=1,
    invariant="all five functions, anywhere in what the card admits: every width, group size, "
    "dtype, size and sign, in views, and results stay when others are asked for",
    cause="a corner where two others meet, such as bfloat16 in a view; or memory used again",
)
def test_anywhere_in_groups(student, rng):
    calls, pairs = [], []
    widths, kept = spread(rng, (*range(1, 9), 8, 7, 6, 5), 12), spread(rng, (0, 1, 0.5, 0.5, 1), 12)
    k_scores = spread(rng, (1, 2, 7, 40, 41, 300, 1100), 6)
    shares, kinds = spread(rng, (0.0, 0.3, 0.6, 1.0), 12), spread(rng, range(4), 12)
    for i, (n, groups, group_size, lead, dtype, size) in enumerate(cases_in_pairs(rng, 90)):
        dtypes = (one_of(rng, (torch.float32, torch.bfloat16)), dtype)
        form = (n, groups, group_size, widths[i], dtypes, lead, size)
        made = calls_of_groups(rng, *form, kept[i])
        count = round(shares[i] * k_scores[i // 2])
        score, share = drawn_scores(rng, k_scores[i // 2], count, size, kinds[i])
        calls += [*made, ("top_channels", score, share)]
        if i < 2:
            pairs += zip(made, calls_of_groups(rng, *form, kept[i]), strict=True)
            pairs.append((calls[-1], ("top_channels", score.flip(0), share)))
    calls += corners_of_groups(rng)
    checks = [(expect_of_groups, *call) for call in calls]
    expect_each(checks, held(student, rng, calls))
    expect_same_tensors(student, rng, pairs, expect_of_groups)
    for k, share, count in ((5, 0.5, 2), (10, 0.25, 2), (1, 0.5, 1), (7, 0.5, 4), (12, 0.125, 2)):
        score = torch.randn(k, generator=rng)  # round() of a half is even
        expect_top(student.top_channels(score, share), score, count, f"fraction {share} of {k}")
    refused_in_any_layout(student, refused_groups(rng))


# ---- exercise 2 ------------------------------------------------------------------------------


def scaled(student, w, s, bits, group_size):
    w_hat = student.scaled_round_trip(w, s, bits=bits, group_size=group_size)
    return expect_tensor(w_hat, "scaled_round_trip(...)", torch.float32, w.shape)


def random_scales(k, rng):
    return torch.rand(k, generator=rng) * 4 + 0.2


@exercise(
    "ex2",
    points=1,
    invariant="Q(W diag(s)) diag(s)^-1 for scales above and below 1, square and other weights",
    cause="s on the rows, the division left out, or s applied within the group wrongly",
)
def test_random_scales_against_float64(student, rng):
    cases = ((4, 8, (8, 8), 1.0), (3, 4, (5, 20), 1e-8), (8, 10, (20, 10), 1e4))
    for bits, group_size, shape, size in cases:
        w, s = size * torch.randn(shape, generator=rng), random_scales(shape[1], rng)
        product = w.double() * s.double()
        expected, clear = true_rtn(product, bits, group_size)
        w_hat = scaled(student, w, s, bits, group_size)
        bound = 32 * FLOAT32 * product.abs().max() / s.double()
        wrong = ~((w_hat.double() - expected / s.double()).abs() <= bound) & clear
        assert not wrong.any(), f"{bits} bits, {list(shape)}: {int(wrong.sum())} weights differ"
        assert clear.double().mean() > 0.5, "the test drew too many ties"


@exercise(
    "ex2",
    points=1,
    invariant="one power of 2 for a whole group changes nothing at all",
    cause="a clamp or a normalization of s, a floor of the scale that is not relative, or a check "
    "of all scales by their sum or product, which float32 does not hold",
)
def test_equal_scales_of_a_group(student, rng):
    w = torch.randn(6, 24, generator=rng)
    plain = scaled(student, w, torch.ones(24), 3, 8)
    expect_rounded(plain, w, 3, 8, "s = 1")
    for powers, size in (((3, -2, 0), 1.0), ((-20, 15, 7), 1.0), ((124,) * 3, 2.0**-100),
                         ((-120,) * 3, 2.0**100)):  # fmt: skip
        s = (2.0 ** torch.tensor(powers)).repeat_interleave(8)
        w_hat = scaled(student, size * w, s, 3, 8)
        assert torch.equal(w_hat, size * plain), f"s = 2^{powers} by group differs"


@exercise(
    "ex2",
    points=1,
    invariant="the error of channel j is at most half a step of its scaled group over s_j",
    cause="the step of the group before scaling, or protection of the wrong channels",
)
def test_bound_of_each_channel(student, rng):
    w = torch.randn(20, 16, generator=rng)
    s = torch.ones(16)
    s[3], s[12] = 6.0, 0.3
    w_hat = scaled(student, w, s, 4, 16)
    product = w * s
    step = (product.amax(1).clamp(min=0) - product.amin(1).clamp(max=0)) / 15
    error = ((w_hat - w).abs() * s / step[:, None]).amax(0)  # [K], in steps
    expect_at_most(error, HALF_STEP, "the largest error of a channel, in steps over s,")
    assert error.min() > 1e-3, "some channel is not rounded"


@exercise(
    "ex2",
    points=2,
    invariant="mean of the squared error over all tokens and outputs in float32, 2 or 3 dimensions",
    cause="a mean per token that is summed, arithmetic in bfloat16, or w and x mixed up",
)
def test_output_error_against_float64(student, rng):
    for shape in ((1, 12), (7, 12), (2, 5, 12)):
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, generator=rng).to(dtype)
            x = x * {(1, 12): 1e-8, (7, 12): 1.0, (2, 5, 12): 1e5}[shape]
            w = torch.randn(9, 12, generator=rng).to(dtype)
            w_hat = w.float() + 0.3 * torch.randn(9, 12, generator=rng)
            value = expect_number(student.output_error(x, w, w_hat), "output_error(...)")
            x_64, off = x.double(), w_hat.double() - w.double()
            out = x_64 @ off.T
            # of x w_hat^T - x w^T in float32, whichever way it is computed
            slack = 32 * FLOAT32 * (x_64.abs() @ (w.double().abs() + w_hat.double().abs()).T)
            bound = (2 * out.abs() * slack + slack**2).mean().item()
            bound += 64 * FLOAT32 * out.square().mean().item()
            expect_close(value, out.square().mean().item(), what="output_error", atol=bound)
            other = expect_number(student.output_error(x, w_hat, w), "output_error(...)")
            expect_close(other, out.square().mean().item(), what="w and w_hat swapped", atol=bound)
            zero = expect_number(student.output_error(x, w_hat, w_hat), "output_error(...)")
            assert zero == 0, f"output_error of equal weights is {zero}"
    half = [torch.randn(9, 12, generator=rng).bfloat16() for _ in range(2)]
    x = torch.randn(4, 12, generator=rng).bfloat16()
    padded = torch.tensor([[0.0, 0.0], [2.0, 2.0]])  # a token of zeros is one of them
    value = student.output_error(padded, torch.ones(1, 2), torch.zeros(1, 2))
    what = "output_error of a token 2, 2 and one of zeros"
    expect_close(expect_number(value, what), 8.0, what=what, rtol=8 * FLOAT32)
    out = x.double() @ (half[1].double() - half[0].double()).T
    slack = 32 * FLOAT32 * (x.double().abs() @ (half[0].double().abs() + half[1].double().abs()).T)
    bound = (2 * out.abs() * slack + slack**2).mean().item() + 64 * FLOAT32 * out.square().mean()
    value = expect_number(student.output_error(x, *half), "output_error(...)")
    expect_close(value, out.square().mean().item(), what="all in bfloat16", atol=float(bound))


@exercise(
    "ex2",
    points=1,
    invariant="scales with 0, a negative number, NaN, infinity or another shape raise ValueError",
    cause="only one of them checked; s > 0 is False for NaN, but s <= 0 is False too",
)
def test_scales_that_are_none(student, rng):
    w = torch.randn(4, 8, generator=rng)
    expect_rounded(scaled(student, w, torch.ones(8), 4, 4), w, 4, 4, "s = 1")
    for value in (0.0, -1.0, math.nan, math.inf):
        s = torch.ones(8)
        s[5] = value
        with pytest.raises(ValueError):
            student.scaled_round_trip(w, s, bits=4, group_size=4)
    for shape in ((4,), (8, 1), (1,), (1, 8), (4, 8)):
        with pytest.raises(ValueError):
            student.scaled_round_trip(w, torch.ones(shape), bits=4, group_size=4)


@exercise(
    "ex2",
    points=2,
    invariant="b + (W - W_hat) mean(x), in float32, for any dimensions, bfloat16 and no bias",
    cause="a mean over the first dimension only, arithmetic in bfloat16, or w and w_hat mixed up",
)
def test_bias_against_float64(student, rng):
    for shape, n, size in (
        ((1, 6), 4, 1e-8),
        ((7, 12), 12, 1.0),
        ((3, 4, 10), 5, 1e5),
        ((2, 3, 2, 8), 3, 1.0),
    ):
        for dtype in (torch.float32, torch.bfloat16):
            x = (size * (torch.randn(shape, generator=rng) + 0.5)).to(dtype)
            w = torch.randn(n, shape[-1], generator=rng).to(dtype)
            w_hat = w.float() + 0.3 * torch.randn(n, shape[-1], generator=rng)
            old = torch.randn(n, generator=rng).to(dtype)
            tokens, off = x.double().flatten(0, -2), w.double() - w_hat.double()
            reach = tokens.abs().mean(0) @ (w.double().abs() + w_hat.double().abs()).T
            terms = len(tokens) + shape[-1] + 8  # of the sums in float32
            for bias in (None, old):
                before = torch.zeros(n).double() if bias is None else bias.double()
                b = student.corrected_bias(x, w, w_hat, bias)
                expect_tensor(b, "corrected_bias(...)", torch.float32, (n,))
                right = before + off @ tokens.mean(0)
                bound = 2 * terms * FLOAT32 * (reach + before.abs())
                expect_at_most((b.double() - right).abs(), bound, "the error of the bias")
    padded = torch.tensor([[0.0, 0.0], [2.0, 2.0]])  # a token of zeros is one of them
    b = student.corrected_bias(padded, torch.ones(1, 2), torch.zeros(1, 2), None)
    expect_near(b, torch.tensor([2.0]), 8 * FLOAT32, "the bias of a token 2, 2 and one of zeros")
    w, w_hat = torch.randn(3, 6, generator=rng), torch.randn(3, 6, generator=rng).bfloat16()
    x = torch.randn(5, 6, generator=rng)
    b = student.corrected_bias(x, w, w_hat, None)
    expect_tensor(b, "corrected_bias(...)", torch.float32, (3,))
    off, size = w.double() - w_hat.double(), w.double().abs() + w_hat.double().abs()
    bound = 40 * FLOAT32 * (size @ x.double().abs().mean(0))
    right = off @ x.double().mean(0)
    expect_at_most((b.double() - right).abs(), bound, "w_hat alone in bfloat16: the error")


def calls_with_scales(rng, n, groups, group_size, bits, lead, dtypes, size, power_of_w):
    """A call of each function of exercise 2; dtypes: of x, w, w_hat and bias (or None).

    In a third of the draws w_hat is w, in some rows or all; x may be 0.
    """
    k, (of_x, of_w, of_w_hat, of_bias) = groups * group_size, dtypes
    w = (2.0**power_of_w * torch.randn(n, k, generator=rng)).to(of_w)
    s = 2.0 ** (20 * torch.rand(k, generator=rng) - 10) * size
    far = one_of(rng, (0.3, 3.0))  # within a factor of 2 a difference is exact in bfloat16
    w_hat = w.float() * (1 + far * torch.randn(n, k, generator=rng))
    if (same := whole(rng, 0, 5)) < 2:
        rows = n if same else whole(rng, 1, n)
        w_hat[:rows] = w[:rows].float()
    x = torch.randn(*lead, k, generator=rng) + torch.randn(k, generator=rng)
    x = (0.0 if whole(rng, 0, 9) == 0 else size) * x
    x[..., whole(rng, 0, k - 1)] *= whole(rng, 0, 1)
    x, w_hat, bias = x.to(of_x), w_hat.to(of_w_hat), None
    if of_bias:
        top = float(x.float().abs().max() * w.float().abs().max())
        bias = (top * torch.randn(n, generator=rng)).to(of_bias)
    return [
        ("scaled_round_trip", w, s, bits, group_size),
        ("output_error", x, w, w_hat),
        ("corrected_bias", x, w, w_hat, bias),
    ]


def expect_of_scales(result, name, *args):
    """What a function of exercise 2 gave for args."""
    expect = {"scaled_round_trip": expect_round_trip, "output_error": expect_output_error}
    expect.get(name, expect_bias)(result, *args)


def refused_scales(rng):
    """Calls of scaled_round_trip that are a ValueError, each with a weight of another kind."""
    calls, types, sizes = [], (torch.float32, torch.bfloat16), (2.0**-25, 1.0, 2.0**25)
    values = (0.0, -0.0, -1e-30, -1.5, -math.inf, math.inf, math.nan)
    forms = list(itertools.product(values, types, sizes))
    widths, lengths = spread(rng, (1, 3, 8), len(forms)), spread(rng, (1, 8, 48, 48), len(forms))
    for (value, dtype, size), bits, k in zip(forms, widths, lengths, strict=True):
        s = torch.rand(k, generator=rng) + 0.5
        s[whole(rng, 0, k - 1)] = value
        w = (size * torch.randn(whole(rng, 1, 3), k, generator=rng)).to(dtype)
        groups = [g for g in (1, 2, 8, 24, 48, 48) if k % g == 0]
        calls.append(("scaled_round_trip", w, s, bits, one_of(rng, groups)))
    shapes = ((1, 1), (3,), (2,), (1, 24), (24, 1), (2, 24), (1,), (25,))
    for i, (shape, size) in enumerate(itertools.product(shapes, sizes)):
        k = 1 if i < 9 else 24
        w = (size * torch.randn(3, k, generator=rng)).to(types[i % 2])
        calls.append(("scaled_round_trip", w, torch.ones(shape), widths[i], k))
    return calls


@exercise(
    "ex2",
    points=1,
    invariant="all three functions, anywhere in what the card admits: x, weights and bias each in "
    "a dtype of its own, of every size, in views, and results stay when others are asked for",
    cause="a corner where two others meet, such as bfloat16 in a view; or memory used again",
)
def test_anywhere_with_scales(student, rng):
    calls, pairs = [], []
    types = torch.float32, torch.bfloat16
    kinds = {x: spread(rng, list(itertools.product(types, types)), 6) for x in types}
    biases, powers = spread(rng, (None, *types), 12), spread(rng, (-25, 0, 20), 12)
    widths = spread(rng, (*range(1, 9), 8, 7, 6, 5), 12)
    for i, (n, groups, group_size, lead, dtype, size) in enumerate(cases_in_pairs(rng, 30)):
        dtypes = (dtype, *kinds[dtype].pop(), biases[i])
        form = (n, groups, group_size, widths[i], lead, dtypes, size, powers[i])
        made = calls_with_scales(rng, *form)
        calls += made
        if i < 2:
            pairs += zip(made, calls_with_scales(rng, *form), strict=True)
    w = torch.randn(3, 4, generator=rng)  # nothing to correct: the bias, in float32
    for bias in (None, torch.randn(3, generator=rng).bfloat16()):
        calls.append(("corrected_bias", torch.randn(2, 4, generator=rng), w, w.clone(), bias))
    for dtype, size in itertools.product(types, (0, 1)):  # differences that bfloat16 cannot hold
        both = [torch.randn(9, 8, generator=rng).bfloat16() for _ in range(2)]
        x = (size * (torch.randn(3, 8, generator=rng) + 1)).to(dtype)
        calls += [("corrected_bias", x, *both, None), ("output_error", x, *both)]
        calls.append(("corrected_bias", x, *both, torch.randn(9, generator=rng)))
    w = torch.randn(9, 8, generator=rng)  # the same of weights in float32, whatever x is
    near = w + 2.0**-12 * torch.randn(9, 8, generator=rng)
    calls += [("output_error", torch.randn(3, 8, generator=rng).to(t), w, near) for t in types]
    for lead, dtype in (((5000,), torch.float32), ((3, 1700), torch.bfloat16)):  # many tokens
        drift = torch.linspace(-1, 3, math.prod(lead)).reshape(*lead, 1)  # each of them counts
        x = (torch.randn(*lead, 2, generator=rng) + drift).to(dtype)
        both = [torch.randn(3, 2, generator=rng) for _ in range(2)]
        calls += [("output_error", x, *both), ("corrected_bias", x, *both, None)]
    for shape in ((5, 1), (1, 1), (2, 3, 1), (1, 4)):  # a single channel, or token
        x, *both = (torch.randn(*n, shape[-1], generator=rng) for n in (shape[:-1], (3,), (3,)))
        calls += [("output_error", x, *both), ("corrected_bias", x, *both, None)]
    near = torch.tensor([1.0, 1 + 8e-6])  # scales that are nearly 1 are none that are 1
    calls.append(("scaled_round_trip", torch.ones(3, 2), near, 4, 2))
    far = torch.tensor([2.0**-120, 2.0**-121, 2.0**120, 2.0**121])  # no quotient of them is a float
    w = torch.randn(3, 4, generator=rng) * torch.tensor([64.0, 64.0, 2.0**-8, 2.0**-8])
    calls.append(("scaled_round_trip", w, far, 4, 2))
    expect_each([(expect_of_scales, *call) for call in calls], held(student, rng, calls))
    expect_same_tensors(student, rng, pairs, expect_of_scales)
    refused_in_any_layout(student, refused_scales(rng))


def expect_round_trip(w_hat, w, s, bits, group_size):
    """Q(W diag(s)) diag(s)^-1 in float64; at ties either neighbour will do."""
    expect_tensor(w_hat, "scaled_round_trip(...)", torch.float32, w.shape)
    product = w.double() * s.double()
    expected, clear = true_rtn(product, bits, group_size)
    groups = product.reshape(w.shape[0], -1, group_size)
    step = groups.amax(-1).clamp(min=0) - groups.amin(-1).clamp(max=0)
    step = (step / (2**bits - 1)).repeat_interleave(group_size, dim=1)
    size = groups.abs().amax(-1).repeat_interleave(group_size, dim=1)
    found = w_hat.double() * s.double()
    good = (found - expected).abs() <= 32 * FLOAT32 * size
    good |= ~clear & ((found - product).abs() <= HALF_STEP * step)
    assert good.all(), (
        f"{bits} bits, G = {group_size}, w {list(w.shape)}: {int((~good).sum())} differ"
    )


def reach(x, w, w_hat):
    """sum |x| (|w| + |w_hat|) of every token and output, in float64: what a rounding is of."""
    return x.double().abs().flatten(0, -2) @ (w.double().abs() + w_hat.double().abs()).T


def expect_output_error(value, x, w, w_hat):
    value = expect_number(value, "output_error(...)")
    out = x.double().flatten(0, -2) @ (w_hat.double() - w.double()).T
    slack = 2 * (x.shape[-1] + 4) * FLOAT32 * reach(x, w, w_hat)
    right = out.square().mean().item()
    bound = (2 * out.abs() * slack + slack**2).mean().item()
    bound += (out.numel() + 8) * FLOAT32 * right
    what = f"output_error of x {list(x.shape)} in {x.dtype}, w in {w.dtype}, w_hat in {w_hat.dtype}"
    expect_close(value, right, what=what, atol=bound)


def expect_bias(b, x, w, w_hat, bias):
    expect_tensor(b, "corrected_bias(...)", torch.float32, (len(w),))
    old = torch.zeros(len(w)) if bias is None else bias
    right = old.double() + (w.double() - w_hat.double()) @ x.double().flatten(0, -2).mean(0)
    terms = x.numel() // x.shape[-1] + x.shape[-1] + 8  # of the sums in float32
    bound = 2 * terms * FLOAT32 * (reach(x, w, w_hat).mean(0) + old.double().abs())
    kinds = ", ".join(str(t.dtype) for t in (x, w, w_hat, old))
    expect_at_most((b.double() - right).abs(), bound, f"x, w, w_hat, bias in {kinds}: the error")


# ---- exercise 3 ------------------------------------------------------------------------------


def true_candidate(x_mean, ratio):
    s = (x_mean.double() ** ratio).clamp(min=FLOOR)
    return s / (s.max() * s.min()).sqrt()


def search(student, x_mean, weights, block, bits, group_size):
    value = student.search_scales(x_mean, weights, block, bits=bits, group_size=group_size)
    s, ratio, losses = expect_tuple(value, (torch.Tensor, float, list), "search_scales")
    expect_tensor(s, "the scales", torch.float32, x_mean.shape)
    assert len(losses) == 20 and all(isinstance(v, float) for v in losses), "losses: 20 floats"
    return s, ratio, losses


def clear_case(shapes, bits, group_size, rng):
    """(x_mean, weights) without a rounding tie in any of the 20 candidates: codes are certain."""
    for _ in range(200):
        x_mean = torch.rand(shapes[0][1], generator=rng) + 0.05
        x_mean[0] *= 30
        weights = [torch.randn(shape, generator=rng) for shape in shapes]
        products = [w.double() * true_candidate(x_mean, r) for w in weights for r in RATIOS]
        if all(true_groups(p, bits, group_size)[3].all() for p in products):
            return x_mean, weights
    raise AssertionError("the test found no weights without ties")


def true_losses(x_mean, weights, block, bits, group_size):
    """Losses of all ratios, in float64."""
    exact, losses = block([w.double() for w in weights]), []
    for ratio in RATIOS:
        s = true_candidate(x_mean, ratio)
        rounded = [true_rtn(w.double() * s, bits, group_size)[0] / s for w in weights]
        losses.append((block(rounded) - exact).square().mean().item())
    return losses


@exercise(
    "ex3",
    points=2,
    invariant="mean|X|^ratio, at least 1e-4, over sqrt(max min), dead channels included",
    cause="the floor on x_mean or after the normalization, or no floor: 0 / 0",
)
def test_candidates_against_float64(student, rng):
    for _ in range(3):
        x_mean = torch.rand(11, generator=rng) * torch.logspace(-2, 2, 11)
        x_mean[4] = 0.0
        x_mean[7] = 1e-9
        for ratio in RATIOS:
            s = student.candidate_scales(x_mean, ratio)
            expect_tensor(s, "candidate_scales(...)", torch.float32, (11,))
            # the float32 error of a^r is r ln(a) roundings, of the rest a few
            expect_close(s, true_candidate(x_mean, ratio), what="scales", rtol=64 * FLOAT32)
    for size in (0.0, 1e-8, 1e5):  # an input that is dead altogether; small and large ones
        x_mean = size * (torch.rand(6, generator=rng) + 0.1)
        for ratio in (0.0, 0.3, 0.95):
            s = student.candidate_scales(x_mean, ratio)
            expect_tensor(s, "candidate_scales(...)", torch.float32, (6,))
            expected, what = true_candidate(x_mean, ratio), f"scales of x_mean of size {size:g}"
            expect_close(s, expected, what=what, rtol=64 * FLOAT32)


@exercise(
    "ex3",
    points=2,
    invariant="20 losses: mean squared error of the block's output, and the least one is chosen",
    cause="the error of the weights, of one token, or a sum; a ratio of another grid",
)
def test_losses_against_brute_force(student, rng):
    for bits, group_size in ((3, 6), (4, 3)):
        least = 0
        while least in (0, 19):  # the first and the last candidate are found without a search
            x_mean, weights = clear_case([(3, 6)], bits, group_size, rng)
            x = x_mean * torch.randn(20, 6, generator=rng).sign()
            block = lambda ws, x=x: x.to(ws[0].dtype) @ ws[0].T  # noqa: E731
            losses_64 = true_losses(x_mean, weights, block, bits, group_size)
            least = losses_64.index(min(losses_64))
        s, ratio, losses = search(student, x_mean, weights, block, bits, group_size)
        top = (x.double().abs() @ weights[0].double().abs().T).max().item()
        slack = 64 * FLOAT32 * top  # of one output, in float32
        for found, expected in zip(losses, losses_64, strict=True):
            bound = 2 * math.sqrt(expected) * slack + slack**2 + 64 * FLOAT32 * expected
            expect_close(found, expected, what="a loss", atol=bound)
        best = losses.index(min(losses))
        assert abs(ratio - RATIOS[best]) < 1e-9, f"ratio {ratio}, the least loss is at {best}/20"
        expect_close(s, true_candidate(x_mean, ratio), what="the scales", rtol=64 * FLOAT32)


@exercise(
    "ex3",
    points=2,
    invariant="weights that share an input share the scales, judged by one output of all of them",
    cause="a search for each weight, only the first one rounded, or the block taken as linear",
)
def test_shared_scales(student, rng):
    x_mean, weights = clear_case([(2, 4), (3, 4), (2, 4)], 3, 4, rng)
    x = x_mean * torch.randn(12, 4, generator=rng).sign()
    x = x / x.abs().max()  # tanh and sigmoid would be saturated, and every loss near 0

    def block(ws):
        a, b, c = (x.to(w.dtype) @ w.T for w in ws)
        return torch.cat([a * torch.sigmoid(c), b], dim=-1).tanh()

    losses_64 = true_losses(x_mean, weights, block, 3, 4)
    s, ratio, losses = search(student, x_mean, weights, block, 3, 4)
    top = max((x.double().abs() @ w.double().abs().T).max().item() for w in weights)
    slack = 64 * FLOAT32 * (1 + top) ** 2  # the block's slope is at most |a| + 1 in each input
    for found, expected in zip(losses, losses_64, strict=True):
        bound = 2 * math.sqrt(expected) * slack + slack**2 + 64 * FLOAT32 * expected
        expect_close(found, expected, what="a loss", atol=bound)
    best = losses.index(min(losses))
    assert abs(ratio - RATIOS[best]) < 1e-9, f"ratio {ratio}, the least loss is at {best}/20"


@exercise(
    "ex3",
    points=2,
    invariant="of equal losses the first wins; the block runs once in float and once per ratio",
    cause="<= in place of <, the exact output computed again for every ratio, early stopping, "
    "losses that are compared in fewer digits than they have, or weights as one tensor",
)
def test_ties_and_calls(student, rng):
    seen, kinds = [], []

    def deaf(ws):
        kinds.append(type(ws))
        seen.append([w.clone() for w in ws])
        return torch.ones(3)

    w, other = torch.randn(2, 4, 8, generator=rng)
    s, ratio, losses = search(student, torch.rand(8, generator=rng) + 0.1, [w, other], deaf, 4, 8)
    assert {*kinds} <= {list, tuple}, f"the block got {kinds}, a list or a tuple is promised"
    assert ratio == 0 and losses == [0.0] * 20, f"equal losses gave ratio {ratio}"
    assert torch.equal(s, torch.ones(8)), f"the scales at ratio 0 are {s.tolist()}"
    assert len(seen) == 21, f"the block ran {len(seen)} times, 21 are needed"
    assert torch.equal(seen[0][0], w), "the first call is not with the float weights"
    levels = max(len(set(row.tolist())) for row in seen[1][0])
    assert levels <= 16, f"the second call has {levels} different values in a group"
    for less, place in itertools.product((2.0**-24, 2.0**-12), (7, 19)):
        outputs = [torch.zeros(4096)] + [torch.ones(4096) for _ in RATIOS]
        outputs[1 + place][17] -= less  # with 2^-24 losses differ in float64, not in float32
        plays = iter(outputs)
        case = (torch.ones(8), [w], lambda ws, plays=plays: next(plays), 4, 8)
        _, ratio, losses = search(student, *case)
        best = losses.index(min(losses))  # of those that were found, in either
        what = f"{20 * ratio:.0f}/20 was chosen, the first least loss is at {best}/20"
        assert abs(ratio - RATIOS[best]) < 1e-9 and best in (0, place), what


def drive_searches(student, cases):
    """Runs beside the student's code: searches whose block plays outputs that are given, or gives
    back a weight that it got ("weight") or how far it is from the caller's ("difference"), and
    notes the weights it got; all results after the last search.  Then all of it once more, with the
    same tensors and other code's writing in the first results."""
    import torch

    def lay(w, i):
        return w if i % 2 == 0 else w.T.contiguous().T

    def search(x_mean, weights, outputs, bits, group_size):
        heard = []

        def block(got):
            heard.append([w.clone() for w in got])
            if outputs == "weight":
                return got[-1].mT
            if outputs == "difference":
                return got[-1] - weights[-1]
            y = outputs[len(heard) - 1]
            whole = torch.contiguous_format
            return y.mT.clone(memory_format=whole).mT if y.dim() > 1 else y.clone()

        return student.search_scales(x_mean, weights, block, bits, group_size), heard

    def copied(results):
        return [((s.clone(), ratio, list(losses)), heard) for (s, ratio, losses), heard in results]

    cases = [
        (x_mean.repeat_interleave(2)[::2], [lay(w, i) for i, w in enumerate(weights)], *rest)
        for x_mean, weights, *rest in cases
    ]
    results = [search(*case) for case in cases]
    first = copied(results)
    for (s, _, losses), _ in results:
        s.zero_()
        losses.clear()
    return first, copied([search(*case) for case in cases])


def played(rng, shape, size):
    """(outputs of a shape, losses): whole numbers times size, a power of 2: sums are exact.

    The least loss stands at two ratios at least, by errors of the same sizes at other places;
    before the first of them, and at ratio 0, stands one that is as near to it as can be.
    """
    n = math.prod(shape)
    dtype = one_of(rng, (torch.float32, torch.bfloat16))
    least = 100 if dtype is torch.bfloat16 else 900 if n > 1 else 4000
    exact = torch.randint(-8, 9, (n,), generator=rng).float()
    first, second = (1 + torch.randperm(19, generator=rng)[:2]).tolist()
    near = {0, max(0, min(first, second) - 1), whole(rng, 1, 19)} - {first, second}
    many, outputs, losses = whole(rng, 1, min(n, 8)), [exact], []
    for i in range(20):
        errors = torch.zeros(n)
        errors[:many] = float(least)
        if i in near and many < n:
            errors[many] = 1.0
        elif i in near:
            errors[0] += 1
        elif i not in (first, second):
            errors[0] += whole(rng, 1, 20)
        losses.append(errors.double().square().sum().item() * size**2 / n)
        signs = 1 - 2 * torch.randint(0, 2, (n,), generator=rng)
        outputs.append(exact + (signs * errors)[torch.randperm(n, generator=rng)])
    return [(size * y).reshape(shape).to(dtype) for y in outputs], losses


def expect_played(found, heard, case, right):
    """The search of a case whose block played its outputs; else (right is None) gave weights."""
    x_mean, weights, _, bits, group_size = case
    s, ratio, losses = expect_tuple(found, (torch.Tensor, float, list), "search_scales")
    expect_tensor(s, "the scales", torch.float32, x_mean.shape)
    kinds = {type(loss).__name__ for loss in losses}
    assert len(losses) == 20 and kinds == {"float"}, f"losses: {len(losses)} of type {kinds}"
    assert len(heard) == 21, f"the block ran {len(heard)} times, 21 are needed"
    expect_heard(heard, weights, x_mean, bits, group_size)
    last = [got[-1] for got in heard]
    exact = right or [(w - last[0]).double().square().mean().item() for w in last[1:]]
    rtol = (16 + (0 if right else last[0].numel())) * FLOAT32
    for i, (loss, each) in enumerate(zip(losses, exact, strict=True)):
        expect_close(loss, each, what=f"the loss at {i}/20", rtol=rtol)
    best = (right or losses).index(min(right or losses))
    assert abs(ratio - best / 20) < 1e-9, f"ratio {ratio}, the first least loss is at {best}/20"
    expect_close(s, true_candidate(x_mean, best / 20), what="the scales", rtol=64 * FLOAT32)


def expect_heard(heard, weights, x_mean, bits, group_size):
    """What the block got: the weights as they are, then those of each ratio."""
    for got in heard:
        assert [w.shape for w in got] == [w.shape for w in weights], "block got other shapes"
    assert all(map(torch.equal, heard[0], weights)), "the first call is not with the float weights"
    for i, got in enumerate(heard[1:]):
        scales = true_candidate(x_mean, i / 20)
        for w_hat, w in zip(got, weights, strict=True):
            product = w.double() * scales
            expected, clear = true_rtn(product, bits, group_size)
            bound = 128 * FLOAT32 * product.abs().amax()  # of scales as above, and a few more
            off = (w_hat.double() * scales - expected).abs()
            assert ((off <= bound) | ~clear).all(), f"at {i}/20 block got other weights"


def drawn_searches(rng):
    """(cases of drive_searches, their losses or None)."""
    cases, losses = [], []
    outs = spread(rng, ((), (1,), (7,), (2, 4), (2, 1, 4), (2, 2, 1, 4), (2048,)), 7)
    outs += ["weight", "difference"]
    widths, counts = spread(rng, (1, 2, 3, 4, 8), 9), spread(rng, (1, 2, 3, 5), 9)
    sizes = spread(rng, (-30, -15, 0, 0, 15, 30), 9)  # losses from 1e-13
    group_sizes = spread(rng, (1, 2, 3, 5, 24), 5)
    even = whole(rng, 0, 6)  # all channels alike: block is asked as often
    for i, (bits, count, out) in enumerate(zip(widths, counts, outs, strict=True)):
        if i % 2 == 0:  # two of one shape
            group_size = group_sizes[i // 2]
            n_groups = whole(rng, 1, 3) if group_size > 1 else 1
        x_mean = 10 ** (4 * torch.rand(group_size * n_groups, generator=rng) - 2)
        if i == even:
            x_mean[:] = x_mean[0].clone()
        shapes = [(whole(rng, 1, 4), len(x_mean)) for _ in range(count)]
        weights = [power(rng, 20) * torch.randn(shape, generator=rng) for shape in shapes]
        outputs, right = (out, None) if isinstance(out, str) else played(rng, out, 2.0 ** sizes[i])
        cases.append((x_mean, weights, outputs, bits, group_size))
        losses.append(right)
    x_mean, weights, _, *sizes = next(case for case in cases if len(case[0]) > 1)
    uneven = x_mean * (1 + torch.arange(len(x_mean)))
    for x, sign in ((x_mean, -1), (uneven, -1)):  # other weights; other scales
        cases.append((x, [sign * w for w in weights], "weight", *sizes))
    return cases, losses + 2 * [None]


def expect_candidate(s, _, x_mean, ratio):
    expect_tensor(s, "candidate_scales(...)", torch.float32, x_mean.shape)
    # a^r is off by r ln(a) roundings and a few, and so is each of what divides it
    rtol = (16 + 3 * 24) * FLOAT32
    expect_close(s, true_candidate(x_mean, ratio), what=f"scales at {ratio}", rtol=rtol)


@exercise(
    "ex3",
    points=1,
    invariant="search and candidates, anywhere in what the card admits: whatever block returns, "
    "the first of the least losses wins, and block gets every weight at every ratio",
    cause="a search that ends early, or takes losses for smooth; an output without a dimension; "
    "weights in views; or memory that is used again",
)
def test_anywhere_in_the_search(student, rng):
    cases, losses = drawn_searches(rng)
    for results in student.drive(drive_searches, cases):
        for (found, heard), case, right in zip(results, cases, losses, strict=True):
            expect_played(found, heard, case, right)
    calls = []
    for i, k in enumerate((1, 1, 2, 9, 9, 70, 1100)):
        x_mean = torch.rand(k, generator=rng) * 10 ** (20 * torch.rand(k, generator=rng) - 10)
        x_mean[torch.rand(k, generator=rng) < 0.2] = 0.0
        x_mean = x_mean * (0.0, 1, 1, 1e-20, 1, 1, 1)[i]
        drawn = 0.05 + 0.95 * torch.rand((), generator=rng).item()
        for ratio in (one_of(rng, RATIOS[1:]), drawn, 0.0, 0.95, 1.0):
            calls.append(("candidate_scales", x_mean, ratio))
    for (_, *args), results in zip(calls, held(student, rng, calls), strict=True):
        for s in results:
            expect_candidate(s, _, *args)
    pairs = [(call, (call[0], call[1].flip(0) + 0.5, call[2])) for call in calls]
    expect_same_tensors(student, rng, pairs, expect_candidate)


# ---- exercise 4 ------------------------------------------------------------------------------

READERS = {  # key of the scales -> the linears that read the scaled input
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
SOURCES = {  # key of the scales -> what makes the scaled input
    "qkv": "input_layernorm",
    "o": "self_attn.v_proj",
    "gate_up": "post_attention_layernorm",
    "down": "mlp.up_proj",
}
NORMS = ("input_layernorm", "post_attention_layernorm")
EVERYTHING = (*(name for names in READERS.values() for name in names), *NORMS)


def random_layer(rng, heads=3, kv_heads=3, width=8, inner=5, biases=(), of_q=2):
    """Tensors of a layer; a head has 2 channels of values, and `of_q` of queries and of keys.

    Modules called in `biases` have one.
    """
    q, k, v = 2 * heads, of_q * kv_heads, 2 * kv_heads
    rows = (("q", of_q * heads), ("k", k), ("v", v))
    shapes = {f"self_attn.{part}_proj": (n, width) for part, n in rows}
    shapes |= {"self_attn.o_proj": (width, q), "mlp.down_proj": (width, inner)}
    shapes |= {f"mlp.{part}_proj": (inner, width) for part in ("gate", "up")}
    shapes |= dict.fromkeys(NORMS, (width,))
    layer = {f"{n}.weight": torch.randn(shape, generator=rng) for n, shape in shapes.items()}
    layer |= {f"{n}.bias": torch.randn(shapes[n][0], generator=rng) for n in biases}
    return layer | {"mlp.table": torch.randn(4, generator=rng)}


def scales_of(layer, keys, rng):
    inputs = {key: layer[f"{READERS[key][0]}.weight"].shape[1] for key in keys}
    return {key: 8.0 ** (2 * torch.rand(k, generator=rng) - 1) for key, k in inputs.items()}


def true_fold(layer, scales):
    """The folded layer in float64."""
    folded = {name: tensor.double() for name, tensor in layer.items()}
    for key, s in scales.items():
        for name in READERS[key]:
            folded[f"{name}.weight"] = folded[f"{name}.weight"] * s.double()
        for name in (f"{SOURCES[key]}.weight", f"{SOURCES[key]}.bias"):
            if name in folded:
                by = s.double()[:, None] if folded[name].dim() == 2 else s.double()
                folded[name] = folded[name] / by
    return folded


def expect_folded(student, layer, scales, what):
    expect_fold(student.fold_layer(layer, scales), layer, scales, what)


def expect_fold(folded, layer, scales, what):
    """The fold of a layer, tensor by tensor; those without a factor are bit-equal."""
    expected = true_fold(layer, scales)
    modules = {name for key in scales for name in (*READERS[key], SOURCES[key])}
    assert isinstance(folded, dict) and folded.keys() == layer.keys(), f"{what}: other names"
    for name, tensor in layer.items():
        expect_tensor(folded[name], f"{what}: {name}", torch.float32, tensor.shape)
        changes = name.rpartition(".")[0] in modules
        # at most two products and two quotients, or two products with rounded 1 / s
        rtol = 8 * FLOAT32 if changes else 0.0
        expect_close(folded[name], expected[name], what=f"{what}: {name}", rtol=rtol)


@exercise(
    "ex4",
    points=2,
    invariant="every tensor of the folded layer, with the scales of all four inputs",
    cause="v_proj and up_proj are scaled by their inputs and divided for their readers: one of the "
    "two was lost, or taken on the wrong dimension",
)
def test_every_tensor_against_float64(student, rng):
    for heads, width, inner in ((3, 8, 5), (4, 8, 8), (2, 6, 9), (1, 2, 2)):
        layer = random_layer(rng, heads, heads, width, inner, biases=EVERYTHING)
        for _ in range(2):  # the same layer with other scales
            expect_folded(student, layer, scales_of(layer, READERS, rng), f"{heads} heads")


@exercise(
    "ex4",
    points=2,
    invariant="scales of one input change what reads it and what makes it, and nothing else",
    cause="scales that are absent are taken as an error, or the rows of gate_proj are divided, too",
)
def test_one_input_at_a_time(student, rng):
    layer = random_layer(rng, biases=EVERYTHING)
    for keys in ((), *((key,) for key in READERS), ("down", "qkv"), ("o", "gate_up")):
        expect_folded(student, layer, scales_of(layer, keys, rng), f"scales of {list(keys)}")


@exercise(
    "ex4",
    points=2,
    invariant="a bias of what makes the input is divided; that of what reads it stays",
    cause="W / s and b: the output of a linear is W x + b, and all of it has to be divided",
)
def test_biases_of_every_kind(student, rng):
    for biases in (*((name,) for name in EVERYTHING), EVERYTHING):
        layer = random_layer(rng, biases=biases)
        scales = scales_of(layer, READERS, rng)
        expect_folded(student, layer, scales, f"biases of {len(biases)} modules")


@exercise(
    "ex4",
    points=1,
    invariant="fewer value heads than heads: scales of o raise ValueError, others fold",
    cause="only one ratio of heads, or every such layer refused, or nothing refused, or the heads "
    "of keys are asked, which say nothing about what makes the input of o",
)
def test_shared_heads(student, rng):
    for heads, kv_heads in ((4, 2), (4, 1), (2, 1), (6, 3)):
        layer = random_layer(rng, heads, kv_heads, biases=("self_attn.v_proj",))
        for keys in (("o",), tuple(READERS)):
            scales = scales_of(layer, keys, rng)
            with pytest.raises(ValueError):
                student.fold_layer(layer, scales)
        rest = scales_of(layer, ("qkv", "gate_up", "down"), rng)
        expect_folded(student, layer, rest, f"{kv_heads} heads for {heads}")
        every = random_layer(rng, heads, heads, biases=("self_attn.v_proj",))
        key = "self_attn.k_proj.weight"  # keys alone are shared, or values alone
        scales = scales_of(layer, READERS, rng)
        expect_folded(student, every | {key: layer[key]}, scales, "shared heads of keys")
        with pytest.raises(ValueError):
            student.fold_layer(layer | {key: every[key]}, scales)


@exercise(
    "ex4",
    points=1,
    invariant="folding s and then 1 / s gives the layer back",
    cause="a factor that is applied once too often or too rarely",
)
def test_there_and_back(student, rng):
    layer = random_layer(rng, biases=EVERYTHING)
    scales = scales_of(layer, READERS, rng)
    folded = student.fold_layer(layer, scales)
    back = student.fold_layer(folded, {key: 1 / s for key, s in scales.items()})
    moved = [name for name in layer if not torch.equal(folded[name], layer[name])]
    assert len(moved) >= 12, f"only {len(moved)} tensors changed"
    for name, tensor in layer.items():
        what = f"{name} after s and 1 / s"
        expect_tensor(back[name], what, torch.float32, tensor.shape)
        expect_close(back[name], tensor, what=what, rtol=16 * FLOAT32)


@exercise(
    "ex4",
    points=1,
    invariant="any layer, anywhere in what the card admits: any modules with a bias, any scales, "
    "in any order, of any size, in views, and results stay when others are asked for",
    cause="a corner where two others meet, such as shared heads beside a bias of the norm; a fixed "
    "order of the scales; or memory that is used again",
)
def test_anywhere_in_a_layer(student, rng):
    calls, shares = [], spread(rng, (1, 1, 1, 2, 3), 5)
    queries, kinds = spread(rng, (1, 2, 2, 3), 10), spread(rng, range(6), 10)
    widths, inners = spread(rng, (0, 1, 4, 7, 80), 5), spread(rng, (0, 1, 3, 300), 5)
    for i in range(10):
        if i % 2 == 0:  # two of one shape
            heads, shared = whole(rng, 1, 3), shares[i // 2]
            width, inner = widths[i // 2] or 2 * heads, inners[i // 2] or 2 * heads
        biases = [name for name in EVERYTHING if torch.rand((), generator=rng) < 0.5]
        layer = random_layer(rng, heads * shared, heads, width, inner, biases, queries[i])
        layer |= further(rng, width, inner)
        layer = {name: power(rng, 20) * tensor for name, tensor in layer.items()}
        keys = [key for key in READERS if shared == 1 or key != "o"]
        keys = [keys[i] for i in torch.randperm(len(keys), generator=rng).tolist()]
        keys = keys[: whole(rng, 1 + i % 2 * (len(keys) - 1), len(keys))]
        calls.append(("fold_layer", layer, of_kind(rng, scales_of(layer, keys, rng), kinds[i])))
    for (_, layer, scales), results in zip(calls, held(student, rng, calls), strict=True):
        for folded in results:
            expect_fold(folded, layer, scales, f"scales of {list(scales)}")
    _, layer, scales = calls[0]
    other = {name: power(rng, 5) * tensor.flip(0) for name, tensor in layer.items()}
    second = ("fold_layer", other, {key: 3 / s for key, s in scales.items()})
    expect_same_tensors(student, rng, 3 * [(calls[0], second)], lambda folded, _, *args:
                        expect_fold(folded, *args, "the same tensors again"))  # fmt: skip
    expect_tied(student, rng)
    refused(student, refused_layers(rng))


def of_kind(rng, scales, kind):
    """Scales of a kind: of any size (0, 1), near 1, all 1, all the same, or one that is not 1."""
    if kind == 2:
        return {key: 1 + 4e-6 * (s / s.max()) for key, s in scales.items()}
    if kind > 2:
        scales = {
            key: torch.full_like(s, 1 if kind != 4 else s[0].item()) for key, s in scales.items()
        }
    if kind == 5:
        for s in scales.values():
            s[whole(rng, 0, len(s) - 1)] = 3.0
    return {key: power(rng, 20) * s for key, s in scales.items()} if kind < 2 else scales


def refused_layers(rng):
    """Folds of layers with shared heads and scales of o, of every kind."""
    calls, queries, kinds = [], spread(rng, (1, 2, 3, 6), 12), spread(rng, range(6), 12)
    shapes = ((8, 4, 8), (4, 2, 4), (2, 1, 5), (6, 2, 3), (40, 1, 70), (2, 1, 1))
    keys = spread(rng, (("o",), ("down", "o"), ("o", "qkv"), tuple(READERS)), 12)
    for i, (heads, kv_heads, width) in enumerate(2 * shapes):
        biases = [name for name in EVERYTHING if torch.rand((), generator=rng) < 0.5]
        layer = random_layer(rng, heads, kv_heads, width, 2 * heads, biases, queries[i])
        layer |= further(rng, width, 2 * heads)
        scales = of_kind(rng, scales_of(layer, keys[i], rng), kinds[i])
        calls.append(("fold_layer", layer, scales))
    layer = random_layer(rng, 2, 1) | {
        f"self_attn.{part}_proj.weight": torch.randn(1, 8, generator=rng) for part in "kv"
    }
    for kind in (0, 3, 4):  # one head of one channel
        scales = of_kind(rng, scales_of(layer, ("o",), rng), kind)
        calls.append(("fold_layer", layer, scales))
    return calls


def further(rng, width, inner):
    """Tensors beside those of the card, of modules whose names begin or end as theirs do."""
    shapes = {f"{name}2.weight": (inner, width) for name in SOURCES.values()}
    shapes |= {f"{name}.weight": (width,) for name in ("pre_mlp_layernorm", "post_mlp_layernorm")}
    shapes |= {f"{name}_layernorm.bias": (width,) for name in ("pre_mlp", "self_attn.sub")}
    shapes |= {"mlp.shared_up_proj.weight": (inner, width), "self_attn.kv_proj.bias": (width,)}
    shapes |= {"self_attn.q_norm.weight": (2,), "self_attn.temperature": ()}
    shapes |= {"self_attn.conv.weight": (width, 1, 3)}
    shapes |= {f"cross.{name}.weight": (inner, width) for name in EVERYTHING}
    shapes |= {f"cross.{name}.bias": (inner,) for name in SOURCES.values()}
    return {name: torch.randn(shape, generator=rng) for name, shape in shapes.items()}


def drive_tied(student, layer, scales, ties):
    """Runs beside the student's code: the fold of a layer where two names hold one tensor, or one
    name a number that is expanded (second name None)."""
    layer = dict(layer)
    for name, other in ties:
        layer[name] = layer[other] if other else layer[name][:1].expand(layer[name].shape)
    return {name: x.clone() for name, x in student.fold_layer(layer, scales).items()}


def expect_tied(student, rng):
    ties = [("mlp.gate_proj.weight", "mlp.up_proj.weight")]
    ties += [("self_attn.k_proj.weight", "self_attn.q_proj.weight")]
    ties += [(f"{NORMS[0]}.{kind}", f"{NORMS[1]}.{kind}") for kind in ("weight", "bias")]
    expanded = [(f"{name}.weight", None) for name in NORMS] + [("self_attn.v_proj.bias", None)]
    for pairs in (ties, expanded):
        layer = random_layer(rng, biases=EVERYTHING)
        scales = scales_of(layer, READERS, rng)
        folded = student.drive(drive_tied, layer, scales, pairs)
        for name, other in pairs:
            layer[name] = layer[other] if other else layer[name][:1].expand(layer[name].shape)
        expect_fold(folded, layer, scales, "tensors that share memory")


# ---- exercise 5 ------------------------------------------------------------------------------


@exercise(
    "ex5",
    points=2,
    invariant="bits 4 i to 4 i + 3 of a word are code i, also where bit 31 makes it negative",
    cause="another order, shifts in uint8 or int16, a clamp at 2^31 - 1, or > for >= at 2^31",
)
def test_words_against_their_bits(student, rng):
    for dtype in (torch.uint8, torch.int32, torch.int64):
        codes = torch.randint(0, 16, (5, 24), generator=rng).to(dtype)
        codes[0, 7], codes[1, 15] = 8, 15
        words = expect_tensor(student.pack_int4(codes), "pack_int4(...)", torch.int32, (5, 3))
        for row in range(5):
            for j in range(3):
                bits = sum(int(c) << (4 * i) for i, c in enumerate(codes[row, 8 * j : 8 * j + 8]))
                observed = int(words[row, j]) % 2**32
                assert observed == bits, f"word {observed:08x}, expected {bits:08x}"
        back = student.unpack_int4(words, 24)
        assert torch.equal(
            expect_tensor(back, "unpack_int4", torch.uint8, (5, 24)), codes.to(torch.uint8)
        )
        ends = torch.tensor([[0] * 7 + [8], [15] * 7 + [7], [15] * 8], dtype=dtype)
        right = torch.tensor([[-(2**31)], [2**31 - 1], [-1]], dtype=torch.int32)
        expect_same(student.pack_int4(ends), right, "words at both ends of int32")
        expect_same(student.unpack_int4(right, 8), ends.to(torch.uint8), "the codes of these words")


@exercise(
    "ex5",
    points=1,
    invariant="any number of codes and of dimensions; the last word is filled with codes 0",
    cause="a reshape to [-1, 8] across rows, or leading dimensions lost",
)
def test_ragged_lengths(student, rng):
    for shape in ((1,), (2, 9), (3, 2, 7), (4, 16), (2, 17)):
        codes = torch.randint(0, 16, shape, generator=rng)
        codes = 0 * codes if shape == (2, 17) else codes
        words = student.pack_int4(codes)
        expect_tensor(words, "pack_int4(...)", torch.int32, (*shape[:-1], -(-shape[-1] // 8)))
        used = shape[-1] % 8
        if used:
            rest = (words[..., -1].long() % 2**32) >> (4 * used)
            assert not rest.any(), "the last word holds more than its codes"
        back = expect_tensor(
            student.unpack_int4(words, shape[-1]), "unpack_int4", torch.uint8, shape
        )
        assert torch.equal(back.long(), codes), f"codes of shape {list(shape)} changed"


def packed(codes):
    """Words as the card defines them, made here."""
    codes = torch.nn.functional.pad(codes.long(), (0, -codes.shape[-1] % 8)).unflatten(-1, (-1, 8))
    words = (codes << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def packed_case(n, n_groups, group_size, rng, size=1.0):
    """(words, scale, zero_words, w_hat in float64). size: of the scales."""
    codes = torch.randint(0, 16, (n, n_groups * group_size), generator=rng)
    zero = torch.randint(0, 16, (n, n_groups), generator=rng)
    scale = (size * (torch.rand(n, n_groups, generator=rng) + 0.05)).half()
    return packed(codes), scale, packed(zero.flatten()), true_values(codes, scale, zero)


def expect_product(y, x, w_hat, bias, unit, what):
    """|y - x w_hat^T - b| within rounding: `unit` is that of the dtype of x."""
    bias = torch.zeros(w_hat.shape[0]) if bias is None else bias
    x = x.double()
    expected = x @ w_hat.T + bias.double()
    size = x.abs() @ w_hat.abs().T + bias.double().abs()
    # weights and the result are rounded to the dtype of x, sums are in float32
    bound = 3 * unit * size + (x.shape[-1] + 8) * FLOAT32 * size
    wrong = ~((y.double() - expected).abs() <= bound)
    assert not wrong.any(), f"{what}: {int(wrong.sum())} of {wrong.numel()} outputs differ"


@exercise(
    "ex5",
    points=2,
    invariant="x W_hat^T + b for the packed weight, for any dimensions of x, with and without b",
    cause="zero points of one row used for all, W not transposed, a bias that must be there, or a "
    "decoded weight kept from an earlier call",
)
def test_products_against_float64(student, rng):
    shapes = ((6, 4, 8, (5,)), (5, 3, 4, (2, 3)), (8, 1, 8, (1,)))
    shapes += ((3, 2, 4, (3,)), (3, 2, 4, (2, 3)))  # as many tokens as outputs
    for n, n_groups, group_size, lead in shapes:
        words, scale, zeros, w_hat = packed_case(n, n_groups, group_size, rng)
        x = torch.randn(*lead, n_groups * group_size, generator=rng)
        for bias in (None, torch.randn(n, generator=rng)):
            y = student.w4a16_linear(x, words, scale, zeros, bias)
            expect_tensor(y, "w4a16_linear(...)", torch.float32, (*lead, n))
            expect_product(y, x, w_hat, bias, FLOAT32, f"weight [{n}, {n_groups * group_size}]")
            y = student.w4a16_linear(-2 * x, words, scale, zeros, bias)  # arguments of one shape
            expect_product(y, -2 * x, w_hat, bias, FLOAT32, "another x of that shape")
        words, scale, zeros, w_hat = packed_case(n, n_groups, group_size, rng)
        for size in (1.0, 1e-8, 1e4):
            y = student.w4a16_linear(size * x, words, scale, zeros, None)
            expect_tensor(y, "w4a16_linear(...)", torch.float32, (*lead, n))
            what = f"another weight of that shape, x of size {size:g}"
            expect_product(y, size * x, w_hat, None, FLOAT32, what)


@exercise(
    "ex5",
    points=2,
    invariant="bfloat16 in, bfloat16 out, with a weight that was decoded in float32",
    cause="scale * code in float16, a result in float32, or a matrix product of two dtypes",
)
def test_bfloat16_product(student, rng):
    words, scale, zeros, w_hat = packed_case(7, 3, 4, rng)  # 21 zero points: a ragged last word
    x = torch.randn(4, 12, generator=rng).bfloat16()
    for bias in (None, torch.randn(7, generator=rng).bfloat16()):
        y = student.w4a16_linear(x, words, scale, zeros, bias)
        expect_tensor(y, "w4a16_linear(...)", torch.bfloat16, (4, 7))
        expect_product(y, x, w_hat, bias, BFLOAT16, "bfloat16")
    scale = scale * 4000  # codes times this scale leave the range of float16
    x = torch.randn(4, 12, generator=rng)
    y = student.w4a16_linear(x, words, scale, zeros, None)
    expect_tensor(y, "w4a16_linear(...)", torch.float32, (4, 7))
    codes = (w_hat.reshape(7, 3, 4) / (scale / 4000).double()[..., None]).round()
    exact = (codes * scale.double()[..., None]).reshape(7, 12)
    expect_product(y, x, exact, None, FLOAT32, "large scales")
    # 15 D and 14 D, each rounded to bfloat16, differ by D (1 - 5 roundings): 2.5 are allowed
    one, scale = torch.ones(1, 1), torch.full((1, 1), 1045 / 1024).half()
    y = student.w4a16_linear(one.bfloat16(), packed(15 * one), scale, packed(14 * one[0]), None)
    expect_any_product(y, one.bfloat16(), scale.double(), None)
    # 15 (1 + 2^-8) 64 is 964 in bfloat16, whether the weight is rounded to it or not
    scale = torch.full((1, 1), 1 + 2.0**-8)
    y = student.w4a16_linear(64 * one.bfloat16(), packed(15 * one), scale, packed(0 * one[0]), None)
    expect_tensor(y, "w4a16_linear(...)", torch.bfloat16, (1, 1))
    assert y.item() == 964, f"15 times a scale of 1.00390625, times 64, is {y.item():g}, not 964"


@exercise(
    "ex5",
    points=1,
    invariant="a code above 15 or below 0 raises ValueError, whatever the integer dtype",
    cause="& 15 on the way in hides wrong codes: what should fail loudly becomes another weight",
)
def test_codes_out_of_range(student, rng):
    codes = torch.randint(0, 16, (3, 8), generator=rng, dtype=torch.int32)
    expect_same(student.pack_int4(codes), packed(codes), "pack_int4(codes)")
    for place, value in ((0, 16), (7, 200), (20, -1), (3, 256), (20, 2**31 - 16)):
        for dtype in (torch.int32, torch.int64) if value != 200 else (torch.uint8, torch.int16):
            bad = codes.to(dtype, copy=True)
            bad.view(-1)[place] = value
            with pytest.raises(ValueError):
                student.pack_int4(bad)


def expect_of_words(result, name, *args):
    """What a function of exercise 5 gave for args (for a product: of packed_case's tensors)."""
    if name == "pack_int4":
        expect_same(result, packed(args[0]), f"words of {list(args[0].shape)} in {args[0].dtype}")
    elif name == "unpack_int4":
        expect_same(result, unpacked(*args), f"{args[1]} codes of words {list(args[0].shape)}")
    else:
        x, words, scale, zeros, bias = args
        zero = unpacked(zeros, scale.numel()).reshape(scale.shape)
        w_hat = true_values(unpacked(words, x.shape[-1]), scale, zero)
        expect_any_product(result, x, w_hat, bias)


def unpacked(words, length):
    """Codes as the card defines them, made here."""
    codes = words.long()[..., None] >> (4 * torch.arange(8)) & 15
    return codes.flatten(-2)[..., :length].to(torch.uint8)


def calls_of_words(rng, shape, of_codes, n, groups, group_size, lead, kind, size, biased):
    """A call of each function of exercise 5; kind: the dtype of x."""
    codes = torch.randint(0, 16, shape, generator=rng)
    codes = (0 * codes if whole(rng, 0, 4) == 0 else codes).to(of_codes)
    words, scale, zeros, _ = packed_case(n, groups, group_size, rng, size)
    x = (power(rng, 60) * drawn_x(rng, lead, groups * group_size, 1.0, torch.float32)).to(kind)
    bias = float(x.abs().max()) * size * torch.randn(n, generator=rng)
    return [
        ("pack_int4", codes),
        ("unpack_int4", packed(torch.randint(0, 16, shape, generator=rng)), shape[-1]),
        ("w4a16_linear", x, words, scale, zeros, bias.to(kind) if biased else None),
    ]


def corners_of_words(rng, types):
    """Small calls in which every two of: dtype, length and number of dimensions, come together."""
    calls = []
    for length, dims in itertools.product((1, 8, 41), (0, 1, 2, 3)):
        shape = [whole(rng, 1, 3) for _ in range(dims)] + [length]
        codes = torch.randint(0, 16, shape, generator=rng)
        codes[..., -1] = 15
        calls += [("pack_int4", codes.to(dtype)) for dtype in types]
        calls.append(("unpack_int4", packed(codes), length))
    kinds = (torch.float32, torch.bfloat16)
    for dims, kind, size in itertools.product((1, 2, 3), kinds, (2.0**-14, 4000.0)):
        words, scale, zeros, _ = packed_case(3, 2, 12, rng, size)
        x = drawn_x(rng, [2] * dims, 24, power(rng, 60), kind)
        bias = float(x.abs().max()) * size * torch.randn(3, generator=rng)
        calls.append(("w4a16_linear", x, words, scale, zeros, None))
        calls.append(("w4a16_linear", x, words, scale, zeros, bias.to(kind)))
        one = x * (torch.arange(len(x)) == 0).view(-1, *[1] * dims).to(kind)  # others are 0
        for y in (0 * x, one):
            calls.append(("w4a16_linear", y, words, scale, zeros, None))
            calls.append(("w4a16_linear", y, words, scale, zeros, bias.to(kind)))
        calls.append(("w4a16_linear", x, 0 * words, scale, 0 * zeros, bias.to(kind)))
        ends = torch.full_like(words, -(2**31))  # in every word the last code is 8
        calls.append(("w4a16_linear", x, ends, scale, zeros, bias.to(kind)))
    return calls


def refused_codes(rng):
    """Calls of pack_int4 that are a ValueError: one wrong code anywhere, in every dtype."""
    types, calls = (torch.uint8, torch.int16, torch.int32, torch.int64), []
    for dtype in types:
        code, low, high = whole(rng, 0, 15), torch.iinfo(dtype).min, torch.iinfo(dtype).max
        for value in (16, -1, -15, 2**8 + code, 2**16 + code, code - 2**16, 2**32 + code,
                      code - 2**32, 2**40 + code, low, high):  # fmt: skip
            if value in range(16) or not low <= value <= high:
                continue
            shape = [whole(rng, 2, 3) for _ in range(len(calls) % 4)]
            shape += [one_of(rng, (1, whole(rng, 2, 20), 300))]
            codes = torch.randint(0, 16, shape, generator=rng).to(dtype)
            last = codes.numel() - 1
            codes.view(-1)[one_of(rng, (0, last, last, whole(rng, 0, last)))] = value
            calls.append(("pack_int4", codes))
        calls.append(("pack_int4", torch.tensor([high], dtype=dtype)))
    return calls


@exercise(
    "ex5",
    points=1,
    invariant="all three functions, anywhere in what the card admits: every dtype, length and "
    "number of dimensions, in views; one wrong code anywhere is refused",
    cause="a corner where two others meet, such as bfloat16 in a view; a check after a cast, where "
    "2^32 + 3 is 3; or memory that is used again",
)
def test_anywhere_in_packed_words(student, rng):
    calls, pairs = [], []
    types = (torch.uint8, torch.int16, torch.int32, torch.int64)
    lengths, dims = spread(rng, (1, 7, 8, 9, 41, 1030), 6), spread(rng, (0, 1, 2, 3), 6)
    dtypes, biased = spread(rng, types, 12), spread(rng, (True, False), 12)
    for i, (n, groups, group_size, lead, kind, size) in enumerate(cases_in_pairs(rng, 14)):
        if i % 2 == 0:  # two of one shape
            shape = [whole(rng, 1, 3) for _ in range(dims[i // 2])] + [lengths[i // 2]]
        form = (shape, dtypes[i], n, groups, group_size, lead, kind, size, biased[i])
        made = calls_of_words(rng, *form)
        calls += made
        if i < 2:
            pairs += zip(made, calls_of_words(rng, *form), strict=True)
    calls += corners_of_words(rng, types)
    expect_each([(expect_of_words, *call) for call in calls], held(student, rng, calls))
    turned = torch.randint(0, 16, (3, 16), generator=rng)
    for results in held(student, rng, 4 * [("pack_int4", turned)]):  # in all four ways
        expect_same(results[0], packed(turned), "words")
    expect_same_tensors(student, rng, pairs, expect_of_words)
    expect_refilled(student, rng)
    refused_in_any_layout(student, refused_codes(rng))


def drive_refilled(student, cases):
    """Runs beside the student's code: products of tensors that are written into between calls, one
    of them at a time."""
    held, results = [x.clone() for x in cases[0]], []
    for i in range(len(held)):
        held[i].copy_(cases[1][i])
        results.append(student.w4a16_linear(*held, None).clone())
    return results


def expect_refilled(student, rng):
    """w4a16_linear with other x, words, scales and zero points in the same tensors."""
    codes = torch.randint(0, 16, (2, 3, 12), generator=rng)
    zero = torch.randint(0, 16, (2, 3, 3), generator=rng)
    scale = (torch.rand(2, 3, 3, generator=rng) + 0.5).half()
    x = torch.randn(2, 4, 12, generator=rng)
    cases = [(x[i], packed(codes[i]), scale[i], packed(zero[i].flatten())) for i in (0, 1)]
    found = student.drive(drive_refilled, cases)
    for y, turn in zip(
        found, ((1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1)), strict=True
    ):
        a, b, c, d = turn
        w_hat = true_values(codes[b], scale[c].float(), zero[d])
        expect_any_product(y, x[a], w_hat, None)


def expect_any_product(y, x, w_hat, bias):
    """As expect_product, but that bfloat16 may be summed in bfloat16: K terms, each rounded."""
    expect_tensor(y, "w4a16_linear(...)", x.dtype, (*x.shape[:-1], len(w_hat)))
    unit = FLOAT32 if x.dtype is torch.float32 else BFLOAT16 / 2 * (x.shape[-1] + 4) / 3
    expect_product(y, x, w_hat, bias, unit, f"x {list(x.shape)} in {x.dtype}")


# ---- exercise 6 ------------------------------------------------------------------------------


@exercise(
    "ex6",
    points=2,
    invariant="N K b + groups (16 + b) bits, started groups included; 2 bytes a weight at 16 bits",
    cause="N * K // G groups, zero points left out, integer division by 8, or one shape only",
)
def test_bytes_by_counting(student, rng):
    for bits in (1, 3, 4, 8, 16):
        shapes = [
            tuple(int(v) for v in torch.randint(1, 50, (2,), generator=rng)) for _ in range(4)
        ]
        for group_size in (1, 7, 32, 64):
            total = 0
            for n, k in shapes:
                total += sum(bits for _ in range(n * k))
                if bits < 16:
                    total += sum(16 + bits for _ in range(n) for _ in range(0, k, group_size))
            found = expect_number(
                student.weight_bytes(shapes, bits, group_size), "weight_bytes(...)"
            )
            assert found == total / 8, f"{bits} bits, G = {group_size}: {found}, not {total / 8}"
    assert expect_number(student.weight_bytes([], 4, 32), "weight_bytes([])") == 0, "no weights"
    large = [(8192, 28_672)] * 4
    found = expect_number(student.weight_bytes(large, 4, 128), "weight_bytes(...)")
    right = 4 * 8192 * (28_672 * 4 + 224 * 20) / 8
    assert found == right, f"4 large matrices, 4 bits, G = 128: {found:.0f}, not {right:.0f}"


def machine(rng):
    """(weights, kv, flops, bandwidth, peak), of sizes as they are."""
    u = torch.rand(5, generator=rng).double() + 0.5
    return [v * w for v, w in zip(u.tolist(), (4e9, 1e8, 1e10, 1e12, 1e14), strict=True)]


@exercise(
    "ex6",
    points=2,
    invariant="batch / max(reading, computing): each sequence reads its own keys and values",
    cause="keys and values read once, computing not multiplied by the batch, or a sum for max",
)
def test_rates_against_both_bounds(student, rng):
    for _ in range(10):
        weights, kv, flops, bandwidth, peak = machine(rng)
        for batch in (1, 3, 50, 2000):
            reading = (weights + batch * kv) / bandwidth
            expected = batch / max(reading, batch * flops / peak)
            rate = student.decode_rate(weights, kv, flops, batch, bandwidth, peak)
            expect_close(expect_number(rate, "decode_rate"), expected, what="the rate", rtol=1e-12)
        bare = student.decode_rate(0.0, 0.0, flops, 8, bandwidth, peak)
        expect_close(
            expect_number(bare, "decode_rate"), peak / flops, what="nothing to read", rtol=1e-12
        )
        slow = student.decode_rate(weights, kv, flops, 8, bandwidth, flops)  # 1 FLOPs-step a second
        expect_close(
            expect_number(slow, "decode_rate"), 1.0, what="rate of a slow machine", rtol=1e-12
        )


@exercise(
    "ex6",
    points=2,
    invariant="below the ridge a step is bound by reading, above it by computing",
    cause="keys and values left out, flops / peak inverted, or a result rounded to an int",
)
def test_ridge_from_both_sides(student, rng):
    for _ in range(10):
        weights, kv, flops, bandwidth, peak = machine(rng)
        kv *= 0.1  # computing one more sequence takes longer than reading it
        for values in (0.0, kv):
            b = expect_number(
                student.ridge_batch(weights, values, flops, bandwidth, peak), "ridge_batch"
            )
            assert math.isfinite(b) and b > 0, f"the ridge is {b}"
            for batch, computing in ((0.99 * b, False), (1.01 * b, True)):
                reading = (weights + batch * values) / bandwidth
                assert (batch * flops / peak > reading) == computing, (
                    f"at {batch / b:.2f} of the ridge, computing "
                    f"{batch * flops / peak:.3g} s, reading {reading:.3g} s"
                )


def equally_long(rng, rounded):
    """(k, (kv, flops, bandwidth, peak)): k seconds to read and to compute, a whole number, but for
    what is rounded."""
    while True:
        k, bandwidth, peak = (float(whole(rng, 1, most)) for most in (999, 10**6, 10**6))
        if rounded(*(args := (k * bandwidth, k * peak, bandwidth, peak))):
            return k, args


@exercise(
    "ex6",
    points=2,
    invariant="where each sequence takes longer to read than to compute, the ridge is inf; with "
    "few weights it lies below 1",
    cause="a negative batch, a division by 0 where both take equally long, or max(1, batch)",
)
def test_no_ridge(student, rng):
    for _ in range(5):
        weights, _, flops, bandwidth, peak = machine(rng)
        for factor in (1.5, 20.0):
            kv = factor * flops / peak * bandwidth
            b = student.ridge_batch(weights, kv, flops, bandwidth, peak)
            assert expect_number(b, "ridge_batch") == math.inf, (
                f"the ridge is {b}, with kv too large"
            )
    assert student.ridge_batch(8.0, 2.0, 4.0, 2.0, 4.0) == math.inf, "equally long: no ridge"
    for k in (1, 2):  # both quotients are k; k 49 times 1 / 49 is less in floats
        b = student.ridge_batch(100.0, k * 49.0, k * 10.0, 49.0, 10.0)
        assert b == math.inf, f"{k} s to read as to compute: the ridge is {b}"
    for rounded in (
        lambda kv, flops, bandwidth, peak: kv * (peak / bandwidth) < flops,
        lambda kv, flops, bandwidth, peak: kv < flops * (bandwidth / peak),
        lambda kv, flops, bandwidth, peak: kv * (1 / bandwidth) < flops * (1 / peak),
    ):
        k, args = equally_long(rng, rounded)
        b = student.ridge_batch(100.0, *args)
        assert b == math.inf, f"{k:g} s to read as to compute: the ridge is {b}"
    assert student.ridge_batch(8.0, 1.0, 4.0, 2.0, 4.0) == 8.0, "half as long: the ridge is 8"
    assert student.ridge_batch(0.0, 4.0, 4.0, 2.0, 4.0) == math.inf, "no weights, no ridge"
    for weights in (2.0**-3, 2.0**-20, 0.0):  # few weights: already one sequence is bound by FLOPs
        b = expect_number(student.ridge_batch(weights, 1.0, 4.0, 2.0, 4.0), "ridge_batch")
        assert b == weights, f"{weights:g} bytes of weights: the ridge is {b}, not {weights:g}"


@exercise(
    "ex6",
    points=1,
    invariant="bytes, rates and ridges of small and large machines, with whole numbers or not",
    cause="a small number taken for 0, an integer division, or a limit of sizes",
)
def test_anywhere_on_a_machine(student, rng):
    asked = [(("decode_rate", 7, 2, 9, 3, 2, 5), 3 / 6.5), (("ridge_batch", 7, 2, 9, 2, 5), 4.375)]
    for e in (-60, -20, 0, 30, 60):  # seconds a step, from 1e-18
        asked += drawn_ridges(rng, 2.0**e) + drawn_rates(rng, 2.0**e)
    for bits in (*range(1, 9), 16):
        asked += drawn_bytes(rng, bits)
    calls = [call for call, _ in asked]
    for ((name, *args), right), results in zip(asked, held(student, rng, calls), strict=True):
        for found in results:
            rtol = 0.0 if name == "weight_bytes" else 1e-12
            shown = ", ".join(f"{x:g}" for x in args) if rtol else f"{args[0][:2]}, .., {args[1:]}"
            what = f"{name}({shown})"
            expect_close(expect_number(found, what), right, what=what, rtol=rtol)


def drawn_bytes(rng, bits):
    """(call, what is right) of weight_bytes: every list of shapes and every size of groups."""
    n, k = whole(rng, 1, 10**5), whole(rng, 1, 10**5)
    lists = [[(n, k), (1, 1)], [], [(n, k)], 3 * [(28_672, 8192)], [(1, k), (n, 1)] * 60]
    asked = []
    for shapes in lists:
        for group_size in (1, 128, k - 1 or 1, k, k + 1, 2 * k, whole(rng, 1, 300)):
            total = 0
            for rows, row in shapes:
                groups = rows * -(-row // group_size) if bits < 16 else 0
                total += rows * row * bits + groups * (16 + bits)
            asked.append((("weight_bytes", shapes, bits, group_size), total / 8))
    return asked


def drawn_ridges(rng, size):
    """(call, what is right) where one more sequence takes less, or no less, time to read."""
    asked = []
    some = (0.5, 2.0**-24, 2.0**-40, 0.0, -(2.0**-40), -(2.0**-24), -1.0, 1.0)
    for less in some:  # exact, whichever way it is computed
        bandwidth, peak = 2.0 ** whole(rng, 0, 40), 2.0 ** whole(rng, 0, 50)
        for weights in (8.0, 0.0, one_of(rng, (2.0**-30, 2.0**-3, 2.0**20))):
            args = (weights * size * bandwidth, size * bandwidth * (1 - less), size * peak)
            right = weights / less if less > 0 else math.inf
            asked.append((("ridge_batch", *args, bandwidth, peak), right))
    return asked


def drawn_rates(rng, size):
    """(call, what is right): computing takes as long as reading, a little more or less, or far
    from that, at batches of every kind."""
    asked = []
    for batch in (1, 7, whole(rng, 65, 10**6), 0.25, whole(rng, 2, 300) + 0.5):
        for ratio in (2.0**-40, 2.0**-10, 0.5, 1 - 2.0**-20, 1.0, 1 + 2.0**-20, 2.0, 2.0**10):
            weights, kv = size * whole(rng, 1, 9), size * one_of(rng, (0, 2.0**-20, 1, 1e3))
            weights = 0.0 if kv and whole(rng, 0, 4) == 0 else weights
            bandwidth, peak = 2.0 ** whole(rng, -2, 40), one_of(rng, (3.0, 1e3, 2.0**46))
            reading = (weights + batch * kv) / bandwidth
            flops = ratio * reading / batch * peak
            right = batch / max(reading, batch * flops / peak)
            asked.append((("decode_rate", weights, kv, flops, batch, bandwidth, peak), right))
    return asked
