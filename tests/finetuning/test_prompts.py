"""Rows of a batch with unlike prompts equal each row alone, also while they go on."""

import pytest
import torch
from small_llama import batches, llama

from efflib.finetuning.prompts import PromptModel, joined, next_token, prompt_of_words
from efflib.finetuning.training import finetune
from efflib.models.cache import KVCache
from efflib.models.embedded import logits_of_vectors

LENGTHS = [(0, 5), (3, 5), (7, 2), (1, 1), (9, 6)]  # prompt, text


def rows(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    draw = [[torch.randn(n, 32, generator=generator) for n in pair] for pair in LENGTHS]
    return ([t.to(dtype) for t in part] for part in zip(*draw, strict=True))


@torch.no_grad()
def test_vectors_are_what_ids_are():
    model, ids = llama(), batches(1)[0]
    x = model.model.embed_tokens(ids)
    assert torch.equal(logits_of_vectors(model, x), model(ids))
    cache = KVCache()
    logits_of_vectors(model, x[:, :9], cache)
    step = logits_of_vectors(model, x[:, 9:10], cache)
    torch.testing.assert_close(step, model(ids[:, :10])[:, -1:], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_each_row_is_that_row_alone():
    model = llama(torch.float64)
    prompts, texts = rows()
    batch = joined(prompts, texts)
    logits = logits_of_vectors(model, batch.x, positions=batch.positions, mask=batch.mask)
    assert logits.isfinite().all()
    for row, p, t in zip(logits, prompts, texts, strict=True):
        alone = logits_of_vectors(model, torch.cat([p, t])[None])[0]
        torch.testing.assert_close(row[-len(alone) :], alone, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_what_stands_in_the_filling_does_not_matter():
    model = llama(torch.float64)
    x, positions, mask = joined(*rows())
    filled = (
        torch.arange(x.shape[1]) < x.shape[1] - torch.tensor([sum(p) for p in LENGTHS])[:, None]
    )
    other = torch.where(filled[..., None], 100.0, x)
    a, b = (logits_of_vectors(model, v, positions=positions, mask=mask) for v in (x, other))
    assert torch.equal(a[~filled], b[~filled])


@torch.no_grad()
def test_rows_go_on():
    model = llama(torch.float64)
    prompts, texts = rows()
    x, positions, mask = joined(prompts, texts)
    cache, news = KVCache(), torch.randn(3, len(texts), 1, 32, dtype=torch.float64)
    logits_of_vectors(model, x, cache, positions, mask)
    for step, new in enumerate(news):
        positions, mask = next_token(positions, mask)
        logits = logits_of_vectors(model, new, cache, positions, mask)
        for i, (p, t) in enumerate(zip(prompts, texts, strict=True)):
            alone = torch.cat([p, t, *news[: step + 1, i]])[None]
            right = logits_of_vectors(model, alone)[0, -1]
            torch.testing.assert_close(logits[i, -1], right, rtol=1e-10, atol=1e-10)


def test_gradients_reach_every_prompt():
    model = llama(torch.float64)
    prompts, texts = rows()
    leaves = [p.requires_grad_() for p in prompts]
    x, positions, mask = joined(leaves, texts)
    logits = logits_of_vectors(model, x, positions=positions, mask=mask)
    logits[:, -1].square().sum().backward()
    for p, t in zip(leaves, texts, strict=True):
        alone = p.detach().clone().requires_grad_()
        logits_of_vectors(model, torch.cat([alone, t])[None])[0, -1].square().sum().backward()
        torch.testing.assert_close(p.grad, alone.grad, rtol=1e-9, atol=1e-9)


def test_a_prompt_is_trained_and_nothing_else():
    model = llama()
    before = {n: t.clone() for n, t in model.state_dict().items()}
    start = PromptModel(llama(), prompt_of_words(model, 4))
    assert start(batches(1)[0]).shape == (2, 17, 50)
    assert [n for n, p in start.named_parameters() if p.requires_grad] == ["prompt"]
    after, losses = finetune(start, batches(1) * 60, 0.1)
    assert losses[-1] < losses[0] - 0.05
    assert all(torch.equal(after.base.state_dict()[n], t) for n, t in before.items())


def test_what_is_refused():
    prompts, texts = rows()
    with pytest.raises(ValueError, match="4 prompts for 5 texts"):
        joined(prompts[1:], texts)
    with pytest.raises(ValueError, match="0 prompts for 0 texts"):
        joined([], [])
    with pytest.raises(ValueError, match="no vector"):
        joined([torch.zeros(0, 32)], [torch.zeros(0, 32)])
