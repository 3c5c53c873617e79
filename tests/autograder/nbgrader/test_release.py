"""From the percent source to what students open: the same bytes every time, nothing given away."""

import json
from pathlib import Path

import nbcourse
import nbformat
import pytest
from nbgrader.api import Gradebook

from autograder.labs.source import ReleaseError, build_source, lab_sources
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.release import check_released, release

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root


def cells_by_id(path):
    return {cell.id: cell for cell in nbformat.read(path, as_version=4).cells}


def released(course):
    return course / "labs" / nbcourse.LAB / "toy.ipynb"


def test_short_headers_become_nbgrader_metadata(course):
    cells = cells_by_id(course / "build" / "source" / nbcourse.LAB / "toy.ipynb")
    expected = {
        "ex1": (False, True, False, None),
        "ex1-check": (True, False, True, 50),
        "ex2-b": (False, True, False, None),
        "w1": (True, True, False, 10),
    }
    for name, wanted in expected.items():
        graded = cells[name].metadata.nbgrader
        assert (graded.grade, graded.solution, graded.locked, graded.get("points")) == wanted
        assert graded.schema_version == 3 and graded.grade_id == name
    demos = [cell for cell in cells.values() if cell.metadata.get("tags") == ["demo"]]
    assert len(demos) == 1
    assert all("nbgrader" not in cells[i].metadata for i in cells if i[:5] in ("text-", "code-"))


def test_students_get_stubs_with_the_number_of_the_exercise(course):
    text = released(course).read_text()
    cells = cells_by_id(released(course))
    assert cells["ex1"].source.endswith('    raise NotImplementedError("Exercise 1")')
    assert cells["ex2-b"].source.endswith('    raise NotImplementedError("Exercise 2")')
    assert '"""All numbers times factor."""' in cells["ex1"].source
    assert cells["w1"].source == "*Write your answer here.*"
    for given_away in ("factor * number", "BEGIN SOLUTION", "Because", nbcourse.CANARY):
        assert given_away not in text


