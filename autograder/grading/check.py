"""`autograder check NOTEBOOK`: the public tests on one's own machine, run as grading runs them.

The notebook's cells run in a process of their own, in the order of the notebook, without the cells
that grading leaves out; so a result that hangs on the order of execution shows here.  There is no
sandbox (it is one's own code) and no hidden test.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from autograder.grading.judge import total
from autograder.grading.rebuild import rebuild
from autograder.grading.results import CellRun
from autograder.grading.structure import role
from autograder.grading.verdict import run_notes, run_timed
from autograder.intake.archive import EntryError, read_file
from autograder.intake.notebook import MAX_NOTEBOOK_BYTES, Notebook, NotebookError, parse_notebook
from autograder.intake.other_lab import LAB_NAME
from autograder.labs.manifest import PUBLIC_TESTS, Budget, Exercise, LabError, read_exercises
from efflib.lab.cards import Summary, text_cards
from efflib.lab.report import TestReport

EXERCISES = "exercises.toml"
SEED = 0


class CheckError(Exception):
    """The notebook or its tests cannot be found or read."""


@dataclass(frozen=True)
class Checked:
    """What running a notebook and its public tests gave."""

    title: str
    exercises: dict[str, Exercise]
    reports: list[TestReport]
    notes: list[str]
    cells: tuple[CellRun, ...]


def check_notebook(path: Path, course_root: Path) -> Checked:
    """Runs a notebook's cells in a plain subprocess and the public tests of its lab on them.

    The tests are those beside the notebook, else those of the lab that it names in `Lab("...")`.
    """
    from autograder.sandbox.launch import SandboxSpec
    from autograder.sandbox.remote import RemoteStudent

    path = Path(path)
    try:
        cells = parse_notebook(read_file(path.resolve(), MAX_NOTEBOOK_BYTES))
    except (EntryError, NotebookError) as error:
        raise CheckError(f"{path}: {error}") from None
    folder = find_tests(path, cells, course_root)
    title, exercises = read_exercises(folder / EXERCISES)
    rebuilt = rebuild(cells, own_release(cells))
    budget = Budget()
    spec = SandboxSpec((), budget.memory_mb, budget.processes, unsafe=True)
    remote = RemoteStudent(spec, rebuilt.cells, budget)
    try:
        reports = run_timed([folder / PUBLIC_TESTS], remote, SEED)
        ran, notes = run_notes(rebuilt, remote, budget)
    finally:
        remote.close()
    return Checked(title, exercises, reports, notes, ran)


def find_tests(path: Path, cells: Notebook, course_root: Path) -> Path:
    names = [name for cell in cells for name in LAB_NAME.findall(cell.source)]
    folders = [path.resolve().parent, *(course_root / "labs" / name for name in names[:1])]
    for folder in folders:
        if (folder / PUBLIC_TESTS).is_file() and (folder / EXERCISES).is_file():
            return folder
    raise CheckError(f"no {PUBLIC_TESTS} and {EXERCISES} in {' nor in '.join(map(str, folders))}")


def own_release(cells: Notebook) -> Notebook:
    """The notebook as its own release: what each cell is, with empty templates."""
    return tuple(replace(c, source="") if role(c) == "solution" else c for c in cells)


def as_text(checked: Checked) -> str:
    """Cards of all exercises, then the cells that failed and the notes."""
    parts = [f"{checked.title}: public tests only, run on this machine without a sandbox"]
    for name, about in checked.exercises.items():
        own = [report for report in checked.reports if report.exercise == name]
        got = total(report.points for report in own if report.outcome == "passed")
        most = total(report.points for report in own)
        head, points = f"{name}, {about.title}", f"{got:g} of {most:g} points"
        hidden = about.points - most
        kinds = "; ".join(about.hidden)
        footer = f"{hidden:g} more points by hidden tests: {kinds}" if hidden > 0 else ""
        parts.append(text_cards(Summary(head, points, footer=footer), own))
    failed = [f"{cell.label}: {cell.error}" for cell in checked.cells if cell.error]
    parts += ["\n".join(["Cells that raised an error:", *failed])] if failed else []
    parts += ["\n".join(["Notes:", *checked.notes])] if checked.notes else []
    return "\n\n".join(parts)


__all__ = ["CheckError", "Checked", "LabError", "as_text", "check_notebook"]
