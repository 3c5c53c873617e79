"""What students wrote, as files for JPlag and Dolos, which find similar ones.

    FOLDER/submissions/017.py     one student's solutions and own cells; 017 is the report's row 17
    FOLDER/base/release.py        the code that everyone got: both programs leave it out of account
    FOLDER/info.csv               for Dolos: filename, full_name
    FOLDER/README.txt             the two commands

JPlag takes a folder of submissions (files, or folders of files) and the base code with -bc; Dolos
takes info.csv and the code to ignore with -i.  Sources: README of github.com/jplag/JPlag; "Adding
metadata" and "Running Dolos" in docs/ of github.com/dodona-edu/dolos.
"""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from autograder.errors import UsageError, files_told
from autograder.grading.results import Result
from autograder.intake.names import STUDENT_ID, inert
from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import LabSpec
from autograder.report.rows import Row

SHELL_LINE = re.compile(r"^([ \t]*)([%!])", re.MULTILINE)  # IPython's, which is no Python
README = """\
{count} submissions of {lab}, and the code that all of them started from.

JPlag 6 (https://github.com/jplag/JPlag):

    java -jar jplag.jar -l python3 -bc base submissions

Dolos 2 (https://dolos.ugent.be), which opens its result in a browser:

    dolos run -f web -l python -i base/release.py info.csv

Both run on this machine and send nothing anywhere. The number of a file is that of its row in
`autograder report {lab} RESULTS`; with --names the row, and the file, says whose it is.

A similarity is a reason to look, not a verdict: right solutions of small exercises look alike.
"""


def export_cells(lab: LabSpec, rows: list[Row], folder: Path, named: bool = False) -> int:
    """Writes the folder, and says how many files it holds. Raises UsageError, StorageError.

    A submission in which nothing was attempted is left out: it is the release.
    """
    with files_told(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"--cells: {folder} is there already: name a new folder")
        for name in ("submissions", "base"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        release = parse_notebook(lab.release_notebook.read_bytes())
        code = [cell.source for cell in release if cell.kind == "code"]
        write(folder / "base" / "release.py", code)
        listed = []
        for row in rows:
            if not row.untouched:
                name = f"submissions/{file_name(row, named)}"
                write(folder / name, own_code(row.result))
                listed.append((name, row.label))
        with (folder / "info.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("filename", "full_name"))
            writer.writerows((name, inert(label)) for name, label in listed)
        told = README.format(count=len(listed), lab=lab.name)
        (folder / "README.txt").write_text(told, encoding="utf-8")
    return len(listed)


def file_name(row: Row, named: bool) -> str:
    """ "017.py", or "017_s01.py"; an id that could name another folder is left out."""
    student = row.result.student
    known = named and STUDENT_ID.fullmatch(student)
    return f"{row.number:03d}{f'_{student}' if known else ''}.py"


def own_code(result: Result) -> Iterator[str]:
    """The solution cells and all cells of the student's own."""
    for name, source in result.answers.items():
        if name not in result.written:
            yield source
    if result.own:
        yield result.own


def write(path: Path, sources: Iterator[str] | list[str]) -> None:
    text = "\n\n".join(SHELL_LINE.sub(r"\1# \2", source) for source in sources)
    path.write_text(text + "\n", encoding="utf-8", errors="replace")
