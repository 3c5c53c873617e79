"""Codes of keys and values: error bounds, direction of the groups, window, and bytes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.models.cache import KVCache
from efflib.models.llama import Llama, LlamaConfig
from efflib.models.rotary import rotate
from efflib.quantization.kv import QuantizedKVCache
from efflib.quantization.kv_codes import (
    bits_per_value,
    dequantize_kv,
    quantize_apart,
    quantize_kv,
)

DIRECTIONS = ("channel", "token")


def states(seed=0, tokens=64, d=32, heads=2):
    return torch.randn(1, heads, tokens, d, generator=torch.Generator().manual_seed(seed))


def group_ranges(x, group, direction):
    """(range, |low|) of each value's group, by a loop. Both [B, H, S, d]."""
    span, low = torch.empty_like(x), torch.empty_like(x)
    if direction == "channel":
        slices = [(slice(i, i + group), slice(None)) for i in range(0, x.shape[2], group)]
    else:
        slices = [(slice(None), slice(i, i + group)) for i in range(0, x.shape[3], group)]
    dim = 2 if direction == "channel" else 3
    for rows, columns in slices:
        part = x[:, :, rows, columns]
        lo, hi = part.amin(dim, keepdim=True), part.amax(dim, keepdim=True)
        span[:, :, rows, columns], low[:, :, rows, columns] = hi - lo, lo.abs()
    return span, low


@settings(deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([4, 16, 32]),
    st.sampled_from(DIRECTIONS),
    st.floats(-50, 50),
)
def test_the_error_is_at_most_half_a_step(seed, bits, group, direction, offset):
    """In the groups of the stated direction; and float16 of s and m, at most 2^-11 of them."""
    x = states(seed) + offset
    x_hat = dequantize_kv(quantize_kv(x, bits, group, direction))
    span, low = group_ranges(x, group, direction)
    # (q s), m and their sum round: 2^-11 of range and low, with 1 % for float32 and clamping
    bound = span / (2**bits - 1) / 2 + 1.01 * 2.0**-11 * (low + span)
    assert ((x_hat - x).abs() <= bound).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_values_of_the_grid_come_back(direction):
    """Small integers times 1/4, with both ends in every group: exact in float16."""
    q = torch.randint(0, 4, (1, 2, 32, 32), generator=torch.Generator().manual_seed(0))
    q[:, :, ::4], q[:, :, 1::4] = 0, 3  # both ends in every 4 tokens
    x = q / 4 - 2  # [B, H, S, d]
    x = x if direction == "channel" else x.mT.contiguous()
    assert torch.equal(dequantize_kv(quantize_kv(x, 2, 4, direction)), x)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_constant_groups_need_no_range(direction):
    x = torch.full((1, 1, 32, 32), 5.5)
    assert torch.equal(dequantize_kv(quantize_kv(x, 2, 16, direction)), x)


def test_an_outlier_channel_spoils_only_itself_per_channel():
    x = states()
    spiked = x.clone()
    spiked[..., 7] *= 50
    others = [c for c in range(32) if c != 7]
    per_channel = [
        dequantize_kv(quantize_kv(y, 2, 32, "channel"))[..., others] for y in (x, spiked)
    ]
    assert torch.equal(*per_channel)
    per_token = [dequantize_kv(quantize_kv(y, 2, 32, "token"))[..., others] for y in (x, spiked)]
    error = [(y - x[..., others]).square().mean() for y in per_token]
    # before: step^2 / 12 with 3 steps for a range of at most 5; after: most tokens have one level
    # for all 31 others, which is off by their variance, 1, or more
    assert error[0] < 0.25 and error[1] > 0.5


def test_bytes_are_those_of_the_formula():
    for bits in (2, 4, 8):
        for direction in DIRECTIONS:
            codes = quantize_kv(states(), bits, 16, direction)
            assert codes.nbytes * 8 == 2 * 64 * 32 * bits_per_value(bits, 16)
    assert bits_per_value(2, 32) == 3.0


