"""Attention maps against a softmax written out, and the share of a token against a loop."""

import pytest
import torch

from efflib.attention.maps import attention_maps, recorded, sink_scores
from efflib.attention.zero_sink import with_zero
from efflib.models.llama import Llama, LlamaConfig, sdpa
from efflib.models.rotary import rotate

CONFIG = LlamaConfig(31, 24, 32, 3, 4, 2, 8, rope_theta=100.0)


def tiny() -> Llama:
    generator = torch.Generator().manual_seed(0)
    model = Llama(CONFIG).eval().double()
    for p in model.parameters():
        if p.ndim == 2:
            p.data = torch.randn(p.shape, generator=generator).double() * 1.5 / p.shape[1] ** 0.5
    return model


MODEL = tiny()
IDS = torch.randint(31, (2, 9), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_the_first_layers_maps_key_by_key():
    maps = attention_maps(MODEL, IDS)
    assert maps.shape == (3, 4, 9, 9)
    layer = MODEL.model.layers[0]
    x = layer.input_layernorm(MODEL.model.embed_tokens(IDS))
    q = layer.self_attn.q_proj(x).view(2, 9, 4, 8).transpose(1, 2)
    k = layer.self_attn.k_proj(x).view(2, 9, 2, 8).transpose(1, 2)
    q, k = (rotate(t, torch.arange(9), 100.0) for t in (q, k))
    for h in range(4):
        for t in range(9):
            s = (k[:, h // 2, : t + 1] * q[:, h, t, None]).sum(-1) / 8**0.5  # [B, t + 1]
            expected = s.softmax(-1).mean(0)
            torch.testing.assert_close(maps[0, h, t, : t + 1], expected)
            assert (maps[0, h, t, t + 1 :] == 0).all()


@torch.no_grad()
def test_recording_changes_nothing_and_is_taken_back():
    before, seen = MODEL(IDS), []
    recorded(MODEL, IDS, lambda p: seen.append(p))
    assert len(seen) == 3 and all(p.shape == (2, 4, 9, 9) for p in seen)
    assert all(layer.self_attn.attention is sdpa for layer in MODEL.model.layers)
    assert torch.equal(MODEL(IDS), before)

    def stop(p):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        recorded(MODEL, IDS, stop)
    assert all(layer.self_attn.attention is sdpa for layer in MODEL.model.layers)


@torch.no_grad()
def test_the_zero_is_column_0_and_deeper_layers_run_with_it():
    maps = attention_maps(MODEL, IDS, zero_sink=True)
    assert maps.shape == (3, 4, 9, 10)
    torch.testing.assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]))
    assert (maps[..., 0] > 0).all()
    model, own = tiny(), with_zero(sdpa)
    model.set_attention(own)
    kept = []
    recorded(model, IDS, lambda p: kept.append(p), zero_sink=True)
    assert model.model.layers[0].self_attn.attention is own
    torch.testing.assert_close(torch.stack(kept).mean(1), maps)


def test_a_share_is_a_mean_over_late_queries():
    maps = torch.rand(2, 3, 7, 7)
    scores = sink_scores(maps, token=2, first=4)
    for i in range(2):
        for h in range(3):
            expected = sum(maps[i, h, t, 2].item() for t in (4, 5, 6)) / 3
            assert scores[i, h].item() == pytest.approx(expected, rel=1e-6)


def test_what_does_not_fit_is_named():
    maps = torch.rand(2, 3, 7, 7)
    for options in ({"token": 7, "first": 0}, {"token": 0, "first": 7}, {"token": -1, "first": 0}):
        with pytest.raises(ValueError, match="token="):
            sink_scores(maps, **options)
    with pytest.raises(ValueError, match=r"ids must be a non-empty \[B, T\]"):
        attention_maps(MODEL, IDS[0])
    with pytest.raises(ValueError, match="maps must be a non-empty"):
        sink_scores(maps[0, 0, 0])
