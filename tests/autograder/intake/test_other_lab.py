"""A notebook of another lab takes nobody's points; work for this lab is graded wherever it is."""

import copy
import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from handed_in import zipped
from toylab import cell, notebook

from autograder.intake.discover import Rejected, Submission, discover
from autograder.intake.notebook import notebook_cells
from autograder.intake.other_lab import other_lab

LABS = Path(__file__).parents[3] / "labs"
FIRST, SIXTH = "lab01_quantization", "lab06_paged_attention"
EXERCISES = dict.fromkeys(f"ex{number}" for number in range(1, 7))
WORK = "def {}(*given):\n    return given"
LAB = SimpleNamespace(
    name=FIRST,
    exercises=EXERCISES,
    written={"w1": 5, "w2": 5},
    release_dir=LABS / FIRST,
    release_notebook=LABS / FIRST / "quantization.ipynb",
)


@cache
def text_of(lab):
    [path] = (LABS / lab).glob("*.ipynb")
    return path.read_text(encoding="utf-8")


def given(lab):
    return json.loads(text_of(lab))


def graded(nb, lab=LAB):
    return not other_lab(notebook_cells(nb), lab)


def without_ids(nb):
    """As systems hand it back that drop nbgrader's metadata and give cells new ids."""
    nb = copy.deepcopy(nb)
    for number, one in enumerate(nb["cells"]):
        one["metadata"], one["id"] = {}, f"new-{number}"
    return nb


def rows(tmp_path, files):
    path = tmp_path / "submissions.zip"
    path.write_bytes(zipped({name: json.dumps(nb).encode() for name, nb in files.items()}))
    return {row.student: row for row in discover(path, LAB)}


def test_another_labs_hand_ins_are_named_and_not_graded(tmp_path):
    name = "muelleranna_12345_688901_paged_attention.ipynb"
    [row] = rows(tmp_path, {name: given(SIXTH)}).values()
    assert isinstance(row, Rejected) and row.status == "unclear"  # exit code 1, nothing recorded
    assert f"{name} is a notebook of {SIXTH}, not of {FIRST}" in row.reason


def test_of_two_files_the_one_of_this_lab_counts(tmp_path):
    """Even though the other lab's is the newer upload."""
    own = given(FIRST)
    own["cells"].append(cell("code", "mine = 1", cell_id="mine"))
    files = {
        "muelleranna_12345_678901_quantization.ipynb": own,
        "muelleranna_12345_688901_paged_attention.ipynb": given(SIXTH),
    }
    [row] = rows(tmp_path, files).values()
    assert isinstance(row, Submission) and row.file.endswith("_quantization.ipynb")
    assert any(f"is a notebook of {SIXTH}" in note for note in row.notes)


@pytest.mark.parametrize("change", [lambda nb: nb, without_ids], ids=["as it was", "without ids"])
def test_every_other_lab_is_told(change):
    labs = sorted(path.name for path in LABS.iterdir() if path.is_dir())
    told = {lab: other_lab(notebook_cells(change(given(lab))), LAB) for lab in labs}
    assert told == {lab: "" if lab == FIRST else lab for lab in labs}


def solved_in(nb, name, *, at):
    nb["cells"][at] = cell("code", WORK.format(name), cell_id="pasted")
    return nb


GRADED = {
    "as it was given out": lambda: given(FIRST),
    "without ids": lambda: without_ids(given(FIRST)),
    "without the set-up": lambda: notebook(given(FIRST)["cells"][20:]),
    "one cell of it": lambda: notebook([given(FIRST)["cells"][0]]),
    "a new notebook": lambda: notebook([cell("code", WORK.format("codebook"), cell_id="x")]),
    "nothing that says a lab": lambda: notebook([cell("code", "x = 1", cell_id="x")]),
    "no cell": lambda: notebook([]),
    "a lab that nobody knows": lambda: notebook([cell("code", 'Lab("lab99_mine")', cell_id="x")]),
    "named in text only": lambda: notebook([cell("markdown", f'Lab("{SIXTH}")', cell_id="x")]),
    "in the other lab's notebook": lambda: solved_in(given(SIXTH), "quantize_model", at=-1),
    "there, in a cell that became text": lambda: notebook(
        [*given(SIXTH)["cells"], cell("markdown", WORK.format("quantize_model"), cell_id="x")]
    ),
    "there, with this lab's set-up": lambda: notebook(
        [*given(SIXTH)["cells"], cell("code", f"lab = Lab( '{FIRST}')", cell_id="x")]
    ),
}


@pytest.mark.parametrize("make", GRADED.values(), ids=GRADED)
def test_whatever_may_be_of_this_lab_is_graded(make):
    assert graded(make())


def test_any_one_exercise_in_any_other_labs_notebook_is_graded():
    """Also functions that the other lab's notebook defines under the same name."""
    specs = [SimpleNamespace(name=p.name, release_dir=p) for p in sorted(LABS.iterdir())]
    cells = {spec.name: notebook_cells(given(spec.name)) for spec in specs}
    for spec in specs:
        asked = [c for c in given(spec.name)["cells"] if c["cell_type"] == "code"]
        asked = [c for c in asked if c["metadata"].get("nbgrader", {}).get("solution")]
        work = notebook_cells(
            without_ids(notebook([c | {"source": [*c["source"], "\n#"]} for c in asked]))
        )
        for other in specs:
            for one in work:
                assert not other_lab((*cells[other.name], one), spec)
