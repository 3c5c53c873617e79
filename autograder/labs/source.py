"""From solutions/<lab>/<topic>.py to a solved notebook with nbgrader's metadata.

A lab's source is a jupytext percent notebook whose cell headers are one of

    # %%                             code that students may change
    # %% [markdown]                  text
    # %% tags=["demo"]               code that grading does not run: models, plots, experiments
    # %% tags=["demo", "fold"]       the same, and the notebook opens with the code folded away
    # %% solution="ex2"              answer of exercise 2, between ### BEGIN SOLUTION and
                                     ### END SOLUTION; a second cell of it is solution="ex2-b"
    # %% check="ex2"                 the locked cell that checks exercise 2; its points come from
                                     exercises.toml, its id is ex2-check
    # %% [markdown] written="w1"     a question that a person grades; its points come from
                                     manifest.toml; the text is the model answer (or has one
                                     between ### BEGIN SOLUTION and ### END SOLUTION)

build_source expands these into nbgrader's metadata (build/source/<lab>/<topic>.ipynb), of which
autograder.nbgrader.release makes the students' version.
"""

import re
import shutil
from collections import Counter
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from autograder.labs.manifest import (
    PUBLIC_TESTS,
    Exercise,
    LabError,
    Manifest,
    read_exercises,
    read_toml,
    suites_root,
)
from autograder.labs.material import file_of

MAX_CELLS = 60
EXERCISES = "exercises.toml"
HEADER_KEYS = {"solution", "check", "written", "tags"}
PICTURE = re.compile(r"(\]\((?:\.\./)+(course/figures/[\w./-]+)\))")
LAYOUT = "lines_to_"  # jupytext's notes on blank lines
BEGIN_SOLUTION = "### BEGIN SOLUTION"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


class ReleaseError(LabError):
    """A lab's source cannot be released; the text says which cell to mend."""


def lab_sources(course_root: Path) -> list[str]:
    """Labs that have a source and a suite."""
    suites = suites_root(course_root)
    folders = sorted(path.parent.name for path in suites.glob("*/manifest.toml"))
    return [name for name in folders if (course_root / "solutions" / name).is_dir()]


def build_source(course_root: Path, lab: str, out_root: Path | None = None) -> Path:
    """Writes build/source/<lab>/ (below out_root) and returns the path of the notebook in it."""
    suite, source = suites_root(course_root) / lab, course_root / "solutions" / lab
    manifest = read_toml(suite / "manifest.toml", Manifest)
    # a private suite may have its own points and public tests
    told = {n: suite / n if (suite / n).is_file() else source / n for n in (PUBLIC_TESTS, EXERCISES)}
    _, exercises = read_exercises(told[EXERCISES])
    nb = read_percent(source / f"{manifest.notebook}.py")
    expand(nb, exercises, manifest.written)
    folder = (out_root or course_root) / "build" / "source" / lab
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, path in told.items():
        if not path.is_file():
            raise ReleaseError(f"{path} is missing")
        shutil.copyfile(path, folder / name)
    carry_pictures(nb, course_root, folder)
    path = folder / f"{manifest.notebook}.ipynb"
    nbformat.write(nb, path)
    return path


def read_percent(path: Path) -> NotebookNode:
    """A percent notebook with the metadata that every run of ours gives it, and nothing else."""
    import jupytext

    if not path.is_file():
        raise ReleaseError(f"{path} is missing")
    nb = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    nb.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    nb.nbformat, nb.nbformat_minor = 4, 5
    return nb


# ---- cell headers -> nbgrader's metadata --------------------------------------------------------


