"""Training: a killed run resumes to the same weights, workers share a batch, samples and rates."""

import os
from dataclasses import asdict, replace

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from efflib.models import LlamaConfig
from efflib.zoo import training
from efflib.zoo.tokenizer import BEGIN_ID
from efflib.zoo.training import (
    Recipe,
    Run,
    average_gradients,
    explicit_attention,
    initialize,
    loss_function,
    rate,
    sample,
    saved_recipe,
)

TINY = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=8,
    tie_word_embeddings=True,
)
CONTEXT = 64
RECIPE = Recipe(TINY, steps=8, batch=2, context=CONTEXT)
TEXT = torch.randint(1, 32, (CONTEXT * 9,), generator=torch.Generator().manual_seed(0))


def advance(run: Run, steps: int) -> list[float]:
    loss = loss_function(run.model, run.device)
    return [run.update(loss) for _ in range(steps)]


def test_a_killed_and_resumed_run_ends_with_the_same_weights(tmp_path):
    whole = Run(RECIPE, TEXT, tmp_path / "whole.pt")
    losses = advance(whole, 8)
    killed = Run(RECIPE, TEXT, tmp_path / "killed.pt")
    advance(killed, 3)
    killed.save()
    advance(killed, 2)  # lost: never saved
    resumed = Run(RECIPE, TEXT, tmp_path / "killed.pt")
    assert resumed.step == 3
    assert advance(resumed, 5) == losses[3:]
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], weight), name


