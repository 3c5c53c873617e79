"""In a course folder of one's own: grade, report, marking pages with model answers, formgrader."""

import json
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbgrader.apps.api import NbGraderAPI

from autograder import cli
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.questions import model_answers

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
LAB = "lab01_quantization"


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """One student has answered the first question and done no exercise."""
    root = tmp_path_factory.mktemp("used") / "autumn"
    assert cli.run(["course", "new", str(root), "--labs", "01"]) == 0
    nb = nbformat.read(root / "labs" / LAB / "quantization.ipynb", as_version=4)
    for cell in nb.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "w1":
            cell.source = "I would buy three bits."
    with zipfile.ZipFile(root / "in.zip", "w") as archive:
        archive.writestr("s01/quantization.ipynb", nbformat.writes(nb))
    results = root / "results.json"
    grade = ["grade", LAB, str(root / "in.zip"), "--json", str(results), "--course", str(root)]
    assert cli.run(grade) == 0
    return root


def test_the_marking_page_has_the_model_answer(used):
    page = (used / "marking" / LAB / "w1.html").read_text()
    models = model_answers(used / "build" / "source" / LAB / "quantization.ipynb")
    assert "Model answer" in page and "I would buy three bits." in page
    assert models["w1"].split()[0] in page


def test_the_report_is_written(used):
    run = ["report", LAB, str(used / "results.json"), "--course", str(used)]
    assert cli.run(run) == 0 and (used / "results.html").is_file()
    [one] = json.loads((used / "results.json").read_text())["results"]
    assert one["student"] == "s01" and one["sandbox"] != "none"


def test_manage_assignments_lists_it_as_released(used):
    coursedir = course_directory(used)
    api = NbGraderAPI(coursedir)
    assert api.get_source_assignments() == {LAB}
    [assignment] = api.get_assignments()
    assert assignment["name"] == LAB and assignment["num_submissions"] == 0
    [student] = api.get_submissions(LAB) or [None]
    assert student is None or student["student"] == "s01"


def test_dates_are_its_own(used, capsys):
    due = ["course", "due", LAB, "2026-10-01 23:59 Europe/Berlin", "--course", str(used)]
    assert cli.run(due) == 0 and "Europe/Berlin" in (used / "course.toml").read_text()
    assert cli.run(["course", "due", "lab02_smoothquant", "none", "--course", str(used)]) == 2
    assert "lab02_smoothquant" in capsys.readouterr().err
