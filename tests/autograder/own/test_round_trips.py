"""From a course system's download to its grades, with the roster that the guide shows.

Each class is graded by `autograder grade`, and its points go back into the system's own export.
"""

import csv
import re
import shutil
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nbgrader"))
import nbcourse  # noqa: E402

from autograder import cli  # noqa: E402
from autograder.nbgrader.release import release  # noqa: E402

pytestmark = pytest.mark.slow
GUIDE = (nbcourse.ROOT / "course" / "instructors.md").read_text()
[EXAMPLE] = re.findall(r"```\n(id,name,email,login,canvas id\n.*?)```", GUIDE, re.S)
ROSTER = EXAMPLE + (
    's02,"O\'Hara, Seán",sean@uni.edu,sohara,777\n'
    "s03,Wei Zhang,wei@uni.edu,wzhang,888\n"
    "s04,Al Absent,al@uni.edu,aabsent,889\n"
)
POINTS = {"s01": "90", "s02": "40", "s03": "90"}
HALF = "def scale(numbers, factor):\n    return None"
CANVAS = """Student,ID,SIS Login ID,Section,Toy lab (55),Final Score
    Points Possible,,,,100.00,(read only)
"Müller, Anna",12345,,A,,
"O'Hara, Seán",777,,A,,
"Zhang, Wei",888,,A,,
"Absent, Al",889,,A,,
"Student, Test",999,,A,,
"""
MOODLE = """Identifier,"Full name","Email address",Status,Grade,"Maximum grade",\
"Last modified (grade)"
"Participant 123456","Anna Müller",anna.mueller@uni.edu,Submitted,,100.00,-
"Participant 123457","Seán O'Hara",sean@uni.edu,Submitted,,100.00,-
"Participant 123458","Wei Zhang",wei@uni.edu,Submitted,,100.00,-
"Participant 123459","Al Absent",al@uni.edu,"No submission",,100.00,-
"""
GRADESCOPE = """First Name,Last Name,SID,Email,Sections
Anna,Müller,1001,anna.mueller@uni.edu,A
Seán,O'Hara,1002,sean@uni.edu,A
Wei,Zhang,1003,wei@uni.edu,A
Al,Absent,1004,al@uni.edu,A
"""
METADATA = """---
submission_{number}:
  :submitters:
  - :name: {name}
    :sid: '{sid}'
    :email: {email}
  :created_at: 2026-10-01 10:00:00.000000000 Z
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root


@pytest.fixture
def course(released, tmp_path):
    root = Path(shutil.copytree(released, tmp_path / "course"))
    (root / "roster.csv").write_text(ROSTER)
    return root


def notebooks(root):
    """Of s01 and s03, who have all, and of s02, who has exercise 2 alone."""
    lab = nbcourse.load(root)
    whole = {name.replace("-", "_"): text for name, text in nbcourse.RIGHT.items()}
    partly = whole | {"ex1": HALF}
    return [nbformat.writes(nbcourse.answered(lab, **one)) for one in (whole, partly, whole)]


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def of_canvas(root):
    names = ("muelleranna_LATE_12345_678901_toy-1.ipynb", "oharasean_777_678902_toy.ipynb",
             "zhangwei_888_678903_toy (2).ipynb")  # fmt: skip
    return zipped(root / "submissions.zip", dict(zip(names, notebooks(root), strict=True)))


def of_moodle(root):
    names = ("Anna Müller_123456", "Seán O'Hara_123457", "Wei Zhang_123458")
    files = [f"{name}_assignsubmission_file_/toy.ipynb" for name in names]
    return zipped(root / "moodle.zip", dict(zip(files, notebooks(root), strict=True)))


def of_gradescope(root):
    people = [("Anna Müller", 1001, "anna.mueller@uni.edu"), ("Seán O'Hara", 1002, "sean@uni.edu"),
              ("Wei Zhang", 1003, "wei@uni.edu")]  # fmt: skip
    files, about = {}, ""
    for number, (one, text) in enumerate(zip(people, notebooks(root), strict=True), 12345):
        name, sid, email = one
        about += METADATA.format(number=number, name=name, sid=sid, email=email).lstrip("-\n")
        files[f"submission_{number}/toy.ipynb"] = text
    return zipped(root / "gradescope.zip", files | {"submission_metadata.yml": f"---\n{about}"})


def run(root, *arguments):
    return cli.run([*arguments, "--course", str(root)])


def sent_back(root, text, *options):
    """(exit code, rows of the file that came out, by their second or first cell)"""
    (root / "export.csv").write_text(text)
    out = root / "upload.csv"
    arguments = [nbcourse.LAB, str(root / "export.csv"), str(out), *options]
    code = run(root, "course", "grades", *arguments)
    return code, list(csv.DictReader(out.open(encoding="utf-8"))) if out.exists() else None


SYSTEMS = {
    "Canvas": (of_canvas, CANVAS, ["--column", "Toy lab"], "ID", "Toy lab (55)",
               {"12345": "90", "777": "40", "888": "90", "889": "", "999": "", "": "100.00"}),
    "Moodle": (of_moodle, MOODLE, [], "Email address", "Grade",
               {"anna.mueller@uni.edu": "90", "sean@uni.edu": "40", "wei@uni.edu": "90",
                "al@uni.edu": ""}),
    "Gradescope": (of_gradescope, GRADESCOPE, [], "SID", "Total Score",
                   {"1001": "90", "1002": "40", "1003": "90", "1004": ""}),
}  # fmt: skip


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_guide_s_roster_brings_every_grade_back(course, capsys, system):
    download, export, options, key, column, expected = SYSTEMS[system]
    graded = ["grade", nbcourse.LAB, str(download(course)), "--unsafe-no-sandbox", "--jobs", "1"]
    assert run(course, *graded) == 0
    told = capsys.readouterr().out
    assert "4 students, whose ids are the column 'id'" in told, "roster.csv of the folder"
    assert "Nothing handed in (1): s04" in told
    code, rows = sent_back(course, export, *options)
    assert code == 0 and {row[key]: row[column] for row in rows} == expected
    assert "points of 3 students" in (told := capsys.readouterr().out)
    assert "graded, and not in" not in told


@pytest.mark.parametrize("system", ["Canvas", "Moodle"])
def test_feedback_goes_back_under_the_system_s_names(course, system):
    download = SYSTEMS[system][0](course)
    assert run(course, "grade", nbcourse.LAB, str(download), "--unsafe-no-sandbox") == 0
    out = course / "feedback.zip"
    assert run(course, "course", "feedback", nbcourse.LAB, str(download), str(out)) == 0
    with zipfile.ZipFile(out) as archive:
        assert len(archive.namelist()) == 3
        names = {name.split("_")[0] for name in archive.namelist()}
    handed_in = zipfile.ZipFile(download).namelist()
    assert names == {name.split("_")[0] for name in handed_in}


def test_a_roster_may_be_named_in_place_of_the_folder_s(course, tmp_path, capsys):
    (course / "roster.csv").rename(tmp_path / "elsewhere.csv")
    roster = ["--roster", str(tmp_path / "elsewhere.csv")]
    download = str(of_canvas(course))
    assert run(course, "grade", nbcourse.LAB, download, "--unsafe-no-sandbox", *roster) == 0
    code, rows = sent_back(course, CANVAS, "--column", "Toy lab")
    assert code == 2 and rows is None, "0 students are no success"
    err = capsys.readouterr().err
    assert "is a student who is graded here (s01, s02, s03): give the --roster" in err
    assert err.count("\n") == 1
    code, rows = sent_back(course, CANVAS, "--column", "Toy lab", *roster)
    assert code == 0 and [row["Toy lab (55)"] for row in rows][1:4] == ["90", "40", "90"]


def test_two_of_one_name_are_not_told_apart_by_it(course, capsys):
    (course / "roster.csv").write_text(ROSTER + "s05,Wei Zhang,wei5@uni.edu,wz5,\n")
    download = str(of_canvas(course))
    assert run(course, "grade", nbcourse.LAB, download, "--unsafe-no-sandbox") == 0
    for number, points in (("888", "90"), ("4711", "")):  # 4711: of the other one, it may be
        code, rows = sent_back(
            course, CANVAS.replace(",888,", f",{number},"), "--column", "Toy lab"
        )
        assert code == 0
        assert next(row for row in rows if row["ID"] == number)["Toy lab (55)"] == points
        (course / "upload.csv").unlink()
