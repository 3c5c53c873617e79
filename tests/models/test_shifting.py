"""Shifting keeps the function and takes means out of the activations."""

import pytest
import torch

from efflib.models.groups import norm_groups
from efflib.models.llama import Llama, LlamaConfig
from efflib.models.offsets import add_offsets
from efflib.models.shifting import channel_means, channel_middles, shift
from efflib.zoo.offset import with_offset

WIDTH = 32


def tiny() -> Llama:
    torch.manual_seed(0)
    sizes = dict(vocab_size=50, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    return Llama(LlamaConfig(**sizes, **heads)).eval().double()


def test_the_function_stays_and_the_means_are_gone():
    model, ids = tiny(), torch.randint(0, 50, (3, 20))
    means = channel_means(model, ids)
    shifted = shift(model, means)
    with torch.no_grad():
        assert (shifted(ids) - model(ids)).abs().max() < 1e-11
    assert all(mean.abs().max() < 1e-11 for mean in channel_means(shifted, ids).values())
    assert all(mean.abs().max() > 0.01 for mean in means.values())


def test_means_are_those_of_the_tokens():
    model, ids = tiny(), torch.randint(0, 50, (2, 5))
    first = norm_groups(model)[0]
    with torch.no_grad():
        rows = first.norm(model.model.embed_tokens(ids)).flatten(0, 1)
    torch.testing.assert_close(channel_means(model, ids)[first.name], rows.mean(0))
    assert not first.norm._forward_hooks


def test_the_middle_of_the_range_leaves_the_least_magnitude():
    model, ids = with_offset(tiny(), 3, 40.0), torch.randint(0, 50, (3, 20))
    middles = channel_middles(model, ids)
    shifted = shift(model, middles)
    seen = {}
    for group in norm_groups(shifted):
        group.norm.register_forward_hook(
            lambda m, a, x, name=group.name: seen.update({name: x.flatten(0, -2)})
        )
    with torch.no_grad():
        assert (shifted(ids) - model(ids)).abs().max() < 1e-11
    for x in seen.values():  # as far below 0 as above
        torch.testing.assert_close(x.amax(0), -x.amin(0), rtol=0, atol=1e-11)
    assert max(middle.abs().max() for middle in middles.values()) > 35
    assert max(x.abs().max() for x in seen.values()) < 10


def test_a_constant_offset_is_repaired_completely():
    model, ids = tiny(), torch.randint(0, 50, (3, 20))
    outliers = with_offset(model, 3, 100.0)
    repaired = shift(outliers, channel_means(outliers, ids))
    plain = shift(model, channel_means(model, ids))
    for a, b in zip(norm_groups(repaired), norm_groups(plain), strict=True):
        torch.testing.assert_close(a.norm.bias, b.norm.bias, rtol=0, atol=1e-11)


def test_bad_input_is_named():
    model, ids = tiny(), torch.randint(0, 50, (3, 20))
    with pytest.raises(ValueError, match="ids"):
        channel_means(model, ids[0])
    with pytest.raises(ValueError, match="means"):
        shift(model, {})
    norm = norm_groups(model)[0].name
    del model.get_submodule(norm)._parameters["bias"]
    with pytest.raises(ValueError, match="no bias to hold an offset"):
        add_offsets(model, dict.fromkeys([g.name for g in norm_groups(tiny())], torch.ones(WIDTH)))
