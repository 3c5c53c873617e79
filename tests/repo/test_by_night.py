"""What make test leaves out: only while nothing that it stands on has changed."""

import re
import shutil

import by_night
import pytest

from autograder.labs.manifest import lab_names

LAB = "lab05_kv_cache"  # one of those that may be left out
BY_LAB = by_night.listed_by_lab()
LISTED = by_night.listed() | BY_LAB


def also(file: str) -> tuple[str, ...]:
    return tuple(place.replace("{lab}", LAB) for place in LISTED[file].get("also", ()))


def test_what_is_listed_exists_and_says_why():
    assert LAB in by_night.labs() == lab_names(by_night.ROOT)[1:]
    for file, entry in LISTED.items():
        assert (by_night.ROOT / file).is_file(), file
        assert len(entry["why"]) > 20
        assert all(list(by_night.ROOT.glob(place)) for place in also(file)), file


@pytest.mark.parametrize("file", LISTED)
def test_it_stands_on_what_it_imports_and_starts(file):
    """Also on modules that it starts as commands, or loads by a name that ends in another's."""
    found = by_night.stands_on(file, also(file))
    assert by_night.imported(by_night.ROOT / file) <= found
    for path in [p for p in found if p.parts[-2] != "autograder" and "tests" in p.parts]:
        for name in re.findall(r'"-m", "((?:efflib|autograder)[\w.]*)"', path.read_text()):
            assert set(by_night.modules()[name]) <= found, f"{path.name} starts {name}"


@pytest.mark.parametrize("file", BY_LAB)
def test_a_lab_stands_on_all_that_is_its_own(file):
    """And on what its cells and tests import; not on what is another lab's."""
    found = by_night.stands_on(file, also(file))
    places = [by_night.ROOT / place / LAB for place in ("solutions", "labs")]
    own = {path for place in places for path in by_night.texts(place)}
    assert own <= found and by_night.ROOT / "efflib/models/llama.py" in found
    strange = [path for path in found if "lab06" in str(path) and path.name != "manifest.toml"]
    assert not strange


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
    for cached in (by_night.modules, by_night.imported, by_night.reached_from, by_night.content):
        cached.cache_clear()


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


def test_a_change_of_one_lab_brings_back_its_own(tmp_path, monkeypatch):
    file = "tests/labs/test_notebooks.py"
    (tmp_path / "table.toml").write_text("[files]\n")
    monkeypatch.setattr(by_night, "TABLE", tmp_path / "table.toml")
    monkeypatch.setattr(by_night, "LABS_TABLE", tmp_path / "labs.toml")
    monkeypatch.setattr(by_night, "listed_by_lab", lambda: {file: BY_LAB[file]})
    monkeypatch.delenv("BY_NIGHT", raising=False)
    assert by_night.left_out() == set(), "none has passed yet"
    by_night.record([])
    everything = {f"{file} {lab}" for lab in by_night.labs()}
    assert by_night.left_out() == everything
    content = by_night.content

    def change(place: str) -> None:
        path = by_night.ROOT / place
        monkeypatch.setattr(by_night, "content", lambda p: content(p) + b"x" * (p == path))

    change(f"solutions/{LAB}/exercises.toml")
    assert by_night.left_out() == everything - {f"{file} {LAB}"}
    by_night.record([f"{file} {LAB}"])
    assert by_night.left_out() == everything
    change("efflib/lab/student.py")
    assert by_night.left_out() == set()


def test_of_a_lab_only_slow_tests_are_left_out():
    out = {"tests/a.py", "tests/b.py lab05_x"}
    left = [
        ("tests/a.py::test", False),
        ("tests/a.py::test[lab05_x]", True),
        ("tests/b.py::test[lab05_x]", True),
    ]
    run = [
        ("tests/b.py::test[lab05_x]", False),
        ("tests/b.py::test[lab06_x]", True),
        ("tests/b.py::test", True),
    ]
    assert all(by_night.is_left_out(*test, out) for test in left)
    assert not any(by_night.is_left_out(*test, out) for test in run)
