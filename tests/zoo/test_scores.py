"""Perplexity from losses: any base, unequal texts, and passes that score every token once."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.models.llama import Llama, LlamaConfig
from efflib.zoo import scores as s
from efflib.zoo.evaluation import token_losses
from efflib.zoo.tokenizer import BEGIN_ID

texts = st.lists(
    st.lists(st.floats(0, 20), max_size=12).map(lambda x: torch.tensor(x, dtype=torch.float64)),
    min_size=1,
    max_size=5,
).filter(lambda all: sum(x.numel() for x in all))


@given(texts, st.floats(1.1, 100))
def test_the_base_is_a_unit(losses, base):
    other = [x / math.log(base) for x in losses]
    assert s.perplexity(other, base) == pytest.approx(s.perplexity(losses))
    assert s.bits_per_byte(other, 7, base) == pytest.approx(s.bits_per_byte(losses, 7))


@given(texts)
def test_how_tokens_are_divided_into_texts_does_not_matter(losses):
    assert s.perplexity(losses) == pytest.approx(s.perplexity([torch.cat(losses)]))
    assert s.perplexity(losses) == pytest.approx(s.perplexity(losses[::-1]))


@given(st.integers(2, 5000), st.integers(1, 20))
def test_a_uniform_guess_among_v_has_perplexity_v(v, n):
    losses = [torch.full((n,), math.log2(v), dtype=torch.float64)]
    assert s.perplexity(losses, 2) == pytest.approx(v)
    eight = math.log2(256)
    assert s.bits_per_byte([torch.full((n,), eight)], n, 2) == pytest.approx(8)


def test_the_slides_exponent():
    """e ^ (mean of -log_2 p), as a slide has it, of a perplexity of 8."""
    losses = torch.full((5,), 3.0)  # in bits
    assert s.perplexity([losses], 2) == pytest.approx(8)
    assert s.mixed_bases(8.0) == pytest.approx(math.exp(losses.mean().item()))
    assert s.mixed_bases(8.0, math.e, 2.0) == pytest.approx(2 ** math.log(8))
    assert s.mixed_bases(8.0, 2.0, 2.0) == pytest.approx(8)


def test_texts_of_unequal_length():
    short, long = torch.full((1,), 4.0), torch.full((99,), 1.0)
    assert s.perplexity([short, long]) == pytest.approx(math.exp((4 + 99) / 100))
    assert s.mean_of_perplexities([short, long]) == pytest.approx((math.exp(4) + math.exp(1)) / 2)


def test_a_long_text_is_added_in_float64():
    losses = [torch.full((10**7,), 0.1, dtype=torch.float32)]
    assert s.perplexity(losses) == pytest.approx(math.exp(torch.tensor(0.1).item()), rel=1e-9)


@given(st.integers(0, 80), st.integers(2, 20), st.data())
def test_every_token_but_the_first_is_scored_once(tokens, window, data):
    stride = data.draw(st.integers(1, window - 1))
    found = s.strided_passes(tokens, window, stride)
    scored = [i for one in found for i in range(one.first, one.end)]
    assert scored == list(range(1, tokens))
    for i, one in enumerate(found):
        assert 0 <= one.start < one.first < one.end <= tokens
        assert one.end - one.start <= window
        if i:
            assert one.end - one.first <= stride
            assert one.start == max(0, one.end - window)
    assert all(one.end - one.first == stride for one in found[1:-1])


def test_passes_of_a_model_are_those_of_the_evaluation():
    """Same losses wherever both read the same context: token_losses puts a begin token in front."""
    torch.manual_seed(0)
    model = Llama(LlamaConfig(50, 24, 40, 1, 2, 2, 12)).eval()
    text, window, stride = torch.randint(50, (1, 40)), 16, 5
    stream = torch.cat([torch.full((1, 1), BEGIN_ID), text], dim=1)
    ours = []
    for start, end, first in s.strided_passes(41, window + 1, stride):
        with torch.no_grad():
            logits = model(stream[:, start : end - 1])[:, first - start - 1 :]
        targets = stream[:, first:end]
        ours.append(torch.nn.functional.cross_entropy(logits.mT, targets, reduction="none"))
    theirs = token_losses(model, text, window, stride)
    joined = torch.cat(ours, dim=1)
    assert joined.shape == theirs.shape
    assert torch.allclose(joined[:, :window], theirs[:, :window], atol=1e-5)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: s.perplexity([]), "no tokens"),
        (lambda: s.perplexity([torch.ones(0)]), "no tokens"),
        (lambda: s.perplexity([torch.ones(1)], 1.0), "base=1.0"),
        (lambda: s.bits_per_byte([torch.ones(1)], 0), "text_bytes=0"),
        (lambda: s.strided_passes(-1, 4, 2), "tokens=-1"),
        (lambda: s.strided_passes(9, 4, 4), "window=4 must be an integer of at least 5"),
        (lambda: s.strided_passes(9, 4, 0), "stride=0"),
    ],
)
def test_bad_arguments_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
