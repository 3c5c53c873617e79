"""Each technique that changes a model, on each family: the function is kept where that is promised.

The same on more settings, and against other libraries: tests/oracles/test_family_oracles.py.
"""

import pytest
import torch
from families import (
    CASES,
    CLOSED,
    HEADS,
    KEYS,
    NO_FOLD,
    WIDTH,
    expect_same_function,
    family,
    ids,
    logits,
)

from efflib.attention.heads import with_kv_heads
from efflib.finetuning.lora import LoRALinear, add_lora, merge_lora
from efflib.models.gains import all_norms, with_unit_gains
from efflib.models.groups import norm_groups
from efflib.models.hub import describe
from efflib.models.recorded import record
from efflib.quantization.awq import ScaleSearch
from efflib.quantization.awq_model import awq, fold, input_scales, row_pairs, search_model
from efflib.quantization.gptq import gptq_model
from efflib.quantization.linear import fake_quantize_weight
from efflib.quantization.ptq import quantize_model
from efflib.quantization.rotation import keeping_ones, random_orthogonal, rotate
from efflib.quantization.smoothquant import channel_maxima, smooth
from efflib.sequential import block_linears
from efflib.sparsity.masks import sparsity
from efflib.sparsity.sparsegpt import prune_sparsegpt
from efflib.sparsity.wanda import prune_wanda

FOLDED = [case for case in CASES if case not in NO_FOLD]
# searches and updates take a second each: the others are in tests/oracles/test_family_oracles.py
SEARCHED = ["llama tied, biases", "gemma3_text", "phi3", "opt", "mixtral"]


@pytest.mark.parametrize("case", FOLDED)
def test_smoothing(case):
    model = family(case)
    maxima = channel_maxima(model, ids())
    smoothed = smooth(model, maxima, 0.7)
    expect_same_function(smoothed, case)
    now = channel_maxima(smoothed, ids())
    moved = {n for n in now if (now[n] / maxima[n] - 1).abs().max() > 1e-3}
    assert moved == {n for g in norm_groups(model) for n in g.readers if n in now}
    for group in norm_groups(model):  # inputs are divided by s: max|X_j| / s_j, with s from both
        x = torch.stack([maxima[n] for n in group.linears if n in maxima]).amax(0)
        w = torch.cat([m.weight for m in group.linears.values()]).abs().amax(0)
        for name in [n for n in group.linears if n in now]:
            torch.testing.assert_close(
                now[name], maxima[name] / (x**0.7 / w**0.3), rtol=1e-5, atol=0
            )


@pytest.mark.parametrize("case", ["gemma2", "gemma3_text"])
@pytest.mark.parametrize("s", [20.0, 300.0])
def test_a_gain_of_1_plus_w_in_16_bits_keeps_the_function(case, s):
    """(1 + w) / s - 1 with s = 300 has no digit left in bfloat16: what reads the norm follows."""
    model = _in(case, torch.bfloat16)
    searches = {
        group.name: ScaleSearch(torch.full((WIDTH,), s).double(), 0.5, ())
        for group in norm_groups(model)
    }
    folded = fold(model, searches)
    exact = logits(family(case))
    error = [(logits(m).double() - exact).norm() / exact.norm() for m in (model, folded)]
    assert error[1] < 2 * error[0]  # both are that of 16 bits
    gains = [1 + g.norm.weight.double() for g in norm_groups(folded)]
    naive = [(1 + g.norm.weight.double()) / s for g in norm_groups(model)]
    off = max(((a - b) / b).abs().max() for a, b in zip(gains, naive, strict=True))
    assert off > 0.05, "the gain could be held, so nothing is tested"


def _in(case, dtype):
    import copy

    return copy.deepcopy(family(case)).to(dtype)