# -- the cache ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.sampled_from(DIRECTIONS))
def test_the_window_and_the_bytes(chunks, keys):
    """Against a plain concatenation: which tokens are exact, and what is held, after each chunk."""
    cache = QuantizedKVCache(4, group_size=4, residual=8, keys=keys)
    k, v = states(1, sum(chunks)), states(2, sum(chunks))
    total, seen_keys, seen_values = 0, 0, 0  # seen: quantized by earlier calls
    for chunk in chunks:
        new = slice(total, total + chunk)
        total += chunk
        out_k, out_v = cache.append(0, k[:, :, new], v[:, :, new])
        assert cache.length == total and out_k.shape == out_v.shape == (1, 2, total, 32)
        direction = "channel" if keys == "channel" else "token"
        old_k = dequantize_kv(quantize_kv(k[:, :, :seen_keys], 4, 4, direction)) if seen_keys else k
        old_v = (
            dequantize_kv(quantize_kv(v[:, :, :seen_values], 4, 4, "token")) if seen_values else v
        )
        assert torch.equal(out_k[:, :, :seen_keys], old_k[:, :, :seen_keys])
        assert torch.equal(out_v[:, :, :seen_values], old_v[:, :, :seen_values])
        assert torch.equal(out_k[:, :, seen_keys:], k[:, :, seen_keys:total])
        assert torch.equal(out_v[:, :, seen_values:], v[:, :, seen_values:total])
        seen_values = max(0, total - 8)
        seen_keys = total // 8 * 8 if keys == "channel" else seen_values
        quantized = (seen_keys + seen_values) * 2 * 32
        recent = (2 * total - seen_keys - seen_values) * 2 * 32
        assert cache.nbytes * 8 == quantized * bits_per_value(4, 4) + recent * 32


def tiny():
    torch.manual_seed(0)
    return Llama(LlamaConfig(50, 32, 44, 2, 2, 1, 16)).eval()


def run(model, ids, cache, chunk):
    with torch.no_grad():
        return torch.cat([model(part, cache=cache) for part in ids.split(chunk, dim=1)], dim=1)


@pytest.mark.parametrize("keys", DIRECTIONS)
def test_in_the_model(keys):
    """A prompt is exact, more bits are closer, and the last R tokens alone are exact too."""
    model = tiny()
    ids = torch.randint(0, 50, (2, 48), generator=torch.Generator().manual_seed(1))
    exact = run(model, ids, KVCache(), 4)
    whole = run(model, ids, QuantizedKVCache(2, 16, 16, keys), 48)
    torch.testing.assert_close(whole, exact)
    errors = []
    for bits in (2, 4, 8):
        out = run(model, ids, QuantizedKVCache(bits, 16, 16, keys), 4)
        torch.testing.assert_close(out[:, :16], exact[:, :16])  # nothing was quantized yet
        errors.append((out - exact)[:, 16:].norm().item())
    assert errors[0] > 2 * errors[1] > 8 * errors[2] > 0


def test_nothing_that_is_passed_in_changes_or_is_kept():
    cache = QuantizedKVCache(4, 4, 4)
    k, v = states(1, 6), states(2, 6)
    before = k.clone(), v.clone()
    cache.append(0, k, v)
    expected = cache.append(1, k, v)
    k.zero_()
    again = cache.append(0, before[0][:, :, :0], before[1][:, :, :0])
    assert torch.equal(v, before[1]) and torch.equal(expected[0], before[0])
    assert torch.equal(again[0][:, :, 4:], before[0][:, :, 4:])


def test_bad_input_is_named():
    with pytest.raises(
        ValueError, match="residual=24 must be a positive multiple of group_size=16"
    ):
        QuantizedKVCache(4, 16, 24)
    with pytest.raises(ValueError, match="got 'row'"):
        QuantizedKVCache(4, 16, 16, keys="row")
    with pytest.raises(ValueError, match=r"groups of 5 per channel must divide dimension 2 .*64"):
        quantize_kv(states(), 4, 5, "channel")
    with pytest.raises(ValueError, match="8 codes of 2 bits do not fill 32-bit words"):
        quantize_kv(states(d=8), 2, 4, "token")
    with pytest.raises(ValueError, match="float16 cannot hold values of size"):
        quantize_kv(states() * 1e6, 4, 4, "token")


