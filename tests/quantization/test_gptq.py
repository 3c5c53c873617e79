"""GPTQ against explicit inverses in float64, and what has to hold whatever the weights are."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efflib.hessian import damped, gram, inverse_factor
from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.gptq import (
    bits_a_weight,
    dequantize_gptq,
    gptq,
    gptq_bits,
    gptq_model,
    output_error,
)
from efflib.quantization.linear import dequantize_weight, quantize_weight
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import model_bits, quantizable_linears, weight_bits
from efflib.sequential import block_linears

SEEDS = st.integers(0, 10**6)
BITS = st.integers(2, 4)
GRIDS = ["static", "fresh", "lazy"]
K = 32


def layer(seed, n=6, k=K, tokens=200):
    """(W [n, k] float32, H [k, k] of channels of unlike size that go together)."""
    g = torch.Generator().manual_seed(seed)
    mix = torch.eye(k) + torch.randn(k, k, generator=g) / k**0.5
    size = torch.logspace(-1, 1, k)[torch.randperm(k, generator=g)]
    return torch.randn(n, k, generator=g), gram(torch.randn(tokens, k, generator=g) @ mix * size)


def surgeon(w, h, bits, group, fresh, order, damping=0.01):
    """Column by column, an explicit inverse for each: optimal brain surgeon with rounding.

    The grids of `group` columns in the order of rounding, or as stored, unless fresh.
    """
    h, now, k = damped(h, damping), w.double().clone(), w.shape[1]
    out = torch.empty_like(now)
    for t, j in enumerate(order.tolist()):
        mine = order[t - t % group : t - t % group + group]
        if not fresh:
            mine = torch.arange(j - j % group, min(j - j % group + group, k))
        elif t % group:
            mine = None  # the grid of the columns before
        if mine is not None:
            values = (now if fresh else w.double())[:, mine]
            low = values.amin(1).clamp(max=0).float()
            scale = (values.amax(1).clamp(min=0).float() - low) / (2**bits - 1)
            zero = torch.round(-low / scale)
        q = (torch.round(now[:, j].float() * (1 / scale)) + zero).clamp(0, 2**bits - 1)
        out[:, j] = ((q - zero) * scale).double()
        left = order[t:]
        inverse = torch.linalg.inv(h[left][:, left])
        e = (now[:, j] - out[:, j]) / inverse[0, 0]
        now[:, left] -= e[:, None] * inverse[0]
    return out.float()


@given(SEEDS, BITS, st.sampled_from([5, 8, 40]), st.booleans(), st.booleans())
@settings(max_examples=20)
def test_equal_to_explicit_inverses(seed, bits, group, act_order, fresh):
    w, h = layer(seed, n=3, k=20)
    order = h.diagonal().argsort(descending=True) if act_order else torch.arange(20)
    kind = {"act_order": act_order, "grids": "fresh" if fresh else "static", "block": 6}
    ours = dequantize_gptq(gptq(w, h, bits, group, **kind))
    theirs = surgeon(w, h, bits, group, fresh, order)
    # bounds of fresh groups, and so their scales, are float32 numbers that rounding may move
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@given(SEEDS, BITS, st.sampled_from([8, "channel"]), st.booleans(), st.sampled_from(GRIDS))
def test_a_diagonal_hessian_gives_rounding_to_nearest_bit_by_bit(seed, bits, group, act, grids):
    """Nothing can be made good: all that GPTQ gains is what lies beside the diagonal."""
    w, h = layer(seed)
    act = act and grids == "static"  # other orders make other groups
    q = gptq(w, torch.diag(h.diagonal()), bits, group, act_order=act, grids=grids)
    assert torch.equal(dequantize_gptq(q), dequantize_weight(quantize_weight(w, bits, group)))


def test_much_damping_leaves_rounding_to_nearest():
    w, h = layer(4)
    rtn = dequantize_weight(quantize_weight(w, 3, 8))
    errors = [
        (dequantize_gptq(gptq(w, h, 3, 8, grids="static", damping=d)) != rtn).float().mean()
        for d in (0.01, 1.0, 1e9)
    ]
    assert errors[0] > errors[1] > errors[2] == 0


@settings(max_examples=20)
@given(SEEDS, st.sampled_from([1, 3, 16, 100]), st.sampled_from([5, 8, 12, "channel"]))
def test_blocks_change_nothing(seed, block, group):
    """Nor do groups that end inside a block, if their grids are up to date."""
    w, h = layer(seed)
    for grids in ("static", "fresh"):
        whole, parts = (gptq(w, h, 3, group, grids=grids, block=b) for b in (K, block))
        assert torch.equal(whole.codes, parts.codes)
        torch.testing.assert_close(whole.scale, parts.scale, rtol=1e-6, atol=0)


def test_lazy_grids_are_fresh_ones_when_every_block_is_a_group_and_depend_on_the_block():
    w, h = layer(0)
    fresh = gptq(w, h, 3, 8)
    assert torch.equal(gptq(w, h, 3, 8, grids="lazy", block=8).codes, fresh.codes)
    # with all of the layer in one block no update has arrived: the grids are those of the float W
    one = gptq(w, h, 3, 8, grids="lazy", block=K)
    assert torch.equal(one.scale, gptq(w, h, 3, 8, grids="static").scale)
    assert not torch.equal(one.scale, fresh.scale)


@given(SEEDS, BITS, st.sampled_from([8, "channel"]), st.booleans(), st.sampled_from(GRIDS))
def test_the_errors_passed_on_add_up_to_that_of_the_output(seed, bits, group, act, grids):
    """sum e^2 = tr (W - V) H (W - V)^T with the damped H: found again from W, V and U alone."""
    w, h = layer(seed)
    v = dequantize_gptq(gptq(w, h, bits, group, act_order=act, grids=grids, damping=0.05))
    order = h.diagonal().argsort(descending=True) if act else torch.arange(K)
    u = inverse_factor(h[order][:, order], 0.05)
    change = (w.double() - v.double())[:, order]
    passed = torch.linalg.solve_triangular(u, change, upper=True, left=False)  # change = e U
    assert passed.square().sum().item() == pytest.approx(
        output_error(w, v, damped(h, 0.05)), rel=1e-9
    )


def test_less_error_than_rounding_and_less_with_the_large_channels_first():
    errors = {"rtn": 0.0, "gptq": 0.0, "act": 0.0}
    for seed in range(20):
        w, h = layer(seed)
        rtn = output_error(w, dequantize_weight(quantize_weight(w, 3, 8)), h)
        found = [gptq(w, h, 3, 8, act_order=act, grids="static") for act in (False, True)]
        plain, act = (output_error(w, dequantize_gptq(q), h) for q in found)
        assert plain < rtn and act < rtn
        for name, error in zip(errors, (rtn, plain, act), strict=True):
            errors[name] += error
    assert errors["act"] < errors["gptq"] < errors["rtn"]


def test_codes_are_read_back_by_g_idx_and_its_bits_are_counted():
    w, h = layer(1, n=6)
    stored = gptq(w, h, 4, 8, act_order=True)
    order = h.diagonal().argsort(descending=True)
    assert torch.equal(stored.g_idx[order], torch.arange(K) // 8) and stored.stored_index
    plain = weight_bits((6, K), 4, 8, False)
    assert gptq_bits(stored) == plain + 32 * K and gptq_bits(stored, index_bits=2) == plain + 2 * K
    for kind in ({}, {"act_order": True, "grids": "static"}, {"grids": "lazy"}):
        q = gptq(w, h, 4, 8, **kind)
        assert torch.equal(q.g_idx, torch.arange(K) // 8) and gptq_bits(q) == plain
        assert not q.stored_index
    one = gptq(w, h, 4, "channel", act_order=True)  # one group: nothing to store
    assert not one.stored_index and gptq_bits(one) == weight_bits((6, K), 4, "channel", False)


def test_symmetric_codes_and_every_number_of_bits():
    w, h = layer(2)
    for bits in (2, 3, 4, 8):
        q = gptq(w, h, bits, 8, symmetric=True)
        assert q.codes.dtype == torch.int8 and not q.zero.any()
        assert q.codes.abs().max() <= 2 ** (bits - 1) - 1
        assert gptq_bits(q) == weight_bits((6, K), bits, 8, True)
    assert gptq(w, h, 4, 8).codes.dtype == torch.uint8


@pytest.mark.parametrize("grids", GRIDS)
def test_a_dead_channel_becomes_0_and_moves_no_other_weight(grids):
    w, h = layer(3)
    h[5], h[:, 5] = 0, 0
    w[:, 5] = 100.0  # nor does it stretch the grid of its group
    without = torch.where(torch.arange(K) == 5, 0.0, w)
    q, same = (gptq(x, h, 3, 8, grids=grids) for x in (w, without))
    assert (dequantize_gptq(q)[:, 5] == 0).all()
    assert torch.equal(q.codes, same.codes) and torch.equal(q.scale, same.scale)


def test_equal_inputs_let_the_last_weight_take_all_of_the_error():
    """Two channels that are always equal: only the sum of their weights counts."""
    x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0)).repeat(1, 2)
    w = torch.tensor([[0.4, 0.4, 1.0, -1.0]])  # the grid is -1, -1/3, 1/3, 1
    h = torch.block_diag(gram(x), torch.eye(2))
    v = dequantize_gptq(gptq(w, h, 2, "channel", damping=1e-9))
    rounded = dequantize_weight(quantize_weight(w, 2, "channel"))
    assert output_error(w, v, h) <= output_error(w, rounded, h)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1)])
def test_the_smallest_layers(shape):
    w, h = layer(0, *shape)
    assert dequantize_gptq(gptq(w, h, 8, 4)).sub(w).abs().max() <= w.abs().max() / 100


def test_dtypes_strides_and_arguments_stay():
    w, h = layer(0)
    before = w.clone(), h.clone()
    q = gptq(w, h, 3, 8)
    assert torch.equal(w, before[0]) and torch.equal(h, before[1])
    strided = torch.stack([w, w], -1)[..., 0]
    assert torch.equal(gptq(strided, h, 3, 8).codes, q.codes)
    half = gptq(w.bfloat16(), h, 3, 8)
    assert torch.equal(half.codes, gptq(w.bfloat16().float(), h, 3, 8).codes)


def model():
    torch.manual_seed(0)
    return Llama(LlamaConfig(50, 32, 48, 3, 4, 2, 8)).eval()


def test_a_whole_model_is_better_than_rounded_and_its_bits_are_counted():
    ids = torch.randint(0, 50, (8, 24), generator=torch.Generator().manual_seed(1))
    exact = model()
    made, total = gptq_model(exact, ids, 3, 16)
    rounded, all_bits = quantize_model(exact, 3, 16)
    linears = quantizable_linears(exact)
    count = sum(m.weight.numel() for m in linears.values())
    rest = model_bits(exact) - 16 * count
    assert total == all_bits - rest and bits_a_weight(exact, total) == total / count
    inside = {f"{n}.weight" for part in block_linears(exact) for n in part}
    for name, value in made.state_dict().items():
        same = torch.equal(value, exact.state_dict()[name])
        assert same == (name not in inside)
    with torch.no_grad():
        want = exact(ids)
        assert (made(ids) - want).norm() < 0.9 * (rounded(ids) - want).norm()
    stored, more = gptq_model(exact, ids, 3, 16, act_order=True)
    assert more == total + 32 * sum(m.in_features for m in linears.values())
    apart, _ = gptq_model(exact, ids, 3, 16, sequential=False)
    first, last = "model.layers.0.mlp.down_proj.weight", "model.layers.2.mlp.down_proj.weight"
    assert torch.equal(apart.state_dict()[first], made.state_dict()[first])
    assert not torch.equal(apart.state_dict()[last], made.state_dict()[last])


def test_bad_input_is_named():
    w, h = layer(0)
    with pytest.raises(ValueError, match=r"h \[K, K\] of w \(6, 32\), got \(8, 8\)"):
        gptq(w, h[:8, :8], 4, 8)
    with pytest.raises(ValueError, match="grids is .* got 'stale'"):
        gptq(w, h, 4, 8, grids="stale")
    with pytest.raises(ValueError, match='granularity="tensor"'):
        gptq(w, h, 4, "tensor")
    with pytest.raises(ValueError, match="granularity is"):
        gptq(w, h, 4, 0)
    with pytest.raises(ValueError, match="bits must be"):
        gptq(w, h, 9, 8)
    with pytest.raises(ValueError, match="block=0"):
        gptq(w, h, 4, 8, block=0)
    with pytest.raises(ValueError, match="damping=-1"):
        gptq(w, h, 4, 8, damping=-1)
    with pytest.raises(ValueError, match="w .* must be finite"):
        gptq(w * float("nan"), h, 4, 8)
    with pytest.raises(ValueError, match="not positive definite"):
        gptq(w, h - 2 * h.diagonal().max() * torch.eye(K), 4, 8, damping=0.0)
    with pytest.raises(ValueError, match="one shape"):
        output_error(w, w[:3], h)
