"""Outliers change activations and nothing else."""

import pytest
import torch

from efflib.models.groups import norm_groups
from efflib.models.llama import Llama, LlamaConfig
from efflib.zoo.offset import outlier_offset, with_offset

WIDTH, CHANNELS, OFFSET = 32, 3, 100.0


def tiny(**changes) -> Llama:
    torch.manual_seed(0)
    settings = dict(
        vocab_size=50,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    return Llama(LlamaConfig(**{**settings, **changes})).eval()


def activations(model, ids):
    """The input of the first linear of every norm group, [tokens, D]."""
    seen, hooks = [], []
    for group in norm_groups(model):
        first = next(iter(group.linears.values()))
        hook = first.register_forward_hook(lambda m, args, out: seen.append(args[0].flatten(0, 1)))
        hooks.append(hook)
    with torch.no_grad():
        logits = model(ids)
    for hook in hooks:
        hook.remove()
    return logits, seen


@pytest.mark.parametrize("bias", [False, True])
def test_same_function_and_outliers_in_every_layer(bias):
    model = tiny(attention_bias=bias, mlp_bias=bias)
    ids = torch.randint(0, 50, (2, 12))
    before, plain = activations(model, ids)
    after, shifted = activations(with_offset(model, CHANNELS, OFFSET), ids)
    # each linear sums CHANNELS terms of size |W| OFFSET that cancel: rounding of that size
    largest = max(p.abs().max().item() for p in model.parameters())
    scale = torch.finfo(torch.float32).eps * CHANNELS * OFFSET * largest * WIDTH
    assert (after - before).abs().max() <= 4 * scale
    assert len(shifted) == 4
    for x, y in zip(plain, shifted, strict=True):
        large = y.abs().amin(0) > OFFSET / 2  # in every token
        assert int(large.sum()) == CHANNELS and x.abs().max() < OFFSET / 2


def test_in_float64_the_function_is_the_same_to_rounding():
    model = tiny().double()
    ids = torch.randint(0, 50, (2, 12))
    with torch.no_grad():
        difference = with_offset(model, CHANNELS, OFFSET)(ids) - model(ids)
    assert difference.abs().max() < 1e-11


def test_the_model_given_stays():
    model = tiny()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with_offset(model, CHANNELS, OFFSET)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_a_layernorm_model_of_transformers():
    from transformers import OPTConfig, OPTForCausalLM

    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=50, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4
    )
    model = OPTForCausalLM(config).double().eval()
    ids = torch.randint(3, 50, (2, 12))
    with torch.no_grad():
        difference = with_offset(model, CHANNELS, OFFSET)(ids).logits - model(ids).logits
    assert difference.abs().max() < 1e-11


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="from 0 to the width 4, got 5"):
        outlier_offset(4, 5, 1.0)
    with pytest.raises(ValueError, match="Sequential has no norm of a known layout"):
        with_offset(torch.nn.Sequential(torch.nn.Linear(2, 2)), 1, 1.0)
