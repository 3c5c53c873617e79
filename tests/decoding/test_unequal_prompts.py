"""Prompts of unequal length in one batch: each row goes on as its prompt would alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import ids_of, tiny

from efflib.attention.streaming import StreamingCache
from efflib.attention.zero_sink import with_zero
from efflib.decoding.sampling import Sampling, generate, left_padded, stream
from efflib.models import KVCache
from efflib.models.llama import sdpa


def prompts_of(seed: int, lengths: list[int]) -> list[torch.Tensor]:
    return [ids_of(seed + i, 1, n)[0] for i, n in enumerate(lengths)]


def test_padding_stands_on_the_left():
    ids, lengths = left_padded([torch.tensor([1, 2, 3]), torch.tensor([4])], pad_id=9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]] and lengths.tolist() == [3, 1]


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 10**6))
def test_each_row_is_its_prompt_alone(lengths, seed):
    model, prompts = tiny(0).double(), prompts_of(seed, lengths)
    ids, counts = left_padded(prompts, pad_id=seed % 61)
    together = generate(model, ids, 12, lengths=counts)
    assert torch.equal(together[:, : ids.shape[1]], ids)
    for row, prompt in zip(together, prompts, strict=True):
        alone = generate(model, prompt[None], 12)[0]
        assert torch.equal(row[ids.shape[1] - len(prompt) :], alone)


def test_the_logits_are_those_of_each_prompt_alone_with_an_extra_zero_too():
    model, prompts = tiny(1).double(), prompts_of(3, [2, 7, 5])
    model.set_attention(with_zero(sdpa))
    ids, lengths = left_padded(prompts)
    cache, seen = KVCache(), []
    model.lm_head.register_forward_hook(lambda _, args, out: seen.append(out[:, -1]))
    tokens = torch.stack(list(stream(model, ids, 6, cache=cache, lengths=lengths)), dim=1)
    together, seen[:] = torch.stack(seen, dim=1), []  # [B, 6, V]
    with torch.no_grad():
        for row, prompt, new in zip(together, prompts, tokens, strict=True):
            alone = model(torch.cat([prompt, new])[None])[0, len(prompt) - 1 : -1]
            # Logits of order 10 of two layers in float64: a hundred roundings of 1e-15.
            torch.testing.assert_close(row, alone, rtol=0, atol=1e-11)


def test_a_row_that_ends_waits_for_the_others():
    model, prompts = tiny(3), prompts_of(4, [3, 6])
    alone = [generate(model, p[None], 20)[0, len(p) :] for p in prompts]
    eos = int(alone[0][4])
    ids, lengths = left_padded(prompts)
    ended = generate(model, ids, 20, eos_id=eos, lengths=lengths)[:, ids.shape[1] :]
    for row, plain in zip(ended, alone, strict=True):
        at = (plain == eos).nonzero()[:1].flatten().tolist()
        n = at[0] + 1 if at else 20
        assert torch.equal(row[:n], plain[:n]) and (row[n:] == eos).all()


def test_what_does_not_fit_is_named():
    model, ids = tiny(0), ids_of(1, 2, 5)
    with pytest.raises(ValueError, match=r"lengths must be \[2\], each from 1 to 5, got \[0, 5\]"):
        stream(model, ids, 3, lengths=torch.tensor([0, 5]))
    with pytest.raises(ValueError, match=r"each from 1 to 5, got \[5, 6\]"):
        generate(model, ids, 3, lengths=torch.tensor([5, 6]))
    with pytest.raises(ValueError, match="lengths must be integers, got torch.float32"):
        generate(model, ids, 3, lengths=torch.tensor([5.0, 4.0]))
    both = torch.tensor([5, 4])
    with pytest.raises(ValueError, match="plain positions, got a StreamingCache"):
        stream(model, ids, 3, cache=StreamingCache(9, (), 10000.0), lengths=both)
    used = KVCache()
    list(stream(model, ids, 2, cache=used))
    with pytest.raises(ValueError, match="an empty cache"):
        stream(model, ids, 3, cache=used, lengths=both)
    with pytest.raises(ValueError, match="no prompts"):
        left_padded([])
    with pytest.raises(ValueError, match=r"prompts\[1\] must be a non-empty \[T\], got \(0,\)"):
        left_padded([ids[0], ids[0, :0]])


def test_sampling_draws_for_every_row():
    model, (ids, lengths) = tiny(5), left_padded(prompts_of(6, [4, 8]))
    runs = [
        generate(model, ids, 9, Sampling(1.0, 20), torch.Generator().manual_seed(s), None, lengths)
        for s in (1, 1, 2)
    ]
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])
