"""Outliers that vary: large activations, ordinary weights, the same function."""

import pytest
import torch

from efflib import zoo
from efflib.models.checkpoint import save_pretrained
from efflib.models.gains import with_unit_gains
from efflib.models.groups import norm_groups
from efflib.models.llama import Llama, LlamaConfig
from efflib.zoo.offset import with_offset
from efflib.zoo.outliers import merged_twins, second_moment, with_outliers

GAINS = {0: 12.0, 2: 20.0}


def tiny(**changes) -> Llama:
    torch.manual_seed(0)
    settings = dict(
        vocab_size=50,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    model = Llama(LlamaConfig(**{**settings, **changes})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 2)
    return model


def ids_of(model, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.config.vocab_size, (3, 40), generator=generator)


def norm_outputs(model, ids):
    """{norm: its outputs [tokens, D]}"""
    seen, handles = {}, []
    for group in norm_groups(model):

        def remember(module, args, output, name=group.name):
            seen[name] = output.flatten(0, -2)

        handles.append(group.norm.register_forward_hook(remember))
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    return seen


def hot_channels(model):
    """The channels that norms enlarge, the same in all of them."""
    found = [(g.norm.weight > g.norm.weight.min()).nonzero().flatten() for g in norm_groups(model)]
    assert all(torch.equal(channels, found[0]) for channels in found)
    return found[0].tolist()


def rms(x):
    return x.square().mean(0).sqrt()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("extra", [1, 8, 32])
def test_the_function_is_kept(tied, bias, extra):
    model = tiny(tie_word_embeddings=tied, attention_bias=bias, mlp_bias=bias).double()
    ids = ids_of(model)
    gains = {component: gain for component, gain in GAINS.items() if component < extra}
    wide = with_outliers(model, ids, gains, extra=extra)
    other = ids_of(model, seed=2)  # not only on the text that the components are from
    with torch.no_grad():
        expected = model(other)
        difference = wide(other) - expected
    assert difference.abs().max() <= 1e-11 * expected.abs().max()
    assert wide.config.hidden_size == 32 + extra


def test_the_model_given_stays():
    model = tiny(tie_word_embeddings=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with_outliers(model, ids_of(model), GAINS, extra=8)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_unit_gains_are_the_same_function():
    model = tiny(tie_word_embeddings=True).double()
    plain, ids = with_unit_gains(model), ids_of(model)
    with torch.no_grad():
        assert (plain(ids) - model(ids)).abs().max() < 1e-12 * model(ids).abs().max()
    assert all((group.norm.weight == 1).all() for group in norm_groups(plain))
    assert (plain.model.norm.weight == 1).all()


def test_the_second_moment_is_that_of_all_tokens():
    model = with_unit_gains(tiny()).double()
    ids = ids_of(model)
    rows = list(norm_outputs(model, ids).values())
    expected = sum(x.T @ x / len(x) for x in rows) / len(rows)
    assert torch.allclose(second_moment(model, ids), expected, rtol=1e-12)


def test_two_channels_for_each_component_where_the_seed_says():
    model, ids = zoo.load("target"), zoo.calibration("code", n=8, length=128)
    wide = [with_outliers(model, ids, {1: 20.0, 2: 20.0}, seed=seed) for seed in (0, 0, 1)]
    places = [hot_channels(one) for one in wide]
    assert len(places[0]) == 4 and places[0] == places[1] != places[2]


def test_activations_are_large_and_vary_and_weights_are_ordinary():
    """With the two components of the course's stories."""
    model, ids = zoo.load("target"), zoo.calibration("code", n=8, length=128)
    wide = with_outliers(model, ids, {3: 20.0, 5: 20.0})
    hot, outputs = hot_channels(wide), norm_outputs(wide, ids)
    for group in norm_groups(wide):
        size = rms(outputs[group.name])
        assert (size[hot] > 20 * size.median()).all(), group.name
        # in the first layer, which reads hardly more than the tokens' embeddings, a part is steady
        varying = 0.5 if group.name.startswith("model.layers.0.") else 0.7
        assert (outputs[group.name][:, hot].std(0) > varying * size[hot]).all(), group.name
        for linear in group.linears.values():
            columns = rms(linear.weight.detach())
            assert columns[hot].max() < 2 * columns.median()


@pytest.mark.parametrize("extra, group", [(32, 32), (64, 64)])
def test_groups_divide_the_width(extra, group):
    model = zoo.load("target")
    wide = with_outliers(model, zoo.calibration("code", n=2, length=64), {1: 10.0}, extra=extra)
    assert wide.config.hidden_size % group == 0


def test_transformers_reads_it(tmp_path):
    from transformers import LlamaForCausalLM

    model = tiny()
    wide = with_outliers(model, ids_of(model), GAINS, extra=8)
    save_pretrained(wide, tmp_path)
    theirs = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    ids = ids_of(model)
    with torch.no_grad():
        expected = wide(ids)
        assert (theirs(ids).logits - expected).abs().max() < 1e-4 * expected.abs().max()


def test_bad_input_is_named():
    model = tiny()
    ids = ids_of(model)
    with pytest.raises(ValueError, match=r"components are from 0 to 7, got 8"):
        with_outliers(model, ids, {8: 2.0}, extra=8)
    with pytest.raises(ValueError, match=r"gain of component 1 must be positive, got 0"):
        with_outliers(model, ids, {1: 0.0}, extra=8)
    with pytest.raises(ValueError, match=r"extra must be from 1 to 32, got 33"):
        with_outliers(model, ids, {1: 2.0}, extra=33)
    with pytest.raises(ValueError, match=r"input_layernorm has a bias"):
        with_outliers(with_offset(model, 1, 3.0), ids, {1: 2.0}, extra=8)


def test_merged_twins_have_the_same_function_and_no_noise():
    model, ids = tiny(), torch.randint(50, (3, 24), generator=torch.Generator().manual_seed(1))
    wide = with_outliers(model, ids, GAINS, extra=8, seed=3)
    merged = merged_twins(wide)
    before = wide.model.layers[0].self_attn.q_proj.weight
    after = merged.model.layers[0].self_attn.q_proj.weight
    with torch.no_grad():
        scale = wide(ids).abs().max()
        assert (merged(ids) - wide(ids)).abs().max() <= 1e-4 * scale
    assert (after == 0).all(0).sum() == len(GAINS) and not (before == 0).all(0).any()
    assert (after != before).any(0).sum() == 2 * len(GAINS)
