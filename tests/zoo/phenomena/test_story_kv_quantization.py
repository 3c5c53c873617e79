"""The key cache's story: orderings, and that the outlier changes the keys, not the function."""

import pytest
import torch

from efflib import zoo
from efflib.models.cache import KVCache
from efflib.models.llama import Llama, LlamaConfig
from efflib.zoo.phenomena import kv_quantization as story
from efflib.zoo.phenomena.story import QUICK, windows


@pytest.fixture(scope="module")
def figures():
    return story.measure(QUICK, 0)


def test_orderings(figures):
    f = figures
    assert f["outlier spread"] > 4 * f["as they are spread"]  # seen: 8.5, 10.6, 8.4
    for bits in (4, 2):
        assert f[f"as they are {bits} channel"] > 0
        # seen: 70, 74, 74; 2 bits: 60, 55, 45
        assert f[f"outlier {bits} token"] > 10 * f[f"outlier {bits} channel"]
        # the control, within a factor of 2. seen: 0.85, 0.83, 0.86; 2 bits: 0.92, 0.90, 0.87
        ratio = f[f"as they are {bits} token"] / f[f"as they are {bits} channel"]
        assert 0.5 < ratio < 2
        # a factor of 16 is exact, in the keys and in float16 scales
        own, outlier = f[f"as they are {bits} channel"], f[f"outlier {bits} channel"]
        assert outlier == pytest.approx(own, rel=0.01)
    assert f["as they are 2 channel"] > 10 * f["as they are 4 channel"]  # seen: 31, 31, 34


def test_claims_and_plot(figures):
    from efflib.plots.style import figure

    claims = story.claims(figures)
    assert len(claims) == 6 and all(c.holds for c in claims)
    fig, axes = figure(2)
    story.plot(figures, axes)
    assert all(ax.has_data() and ax.get_legend() for ax in axes)


@pytest.mark.parametrize("bias", [False, True])
def test_the_outlier_keeps_the_function(bias):
    """Also where query heads share key heads; the factor 16 is exact in floating point."""
    torch.manual_seed(0)
    config = LlamaConfig(50, 32, 48, 2, 4, 2, 8, attention_bias=bias)
    model = Llama(config).double().eval()
    ids = torch.randint(0, 50, (2, 9))
    spiked = story.with_key_outlier(model, 16.0)
    own, other = KVCache(), KVCache()
    with torch.no_grad():
        torch.testing.assert_close(spiked(ids, cache=other), model(ids, cache=own))
    for k, spiked_k in zip(own.keys, other.keys, strict=True):
        ratio = torch.ones(8).double()
        ratio[[3, 7]] = 16.0
        torch.testing.assert_close(spiked_k, k * ratio)
    assert story.channel_spread(spiked, ids) > 4 * story.channel_spread(model, ids)


def test_pieces_with_a_plain_cache_change_nothing():
    model = zoo.load("target")
    ids = windows("code", True, QUICK, 0)[:1, :40]
    with torch.no_grad():
        whole = model(ids).log_softmax(-1)
    pieces = story.log_probabilities(model, ids, KVCache())
    torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-4)