def test_check_cells_are_locked_and_nothing_has_run(course):
    nb = nbformat.read(released(course), as_version=4)
    nbformat.validate(nb)
    check = cells_by_id(released(course))["ex1-check"]
    assert check.metadata.editable is False and check.metadata.deletable is False
    code = [cell for cell in nb.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert set(nb.metadata) == {"kernelspec", "language_info"}


def test_everything_students_need_is_released_and_nothing_else(course):
    names = {path.name for path in released(course).parent.iterdir()}
    assert names == {"toy.ipynb", "test_public.py", "exercises.toml"}


def test_the_gradebook_knows_the_cells(course):
    coursedir = course_directory(course)
    with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
        notebook = gradebook.find_notebook("toy", nbcourse.LAB)
        assert {cell.name: cell.max_score for cell in notebook.grade_cells} == {
            "ex1-check": 50,
            "ex2-check": 40,
            "w1": 10,
        }
        assert {cell.name for cell in notebook.solution_cells} == {"ex1", "ex2", "ex2-b", "w1"}
        assert notebook.assignment.course_id == "efficient-llm"


def test_a_second_release_gives_the_same_bytes(course, tmp_path):
    other = nbcourse.make_course(tmp_path)
    release(other, [nbcourse.LAB])
    release(other, [nbcourse.LAB])
    assert released(other).read_bytes() == released(course).read_bytes()


def test_check_released_names_every_file_that_differs(tmp_path):
    root = nbcourse.make_course(tmp_path)
    release(root)
    assert check_released(root) == []
    folder = released(root).parent
    (folder / "test_public.py").write_text("# changed by hand\n")
    (folder / "exercises.toml").unlink()
    nbcourse.write(root / "labs" / "lab99_gone" / "old.ipynb", "{}")
    nbcourse.write(folder / ".ipynb_checkpoints" / "toy.ipynb", "{}")
    assert check_released(root) == [
        f"labs/{nbcourse.LAB}/exercises.toml",
        f"labs/{nbcourse.LAB}/test_public.py",
        "labs/lab99_gone/old.ipynb",
    ]


def test_work_done_in_the_labs_folder_is_kept(tmp_path):
    root = nbcourse.make_course(tmp_path)
    release(root)
    nb = json.loads(released(root).read_text())
    nb["cells"][1]["execution_count"] = 1
    released(root).write_text(json.dumps(nb))
    release(root)
    kept = root / "build" / "replaced" / f"{nbcourse.LAB}-1" / "toy.ipynb"
    assert json.loads(kept.read_text()) == nb
    release(root)
    assert len(list(kept.parents[1].iterdir())) == 1  # an untouched release is nobody's work
    assert check_released(root) == []


FAULTS = {
    "knows no 'ex7'": ('solution="ex2-b"', 'solution="ex7"'),
    "know no 'w3'": ('written="w1"', 'written="w3"'),
    "a header cannot say ['points']": ('check="ex1"', 'check="ex1" points=3'),
    "there are two cells 'ex2'": ('solution="ex2-b"', 'solution="ex2"'),
    "a code cell cannot be that": ('[markdown] written="w1"', 'written="w1"'),
    "### BEGIN SOLUTION is missing": ("    ### BEGIN SOLUTION\n    return max", "    return max"),
    'must say lab.check("ex1")': ('lab.check("ex1")', 'lab.check("ex2")'),
    "no cell for ex1-check": ('# %% check="ex1"\nlab.check("ex1")\n', ""),
    "no end solution": ("    ### END SOLUTION", "    pass"),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_fault_of_the_source_is_named(tmp_path, said):
    before, after = FAULTS[said]
    assert before in nbcourse.SOURCE
    root = nbcourse.make_course(tmp_path, nbcourse.SOURCE.replace(before, after))
    with pytest.raises(ReleaseError) as fault:
        release(root)
    assert said.removeprefix("knows ").removeprefix("know ") in str(fault.value)


def test_figures_and_folded_cells(tmp_path):
    link = "![a curve](../../course/figures/toy/curve.svg)"
    source = nbcourse.SOURCE.replace("# A lab with", f"# {link} A lab with")
    root = nbcourse.make_course(tmp_path, source.replace('["demo"]', '["demo", "fold"]'))
    with pytest.raises(ReleaseError, match="curve.svg, which the text shows, is missing"):
        release(root)
    nbcourse.write(root / "course" / "figures" / "toy" / "curve.svg", "<svg/>")
    release(root)
    nb = nbformat.read(released(root), as_version=4)
    assert "![a curve](curve.svg) A lab" in nb.cells[0].source
    assert (released(root).parent / "curve.svg").read_text() == "<svg/>"
    [demo] = [cell for cell in nb.cells if cell.metadata.get("tags") == ["demo"]]
    assert demo.metadata.jupyter.source_hidden


def test_too_large_a_lab_is_refused(tmp_path):
    many = nbcourse.SOURCE + "\n# %%\nx = 1\n" * 60
    with pytest.raises(ReleaseError, match="at most 60"):
        build_source(nbcourse.make_course(tmp_path / "cells", many), nbcourse.LAB)
    long = nbcourse.SOURCE + "\n# %%\ntext = '" + "x" * 300_000 + "'\n"
    with pytest.raises(ReleaseError, match="300000"):
        release(nbcourse.make_course(tmp_path / "bytes", long))


def test_nbgrader_generate_assignment_makes_the_same_file(course, tmp_path, nbgrader):
    root = nbcourse.make_course(tmp_path)
    build_source(root, nbcourse.LAB)
    nbgrader(root, "generate_assignment", nbcourse.LAB)
    assert released(root).read_bytes() == released(course).read_bytes()


@pytest.mark.slow
def test_labs_is_what_solutions_generates():
    assert lab_sources(ROOT), "no lab has a source"
    assert check_released(ROOT) == [], "labs/ is out of date: run `make release` and commit"
