"""AWQ's parts on one linear: what scaling, searching and clipping promise, and brute force."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.quantization.awq import (
    FLOOR,
    RATIOS,
    candidate_scales,
    clip_weight,
    corrected_bias,
    keep_channels,
    mean_magnitude,
    rtn,
    scale_channels,
    scaled_rtn,
    search_clip,
    search_scales,
    top_channels,
)
from efflib.quantization.linear import group_count

seeds = st.integers(0, 10**6)


def layer(seed, n=12, k=32, tokens=40, outliers=2, dtype=torch.float32):
    """(x [1, T, K] with a few large channels, w [N, K])."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, tokens, k, generator=generator, dtype=dtype)
    x[..., torch.randperm(k, generator=generator)[:outliers]] *= 20
    return x, torch.randn(n, k, generator=generator, dtype=dtype)


# Of a mean squared error in float32: outputs are sums of 32 products, 50 in absolute values, so off
# by 32 * 2^-24 * 50 at most, beside errors of 0.3 or more, and the square doubles it
LOSS = 1e-3


def output_error(x, w_hat, w):
    return (x @ (w_hat - w).T).square().mean().item()


# -- mixed precision and scaling by hand --------------------------------------------------------


@settings(deadline=None)
@given(seeds, st.sampled_from([2, 3, 4]), st.sampled_from([8, 20, 64]))
def test_kept_columns_are_exact_and_the_others_rounded(seed, bits, group_size):
    x, w = layer(seed)
    kept = top_channels(mean_magnitude(x), 0.1)
    assert len(kept) == 3
    mixed, rounded = keep_channels(w, kept, bits, group_size), rtn(w, bits, group_size)
    others = [j for j in range(32) if j not in kept.tolist()]
    assert torch.equal(mixed[:, kept], w[:, kept])
    assert torch.equal(mixed[:, others], rounded[:, others])
    assert torch.equal(keep_channels(w, torch.arange(32), bits, group_size), w)


def test_the_large_channels_are_the_salient_ones():
    """With 2 of 32 channels 20 times the others, they hold 2 400 / 2 430 of the squared error."""
    x, w = layer(0, n=64, tokens=200)
    error = output_error(x, rtn(w, 4, 32), w)
    by_x = output_error(x, keep_channels(w, top_channels(mean_magnitude(x), 2 / 32), 4, 32), w)
    by_w = output_error(x, keep_channels(w, top_channels(mean_magnitude(w), 2 / 32), 4, 32), w)
    assert by_x < error / 20 and by_w > error / 2


@settings(deadline=None)
@given(seeds, st.sampled_from([2.0, 4.0]))
def test_scaling_inside_the_range_divides_the_error_bound(seed, factor):
    """The step stays when s |w| stays in the group's range; then |error| <= step / (2 s)."""
    _, w = layer(seed)
    w[:, 0] = w[:, 1:].amin(1) / 5  # group of 32: far inside its range, also 4 times as large
    scaled = scale_channels(w, torch.tensor([0]), factor, 4, 32)
    others = slice(1, None)
    # dividing by a power of two is exact, so nothing else may move
    assert torch.equal(scaled[:, others], rtn(w, 4, 32)[:, others])
    hi, lo = w.amax(1).clamp(min=0), w.amin(1).clamp(max=0)
    step = (hi - lo) / 15
    assert ((scaled[:, 0] - w[:, 0]).abs() <= step / (2 * factor) * (1 + 1e-5)).all()


@settings(deadline=None)
@given(seeds, st.floats(0.1, 10))
def test_scaling_all_channels_alike_changes_nothing(seed, factor):
    _, w = layer(seed)
    power = 2.0 ** round(np.log2(factor))  # exact in floating point
    assert torch.equal(scale_channels(w, torch.arange(32), power, 3, 8), rtn(w, 3, 8))


