"""Public tests of lab03: what lab.check runs.  Properties, and numbers to check by hand.

w is a weight [N, K], codes are 0..2^b - 1, a group is G neighbours of a row, s scales of channels.
"""

import math

import torch

from efflib.lab import (
    exercise,
    expect_at_most,
    expect_close,
    expect_error,
    expect_number,
    expect_tensor,
    expect_tuple,
)

FLOAT32 = 2.0**-24  # relative error of one float32 rounding
# Of a value of at most 2^8 steps: w / scale, codes - zero times scale, and the scale are rounded.
HALF_STEP = 0.5 + 2**8 * 8 * FLOAT32


def encode(student, w, bits, group_size):
    """(codes, scale, zero) of the student, with the checks that every use needs."""
    value = student.quantize_groups(w, bits=bits, group_size=group_size)
    codes, scale, zero = expect_tuple(value, (torch.Tensor,) * 3, "quantize_groups")
    groups = (w.shape[0], w.shape[1] // group_size)
    expect_tensor(codes, "codes", torch.uint8, w.shape)
    expect_tensor(scale, "scale", torch.float32, groups)
    expect_tensor(zero, "zero", torch.int32, groups)
    return codes, scale, zero


def decode(student, codes, scale, zero):
    value = student.dequantize_groups(codes, scale, zero)
    return expect_tensor(value, "dequantize_groups(...)", torch.float32, codes.shape)


def steps(w, bits, group_size):
    """The step of every weight's group, [N, K]."""
    groups = w.reshape(w.shape[0], -1, group_size)
    step = (groups.amax(-1).clamp(min=0) - groups.amin(-1).clamp(max=0)) / (2**bits - 1)
    return step.repeat_interleave(group_size, dim=1)


# ---- exercise 1: round in groups, keep channels ----------------------------------------------


@exercise(
    "ex1",
    points=1,
    invariant="2 bits, groups of 4: -1, 0.1, 0.9, 2 | 3, 3, 6, 9 have the codes 0 1 2 3 | 1 1 2 3",
    cause="groups that are no neighbours in a row, 2^b steps in place of 2^b - 1, a range that was "
    "not stretched to 0, floor in place of round, or codes - zero in uint8, where 0 - 1 is 255",
)
def test_groups_by_hand(student, rng):
    w = torch.tensor([[-1.0, 0.1, 0.9, 2.0, 3.0, 3.0, 6.0, 9.0]])
    codes, scale, zero = encode(student, w, 2, 4)
    right = [0, 1, 2, 3, 1, 1, 2, 3]
    assert scale.tolist() == [[1.0, 3.0]], f"the scales are {scale.tolist()}, expected 1 and 3"
    assert zero.tolist() == [[1, 0]], f"the zero points are {zero.tolist()}, expected 1 and 0"
    assert codes.tolist() == [right], f"the codes are {codes.tolist()}, expected {right}"
    w_hat = decode(student, codes, scale, zero)
    right = [-1.0, 0.0, 1.0, 2.0, 3.0, 3.0, 6.0, 9.0]
    assert w_hat.tolist() == [right], f"w_hat is {w_hat.tolist()}, expected {right}"


@exercise(
    "ex1",
    points=0.5,
    invariant="an error is at most half a step of the weight's own group",
    cause="one scale for a row or for the tensor, a wrong zero point, a clamp that comes after "
    "uint8, or arithmetic in the dtype of w: bfloat16 has 8 bits",
)
def test_error_within_half_a_step(student, rng):
    w = torch.randn(6, 24, generator=rng) * torch.logspace(-2, 2, 24)
    for bits in (3, 4, 8):
        w_hat = decode(student, *encode(student, w, bits, 8))
        error = ((w_hat - w).abs() / steps(w, bits, 8)).max()
        expect_at_most(
            error, HALF_STEP, f"{bits} bits: the largest error, in steps of its own group,"
        )
    for case, what in (
        ((torch.randn(6, 24, generator=rng) + 3).bfloat16(), "a bfloat16 weight"),
        (w * 1e-20, "a weight of tiny numbers"),
        (w.T.contiguous()[:16], "another weight"),
    ):
        w_hat = decode(student, *encode(student, case, 8, case.shape[1] // 2))
        values = case.float()
        error = ((w_hat - values).abs() / steps(values, 8, case.shape[1] // 2)).max()
        expect_at_most(error, HALF_STEP, f"{what}: the largest error, in steps,")


def drive_transposed(student, w, bits, group_size):
    """Runs beside the student's code: a weight that is not contiguous, then parts that are not."""
    parts = student.quantize_groups(w.T, bits=bits, group_size=group_size)
    views = [part.T.contiguous().T for part in parts]
    return student.dequantize_groups(*parts), student.dequantize_groups(*views)


@exercise(
    "ex1",
    points=0.5,
    invariant="lo = -3.5 steps and hi = 2^b - 4.5 steps: z is 4, and the code of hi is clamped",
    cause="no clamp, or one that comes after uint8, where 256 is 0; or view on a transposed weight",
)
def test_ends_of_the_range(student, rng):
    for bits in (4, 8):
        top = 2**bits - 1
        w = torch.tensor([[-3.5, top - 3.5, 0.0, 1.0]])  # the step is 1
        codes, scale, zero = encode(student, w, bits, 4)
        assert int(codes.max()) <= top, f"{bits} bits: there is a code {int(codes.max())}"
        w_hat = decode(student, codes, scale, zero)
        expect_at_most((w_hat - w).abs().max(), HALF_STEP, f"{bits} bits: the error at the ends")
    w = torch.randn(8, 3, generator=rng)
    for w_hat in student.drive(drive_transposed, w, 4, 4):
        expect_tensor(w_hat, "w_hat", torch.float32, (3, 8))
        error = ((w_hat - w.T).abs() / steps(w.T, 4, 4)).max()
        expect_at_most(error, HALF_STEP, "a transposed weight: the largest error, in steps,")


@exercise(
    "ex1",
    points=1,
    invariant="a group of zeros comes back as zeros; a group size that does not fit: ValueError",
    cause="0 / 0 where a group's range is 0, no check of the group size, or codes - zero in uint8",
)
def test_zeros_and_sizes_that_do_not_fit(student, rng):
    w = torch.zeros(2, 8)
    w[1, 4:] = torch.tensor([-1.0, 0.0, 2.0, 4.0])
    codes, scale, zero = encode(student, w, 4, 4)
    assert torch.isfinite(scale).all() and (scale > 0).all(), f"scales {scale.tolist()}"
    w_hat = decode(student, codes, scale, zero)
    assert (w_hat[0] == 0).all(), f"zeros came back as {w_hat[0].tolist()}"
    group, right = w_hat[1, 4:], w[1, 4:]
    expect_close(group, right, what="the group -1, 0, 2, 4", rtol=8 * FLOAT32, atol=1e-6)
    for size in (3, 0, 16, -4):
        expect_error(
            ValueError,
            lambda size=size: student.quantize_groups(w, bits=4, group_size=size),
            f"w [2, 8] in groups of {size}",
        )


@exercise(
    "ex1",
    points=1,
    invariant="the mean of |X_j| over tokens: 3 and -3 in one channel have the mean magnitude 3",
    cause="the mean before abs, a maximum, or the mean over channels",
)
def test_mean_of_magnitudes(student, rng):
    x = torch.tensor([[3.0, 1.0, 0.0], [-3.0, 2.0, 0.0]])
    for case in (x, x[None].repeat(4, 1, 1)):
        score = expect_tensor(
            student.mean_magnitude(case), "mean_magnitude(x)", torch.float32, (3,)
        )
        assert score.tolist() == [3.0, 1.5, 0.0], f"the scores are {score.tolist()}"
    half = torch.ones(1000, 2).bfloat16()
    half[::2] = torch.tensor([1.0078125, -1.0078125])  # a mean of 9 bits
    score = expect_tensor(student.mean_magnitude(half), "mean_magnitude(x)", torch.float32, (2,))
    right = torch.full((2,), 1.00390625)
    expect_close(score, right, what="1000 tokens in bfloat16: the score", rtol=1000 * FLOAT32)


@exercise(
    "ex1",
    points=1,
    invariant="round(fraction K) channels, at least one, those with the largest scores",
    cause="the smallest scores, another rounding than round(), a threshold among equals, a "
    "fraction that rounds to no channel at all, or no range check",
)
def test_top_of_ten(student, rng):
    score = torch.tensor([0.1, 5.0, 0.2, 0.3, 7.0, 0.4, 0.0, 6.0, 0.5, 0.6])
    for fraction, expected in (
        (0.3, [1, 4, 7]),
        (0.01, [4]),
        (1.0, list(range(10))),
        (0.16, [4, 7]),
        (0.12, [4]),
    ):
        channels = expect_tensor(student.top_channels(score, fraction), "top_channels", torch.int64)
        chosen = sorted(channels.tolist())
        assert chosen == expected, f"fraction {fraction}: channels {chosen}, expected {expected}"
    below = student.top_channels(torch.tensor([-5.0, -1.0, -3.0, -4.0]), 0.25).tolist()
    assert below == [1], f"of the scores -5, -1, -3, -4 channel {below} was taken for the largest"
    equal = student.top_channels(torch.ones(10), 0.3).tolist()
    assert len(set(equal)) == len(equal) == 3, f"10 equal scores, fraction 0.3: channels {equal}"
    for fraction in (0.0, 1.5):
        expect_error(
            ValueError,
            lambda fraction=fraction: student.top_channels(score, fraction),
            f"fraction {fraction}",
        )


@exercise(
    "ex1",
    points=1,
    invariant="kept columns are exact, all others multiples of the step of their whole group",
    cause="rows in place of columns, or kept columns that no longer count for the range",
)
def test_kept_columns(student, rng):
    w = torch.randn(8, 8, generator=rng)
    w[:, 5] *= 20
    channels = torch.tensor([5, 2])
    w_hat = student.keep_channels(w, channels, bits=3, group_size=4)
    expect_tensor(w_hat, "keep_channels(...)", torch.float32, (8, 8))
    assert torch.equal(w_hat[:, channels], w[:, channels]), "the kept columns are not as they were"
    none = student.keep_channels(w, torch.zeros(0, dtype=torch.int64), bits=3, group_size=4)
    expect_at_most(
        ((none - w).abs() / steps(w, 3, 4)).max(),
        HALF_STEP,
        "no channel kept: the largest error, in steps,",
    )
    half = student.keep_channels(w.bfloat16(), channels, bits=3, group_size=4)
    expect_tensor(half, "keep_channels of a bfloat16 weight", torch.float32, (8, 8))
    rest = [0, 1, 3, 4, 6, 7]
    levels = (w_hat / steps(w, 3, 4))[:, rest]
    off = (levels - levels.round()).abs().max()
    expect_at_most(off, HALF_STEP - 0.5, "the distance of another column from its grid, in steps,")
    error = ((w_hat - w).abs() / steps(w, 3, 4))[:, rest].max()
    expect_at_most(error, HALF_STEP, "the largest error of another column, in steps,")


# ---- exercise 2: scales ----------------------------------------------------------------------


def scaled(student, w, s, bits, group_size):
    w_hat = student.scaled_round_trip(w, s, bits=bits, group_size=group_size)
    return expect_tensor(w_hat, "scaled_round_trip(...)", torch.float32, w.shape)


@exercise(
    "ex2",
    points=2,
    invariant="0.3 beside -1, 0.7, 2 with 3 bits becomes 3/7 with s = 1, and 3/14 with s = 2",
    cause="not divided by s afterwards, s on the rows, s divided first and multiplied after, or a "
    "product or a result in the dtype of w",
)
def test_scaling_by_hand(student, rng):
    w = torch.tensor([[0.3, -1.0, 0.7, 2.0]])
    for factor, expected in ((1.0, 3 / 7), (2.0, 3 / 14)):
        s = torch.tensor([factor, 1.0, 1.0, 1.0])
        w_hat = scaled(student, w, s, 3, 4)
        expect_close(
            w_hat[0, 0].item(), expected, what=f"the weight 0.3 with s = {factor:g}", atol=1e-5
        )
        expect_close(w_hat[0, 3].item(), 15 / 7, what="the weight 2", atol=1e-5)
    # times 1.25 the first is 140.78 steps of 3.75 / 255; in bfloat16 it would be 140.25
    w, s = torch.tensor([[1.65625, 3.0]]).bfloat16(), torch.tensor([1.25, 1.25])
    w_hat = scaled(student, w, s, 8, 2)
    expect_close(w_hat[0, 1].item(), 3.0, what="the weight 3 in bfloat16", atol=1e-5)
    expect_close(w_hat[0, 0].item(), 141 * 3 / 255, what="the weight 1.65625", atol=1e-5)


@exercise(
    "ex2",
    points=1,
    invariant="while the step holds, a channel with factor s errs by at most half a step / s",
    cause="the scale was left out of the rounding, so that nothing is protected",
)
def test_error_falls_with_s(student, rng):
    w = torch.randn(40, 16, generator=rng).clamp(-2.9, 2.9)
    w[:, 0], w[:, 1] = 3.0, -3.0  # the ends of the range of every group
    w[:, 7] = torch.rand(40, generator=rng) * 0.6 - 0.3
    errors = []
    for factor in (1.0, 8.0):
        s = torch.ones(16)
        s[7] = factor
        w_hat = scaled(student, w, s, 4, 16)
        errors.append((w_hat - w)[:, 7].abs().max().item())
        expect_at_most(errors[-1], HALF_STEP * 6 / 15 / factor, f"s = {factor:g}: the error")
    assert errors[0] > 3 / 15 / 8, f"without scaling the error is only {errors[0]:.4f}"


@exercise(
    "ex2",
    points=1,
    invariant="the mean over tokens and outputs of (X W_hat^T - X W^T)^2; bad scales: ValueError",
    cause="the error of the weight without X, a sum in place of the mean, a tensor returned, or "
    "scales of 0 or below that are not refused",
)
def test_output_error_by_hand(student, rng):
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    w_hat = torch.tensor([[1.0, 1.5], [3.5, 4.0]])
    x = torch.tensor([[1.0, 2.0], [0.0, 4.0], [2.0, 0.0]])
    error = expect_number(student.output_error(x, w, w_hat), "output_error(...)")
    # differences of the outputs: (-1, 0.5), (-2, 0), (0, 1)
    expect_close(error, 6.25 / 6, what="output_error", rtol=16 * FLOAT32)
    half = student.output_error(x[None].bfloat16() + 0.0078125, w.bfloat16(), w_hat + 0.001)
    y = (x.bfloat16() + 0.0078125).float() @ (w_hat + 0.001 - w).T
    expect_close(half, y.square().mean().item(), what="output_error in bfloat16", rtol=1e-4)
    shapes = [torch.ones(shape) for shape in ((3,), (1, 2), (2, 2))]
    for bad in (*(torch.tensor([1.0, v]) for v in (0.0, -2.0, math.nan, math.inf)), *shapes):
        expect_error(
            ValueError,
            lambda bad=bad: student.scaled_round_trip(w, bad, bits=4, group_size=2),
            f"scales {bad.tolist()} for w [2, 2]",
        )


@exercise(
    "ex2",
    points=2,
    invariant="with the corrected bias the layer's mean output over the tokens is what it was",
    cause="the sign, the sum over tokens in place of the mean, a mean over outputs, or an old bias "
    "that is dropped",
)
def test_bias_by_hand(student, rng):
    w = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    w_hat = torch.tensor([[1.0, 1.5], [3.5, 4.0]])
    x = torch.tensor([[1.0, 2.0], [0.0, 4.0], [2.0, 0.0]])
    old = torch.tensor([10.0, 20.0])
    for bias, expected in (
        (None, [1.0, -0.5]),
        (old, [11.0, 19.5]),
        (old.bfloat16(), [11.0, 19.5]),
    ):
        b = student.corrected_bias(x, w, w_hat, bias)
        expect_tensor(b, "corrected_bias(...)", torch.float32, (2,))
        what = f"the bias that was {None if bias is None else bias.tolist()}"
        expect_close(b, torch.tensor(expected), what=what, rtol=32 * FLOAT32)
    x, w = torch.randn(3, 5, 8, generator=rng), torch.randn(4, 8, generator=rng)
    w_hat = w + 0.2 * torch.randn(4, 8, generator=rng)
    for case in (x, 2 * x - 1, x.bfloat16()):
        b = student.corrected_bias(case, w, w_hat, None)
        expect_tensor(b, "corrected_bias(...)", torch.float32, (4,))
        tokens = case.double().flatten(0, -2)  # [15, 8]
        off = (tokens @ (w_hat - w).double().T).mean(0) + b.double()
        size = tokens.abs().mean(0) @ (w.abs() + w_hat.abs()).double().T
        expect_at_most(off.abs(), 64 * FLOAT32 * size, "the mean output moved: |difference|")


# ---- exercise 3: search ----------------------------------------------------------------------


def search(student, x_mean, weights, block, bits, group_size):
    """(s, ratio, losses) of the student, with the checks that every use needs."""
    value = student.search_scales(x_mean, weights, block, bits=bits, group_size=group_size)
    s, ratio, losses = expect_tuple(value, (torch.Tensor, float, list), "search_scales")
    expect_tensor(s, "the scales", torch.float32, x_mean.shape)
    kinds = ", ".join(sorted({type(v).__name__ for v in losses}))
    assert len(losses) == 20 and kinds == "float", (
        f"losses must be 20 floats, one for each of RATIOS; got {len(losses)} of type {kinds}"
    )
    return s, ratio, losses


@exercise(
    "ex3",
    points=2,
    invariant="x_mean 1, 4, 64 at ratio 0.5: 1, 2, 8, and divided by sqrt(8 * 1)",
    cause="not normalized, normalized by a mean (also a geometric one), the square root left out, "
    "or no floor of 1e-4 for a dead channel",
)
def test_candidate_by_hand(student, rng):
    x_mean = torch.tensor([1.0, 4.0, 64.0])
    root = math.sqrt(8.0)
    for ratio, expected in ((0.5, [1 / root, 2 / root, 8 / root]), (0.0, [1.0, 1.0, 1.0])):
        s = expect_tensor(
            student.candidate_scales(x_mean, ratio), "candidate_scales", torch.float32, (3,)
        )
        expect_close(s, torch.tensor(expected), what=f"scales at {ratio}", rtol=16 * FLOAT32)
    dead = torch.tensor([0.0, 1.0, 1.0])  # 1e-4, 1, 1 and divided by sqrt(1e-4)
    s = expect_tensor(student.candidate_scales(dead, 0.5), "candidate_scales", torch.float32, (3,))
    expect_close(s, torch.tensor([1e-2, 1e2, 1e2]), what="scales with a dead channel", rtol=1e-5)
    s = student.candidate_scales(dead, 0.0)  # 0^0 is 1
    expect_close(s, torch.ones(3), what="scales with a dead channel at ratio 0", rtol=1e-5)


@exercise(
    "ex3",
    points=2,
    invariant="the ratio and the scales returned are those of the smallest loss",
    cause="the largest loss, the last scales of the loop, losses of the weights without X, other "
    "bits than those asked for, or other scales than those of candidate_scales",
)
def test_the_smallest_loss_wins(student, rng):
    x = torch.randn(30, 16, generator=rng)
    x[:, 3] *= 40
    weights = [torch.randn(6, 16, generator=rng)]
    x_mean = x.abs().mean(0)
    for dtype in (torch.float32, torch.bfloat16):
        outputs, used = [], []

        def block(ws, outputs=outputs, used=used, dtype=dtype):
            used.append(ws[0].clone())
            outputs.append((x @ ws[0].T).to(dtype))
            return outputs[-1]

        s, ratio, losses = search(student, x_mean, weights, block, 3, 8)
        best = losses.index(min(losses))
        assert abs(ratio - best / 20) < 1e-9, f"ratio {ratio}, but losses[{best}] is the smallest"
        own = student.candidate_scales(x_mean, ratio)
        expect_tensor(own, "candidate_scales(x_mean, ratio)", torch.float32, (16,))
        expect_close(s, own, what="scales", rtol=8 * FLOAT32)
        assert len(outputs) == 21, f"block ran {len(outputs)} times; once in float, 20 candidates"
        exact, *candidates = (y.double() for y in outputs)
        for i, y in enumerate(candidates):
            s = student.candidate_scales(x_mean, i / 20)
            w_hat = student.scaled_round_trip(weights[0], s, bits=3, group_size=8)
            same = ((used[i + 1] - w_hat).abs() <= 1e-5).double().mean()  # a tie may differ
            assert same > 0.9, f"at ratio {i / 20} block got other weights than the round trip's"
            loss = (y - exact).square().mean().item()
            what = f"block in {dtype}: the loss at ratio {i / 20}"
            expect_close(losses[i], loss, what=what, rtol=256 * FLOAT32)
    s, ratio, losses = search(student, x_mean, weights, lambda ws: torch.ones(3), 3, 8)
    assert ratio == 0.0, f"20 equal losses gave ratio {ratio}, not that of the first"


@exercise(
    "ex3",
    points=2,
    invariant="with one large channel the search beats rounding to nearest, the loss at ratio 0",
    cause="scales inverted (1 / s), block given Q(W s) that was not divided by s again, or weights "
    "that are searched one by one: all are rounded with the same s, in every call of block",
)
def test_search_beats_rounding(student, rng):
    x = torch.randn(40, 32, generator=rng)
    x[:, 9] += 60
    weights = [torch.randn(12, 32, generator=rng), torch.randn(5, 32, generator=rng)]
    outputs, counts = [], set()

    def block(ws):
        counts.add(len(ws))
        outputs.append([x @ w.T for w in ws])
        return torch.cat(outputs[-1], dim=1)

    s, ratio, losses = search(student, x.abs().mean(0), weights, block, 4, 32)
    assert counts == {2}, f"block got {sorted(counts)} weights; it needs both, in their order"
    exact, *candidates = outputs
    for i, both in enumerate(candidates):
        same = [torch.equal(y, right) for y, right in zip(both, exact, strict=True)]
        assert not any(same), f"at ratio {i / 20} only one of the two weights was rounded"
    plain = losses[0]
    assert min(losses) < 0.5 * plain, f"least loss {min(losses):.4g}, at ratio 0 {plain:.4g}"
    assert s[9] == s.max() and s[9] > 1, f"the large channel has s = {s[9]:.3g}"


# ---- exercise 4: fold ------------------------------------------------------------------------

LINEARS = {  # name -> what it has as rows and as columns
    "self_attn.q_proj": ("heads", "width"),
    "self_attn.k_proj": ("kv", "width"),
    "self_attn.v_proj": ("kv", "width"),
    "self_attn.o_proj": ("width", "heads"),
    "mlp.gate_proj": ("inner", "width"),
    "mlp.up_proj": ("inner", "width"),
    "mlp.down_proj": ("width", "inner"),
}
NORMS = ("input_layernorm", "post_attention_layernorm")
READERS = {  # key of the scales -> the linears that read the scaled input
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
HEAD = 2  # channels of a head


def random_layer(rng, heads=3, kv_heads=3, biases=(), inner=5):
    """Tensors of a layer by name; norms and linears called in `biases` have one."""
    sizes = {"width": 8, "heads": heads * HEAD, "kv": kv_heads * HEAD, "inner": inner}
    shapes = {name: [sizes[part] for part in parts] for name, parts in LINEARS.items()}
    layer = {f"{n}.weight": torch.randn(shape, generator=rng) for n, shape in shapes.items()}
    layer |= {f"{n}.weight": 1 + 0.3 * torch.randn(8, generator=rng) for n in NORMS}
    lengths = {n: shape[0] for n, shape in shapes.items()} | dict.fromkeys(NORMS, 8)
    layer |= {f"{n}.bias": torch.randn(lengths[n], generator=rng) for n in biases}
    return layer | {"self_attn.rotary.table": torch.randn(3, generator=rng)}  # is not used here


def random_scales(layer, keys, rng):
    """{key: scales of the input that the linears of the key read}, from 1/4 to 4."""
    inputs = {key: layer[f"{READERS[key][0]}.weight"].shape[1] for key in keys}
    return {key: 4.0 ** (2 * torch.rand(k, generator=rng) - 1) for key, k in inputs.items()}


def run_layer(layer, x):
    """What a layer (without rotation) makes of the tokens x [T, width], in float64."""

    def norm(name, x):
        unit = x / x.square().mean(-1, keepdim=True).sqrt()
        return unit * layer[f"{name}.weight"] + layer.get(f"{name}.bias", 0)

    def linear(name, x):
        return x @ layer[f"{name}.weight"].T + layer.get(f"{name}.bias", 0)

    def heads(name, x):
        return linear(name, x).unflatten(-1, (-1, HEAD)).transpose(0, 1)  # [heads, T, HEAD]

    u = norm("input_layernorm", x)
    q, k, v = (heads(f"self_attn.{part}_proj", u) for part in "qkv")
    k, v = (t.repeat_interleave(len(q) // len(t), 0) for t in (k, v))
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    p = (q @ k.mT).masked_fill(later, -math.inf).softmax(-1)
    h = x + linear("self_attn.o_proj", (p @ v).transpose(0, 1).flatten(1))
    u = norm("post_attention_layernorm", h)
    inner = torch.nn.functional.silu(linear("mlp.gate_proj", u)) * linear("mlp.up_proj", u)
    return h + linear("mlp.down_proj", inner)


def fold(student, layer, scales):
    """The folded layer of the student, with the checks that every use needs."""
    folded = student.fold_layer(layer, scales)
    kind = type(folded).__name__
    assert isinstance(folded, dict), f"fold_layer(...) returned {kind}, not a dict"
    missing, new = sorted(layer.keys() - folded.keys()), sorted(folded.keys() - layer.keys())
    assert not missing, f"the folded layer lacks {', '.join(missing)}: tensors without factor stay"
    assert not new, f"the folded layer has {', '.join(new)}, which the layer has not"
    for name, tensor in layer.items():
        expect_tensor(folded[name], f"{name!r} of the result", torch.float32, tensor.shape)
    return folded


def expect_same_function(layer, folded, rng, what):
    """The outputs of both layers are equal, but for a few float32 roundings of each weight."""
    x = torch.randn(6, 8, generator=rng).double()
    leaves = {name: tensor.double().requires_grad_() for name, tensor in folded.items()}
    y, exact = run_layer(leaves, x), run_layer({n: t.double() for n, t in layer.items()}, x)
    off = (y - exact).detach()
    (y * off.sign()).sum().backward()  # how far a change of each weight moves what is compared
    used = [leaf for leaf in leaves.values() if leaf.grad is not None]
    slack = sum((leaf.grad * leaf).abs().sum().item() for leaf in used)
    moved = off.abs().sum().item() / off.numel()
    allowed = 16 * FLOAT32 * slack / off.numel()
    expect_at_most(moved, allowed, f"{what}: the mean change of the layer's output")


def expect_scaled(layer, folded, scales, keys, what):
    """The linears that read a scaled input hold W diag(s), to a few roundings."""
    for key in keys:
        for name in READERS[key]:
            right = layer[f"{name}.weight"].double() * scales[key].double()
            expect_close(
                folded[f"{name}.weight"], right, what=f"{what}: {name}.weight", rtol=8 * FLOAT32
            )


@exercise(
    "ex4",
    points=2,
    invariant="q, k, v and gate, up hold W diag(s), and the layer's output is what it was",
    cause="1 / s put nowhere, into one of the readers, or into the norm's gain but not its bias; "
    "or a further tensor, which needs no factor and stays, was left out",
)
def test_inputs_from_a_norm(student, rng):
    biased = (*NORMS, "self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj")
    for biases, what in (((), "no biases"), (biased, "with biases")):
        layer = random_layer(rng, biases=biases)
        for keys in (("qkv",), ("gate_up",), ("gate_up", "qkv")):
            scales = random_scales(layer, keys, rng)
            folded = fold(student, layer, scales)
            expect_scaled(layer, folded, scales, keys, f"{what}, scales of {keys}")
            expect_same_function(layer, folded, rng, f"{what}, scales of {keys}")


@exercise(
    "ex4",
    points=2,
    invariant="o and down hold W diag(s), the layer's output is what it was, and gate_proj too",
    cause="1 / s in the columns of a weight where its rows make the channels, in a linear behind "
    "which the path is not linear, or in a weight but not in its bias",
)
def test_inputs_from_a_linear(student, rng):
    few = ("self_attn.v_proj", "mlp.up_proj")
    cases = (((), "no biases"), (tuple(LINEARS), "with biases"), (few, "biases of v and up"))
    for biases, what in cases:
        layer = random_layer(rng, biases=biases)
        for keys in (("o",), ("down",), ("down", "o")):
            scales = random_scales(layer, keys, rng)
            folded = fold(student, layer, scales)
            expect_scaled(layer, folded, scales, keys, f"{what}, scales of {keys}")
            expect_same_function(layer, folded, rng, f"{what}, scales of {keys}")
            gate = "mlp.gate_proj.weight"
            assert torch.equal(folded[gate], layer[gate]), f"{what}: gate_proj has changed"


@exercise(
    "ex4",
    points=2,
    invariant="all scales at once; with shared key and value heads those of o: ValueError",
    cause="a tensor scaled and divided lost one of the two, columns were divided where "
    "a matrix is square, or it goes unnoticed that one row of v_proj feeds several channels of "
    "o_proj where heads are shared: where v_proj has fewer rows than o_proj has columns, and not "
    "by the shape of another matrix",
)
def test_all_at_once_and_shared_heads(student, rng):
    biased = (*LINEARS, *NORMS)
    layer = random_layer(rng, biases=biased)
    scales = random_scales(layer, READERS, rng)
    folded = fold(student, layer, scales)
    expect_scaled(layer, folded, scales, ("o", "down"), "all scales")
    expect_same_function(layer, folded, rng, "all scales")
    square = random_layer(rng, heads=4, kv_heads=4, biases=biased, inner=8)  # as in many models
    scales = random_scales(square, READERS, rng)
    folded = fold(student, square, scales)
    expect_scaled(square, folded, scales, ("o", "down"), "square matrices")
    expect_same_function(square, folded, rng, "square matrices")
    shared = random_layer(rng, heads=4, kv_heads=2, biases=biased)
    scales = random_scales(shared, READERS, rng)
    expect_error(
        ValueError,
        lambda: student.fold_layer(shared, scales),
        "4 heads that share 2 heads of keys and values, with scales of o,",
    )
    rest = {key: s for key, s in scales.items() if key != "o"}
    folded = fold(student, shared, rest)
    expect_scaled(shared, folded, scales, ("down",), "shared heads without scales of o")
    expect_same_function(shared, folded, rng, "shared heads without scales of o")


# ---- exercise 5: packing ---------------------------------------------------------------------


@exercise(
    "ex5",
    points=2,
    invariant="the codes 1, 2, 3 are the word 0x321 = 801; 15 in place 7 makes the word negative",
    cause="the first code in the highest bits, words in int64, or 32 bits taken as unsigned",
)
def test_words_by_hand(student, rng):
    codes = torch.tensor([[1, 2, 3, 0, 0, 0, 0, 0, 15], [0, 0, 0, 0, 0, 0, 0, 15, 0]])
    words = expect_tensor(student.pack_int4(codes), "pack_int4(codes)", torch.int32, (2, 2))
    right = [[801, 15], [-268435456, 0]]
    assert words.tolist() == right, f"the words are {words.tolist()}, expected {right}"


@exercise(
    "ex5",
    points=2,
    invariant="unpacking gives the codes back, whatever their number; other codes: ValueError",
    cause="shifts in uint8, which lose the upper bits, the sign of the word drawn in by >>, the "
    "filling of the last word not cut off, or no check of the range",
)
def test_round_trip_of_codes(student, rng):
    for shape in ((8,), (3, 21), (2, 3, 5)):
        codes = torch.randint(0, 16, shape, generator=rng).to(torch.uint8)
        codes[..., -1] = 15
        words = student.pack_int4(codes)
        expect_tensor(words, "pack_int4(...)", torch.int32, (*shape[:-1], math.ceil(shape[-1] / 8)))
        back = student.unpack_int4(words, shape[-1])
        expect_tensor(back, "unpack_int4(...)", torch.uint8, shape)
        last, was = back.flatten()[-8:].tolist(), codes.flatten()[-8:].tolist()
        assert torch.equal(back, codes), (
            f"{int((back != codes).sum())} codes of {list(shape)} changed: the last ones are "
            f"{last}, and were {was}"
        )
    for bad in (16, -1, 256):
        expect_error(
            ValueError,
            lambda bad=bad: student.pack_int4(torch.tensor([3, bad])),
            f"the codes 3, {bad}",
        )


@exercise(
    "ex5",
    points=2,
    invariant="the packed product is that of the dequantized weight, bias included",
    cause="pack_int4 or unpack_int4 wrong (see above), zero points unpacked in the wrong shape, "
    "the product in float16, the bias forgotten, a square weight transposed, K taken from the "
    "words, or a weight that is decoded in the dtype of x in place of float32",
)
def test_packed_product(student, rng):
    codes = torch.randint(0, 16, (6, 24), generator=rng)
    zero = torch.randint(0, 16, (6, 3), generator=rng)
    scale = (torch.rand(6, 3, generator=rng) + 0.1).half()
    x, bias = torch.randn(5, 24, generator=rng), torch.randn(6, generator=rng)
    codes[0, :2], zero[0, 0] = torch.tensor([3, 0]), 5  # 3 - 5 is 254 in uint8
    words, zero_words = student.pack_int4(codes), student.pack_int4(zero.flatten())
    every = [t.repeat_interleave(8, dim=1) for t in (zero, scale.float())]  # [6, 24]
    w_hat = (codes - every[0]) * every[1]
    y = student.w4a16_linear(x, words, scale, zero_words, bias)
    expect_tensor(y, "w4a16_linear(...)", torch.float32, (5, 6))
    bound = (24 + 8) * FLOAT32 * (x.abs() @ w_hat.abs().T + bias.abs()).max().item()
    expect_close(y, x @ w_hat.T + bias, what="y", atol=2 * bound)
    half = student.w4a16_linear(x[None].bfloat16(), words, scale, zero_words, None)
    expect_tensor(half, "w4a16_linear(bfloat16, bias=None)", torch.bfloat16, (1, 5, 6))
    # 7 * 1.005859375 - 7 = 0.041.., with the weight 7.041.. in bfloat16 or in float32
    row, ends = torch.tensor([[7] + 11 * [0]]), torch.zeros(1, 12).bfloat16()
    ends[0, [0, 6]] = 1.0
    words, zero_words = student.pack_int4(row), student.pack_int4(torch.tensor([0, 7]))
    scale, right = torch.tensor([[1.005859375, 1.0]]).half(), 7 * 0.005859375
    what = "K = 12 in two words, groups of 6: y of two weights that are 7.041 and -7"
    y = student.w4a16_linear(ends.float(), words, scale, zero_words, None)
    expect_close(y.item(), right, what=what, atol=1e-5)
    y = student.w4a16_linear(ends, words, scale, zero_words, None)
    what = "x in bfloat16: y of two weights that are 7.041 and -7 in float32"
    expect_close(y.item(), right, what=what, atol=2.0**-6)  # of one rounding
    codes, zero = codes[:, :6], zero[:, :1]  # a square weight of one group
    words, zero_words = student.pack_int4(codes), student.pack_int4(zero.flatten())
    scale = every[1][:, :1].half()
    w_hat = (codes - zero) * scale.float()
    y = student.w4a16_linear(x[:, :6], words, scale, zero_words, None)
    expect_close(y, x[:, :6] @ w_hat.T, what="y of a weight [6, 6]", atol=2 * bound)


# ---- exercise 6: roofline --------------------------------------------------------------------


@exercise(
    "ex6",
    points=2,
    invariant="[4, 256] with 4 bits in groups of 128: 512 bytes of codes, 8 groups of 20 bits",
    cause="bits for bytes, metadata left out or counted for 16-bit weights too, groups that are "
    "not ceil(K / G) in each row, or a zero point of other than b bits",
)
def test_bytes_by_hand(student, rng):
    for bits, expected in ((4, 512 + 20), (16, 2048.0), (3, 384 + 19), (8, 1024 + 24)):
        total = expect_number(student.weight_bytes([(4, 256)], bits, 128), "weight_bytes(...)")
        assert total == expected, f"{bits} bits: {total} bytes, expected {expected}"
    both = student.weight_bytes([(4, 256), (2, 10)], 4, 128)
    assert both == 532 + 10 + 5, f"with a second weight [2, 10]: {both} bytes, expected 547"
    small = student.weight_bytes([(1, 3)], 3, 2)  # 9 bits of codes, 2 groups of 19
    assert small == 47 / 8, f"[1, 3] with 3 bits in groups of 2: {small} bytes, expected {47 / 8}"


@exercise(
    "ex6",
    points=2,
    invariant="100 bytes at 50 bytes/s are 2 s; a batch of 3 with 3 s of FLOPs makes 1 token/s",
    cause="reading and computing added, steps counted for tokens, weights read per sequence, or a "
    "cache read once per step: each sequence has its own",
)
def test_rates_by_hand(student, rng):
    for batch, expected in ((1, 0.5), (2, 1.0), (3, 1.0), (9, 1.0)):
        rate = student.decode_rate(100.0, 0.0, 10.0, batch, 50.0, 10.0)
        expect_close(
            expect_number(rate, "decode_rate"), expected, what=f"rate at {batch}", rtol=1e-12
        )
    rate = student.decode_rate(100.0, 25.0, 10.0, 2, 50.0, 10.0)
    expect_close(
        expect_number(rate, "decode_rate"), 2 / 3, what="rate with 25 bytes of KV", rtol=1e-12
    )


@exercise(
    "ex6",
    points=2,
    invariant="at the ridge both times are equal: 100 bytes at 50 bytes/s and 1 s each meet at 2",
    cause="peak / bandwidth alone, which is FLOPs per byte and not a batch, the cache left out, a "
    "whole batch in place of 2.5, or no inf where computing never catches up: ZeroDivisionError, "
    "or a negative batch",
)
def test_ridge_by_hand(student, rng):
    cases = ((0.0, 2.0), (10.0, 2.5), (25.0, 4.0), (50.0, math.inf), (60.0, math.inf))
    for kv, expected in cases:
        ridge = expect_number(student.ridge_batch(100.0, kv, 10.0, 50.0, 10.0), "ridge_batch(...)")
        expect_close(ridge, expected, what=f"ridge with {kv:g} bytes of KV", rtol=1e-12)
