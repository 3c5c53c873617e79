"""The set-up card finds damaged and missing files, and says what to do."""

import hashlib
import json

import pytest

from efflib.lab.setup_card import fixture_rows, setup_rows


@pytest.fixture
def shipped(tmp_path):
    """A folder as efflib.zoo ships it: two files and their hashes."""
    files = {"tokenizer.json": b"{}", "target/model.safetensors": b"\x00" * 100}
    (tmp_path / "target").mkdir()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    (tmp_path / "hashes.json").write_text(json.dumps(hashes))
    return tmp_path


def test_whole_files_are_one_line(shipped):
    assert fixture_rows(shipped) == [["[ok]", "checkpoints", "2 files with the recorded sha256"]]


def test_a_damaged_and_a_missing_file_are_named(shipped):
    (shipped / "target" / "model.safetensors").write_bytes(b"\x00" * 99 + b"\x01")
    rows = fixture_rows(shipped)
    assert [row[:2] for row in rows] == [
        ["[ok]", "checkpoints"],
        ["[fail]", "target/model.safetensors"],
    ]
    assert rows[1][2].startswith("damaged: ")
    (shipped / "tokenizer.json").unlink()
    rows = fixture_rows(shipped)
    assert [row[0] for row in rows] == ["[fail]", "[fail]"]
    assert rows[0][2] == "missing: install the course again"


@pytest.mark.parametrize("text", ["", "[]", "{", '["a"]'])
def test_unreadable_hashes_are_a_failed_line(shipped, text):
    (shipped / "hashes.json").write_text(text)
    assert fixture_rows(shipped)[0][0] == "[fail]"


def test_no_hashes_at_all(tmp_path):
    assert "install the course again" in fixture_rows(tmp_path)[0][2]


def test_the_card_names_versions_seed_and_folder(shipped):
    import torch

    rows = {name: (state, detail) for state, name, detail in setup_rows(shipped, shipped)}
    assert rows["torch"][1].startswith(torch.__version__)
    assert rows["seed"][1] == "torch.manual_seed(0)"
    assert rows["lab files"] == ("[ok]", str(shipped))
    assert setup_rows(None, shipped)[5][0] == "[fail]"
