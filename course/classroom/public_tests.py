"""Runs the public tests of notebooks, for a workflow in a student's repository.

    python public_tests.py labs             every notebook in which something was attempted
    python public_tests.py FOLDER/x.ipynb   one notebook

Cells run in their order, without those that show experiments (tag `demo`) and the checks; what a
cell raises is told and the run goes on.  Exit code 1 if a test of an attempted exercise failed.
It needs only what students have: `efflib` and JupyterLab's IPython.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

from efflib.lab import cards
from efflib.lab.exercises import read_exercises
from efflib.lab.lab import SEED, summary
from efflib.lab.runner import run_tests
from efflib.lab.student import LocalStudent


def code_cells(notebook: Path) -> list[str]:
    """The cells that define what tests call."""
    found = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        meta = cell["metadata"]
        check = meta.get("nbgrader", {}).get("grade") and not meta["nbgrader"].get("solution")
        if cell["cell_type"] == "code" and "demo" not in meta.get("tags", ()) and not check:
            found.append("".join(cell["source"]))
    return found


def defined(cells: list[str]) -> tuple[dict, list[str]]:
    """The names that the cells leave behind, and what they raised."""
    shell, faults = InteractiveShell(), []
    for source in cells:
        with contextlib.redirect_stdout(io.StringIO()):  # the cards say what there is to say
            ran = shell.run_cell(source, silent=True)
        if error := ran.error_before_exec or ran.error_in_exec:
            faults.append(f"{type(error).__name__}: {error}")
    return shell.user_ns, faults


def checked(notebook: Path) -> tuple[list[str], bool]:
    """(lines of a summary, whether a test of an attempted exercise failed)."""
    before = Path.cwd()
    os.chdir(notebook.parent)  # as a kernel starts there, and `Lab` looks for its files
    try:
        namespace, faults = defined(code_cells(notebook))
        reports = run_tests([notebook.parent / "test_public.py"], LocalStudent(namespace), SEED)
    finally:
        os.chdir(before)
    lines, states = [notebook.parent.name, *(f"a cell raised {one}" for one in faults)], set()
    for key, exercise in read_exercises(notebook.parent).items():
        own = [report for report in reports if report.exercise == key]
        lines += ["", cards.text_cards(summary(exercise, own, ""), own)]
        states.add(cards.state(own))
    return ([], False) if states == {"open"} else (lines, "failed" in states)


def main(place: str) -> int:
    path = Path(place).resolve()
    found = sorted(path.glob("*/*.ipynb")) if path.is_dir() else [path]
    if not found:
        print(f"no notebook in {path}", file=sys.stderr)
        return 2
    any_failed = False
    for notebook in found:
        lines, failed = checked(notebook)
        any_failed |= failed
        text = "\n".join(lines)
        if lines:
            print(text, end="\n\n", flush=True)
        if lines and (page := os.environ.get("GITHUB_STEP_SUMMARY")):
            with open(page, "a", encoding="utf-8") as file:
                file.write(f"```text\n{text}\n```\n")
    return int(any_failed)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:2] or ["labs"]))
