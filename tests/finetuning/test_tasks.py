"""Three tasks: real text, parts that share no file, scores by hand."""

import json

import pytest
import torch

from efflib.finetuning.tasks import BATCH, KINDS, PIECE, TASKS, examples, score
from efflib.finetuning.training import finetune
from efflib.zoo import load
from efflib.zoo.tokenizer import BEGIN_ID, load_tokenizer


@pytest.mark.parametrize("task", TASKS)
def test_examples_are_drawn_by_seed_and_part(task):
    one, same, other = (examples(task, "training", 12, s) for s in (0, 0, 1))
    assert torch.equal(one.ids, same.ids) and torch.equal(one.scored, same.scored)
    assert one.ids.shape != other.ids.shape or not torch.equal(one.ids, other.ids)
    assert (one.ids[:, 0] == BEGIN_ID).all() and one.scored.any(1).all()
    assert one.scored.shape == (12, one.ids.shape[1] - 1) and task in BATCH
    held = examples(task, "held out", 12, 0)
    assert held.ids.shape != one.ids.shape or not torch.equal(held.ids, one.ids)


def test_the_format_is_the_head_s():
    drawn, decode = examples("format", "held out", 20, 0), load_tokenizer().decode
    for ids, scored in zip(drawn.ids, drawn.scored, strict=True):
        answer = json.loads(decode(ids[1:][scored].tolist()))
        first = int(scored.int().argmax())
        head = decode(ids[1 : 1 + first].tolist())
        assert head == f"def {answer['name']}({', '.join(answer['args'])}):\n"


def test_labels_are_one_digit_behind_a_piece():
    drawn = examples("label", "training", 60, 0)
    assert drawn.scored.sum(1).eq(1).all() and drawn.scored.int().argmax(1).eq(PIECE).all()
    labels = drawn.ids[:, 1:][drawn.scored]
    assert set(load_tokenizer().decode(labels.tolist())) == set("012"[: len(KINDS)])


def test_scores_by_hand():
    drawn = examples("label", "held out", 6, 0)
    answers = drawn.ids[:, 1:][drawn.scored]

    class Sure(torch.nn.Module):
        def __init__(self, said):
            super().__init__()
            self.said = said

        def forward(self, ids):
            logits = torch.zeros(*ids.shape, 2048)
            logits[torch.arange(6), -1, self.said] = 5.0
            return logits

    right = torch.tensor(5.0).exp()
    loss = -(right / (right + 2047)).log().item()
    assert score(Sure(answers), drawn) == pytest.approx((loss, 1.0), abs=1e-5)
    wrong = answers.clone()
    wrong[:3] = answers[:3].roll(1) if answers[:3].unique().numel() > 1 else answers[:3] - 1
    assert score(Sure(wrong), drawn).right == (wrong == answers).double().mean().item()


def test_only_what_counts_is_learned_from():
    model, drawn = load("draft"), examples("format", "training", 16, 0)
    batches, scored = drawn.ids.split(8), drawn.scored.split(8)
    _, losses = finetune(model, batches, 1e-3, scored=scored)
    assert losses[0] == pytest.approx(
        score(model, type(drawn)(batches[0], scored[0])).loss, abs=1e-5
    )
    for bad, message in (
        (scored[:1], "1 scored for 2"),
        ([s[:, 1:] for s in scored], r"scored\[0\] must be bool"),
        ([torch.zeros_like(s) for s in scored], "with a True"),
    ):
        with pytest.raises(ValueError, match=message):
            finetune(model, batches, 1e-3, scored=bad)
    for name, part in (("C", "training"), ("C++", "test")):
        with pytest.raises(ValueError, match="must be one of"):
            examples(name, part, 1, 0)
