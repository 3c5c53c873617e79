"""Distillation: what the teacher writes, and a student that comes to predict as it does."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from torch import nn

from efflib.decoding.sampling import generate
from efflib.models import LlamaConfig, save_pretrained
from efflib.zoo import cards, distillation, train
from efflib.zoo.checkpoints import load_unchecked
from efflib.zoo.distillation import LENGTH, PROMPT, distillation_loss, written
from efflib.zoo.tokenizer import BEGIN_ID
from efflib.zoo.training import Recipe, Run, initialize, loss_function

TINY = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=8,
    tie_word_embeddings=True,
)
TEXT = torch.randint(1, 32, (2000,), generator=torch.Generator().manual_seed(0))
STUDENT = Recipe(TINY, steps=60, batch=4, context=32, teacher="target", seed=1)


def opinionated(seed: int = 0) -> nn.Module:
    """A tiny model whose weights are large enough that its predictions are far from uniform."""
    model = initialize(TINY, seed).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter *= 20
    return model


@pytest.fixture
def zoo_of_one(tmp_path, monkeypatch):
    """A folder of checkpoints that holds one tiny model, "target"."""
    save_pretrained(opinionated(), tmp_path / "target")
    monkeypatch.setattr(train, "FOLDER", tmp_path)
    monkeypatch.setattr(train, "load", lambda name: load_unchecked(tmp_path / name))
    monkeypatch.setattr(train, "training_text", lambda: TEXT)
    return tmp_path


def test_written_text_continues_the_text_as_the_teacher_does():
    ids = written(opinionated(), TEXT, 5 * LENGTH + 3)
    assert ids.shape == (5 * LENGTH,) and not (ids == BEGIN_ID).all()
    pieces = ids.view(5, LENGTH)
    windows = TEXT.unfold(0, PROMPT, 1)
    for piece in pieces:
        assert (windows == piece[:PROMPT]).all(1).any()
    # Drawn, not greedy, yet from the teacher: on average no less likely than its entropy says.
    with torch.no_grad():
        rows = torch.cat([torch.zeros(5, 1, dtype=torch.long), pieces], dim=1)
        log_p = opinionated()(rows[:, :-1]).log_softmax(-1)[:, PROMPT:]
    entropy = -(log_p.exp() * log_p).sum(-1)
    surprise = -log_p.gather(2, pieces[:, PROMPT:, None])[..., 0]
    # 1200 draws with deviations of order 1 nat: a standard error of 0.03.
    assert surprise.mean().item() == pytest.approx(entropy.mean().item(), abs=0.15)
    assert not torch.equal(rows, generate(opinionated(), rows[:, : 1 + PROMPT], LENGTH - PROMPT))


def test_written_text_is_a_function_of_the_seed():
    draws = [written(opinionated(), TEXT, LENGTH, seed) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("tokens, size", [(LENGTH - 1, 100), (LENGTH, PROMPT - 1)])
def test_too_little_is_refused(tokens, size):
    with pytest.raises(ValueError, match=f"tokens={tokens} .* {size} ids"):
        written(opinionated(), TEXT[:size], tokens)


def test_the_loss_is_the_mean_divergence_and_zero_for_the_teacher():
    student, teacher = opinionated(1), opinionated(0)
    ids = TEXT[:40].view(2, 20)
    loss = distillation_loss(student, teacher, "cpu")(ids)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        p, q = (m(ids[:, :-1]).double().softmax(-1) for m in (teacher, student))
    by_hand = (p * (p / q).log()).sum(-1).mean()
    # fp32 sums over 32 entries of numbers of order 10.
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-4)
    assert distillation_loss(teacher, teacher, "cpu")(ids).item() == pytest.approx(0, abs=1e-6)
    loss.backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert all(p.grad is not None for p in student.parameters())


def test_a_run_with_a_teacher_comes_nearer_to_it(zoo_of_one):
    run = Run(STUDENT, TEXT, zoo_of_one / "run.pt")
    loss = train.loss_of(run)
    losses = [run.update(loss) for _ in range(STUDENT.steps)]
    assert losses[-1] < 0.8 * losses[0]
    plain = Run(replace(STUDENT, teacher=None), TEXT, zoo_of_one / "plain.pt")
    assert train.loss_of(plain)(TEXT[None, :20]) == loss_function(plain.model, "cpu")(
        TEXT[None, :20]
    )


def test_the_written_text_joins_the_training_text_and_is_kept(zoo_of_one, monkeypatch):
    assert train.text_of(STUDENT, zoo_of_one) is TEXT
    recipe = replace(STUDENT, written=2 * LENGTH, repeats=3)
    text = train.text_of(recipe, zoo_of_one)
    own = written(opinionated(), TEXT, 2 * LENGTH, seed=1)
    assert torch.equal(text, torch.cat([TEXT, own, own, own]))
    monkeypatch.setattr(train, "written", None)  # not called again
    assert torch.equal(text, train.text_of(recipe, zoo_of_one))
    save_pretrained(opinionated(2), zoo_of_one / "target")  # another teacher writes another text
    with pytest.raises(TypeError):
        train.text_of(recipe, zoo_of_one)


def test_the_card_names_the_teacher():
    report = json.loads((cards.checkpoints.FOLDER / "draft" / "training.json").read_text())
    recipe = report["recipe"] | {"teacher": "target", "written": 2_000_000, "repeats": 10}
    text = cards.card(report | {"recipe": recipe, "teacher_sha256": "0123456789abcdef"}, 10)
    assert "`target` (weights 0123456789ab)" in text and "10 times, on 2,000,000 tokens" in text
    plain = asdict(STUDENT) | report["recipe"] | {"teacher": None}
    assert "Distilled" not in cards.card(report | {"recipe": plain}, 10)


def test_pieces_are_written_in_batches_of_rows(monkeypatch):
    monkeypatch.setattr(distillation, "ROWS", 2)
    assert written(opinionated(), TEXT, 5 * LENGTH).shape == (5 * LENGTH,)
