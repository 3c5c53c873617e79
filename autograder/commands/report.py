"""`autograder report`: a class as one page, and its code for programs that compare code."""

from pathlib import Path

import msgspec

from autograder.errors import StorageError, UsageError, file_trouble, files_told
from autograder.grading.results import Report, read_report
from autograder.labs.manifest import LabSpec, load_lab
from autograder.report.page import GENERATOR, report_page
from autograder.report.rows import graded_rows
from autograder.report.similar import export_cells

HEAD_BYTES = 1_000  # of a page, in which it says what made it


def report_class(
    root: Path, lab_name: str, results: Path, *, named: bool = False, cells: Path | None = None
) -> list[str]:
    """Writes RESULTS.html for RESULTS.json, RESULTS-names.html with names; says what is written.

    Raises LabError, UsageError (the file is no result of this lab), StorageError.
    """
    lab = load_lab(lab_name, root)
    report = results_of(lab, results)
    page = results.with_name(f"{results.stem}{'-names' if named else ''}.html")
    with files_told(page):
        if page.exists() and GENERATOR.encode() not in page.read_bytes()[:HEAD_BYTES]:
            raise UsageError(f"{page} is another file than a report: move it away")
        page.write_text(report_page(report, lab.title, named), encoding="utf-8")
    told = [f"{page}: the class, {'with names' if named else 'without names'}"]
    if cells is not None:
        count = export_cells(lab, graded_rows(report, named), cells, named)
        told.append(f"{cells}: code of {count} submissions for JPlag and Dolos (see README.txt)")
    return told


def results_of(lab: LabSpec, path: Path) -> Report:
    """The file that `autograder grade --json` wrote for this lab. Raises UsageError."""
    try:
        report = read_report(path)
    except OSError as error:
        raise StorageError(file_trouble(error, path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"{path} is not what `autograder grade {lab.name} ... --json` writes"
        raise UsageError(f"{what} ({error})") from None
    if report.lab != lab.name:
        raise UsageError(f"{path} holds results of {report.lab}, not of {lab.name}")
    return report