# -- outliers apart, and keys before the rotary embedding -----------------------------------------


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_outliers_come_back_and_stretch_no_group(direction):
    x = states(3, 64)
    spiked = x.clone()
    places = [(0, 0, 5, 3), (0, 1, 40, 17), (0, 1, 63, 31)]
    for place in places:
        spiked[place] = 100.0
    apart = quantize_apart(spiked, 2, 16, direction, outliers=3 / x.numel())
    back = apart.decode()
    assert [back[place].item() for place in places] == [100.0] * 3
    others = torch.ones_like(x, dtype=torch.bool)
    for place in places:
        others[place] = False
    span, low = group_ranges(x, 16, direction)  # of the groups as if there were none
    bound = span / 3 / 2 + 1.01 * 2.0**-11 * (low + span)
    assert ((back - spiked).abs() <= bound)[others].all()
    plain = dequantize_kv(quantize_kv(spiked, 2, 16, direction))
    assert not ((plain - spiked).abs() <= bound)[others].all()


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_bytes_of_outliers_and_joined_parts(direction):
    x = states(4, 64)
    whole = quantize_apart(x, 2, 16, direction, 0.05)
    assert whole.nbytes == quantize_kv(x, 2, 16, direction).nbytes + len(whole.values) * 6
    assert len(whole.values) == round(0.05 * x.numel())
    parts = [quantize_apart(p, 2, 16, direction, 0.05) for p in x.split(32, dim=2)]
    joined = parts[0].joined(parts[1])
    assert torch.equal(joined.decode(), torch.cat([p.decode() for p in parts], dim=2))
    assert (
        quantize_apart(x, 2, 16, direction, 0.0).nbytes == quantize_kv(x, 2, 16, direction).nbytes
    )
    assert bits_per_value(2, 16, 0.05) * x.numel() == pytest.approx(whole.nbytes * 8, rel=1e-3)


def test_in_a_constant_group_nothing_is_unusual():
    x = torch.full((1, 1, 32, 32), 2.0)
    x[0, 0, 3, 3] = 9.0
    back = quantize_apart(x, 2, 16, "token", 1 / x.numel()).decode()
    assert torch.equal(back, x)


@pytest.mark.parametrize(
    "options", [{"outliers": 0.02}, {"theta": 1e4}, {"outliers": 0.02, "theta": 1e4}]
)
def test_variants_of_the_cache_in_the_model(options):
    """Exact while nothing is a code, and 8 bits close to exact afterwards."""
    model = tiny()
    ids = torch.randint(0, 50, (2, 48), generator=torch.Generator().manual_seed(1))
    exact = run(model, ids, KVCache(), 4)
    cache = QuantizedKVCache(8, 16, 16, **options)
    out = run(model, ids, cache, 4)
    torch.testing.assert_close(out[:, :16], exact[:, :16])
    error = (out - exact)[:, 16:].norm() / exact[:, 16:].norm()
    assert 0 < error < 0.01 and cache.length == 48
    assert cache.bits_per_value == pytest.approx(10 + 48 * options.get("outliers", 0))


def test_keys_before_rotation_are_quantized_as_they_come():
    """A channel that never changes is exact before the rotation, and spread over two after it."""
    k = torch.zeros(1, 1, 64, 32)
    k[..., 0], k[..., 5] = 8.0, torch.linspace(-1, 1, 64)
    v = states(5, 64, heads=1)
    positions = torch.arange(64)
    turned = rotate(k, positions, 1e4)
    before, after = QuantizedKVCache(2, 32, 32, theta=1e4), QuantizedKVCache(2, 32, 32)
    before.append(0, k, v), after.append(0, turned, v)
    nothing = k[:, :, :0], v[:, :, :0]
    errors = [(c.append(0, *nothing)[0] - turned).norm() for c in (before, after)]
    assert errors[0] < 0.2 * errors[1]


def test_bad_variants_are_named():
    with pytest.raises(ValueError, match="outliers=0.5 must be a share"):
        QuantizedKVCache(4, 16, 16, outliers=0.5)
    with pytest.raises(ValueError, match="theta=0 must be positive"):
        QuantizedKVCache(4, 16, 16, theta=0)