@pytest.mark.parametrize("case", FOLDED)
def test_awq_fold(case):
    model = family(case)
    generator = torch.Generator().manual_seed(3)
    widths = {name: model.get_submodule(name).in_features for name in row_pairs(model)}
    widths |= dict.fromkeys([g.name for g in norm_groups(model)], WIDTH)
    searches = {
        name: ScaleSearch(torch.rand(k, generator=generator).double() + 0.2, 0.5, ())
        for name, k in widths.items()
    }
    folded = fold(model, searches)
    expect_same_function(folded, case)
    scales = input_scales(model, searches)
    for name, s in scales.items():  # columns are multiplied, but for rows of a linear before
        w, was = folded.get_submodule(name).weight, model.get_submodule(name).weight
        changed = {i for r in row_pairs(model).values() if r.linear == name for i in range(*r[1:])}
        left = [i for i in range(len(w)) if i not in changed]
        torch.testing.assert_close(w[left], was[left] * s, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", SEARCHED)
def test_awq_is_better_than_rounding_where_channels_are_large(case):
    model = _with_large_channels(case)
    exact = logits(model)
    calibration = record(model, ids())
    searches = search_model(model, calibration, 4, 16)
    assert set(searches) == {g.name for g in norm_groups(model)} | set(row_pairs(model))
    plain = (logits(quantize_model(model, 4, 16)[0]) - exact).square().mean()
    ours = (logits(awq(model, ids(), 4, 16)) - exact).square().mean()
    assert ours < plain / 2


def _with_large_channels(case):
    """The same function with two channels of every norm 40 times as large."""
    s = torch.ones(WIDTH, dtype=torch.float64)
    s[3], s[20] = 1 / 40, 1 / 40
    model = family(case)
    return fold(model, {g.name: ScaleSearch(s, 0.5, ()) for g in norm_groups(model)})


@pytest.mark.parametrize("case", [c for c in FOLDED if c not in CLOSED])
def test_rotation(case):
    model, decoder = family(case), describe(family(case))
    layer_norm = hasattr(norm_groups(model)[0].norm, "bias")
    q = keeping_ones(random_orthogonal(WIDTH - 1, 0)) if layer_norm else random_orthogonal(WIDTH, 0)
    heads = random_orthogonal(decoder.head_dim, 1)
    for turned in (rotate(model, q), rotate(model, q, heads)):
        expect_same_function(turned, case)
        assert all((group.gain() == 1).all() for group in all_norms(turned))
    assert (turned.get_submodule(decoder.blocks[0].out).weight
            - model.get_submodule(decoder.blocks[0].out).weight).abs().max() > 0.1  # fmt: skip
    if layer_norm:
        with pytest.raises(ValueError, match="takes off the mean .* keeps the vector of ones"):
            rotate(model, random_orthogonal(WIDTH, 0))


@pytest.mark.parametrize("case", CASES)
def test_unit_gains(case):
    if case in NO_FOLD:
        with pytest.raises(ValueError, match="norms come after the residual sum"):
            with_unit_gains(family(case))
    else:
        expect_same_function(with_unit_gains(family(case)), case)


@pytest.mark.parametrize("case", [*CLOSED, *NO_FOLD])
def test_what_cannot_be_folded_is_said(case):
    model, q = family(case), random_orthogonal(WIDTH, 0)
    if case in CLOSED:
        why = "post_attention_layernorm and post_feedforward_layernorm stand between"
        with pytest.raises(ValueError, match=why):
            rotate(model, q)
        return
    for refused in (
        lambda: rotate(model, q),
        lambda: smooth(model, channel_maxima(model, ids()), 0.5),
        lambda: awq(model, ids(), 4, 16),
    ):
        with pytest.raises(ValueError, match="norms come after the residual sum"):
            refused()


@pytest.mark.parametrize("case", SEARCHED)
def test_pruning_and_gptq(case):
    """Every linear of the blocks, the experts' too, and each repair is better than none."""
    model, exact = family(case), logits(family(case))
    inside = {name for linears in block_linears(model) for name in linears}
    assert len(inside) == sum(isinstance(m, torch.nn.Linear) for m in _blocks(model).modules())
    dense = prune_wanda(model, ids(), 0.0)
    assert torch.equal(logits(dense), exact)
    for prune in (prune_wanda, prune_sparsegpt):
        pruned = prune(model, ids(), (2, 4))
        assert {sparsity(pruned.get_submodule(name).weight) for name in inside} == {0.5}
    rounded, bits = gptq_model(model, ids(), 4, 16)
    assert bits > 0
    plain = quantize_model(model, 4, 16)[0]
    for name in inside:
        w = rounded.get_submodule(name).weight
        again = fake_quantize_weight(w, 8, 16)
        assert (w - again).abs().max() < 0.02 * w.abs().max()
        assert not torch.equal(w, plain.get_submodule(name).weight)
    error = [(logits(m) - exact).square().mean() for m in (rounded, plain)]
    assert 0 < error[0] < 1.5 * error[1]


def _blocks(model):
    return model.get_submodule(describe(model).family.blocks)


@pytest.mark.parametrize("case", CASES)
def test_lora(case):
    model = family(case)
    wanted = [n for b in describe(model).blocks for n in (b.query.linear, *b.downs)]
    targets = tuple(wanted)
    adapted = add_lora(model, 2, 4, targets)
    assert torch.equal(logits(adapted), logits(model))
    generator = torch.Generator().manual_seed(4)
    layers = [m for m in adapted.modules() if isinstance(m, LoRALinear)]
    assert len(layers) == len(wanted)
    for layer in layers:
        layer.b.data.normal_(std=0.1, generator=generator)
    assert (logits(adapted) - logits(model)).abs().max() > 0.01
    merged = merge_lora(adapted)
    assert (logits(merged) - logits(adapted)).abs().max() < 1e-5
    adapted(ids()).logits.sum().backward()
    assert all(layer.a.grad.abs().sum() > 0 for layer in layers)


@pytest.mark.parametrize("case", CASES)
def test_more_key_heads_are_the_same_function(case):
    model = family(case)
    if "opt" in case or case == "gpt2":
        with pytest.raises(ValueError, match="a key head for each query head"):
            with_kv_heads(model, 2)
        return
    keys = describe(model).key_heads
    more = with_kv_heads(model, HEADS)
    expect_same_function(more, case)
    back = with_kv_heads(more, keys)
    assert all(
        torch.equal(a, b) for a, b in zip(back.parameters(), model.parameters(), strict=True)
    )
    one = with_kv_heads(model, 1)
    block = describe(one).blocks[0]
    linear = one.get_submodule(block.value.linear)
    assert block.value.stop - block.value.start == describe(one).head_dim
    assert linear.weight.shape[0] == linear.out_features == block.value.stop
    old = model.get_submodule(block.value.linear).weight[describe(model).blocks[0].value[1] :]
    old = old[: describe(model).blocks[0].value.stop - describe(model).blocks[0].value.start]
    mean = old.unflatten(0, (keys, -1)).mean(0)
    torch.testing.assert_close(linear.weight[block.value.start :], mean)
    assert (logits(one) - logits(model)).abs().max() > 0.01
    assert keys in (KEYS, HEADS)
