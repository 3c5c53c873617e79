"""Smoothing keeps the function and evens out the channels; W8A8 rounds what it says it rounds."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.models.groups import norm_groups
from efflib.models.llama import Llama, LlamaConfig
from efflib.quantization.smoothquant import (
    W8A8Linear,
    channel_maxima,
    smooth,
    smoothing_scales,
    w8a8,
)
from efflib.zoo.offset import with_offset

ALPHAS = (0.0, 0.3, 0.5, 1.0)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Llama(
        LlamaConfig(
            vocab_size=50,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
        )
    ).eval()


@pytest.fixture(scope="module")
def ids():
    return torch.randint(0, 50, (3, 12), generator=torch.Generator().manual_seed(1))


def test_the_lectures_example():
    """X [2, 4], W [4, 3] as printed, alpha = 0.5; the X-hat printed there has 6 for 6 / 3 = 2."""
    x = torch.tensor([[1.0, -16, 2, 6], [-2, 8, -1, -9]])
    w = torch.tensor([[2.0, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]]).T  # [N, K]
    s = smoothing_scales(x.abs().amax(0), [w], alpha=0.5)
    # two powers, each good to a unit in the last place or two, and a quotient
    torch.testing.assert_close(s, torch.tensor([1.0, 4, 1, 3]), rtol=5 * 2.0**-23, atol=0)
    s = s.round()
    assert (x / s).tolist() == [[1, -4, 2, 2], [-2, 2, -1, -3]]
    assert (w * s).T.tolist() == [[2, 1, -2], [4, -4, -4], [2, -1, -2], [-3, -3, 3]]
    assert torch.equal((x / s) @ (w * s).T, x @ w.T)


@given(st.integers(0, 10**6), st.sampled_from(ALPHAS))
def test_the_ends_of_alpha_even_out_one_side(seed, alpha):
    generator = torch.Generator().manual_seed(seed)
    x_max = torch.rand(6, generator=generator) * 10 + 0.1
    w = torch.randn(5, 6, generator=generator)
    s = smoothing_scales(x_max, [w], alpha)
    assert (s > 0).all()
    w_max = w.abs().amax(0)
    # max|X_j / s_j| * max|W_j s_j| does not depend on s: difficulty moves, it does not vanish
    torch.testing.assert_close((x_max / s) * (w_max * s), x_max * w_max)
    if alpha == 1:
        torch.testing.assert_close(x_max / s, torch.ones(6))
    if alpha == 0:
        torch.testing.assert_close(w_max * s, torch.ones(6))


def test_all_linears_of_a_norm_share_the_scales():
    x_max = torch.tensor([4.0, 4.0])
    a, b = torch.tensor([[1.0, 0.1]]), torch.tensor([[0.1, 4.0]])
    s = smoothing_scales(x_max, [a, b], alpha=0.5)
    torch.testing.assert_close(s, (x_max / torch.tensor([1.0, 4.0])).sqrt())


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("outliers", [0, 2])
def test_smoothing_keeps_the_function_and_the_model(model, ids, alpha, outliers):
    model = with_offset(model, outliers, 30.0).double()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    smoothed = smooth(model, channel_maxima(model, ids), alpha)
    with torch.no_grad():
        difference = (smoothed(ids) - model(ids)).abs().max()
    assert difference < 1e-10
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_smoothing_with_one_half_balances_every_channel(model, ids):
    model = with_offset(model, 2, 100.0)
    smoothed = smooth(model, channel_maxima(model, ids), 0.5)
    maxima = channel_maxima(smoothed, ids)
    for group in norm_groups(smoothed):
        w_max = torch.cat([m.weight for m in group.linears.values()]).abs().amax(0)
        torch.testing.assert_close(maxima[next(iter(group.linears))], w_max, rtol=1e-3, atol=1e-4)


def test_channel_maxima_are_those_of_the_inputs(model, ids):
    name = "model.layers.1.mlp.down_proj"
    seen = []
    hook = model.get_submodule(name).register_forward_hook(lambda m, a, o: seen.append(a[0]))
    with torch.no_grad():
        model(ids)
    hook.remove()
    maxima = channel_maxima(model, ids)
    torch.testing.assert_close(maxima[name], seen[0].abs().amax((0, 1)))
    assert "lm_head" not in maxima and len(maxima) == 14
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_w8a8_rounds_the_weight_and_its_input():
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(16, 8), torch.randn(5, 16)
    x[0, 0] = 50.0  # one token with an outlier
    exact = linear(x)
    error = {}
    for kind in ("token", "tensor", "static"):
        out = W8A8Linear(linear, kind, x.abs().amax(0))(x)
        error[kind] = (out - exact)[1:].abs().max().item()
    # a scale per token keeps one token's outlier from the others
    assert 0 < error["token"] < error["tensor"] / 4
    assert error["static"] == error["tensor"]  # calibrated on this very input


def test_static_scales_clip_what_calibration_did_not_see():
    linear = torch.nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        linear.weight.copy_(torch.eye(4))
    out = W8A8Linear(linear, "static", torch.full((4,), 2.0))(torch.full((1, 4), 10.0))
    torch.testing.assert_close(out, torch.full((1, 4), 2.0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["token", "tensor", "static"])
def test_the_whole_model(model, ids, kind):
    quantized = w8a8(model, kind, channel_maxima(model, ids))
    kinds = [type(m) for n, m in quantized.named_modules() if n.endswith(("_proj", "lm_head"))]
    assert kinds.count(W8A8Linear) == 14 and kinds.count(torch.nn.Linear) == 1
    with torch.no_grad():
        exact, out = model(ids), quantized(ids)
    assert 0 < (out - exact).norm() / exact.norm() < 0.1
    assert all(type(m) is not W8A8Linear for m in model.modules())


def test_bad_input_is_named(model):
    with pytest.raises(ValueError, match="alpha must be from 0 to 1, got 1.5"):
        smoothing_scales(torch.ones(2), [torch.ones(3, 2)], 1.5)
    with pytest.raises(ValueError, match=r"weight \(3, 4\) does not read 2 channels"):
        smoothing_scales(torch.ones(2), [torch.ones(3, 4)], 0.5)
    with pytest.raises(ValueError, match="static activations need x_max"):
        w8a8(model, "static")
    with pytest.raises(ValueError, match='got "row"|got .row.'):
        w8a8(model, "row")
