"""AWQ on whole models: folding keeps the function, and rounding happens on the stated grid."""

import pytest
import torch
from torch.func import functional_call

from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.awq import RATIOS, ScaleSearch, clip_weight, rtn, scaled_rtn, search_clip
from efflib.quantization.awq_model import awq, fold, input_scales, record, row_pairs, search_model
from efflib.quantization.linear import to_groups
from efflib.quantization.ptq import quantize_model
from efflib.quantization.size import quantizable_linears
from efflib.zoo.offset import with_offset


def tiny(kv_heads=4, bias=False):
    torch.manual_seed(0)
    return Llama(
        LlamaConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=kv_heads,
            head_dim=8,
            attention_bias=bias,
            mlp_bias=bias,
        )
    ).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(1))


def random_searches(model, skip=("lm_head",)):
    """Any positive scales for everything that can be scaled."""
    generator = torch.Generator().manual_seed(2)
    widths = {name: model.get_submodule(name).in_features for name in row_pairs(model, skip)}
    for i in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            widths[f"model.layers.{i}.{norm}"] = 32
    scales = {n: torch.rand(k, generator=generator).double() + 0.1 for n, k in widths.items()}
    return {name: ScaleSearch(s, 0.5, ()) for name, s in scales.items()}


@pytest.mark.parametrize("outliers", [0, 2])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_folding_keeps_the_function_and_scales_the_weights(ids, kv_heads, bias, outliers):
    model = with_offset(tiny(kv_heads, bias), outliers, 30.0).double()
    searches = random_searches(model)
    assert len(searches) == (8 if kv_heads == 4 else 6)  # no o_proj where heads share values
    folded = fold(model, searches)
    with torch.no_grad():
        difference = (folded(ids) - model(ids)).abs().max()
    assert difference < 1e-10
    scales = input_scales(model, searches)
    for name, layer in quantizable_linears(folded).items():
        w = model.get_submodule(name).weight
        rows = 1 / scales[name.replace("up", "down")] if "up_proj" in name else 1
        if "v_proj" in name and kv_heads == 4:
            rows = 1 / scales[name.replace("v_proj", "o_proj")]
        columns = scales.get(name, torch.ones(w.shape[1]).double())
        expected = w * columns * torch.as_tensor(rows).reshape(-1, 1)
        torch.testing.assert_close(layer.weight, expected, rtol=1e-12, atol=0)


def test_record_keeps_what_the_layers_are_given(ids):
    model = tiny()
    calibration = record(model, ids)
    assert calibration.inputs.keys() == quantizable_linears(model).keys()
    name = "model.layers.1.mlp"
    call = calibration.blocks[name]
    with torch.no_grad():
        hidden = torch.nn.functional.silu(
            model.get_submodule(f"{name}.gate_proj")(*call.args)
        ) * model.get_submodule(f"{name}.up_proj")(*call.args)
    assert torch.equal(calibration.inputs[f"{name}.down_proj"], hidden)
    assert not any(m._forward_pre_hooks for m in model.modules())
    assert len(record(model, ids, skip=("layers.0", "lm_head")).inputs) == 7


def test_losses_are_those_of_the_blocks_output(ids):
    """Recomputed for the chosen scales from a block whose weights are replaced."""
    model = with_offset(tiny(), 2, 10.0)
    calibration = record(model, ids)
    searches = search_model(model, calibration, 3, 16)
    group = {"input_layernorm": "self_attn", "post_attention_layernorm": "mlp"}
    members = {"self_attn": ("q_proj", "k_proj", "v_proj"), "mlp": ("gate_proj", "up_proj")}
    for norm, block in group.items():
        found = searches[f"model.layers.1.{norm}"]
        module = model.get_submodule(f"model.layers.1.{block}")
        swapped = {
            f"{m}.weight": scaled_rtn(module.get_submodule(m).weight, found.scales, 3, 16)
            for m in members[block]
        }
        call = calibration.blocks[f"model.layers.1.{block}"]
        with torch.no_grad():
            difference = functional_call(module, swapped, call.args) - module(*call.args)
        loss = difference.square().mean().item()
        assert loss == pytest.approx(found.losses[RATIOS.index(found.ratio)], rel=1e-4)
        assert loss == pytest.approx(min(found.losses), rel=1e-4)


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_model_is_the_folded_one_rounded(ids, kv_heads, clip):
    model = with_offset(tiny(kv_heads), 2, 10.0)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    calibration = record(model, ids)
    searches = search_model(model, calibration, 3, 16)
    folded, scales = fold(model, searches), input_scales(model, searches)
    quantized = awq(model, ids, 3, 16, clip=clip)
    for name, layer in quantizable_linears(quantized).items():
        w = folded.get_submodule(name).weight
        if clip and not name.endswith(("q_proj", "k_proj")):
            x = calibration.inputs[name] / scales.get(name, 1)
            w = clip_weight(w, search_clip(x, w, 3, 16), 16)
        assert torch.equal(layer.weight, rtn(w, 3, 16))
        assert all(len(g.unique()) <= 8 for g in to_groups(layer.weight, 16).flatten(0, 1))
    assert torch.equal(quantized.lm_head.weight, model.lm_head.weight)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_clipping_lowers_the_error_of_a_linear_with_a_heavy_tail(ids):
    """One huge weight on an input that hardly matters: clipping it frees the grid."""
    x = torch.randn(40, 16, generator=torch.Generator().manual_seed(0))
    w = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    x[:, 3] = 0.0
    w[:, 3] = 2 * w.abs().amax()
    clipped = rtn(clip_weight(w, search_clip(x, w, 3, 16), 16), 3, 16)
    error = [(x @ (q - w).T).square().mean().item() for q in (rtn(w, 3, 16), clipped)]
    # the range is halved, to 0.55 of it at most, and the squared error follows: 0.3
    assert error[1] < 0.5 * error[0]


def test_it_beats_rounding_where_channels_are_large(ids):
    model = with_offset(tiny(), 2, 30.0)
    with torch.no_grad():
        exact = model(ids)
        rounded = (quantize_model(model, 4, 16)[0](ids) - exact).square().mean()
        ours = (awq(model, ids, 4, 16)(ids) - exact).square().mean()
    assert ours < rounded / 2


def test_one_token_and_skipped_layers_are_enough(ids):
    model = tiny()
    quantized = awq(model, ids[:1, :1], 4, 16, skip=("lm_head", "layers.0"))
    for name, w in model.named_parameters():
        same = torch.equal(quantized.get_parameter(name), w)
        assert same or ".layers.1." in name
    partly = awq(model, ids, 4, 16, skip=("lm_head", "k_proj", "up_proj"))
    for part in ("k_proj", "up_proj"):  # their norm cannot be scaled for q and v only
        name = f"model.layers.0.{'self_attn' if part == 'k_proj' else 'mlp'}.{part}.weight"
        assert torch.equal(partly.get_parameter(name), model.get_parameter(name))


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="has no norm of a known layout"):
        awq(torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.randn(1, 3, 4), 4, 4)
