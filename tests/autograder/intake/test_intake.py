"""Whatever students hand in, each gets one row, and nothing leaves the folder it lies in."""

import json
from pathlib import Path

import pytest
from handed_in import GOOD, LAB, reason, rows, zipped
from toylab import NAME, answered, cell, notebook, release, write

from autograder.intake.discover import (
    IntakeError,
    Rejected,
    Submission,
    discover,
    read_submission,
)
from autograder.intake.names import safe_id
from autograder.intake.notebook import notebook_digest, parse_notebook

# ---- layouts ------------------------------------------------------------------------------------

LAYOUTS = {
    "folders": ["alice/toy.ipynb", "bob/toy.ipynb"],
    "nested": ["alice/work/toy.ipynb", "bob/a/b/toy.ipynb"],
    "nbgrader": [f"alice/{NAME}/toy.ipynb", f"bob/{NAME}/toy.ipynb", "carol/lab09/toy.ipynb"],
    "notebooks": ["alice.ipynb", "bob.ipynb", "README.md"],
    "renamed": ["alice/lab1 (1).ipynb", "bob/Kopie von toy.IPYNB"],
    "checkpoints": ["alice/toy.ipynb", "alice/.ipynb_checkpoints/toy.ipynb", "bob.ipynb"],
}


@pytest.mark.parametrize("names", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_layouts(tmp_path, names, packed):
    root = tmp_path / "all"
    for name in names:
        write(root / name, GOOD)
    if packed:
        files = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        root = write(tmp_path / "all.zip", zipped(files))
    found = rows(root)
    left = [found.pop(name) for name in list(found) if name.startswith("unclear-")]
    told = [f"{name} was left out: it is neither a notebook nor a zip" for name in names[2:]]
    assert [row.reason for row in left] == (told if "README.md" in names else [])
    if "carol/lab09/toy.ipynb" in names:  # nobody vanishes
        assert found.pop("carol").status == "missing"
    assert set(found) == {"alice", "bob"}
    assert all(isinstance(row, Submission) for row in found.values())
    assert found["alice"].digest == notebook_digest(parse_notebook(GOOD))


def test_zip_with_a_folder_around_everyone(tmp_path):
    files = {f"export/{name}.ipynb": GOOD for name in ("alice", "bob")}
    assert set(rows(write(tmp_path / "a.zip", zipped(files)))) == {"alice", "bob"}
    files = {f"export/{name}/toy.ipynb": GOOD for name in ("alice", "bob")}
    assert set(rows(write(tmp_path / "b.zip", zipped(files)))) == {"alice", "bob"}


def test_students_zips_in_a_folder_and_in_a_zip(tmp_path):
    inner = zipped({"toy.ipynb": GOOD, "__MACOSX/._toy.ipynb": b"x"})
    write(tmp_path / "all" / "alice.zip", inner)
    write(tmp_path / "all" / "bob" / "hand-in.zip", inner)
    outer = write(tmp_path / "all.zip", zipped({"alice.zip": inner, "bob/hand-in.zip": inner}))
    for path in (tmp_path / "all", outer):
        assert {row.student for row in rows(path).values() if row.digest} == {"alice", "bob"}


def test_one_notebook(tmp_path):
    assert set(rows(write(tmp_path / "alice.ipynb", GOOD))) == {"alice"}
    single = read_submission(tmp_path / "alice.ipynb", "bob", LAB)
    assert isinstance(single, Submission) and single.student == "bob"


@pytest.mark.parametrize("name", ["missing", "notes.txt", "empty"])
def test_a_path_without_submissions_is_bad_usage(tmp_path, name):
    write(tmp_path / "notes.txt", b"x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(IntakeError):
        discover(tmp_path / name, LAB)


def test_several_notebooks(tmp_path):
    foreign = json.dumps(notebook([cell("code", "1")])).encode()
    write(tmp_path / "a/alice/toy.ipynb", GOOD)
    write(tmp_path / "a/alice/scratch.ipynb", foreign)
    write(tmp_path / "a/alice/broken.ipynb", b"{")
    row = rows(tmp_path / "a")["alice"]
    assert row.file.endswith("toy.ipynb") and "several notebooks" in row.notes[0]
    write(tmp_path / "a/alice/toy-2.ipynb", answered(ex1="pass"))
    assert "4 notebooks" in reason(tmp_path / "a")
    write(tmp_path / "a/alice/toy-2.ipynb", GOOD)  # twice the same is no conflict
    assert isinstance(rows(tmp_path / "a")["alice"], Submission)


# ---- ids ----------------------------------------------------------------------------------------

BAD_IDS = [
    "Jörg",
    "a b",
    "\u202egnp",
    "-rf",
    "x" * 200,
    "a;b",
    "a\nb",
    "=cmd",
    "@x",
    "学生",
    "\uff41",
]


@pytest.mark.parametrize("name", BAD_IDS)
def test_a_name_that_is_no_id_gets_one_and_is_graded(tmp_path, name):
    write(tmp_path / name / "toy.ipynb", GOOD)
    write(tmp_path / "bob" / "toy.ipynb", GOOD)
    [row] = [row for row in discover(tmp_path, LAB) if row.student != "bob"]
    assert isinstance(row, Submission) and row.student == safe_id(name)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../b", "C:x"])
def test_a_path_for_an_id_in_a_zip(tmp_path, name):
    files = {f"{name}/toy.ipynb": GOOD, "bob/toy.ipynb": GOOD}
    found = rows(write(tmp_path / "all.zip", zipped(files)))
    assert isinstance(found.pop("bob"), Submission)
    [row] = found.values()
    assert isinstance(row, Rejected) and row.status == ("rejected" if name[0] == "a" else "unclear")
    assert Path(tmp_path / row.student).resolve().parent == tmp_path.resolve()


@pytest.mark.parametrize("name", ["alice", "a.b-c_d", "x" * 64, "user@uni.edu", "s00+1"])
def test_ordinary_ids_are_kept(tmp_path, name):
    write(tmp_path / name / "toy.ipynb", release())
    assert set(rows(tmp_path)) == {name}
