"""What make test leaves out: only while nothing that it stands on has changed."""

import re
import shutil

import by_night
import pytest

LISTED = by_night.listed()


def test_what_is_listed_exists_and_says_why():
    for file, entry in LISTED.items():
        assert (by_night.ROOT / file).is_file(), file
        assert len(entry["why"]) > 20
        assert all((by_night.ROOT / place).exists() for place in entry.get("also", ())), file


@pytest.mark.parametrize("file", LISTED)
def test_it_stands_on_what_it_imports_and_starts(file):
    """Also on modules that it starts as commands, or loads by a name that ends in another's."""
    found = by_night.stands_on(file, tuple(LISTED[file].get("also", ())))
    assert by_night.imported(by_night.ROOT / file) <= found
    for path in [p for p in found if p.parts[-2] != "autograder" and "tests" in p.parts]:
        for name in re.findall(r'"-m", "((?:efflib|autograder)[\w.]*)"', path.read_text()):
            assert set(by_night.modules()[name]) <= found, f"{path.name} starts {name}"


def copy_of_the_house(tmp_path, monkeypatch):
    for name in ("efflib", "autograder", "tests"):
        ignore = shutil.ignore_patterns("checkpoints", "triad", "__pycache__", "*.ipynb")
        shutil.copytree(by_night.ROOT / name, tmp_path / name, ignore=ignore)
    for name in ("constraints.txt", "pyproject.toml"):
        shutil.copy(by_night.ROOT / name, tmp_path)
    monkeypatch.setattr(by_night, "ROOT", tmp_path)
    monkeypatch.setattr(by_night, "TABLE", tmp_path / "tests" / "by_night.toml")
    monkeypatch.delenv("BY_NIGHT", raising=False)
    forget()


def forget():
    by_night.modules.cache_clear()
    by_night.imported.cache_clear()


def test_a_change_of_what_it_stands_on_brings_it_back(tmp_path, monkeypatch):
    file = "tests/autograder/grading/test_damaged.py"
    copy_of_the_house(tmp_path, monkeypatch)
    try:
        rest = {file: {"why": "x", "passed": ""}}
        monkeypatch.setattr(by_night, "listed", lambda: rest)
        assert by_night.left_out() == set(), "it has not passed yet"
        rest[file]["passed"] = by_night.digest(file)
        assert by_night.left_out() == {file}
        (tmp_path / "autograder" / "lms" / "sheet.py").write_text("x = 1\n")  # is not imported
        forget()
        assert by_night.left_out() == {file}
        for changed in (
            "autograder/grading/rebuild.py",  # imported
            "autograder/grading/magics.py",  # by what is imported
            "tests/autograder/toylab.py",
            "tests/conftest.py",
            "constraints.txt",
        ):
            path = tmp_path / changed
            text = path.read_text()
            path.write_text(text + "# changed\n")
            forget()
            assert by_night.left_out() == set(), changed
            path.write_text(text)
        forget()
        assert by_night.left_out() == {file}
        monkeypatch.setenv("BY_NIGHT", "1")
        assert by_night.left_out() == set()
    finally:
        monkeypatch.undo()
        forget()


def test_digests_are_recorded(tmp_path, monkeypatch):
    table = tmp_path / "by_night.toml"
    file = "tests/autograder/grading/test_damaged.py"
    table.write_text(f'[files."{file}"]\nwhy = "{"x" * 30}"\npassed = ""\n')
    monkeypatch.setattr(by_night, "TABLE", table)
    by_night.record(["another"])
    assert by_night.listed()[file]["passed"] == ""
    by_night.record([])
    assert by_night.listed() == {file: {"why": "x" * 30, "passed": by_night.digest(file)}}
