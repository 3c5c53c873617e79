"""The corpus, its held-out part, the tokenizer and the calibration batches."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from efflib.zoo import corpus
from efflib.zoo.checkpoints import FOLDER, TOKENIZER, CorruptCheckpoint
from efflib.zoo.samples import calibration
from efflib.zoo.tokenizer import (
    BEGIN,
    BEGIN_ID,
    VOCAB_SIZE,
    load_tokenizer,
    text_ids,
    train_and_save,
    train_tokenizer,
)

LONG_LINE = 40  # characters: shorter lines ("except (TypeError, ValueError):") repeat by nature


def long_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if len(line.strip()) >= LONG_LINE]


def test_held_out_names_exist_and_are_not_in_training():
    code, prose = (corpus.documents(split, held_out=True) for split in corpus.SPLITS)
    assert set(code) == set(corpus.HELD_OUT_MODULES)
    assert set(prose) == set(corpus.HELD_OUT_TOPICS)
    for split in corpus.SPLITS:
        held_out = corpus.documents(split, True)
        training = corpus.documents(split, False)
        assert not held_out.keys() & training.keys()
        assert not set(held_out.values()) & set(training.values())


@pytest.mark.parametrize("split", corpus.SPLITS)
def test_hardly_a_line_of_a_held_out_document_is_in_training(split):
    training = {
        line
        for each in corpus.SPLITS
        for text in corpus.documents(each, False).values()
        for line in long_lines(text)
    }
    for name, text in corpus.documents(split, True).items():
        lines = long_lines(text)
        known = [line for line in lines if line in training]
        assert len(known) <= 0.15 * len(lines), (name, known)


def test_no_tests_and_no_other_packages_in_the_code():
    for name in corpus.documents("code", False):
        assert not {"test", "tests", "site-packages", "idlelib"} & set(name.split("/")), name
        assert not name.startswith("_sysconfigdata")


def test_the_text_is_the_same_at_every_reading():
    for split in corpus.SPLITS:
        for held_out in (False, True):
            first = corpus.documents(split, held_out)
            again = corpus.documents.__wrapped__(split, held_out)
            assert list(first.items()) == list(again.items())


def test_digest_depends_on_names_and_text(monkeypatch):
    digests = set()
    for texts in ({"a": "xy"}, {"a": "xz"}, {"b": "xy"}, {"a": "x", "b": "y"}, {}):
        monkeypatch.setattr(corpus, "documents", lambda *_, texts=texts: texts)
        digests.add(corpus.digest.__wrapped__("code", True))
    assert len(digests) == 5


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match="'poetry'"):
        corpus.documents("poetry", True)


@given(st.text())
def test_tokenizer_round_trip(text):
    tokenizer = load_tokenizer()
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert BEGIN_ID not in ids and all(0 <= i < VOCAB_SIZE for i in ids)


def test_the_begin_token_is_put_by_code_only():
    tokenizer = load_tokenizer()
    assert tokenizer.token_to_id(BEGIN) == BEGIN_ID
    assert tokenizer.get_vocab_size() == VOCAB_SIZE
    spelled = tokenizer.encode(f"a{BEGIN}b").ids
    assert BEGIN_ID not in spelled and tokenizer.decode(spelled) == f"a{BEGIN}b"
    for split in corpus.SPLITS:
        assert not (text_ids(split, True) == BEGIN_ID).any()
        assert not (text_ids(split, False) == BEGIN_ID).any()


def test_training_a_tokenizer_is_deterministic():
    texts = list(corpus.documents("prose", True).values())
    first, second = (train_tokenizer(texts, vocab_size=300).to_str() for _ in range(2))
    assert first == second


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="trained on Python 3.11's text")
def test_the_command_trains_the_shipped_tokenizer(tmp_path):
    train_and_save(tmp_path)
    assert (tmp_path / TOKENIZER).read_bytes() == (FOLDER / TOKENIZER).read_bytes()
    damaged = (tmp_path / TOKENIZER).read_text().replace("def", "fed", 1)
    (tmp_path / TOKENIZER).write_text(damaged)
    with pytest.raises(CorruptCheckpoint, match="tokenizer.json is damaged"):
        load_tokenizer(tmp_path)


def as_bytes(ids: torch.Tensor) -> bytes:
    return ids.to(torch.int16).numpy().tobytes()


@pytest.mark.parametrize("split", corpus.SPLITS)
def test_calibration_is_training_text_after_a_begin_token(split):
    ids = calibration(split, n=5, length=40, seed=3)
    assert ids.shape == (5, 40) and ids.dtype == torch.int64
    assert (ids[:, 0] == BEGIN_ID).all() and not (ids[:, 1:] == BEGIN_ID).any()
    training, held_out = (as_bytes(text_ids(split, kind)) for kind in (False, True))
    for row in ids[:, 1:]:
        assert as_bytes(row) in training
        assert as_bytes(row) not in held_out
    assert torch.equal(ids, calibration(split, n=5, length=40, seed=3))
    assert not torch.equal(ids, calibration(split, n=5, length=40, seed=4))


@pytest.mark.parametrize("n, length", [(0, 8), (1, 1), (1, 10**9)])
def test_calibration_refuses_what_it_cannot_give(n, length):
    with pytest.raises(ValueError, match=f"n={n}, length={length}"):
        calibration("code", n, length)