@settings(deadline=None)
@given(seeds)
def test_a_factor_on_rows_goes_through_rounding(seed):
    """Why 1 / s may be folded into the rows of the linear before (powers of two: exactly)."""
    _, w = layer(seed)
    rows = 2.0 ** torch.randint(-4, 5, (12, 1), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(rtn(w * rows, 4, 16), rtn(w, 4, 16) * rows)


# -- the search of scales -----------------------------------------------------------------------


@settings(deadline=None)
@given(seeds, st.sampled_from(RATIOS))
def test_scales_are_positive_centred_and_undone_by_the_input(seed, ratio):
    x, w = layer(seed, dtype=torch.float64)
    s = candidate_scales(mean_magnitude(x), ratio)
    assert (s > 0).all()
    torch.testing.assert_close(s.max() * s.min(), torch.ones(()).double(), rtol=1e-12, atol=0)
    torch.testing.assert_close((x / s) @ (w * s).T, x @ w.T, rtol=1e-10, atol=1e-10)
    if ratio == 0:
        assert torch.equal(s, torch.ones_like(s))


def test_a_channel_that_is_never_active_gets_the_floor():
    s = candidate_scales(torch.tensor([0.0, 1.0, 4.0]), 0.5)
    expected = torch.tensor([FLOOR, 1, 2]) / (2 * FLOOR) ** 0.5
    torch.testing.assert_close(s, expected, rtol=1e-6, atol=0)
    assert torch.equal(candidate_scales(torch.zeros(3), 0.95), torch.ones(3))


@settings(deadline=None, max_examples=30)
@given(seeds, st.sampled_from([2, 3, 4]), st.sampled_from([8, 20, 64]), st.integers(0, 3))
def test_the_search_is_never_worse_than_rounding(seed, bits, group_size, outliers):
    x, w = layer(seed, outliers=outliers)
    found = search_scales(x, [w[:5], w[5:]], bits, group_size)
    assert len(found.losses) == 20 and found.ratio == RATIOS[found.losses.index(min(found.losses))]
    assert found.losses[0] == pytest.approx(output_error(x, rtn(w, bits, group_size), w), rel=LOSS)
    assert torch.equal(found.scales, candidate_scales(mean_magnitude(x), found.ratio))
    w_hat = scaled_rtn(w, found.scales, bits, group_size)
    assert output_error(x, w_hat, w) == pytest.approx(min(found.losses), rel=LOSS)


def test_the_search_helps_where_channels_are_large():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 512, 256, generator=generator)
    x[..., torch.randperm(256, generator=generator)[:6]] *= 20
    losses = search_scales(x, [torch.randn(64, 256, generator=generator)], 4, 64).losses
    assert losses[0] / min(losses) > 2  # AutoAWQ on 6 large channels of 256: 3.4


def brute_rounding(w, bits, size):
    """Group-wise asymmetric rounding in float64, group by group, and the distance to a tie."""
    w_hat, nearest = np.empty_like(w), 1.0
    for n in range(w.shape[0]):
        for start in range(0, w.shape[1], size):
            g = w[n, start : start + size]
            lo, hi = min(g.min(), 0), max(g.max(), 0)
            s = (hi - lo) / (2**bits - 1)
            z = -round(lo / s)
            places = np.append(g, lo) / s
            nearest = min(nearest, np.abs(places - np.floor(places) - 0.5).min())
            w_hat[n, start : start + size] = (np.clip(np.round(g / s) + z, 0, 2**bits - 1) - z) * s
    return w_hat, nearest


