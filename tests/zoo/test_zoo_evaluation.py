"""Perplexity against a loop over single tokens, and the begin-token probe."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from efflib.models import Llama, LlamaConfig
from efflib.zoo import evaluation
from efflib.zoo.evaluation import bits_per_byte, held_out_segments, perplexity, token_losses
from efflib.zoo.probe import FIRST_QUERY, begin_attention
from efflib.zoo.tokenizer import BEGIN_ID, VOCAB_SIZE, load_tokenizer, text_ids

CONFIG = LlamaConfig(
    vocab_size=VOCAB_SIZE,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
)


def model_of(seed: int) -> Llama:
    torch.manual_seed(seed)
    model = Llama(CONFIG).eval()
    for p in model.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=0.5)
    return model


class Uniform(nn.Module):
    """Every token has the same probability; remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, ids):
        self.seen.append(ids)
        return SimpleNamespace(logits=torch.zeros(*ids.shape, VOCAB_SIZE))


def brute_force(model: nn.Module, text: list[int], context: int, stride: int) -> list[float]:
    """The definition token by token: the first window that holds the token predicts it."""
    losses = []
    for j, token in enumerate(text):
        window = 0
        while window * stride + context <= j:
            window += 1
        seen = [BEGIN_ID, *text[window * stride : j]]
        logits = model(torch.tensor([seen]))[0, -1].double()
        losses.append((logits.logsumexp(0) - logits[token]).item())
    return losses


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 24), st.integers(1, 10), st.data())
def test_token_losses_equal_the_loop(length, context, data):
    stride = data.draw(st.integers(1, context))
    model = model_of(0)
    generator = torch.Generator().manual_seed(length)
    text = torch.randint(1, VOCAB_SIZE, (2, length), generator=generator)
    with torch.no_grad():
        expected = [brute_force(model, row, context, stride) for row in text.tolist()]
    losses = token_losses(model, text, context, stride)
    assert losses.shape == text.shape  # every token once
    # fp32 logits of order 10: rounding 10 * 2^-24 * a few sums.
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-5, atol=1e-4)


def test_perplexity_equals_the_loop_on_the_held_out_text():
    model, tokens = model_of(1), 16 * 20
    text, size = text_ids("prose", held_out=True), len(text_ids("prose", held_out=True))
    losses = []
    with torch.no_grad():
        for i in range(16):
            segment = text[i * size // 16 :][:20].tolist()
            losses += brute_force(model, segment, context=8, stride=3)
    expected = math.exp(sum(losses) / tokens)
    actual = perplexity(model, "prose", tokens=tokens, context=8, stride=3)
    assert actual == pytest.approx(expected, rel=1e-5)


def test_a_uniform_model_has_the_vocabulary_as_perplexity():
    model = Uniform()
    assert perplexity(model, "code", tokens=999) == pytest.approx(VOCAB_SIZE, rel=1e-6)
    assert all((ids[:, 0] == BEGIN_ID).all() for ids in model.seen)
    assert all(ids.shape[1] <= 256 for ids in model.seen)


def test_bits_per_byte_of_a_uniform_model():
    text = held_out_segments("code", 160)
    size = sum(len(load_tokenizer().decode(row).encode()) for row in text.tolist())
    assert text.max() < VOCAB_SIZE and text.shape == (16, 10)
    expected = text.numel() * math.log2(VOCAB_SIZE) / size
    assert bits_per_byte(Uniform(), "code", tokens=160) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("context, stride", [(8, 0), (8, 9), (0, 1)])
def test_a_bad_stride_is_named(context, stride):
    with pytest.raises(ValueError, match=f"stride={stride}"):
        perplexity(Uniform(), "code", tokens=160, context=context, stride=stride)


@pytest.mark.parametrize("tokens", [0, 15, 10**9])
def test_too_few_or_too_many_tokens_are_named(tokens):
    with pytest.raises(ValueError, match=f"tokens={tokens}"):
        held_out_segments("prose", tokens)


def test_all_tokens_are_used_by_default():
    text = held_out_segments("prose")
    assert text.numel() == len(text_ids("prose", True)) // 16 * 16
    starts = [i * len(text_ids("prose", True)) // 16 for i in range(16)]
    assert text[:, 0].tolist() == text_ids("prose", True)[starts].tolist()
    assert evaluation.SEGMENTS == 16


def test_texts_of_another_shape_are_named():
    model = model_of(0)
    with pytest.raises(ValueError, match=r"ids \(1, 32\) must have more than 32 tokens"):
        begin_attention(model, torch.zeros(1, FIRST_QUERY, dtype=torch.long))
    with pytest.raises(ValueError, match=r"text must be a non-empty \[S, L\], got \(40,\)"):
        token_losses(model, torch.zeros(40, dtype=torch.long), 8, 4)


def test_begin_attention_is_the_share_of_key_zero():
    model = model_of(2)
    ids = torch.randint(1, VOCAB_SIZE, (2, FIRST_QUERY + 5))
    with torch.no_grad():
        plain = model(ids)
        shares = begin_attention(model, ids)
        assert torch.equal(model(ids), plain)  # the model's own attention is back
    assert shares.shape == (2, 2) and (shares > 0).all() and (shares < 1).all()
    for layer in model.model.layers:  # equal scores: query i gives each of its i + 1 keys as much
        layer.self_attn.q_proj.weight.data.zero_()
    queries = torch.arange(FIRST_QUERY, FIRST_QUERY + 5)
    uniform = (1 / (queries + 1)).mean().item()
    expected = torch.full((2, 2), uniform)
    torch.testing.assert_close(begin_attention(model, ids), expected, rtol=1e-5, atol=0)
    with_zero = torch.full((2, 2), (1 / (queries + 2)).mean().item())  # the zero is one more key
    shares = begin_attention(model, ids, zero_sink=True)
    torch.testing.assert_close(shares, with_zero, rtol=1e-5, atol=0)