def test_a_kill_while_saving_leaves_the_last_state(tmp_path, monkeypatch):
    run = Run(RECIPE, TEXT, tmp_path / "run.pt")
    advance(run, 2)
    run.save()

    def killed_half_way(state, path):
        path.write_bytes(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(training.torch, "save", killed_half_way)
    advance(run, 1)
    with pytest.raises(KeyboardInterrupt):
        run.save()
    assert Run(RECIPE, TEXT, tmp_path / "run.pt").step == 2


def test_the_state_of_another_recipe_is_refused(tmp_path):
    run = Run(RECIPE, TEXT, tmp_path / "run.pt")
    run.save()
    Run(replace(RECIPE, steps=20), TEXT, tmp_path / "run.pt")  # more steps are no other recipe
    with pytest.raises(ValueError, match="seed"):
        Run(replace(RECIPE, seed=1), TEXT, tmp_path / "run.pt")
    with pytest.raises(ValueError, match="context"):
        Run(replace(RECIPE, context=CONTEXT // 2), TEXT, tmp_path / "run.pt")


def test_a_saved_recipe_without_a_younger_field_has_its_default():
    assert saved_recipe(asdict(RECIPE)) == RECIPE
    old = asdict(RECIPE)
    del old["context"], old["model"]["hidden_act"]
    assert saved_recipe(old) == replace(RECIPE, context=256)


def test_a_state_from_before_the_context_was_a_field_resumes(tmp_path):
    recipe = replace(RECIPE, context=256)
    text = TEXT.repeat(4)
    run = Run(recipe, text, tmp_path / "run.pt")
    advance(run, 1)
    run.save()
    state = torch.load(tmp_path / "run.pt")
    del state["recipe"]["context"]
    torch.save(state, tmp_path / "run.pt")
    assert Run(recipe, text, tmp_path / "run.pt").step == 1
    with pytest.raises(ValueError, match="context"):
        Run(RECIPE, text, tmp_path / "run.pt")


def test_training_lowers_the_loss_and_depends_on_the_seed(tmp_path):
    text = torch.arange(CONTEXT * 9) % 5 + 1  # a pattern to be learned
    first = advance(Run(RECIPE, text, tmp_path / "a.pt"), 8)
    other = advance(Run(replace(RECIPE, seed=1), text, tmp_path / "b.pt"), 8)
    assert first[-1] < first[0] - 0.1
    assert first != other


def test_every_parameter_has_one_optimizer():
    model = initialize(TINY, seed=0)
    muon, adamw = training.optimizers(model, RECIPE)
    groups = [[id(p) for p in o.param_groups[0]["params"]] for o in (muon, adamw)]
    assert sorted(sum(groups, [])) == sorted(id(p) for p in model.parameters())
    assert id(model.model.embed_tokens.weight) in groups[1]
    assert id(model.model.layers[0].mlp.up_proj.weight) in groups[0]


def test_a_sample_is_the_begin_token_and_consecutive_text():
    text = torch.arange(1, 10 * CONTEXT)
    ids = sample(text, 0, replace(RECIPE, batch=3))
    assert ids.shape == (3, 1 + CONTEXT)
    assert (ids[:, 0] == BEGIN_ID).all()
    assert (ids[:, 2:] - ids[:, 1:-1] == 1).all()


def test_a_sample_without_the_begin_token_starts_with_text():
    ids = sample(torch.arange(1, 10 * CONTEXT), 0, replace(RECIPE, batch=3, begin=False))
    assert ids.shape == (3, 1 + CONTEXT)
    assert (ids[:, 1:] - ids[:, :-1] == 1).all()


def test_a_run_with_a_zero_sink_trains_with_it(tmp_path):
    plain = Run(RECIPE, TEXT, tmp_path / "plain.pt")
    zero = Run(replace(RECIPE, zero_sink=True), TEXT, tmp_path / "zero.pt")
    ids = sample(TEXT, 0, RECIPE)[:, :-1]
    assert not torch.allclose(plain.model(ids), zero.model(ids))
    assert advance(zero, 1) != advance(plain, 1)


@given(st.integers(0, 2), st.integers(0, 1000))
def test_an_epoch_visits_every_place_once(epoch, seed):
    text, batch = torch.arange(1, 9 * CONTEXT), RECIPE.batch
    steps = (len(text) - CONTEXT - 1) // CONTEXT // batch
    ids = [sample(text, epoch * steps + i, replace(RECIPE, seed=seed))[:, 1:] for i in range(steps)]
    seen = torch.cat(ids).flatten()
    assert len(seen.unique()) == len(seen) == steps * batch * CONTEXT
    assert seen.max() - seen.min() == len(seen) - 1  # no place between is left out


@given(st.integers(10, 5000), st.floats(0.1, 0.5))
def test_the_rate_warms_up_stays_and_decays_to_nothing(steps, decay):
    rates = [rate(i, steps, decay) for i in range(steps)]
    assert max(rates) == 1.0 and 0 < rates[0] and 0 < rates[-1] <= 1 / (decay * steps) + 1e-9
    top = rates.index(1.0)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert rate(steps, steps, decay) == 0.0


@given(st.integers(1000, 5000), st.integers(0, 5000), st.integers(0, 599))
def test_a_longer_run_is_the_same_until_the_decay(steps, more, step):
    assert rate(step, steps, 0.4) == rate(step, steps + more, 0.4)


def test_explicit_attention_equals_sdpa():
    from efflib.models.llama import causal_mask, sdpa

    q, k, v = torch.randn(3, 2, 3, 17, 8, dtype=torch.float64)
    mask = causal_mask(17, 17)
    # The softmax is taken in fp32: 2^-24 relative, on values of order 1.
    torch.testing.assert_close(
        explicit_attention(q, k, v, mask), sdpa(q, k, v, mask), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("t", [1, 3, 16, 17, 40])  # fewer than the blocks, uneven, whole
def test_causal_attention_equals_sdpa_and_so_do_its_gradients(t):
    from efflib.models.llama import causal_mask, sdpa

    inputs = [x.requires_grad_() for x in torch.randn(3, 2, 3, t, 8)]
    weights = torch.randn(2, 3, t, 8)  # of the outputs in the sum that is differentiated
    results = []
    for attention in (training.causal_attention(40, "cpu"), sdpa):
        out = attention(*inputs, causal_mask(t, t))
        results.append([out, *torch.autograd.grad((out * weights).sum(), inputs)])
    for ours, theirs in zip(*results, strict=True):
        # Sums of at most 40 terms of order 1 in fp32.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def share(rank: int, folder: str) -> None:
    """Worker of the test below: one update with this worker's half of the batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    model = initialize(TINY, seed=0)
    ids = sample(TEXT, 0, replace(RECIPE, batch=4))[rank::2]
    logits = model(ids[:, :-1]).flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
    average_gradients(model)
    torch.save({n: p.grad for n, p in model.named_parameters()}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_workers_average_to_the_gradient_of_the_whole_batch(tmp_path):
    torch.multiprocessing.spawn(share, (os.fspath(tmp_path),), nprocs=2)
    model, ids = initialize(TINY, seed=0), sample(TEXT, 0, replace(RECIPE, batch=4))
    logits = model(ids[:, :-1]).flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten()).backward()
    halves = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for name, p in model.named_parameters():
        assert torch.equal(halves[0][name], halves[1][name]), name
        # A mean over 256 tokens taken in another order, in fp32.
        torch.testing.assert_close(halves[0][name], p.grad, rtol=1e-4, atol=1e-7, msg=name)