@pytest.mark.parametrize("bits, group_size", [(4, 16), (3, 16), (4, 12)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_brute_force_in_float64(seed, bits, group_size):
    x, w = layer(seed)
    x[..., 5] = 0  # a channel that is never active
    found = search_scales(x, [w[:4], w[4:]], bits, group_size)
    a, b = x[0].double().numpy(), w.double().numpy()
    losses, ties = [], []
    for i in range(20):
        s = np.maximum(np.abs(a).mean(0) ** (i / 20), 1e-4)
        s /= np.sqrt(s.max() * s.min())
        w_hat, nearest = brute_rounding(b * s, bits, group_size)
        losses.append((((a / s) @ w_hat.T - a @ b.T) ** 2).mean())
        ties.append(nearest)
    # a place of at most 15 steps after ten roundings or so is off by 1e-5: nearer to a tie, float32
    # and float64 may take different codes
    sure, losses = np.array(ties) > 1e-5, np.array(losses)
    assert sure.sum() > 10
    np.testing.assert_allclose(np.array(found.losses)[sure], losses[sure], rtol=LOSS)
    best = RATIOS.index(found.ratio)
    assert losses[best] <= losses[sure].min() * (1 + LOSS) or not sure[best]


def test_the_block_decides_which_error_counts():
    """A block that reads only the first linear: the other's error must not matter."""
    x, w = layer(3)
    first = search_scales(x, [w[:5]], 3, 8)
    both = search_scales(x, [w[:5], w[5:]], 3, 8, block=lambda ws: x @ ws[0].T)
    assert both.losses == first.losses and torch.equal(both.scales, first.scales)


# -- clipping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("group_size", [8, 12, 64])  # 12 does not divide 32, 64 is more
@pytest.mark.parametrize("tokens", [1, 7, 600])
def test_clipping_against_the_definition(tokens, group_size):
    """Every group: the error of its share of the output, for every candidate, in float64."""
    x, w = layer(tokens, tokens=tokens, dtype=torch.float64)
    limits = search_clip(x, w, 3, group_size)
    assert limits.numel() == group_count((12, 32), group_size)
    for n in range(12):
        for g, start in enumerate(range(0, 32, group_size)):
            part = w[n : n + 1, start : start + group_size]
            inputs = x[0, :, start : start + group_size]
            errors = {}
            for i in range(10):
                limit = part.abs().max() * (1 - i / 20)
                w_hat = rtn(part.clamp(-limit, limit), 3, 64)
                errors[limit.item()] = (inputs @ (w_hat - part).T).square().mean().item()
            chosen = errors[limits[n, g].item()]
            assert chosen <= min(errors.values()) * (1 + 1e-9) + 1e-24
            assert chosen <= next(iter(errors.values()))  # the first is plain rounding


def test_clip_weight_clamps_each_group_by_its_limit():
    w = torch.tensor([[1.0, -4.0, 3.0, -0.5, 9.0]])
    limit = torch.tensor([[2.0, 1.0, 10.0]])
    assert clip_weight(w, limit, 2).tolist() == [[1.0, -2.0, 1.0, -0.5, 9.0]]


def test_nothing_that_is_passed_in_changes():
    x, w = layer(0)
    w.requires_grad_()
    before = x.clone(), w.detach().clone()
    channels = top_channels(mean_magnitude(x), 0.1)
    results = [
        keep_channels(w, channels, 3, 8),
        scale_channels(w, channels, 3.0, 3, 8),
        search_scales(x, [w], 3, 8).scales,
        clip_weight(w, search_clip(x, w, 3, 8), 8),
    ]
    assert torch.equal(x, before[0]) and torch.equal(w, before[1])
    assert not any(r.requires_grad for r in results)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_keep_their_dtype(dtype):
    x, w = layer(0, dtype=torch.float64)
    x, w = x.to(dtype), w.to(dtype)
    assert scaled_rtn(w, search_scales(x, [w], 4, 8).scales, 4, 8).dtype == dtype
    assert clip_weight(w, search_clip(x, w, 4, 8), 8).dtype == dtype


def test_bad_input_is_named():
    x, w = layer(0)
    with pytest.raises(ValueError, match=r"weight \(12, 31\) does not read x \(1, 40, 32\)"):
        search_scales(x, [w[:, 1:]], 4, 8)
    with pytest.raises(ValueError, match=r"weight \(12, 31\) does not read x \(1, 40, 32\)"):
        search_clip(x, w[:, 1:], 4, 8)
    with pytest.raises(ValueError, match=r"x \(1, 40, 32\) must be finite, got NaN or infinity"):
        search_scales(torch.full_like(x, float("nan")), [w], 4, 8)
    with pytest.raises(ValueError, match="no finite loss among"):
        search_scales(x, [w], 4, 8, block=lambda ws: ws[0] / 0)
    with pytest.raises(ValueError, match="fraction must be in"):
        top_channels(torch.ones(4), 0.0)
    with pytest.raises(ValueError, match=r"scales \(32,\) must be positive"):
        scaled_rtn(w, torch.zeros(32), 4, 8)
    with pytest.raises(
        ValueError, match=r"limit \(12, 3\) must have one entry per group \(12, 4\)"
    ):
        clip_weight(w, torch.ones(12, 3), 8)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_corrected_bias_keeps_the_mean_output(seed):
    x, w = layer(seed, dtype=torch.float64)
    w_hat, bias = rtn(w, 3, 8), torch.arange(12.0, dtype=torch.float64)
    for before in (None, bias):
        b = corrected_bias(x, w, w_hat, before)
        y = x @ w.T + (0 if before is None else before)
        torch.testing.assert_close((x @ w_hat.T + b).mean((0, 1)), y.mean((0, 1)))
    assert bias.equal(torch.arange(12.0, dtype=torch.float64))
    with pytest.raises(ValueError):
        corrected_bias(x[..., :-1], w, w_hat)