def expand(nb: NotebookNode, exercises: dict[str, Exercise], written: dict[str, float]) -> None:
    """Gives every cell its id and, where it is graded, nbgrader's metadata."""
    points = {name: exercise.points for name, exercise in exercises.items()} | written
    used: Counter[str] = Counter()
    for number, cell in enumerate(nb.cells, start=1):
        header = {k: v for k, v in cell.metadata.items() if not k.startswith(LAYOUT)}
        unknown = set(header) - HEADER_KEYS
        roles = [key for key in ("solution", "check", "written") if key in header]
        if unknown or len(roles) > 1:
            raise ReleaseError(f"cell {number}: a header cannot say {sorted(unknown or roles)}")
        cell.metadata = nbformat.from_dict(tagged(header.get("tags", [])))
        if roles:
            graded = graded_metadata(cell, roles[0], header[roles[0]], points, number)
            cell.metadata["nbgrader"] = nbformat.from_dict(graded)
            cell.id = graded["grade_id"]
        else:
            cell.id = slug(cell)
        used[cell.id] += 1
        if used[cell.id] > 1:
            if roles:
                raise ReleaseError(f"cell {number}: there are two cells {cell.id!r}")
            cell.id = f"{cell.id}-{used[cell.id]}"
    check_complete(nb, exercises, written)


def carry_pictures(nb: NotebookNode, course_root: Path, folder: Path) -> None:
    """Copies the course's figures that the text shows beside the notebook, and shows those.

    Students get the lab's folder alone, and JupyterLab shows nothing from outside of its root.
    """
    for cell in nb.cells:
        for link, figure in PICTURE.findall(cell.source) if cell.cell_type == "markdown" else ():
            path = file_of(course_root, figure)
            if not path.is_file():
                raise ReleaseError(f"{path}, which the text shows, is missing")
            shutil.copyfile(path, folder / path.name)
            cell.source = cell.source.replace(link, f"]({Path(figure).name})")


def tagged(tags: list[str]) -> dict:
    """A cell's metadata for the tags of its header: "fold" is JupyterLab's folded source."""
    kept = {"tags": [tag for tag in tags if tag != "fold"]} if tags else {}
    return kept | ({"jupyter": {"source_hidden": True}} if "fold" in tags else {})


def graded_metadata(
    cell: NotebookNode, role: str, name: str, points: dict[str, float], number: int
) -> dict:
    """nbgrader's metadata (schema 3) of a solution, check or written cell."""
    where = f'cell {number}, {role}="{name}"'
    known = re.sub(r"-[a-z]$", "", name) if role == "solution" else name
    if known not in points:
        raise ReleaseError(f"{where}: {EXERCISES} and manifest.toml know no {known!r}")
    if (cell.cell_type == "markdown") != (role == "written"):
        raise ReleaseError(f"{where}: a {cell.cell_type} cell cannot be that")
    if role == "solution" and BEGIN_SOLUTION not in cell.source:
        raise ReleaseError(f"{where}: {BEGIN_SOLUTION} is missing, so students would lose all")
    if role == "check" and cell.source.strip() != f'lab.check("{name}")':
        raise ReleaseError(f'{where}: the cell must say lab.check("{name}") and no more')
    made = {
        "grade": role != "solution",
        "grade_id": f"{name}-check" if role == "check" else name,
        "locked": role == "check",
        "schema_version": 3,
        "solution": role != "check",
        "task": False,
    }
    if role == "solution":
        return made
    return made | {"points": int(points[name]) if points[name] % 1 == 0 else points[name]}


def slug(cell: NotebookNode) -> str:
    """A readable cell id that changes only with the first line of the cell."""
    kind = "text" if cell.cell_type == "markdown" else "code"
    kind = "demo" if "demo" in cell.metadata.get("tags", ()) else kind
    words = re.sub(r"[^a-z0-9]+", "-", cell.source.strip().split("\n")[0].lower())
    return f"{kind}-{words.strip('-')[:40]}".strip("-")


def check_complete(
    nb: NotebookNode, exercises: dict[str, Exercise], written: dict[str, float]
) -> None:
    """Every exercise has its solution and check, in this order, every question its cell."""
    ids = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in nb.cells]
    wanted = [i for name in exercises for i in (name, f"{name}-check")] + list(written)
    missing = [grade_id for grade_id in wanted if grade_id not in ids]
    if missing:
        raise ReleaseError(f"the source has no cell for {', '.join(missing)}")
    early = [name for name in exercises if ids.index(f"{name}-check") < ids.index(name)]
    if early:
        raise ReleaseError(f"the check of {', '.join(early)} stands before its solution")
    if len(nb.cells) > MAX_CELLS:
        raise ReleaseError(f"{len(nb.cells)} cells: a lab has at most {MAX_CELLS}")
