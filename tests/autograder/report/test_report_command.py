"""`autograder report`: the page beside the results, code for JPlag and Dolos, one line of error."""

import csv

import pytest
from classes import LAB, apart, generated, result, test_result
from toylab import NAME, RIGHT1, make_course, write

from autograder import cli
from autograder.grading.results import Report, write_report
from autograder.labs.manifest import load_lab
from autograder.report.rows import graded_rows
from autograder.report.similar import export_cells


@pytest.fixture
def course(tmp_path):
    return make_course(tmp_path / "course")


def run(course, *arguments):
    return cli.run(["report", *map(str, arguments), "--course", str(course)])


def results_file(course, report, name="results.json"):
    write_report(course / name, report)
    return course / name


def test_the_page_stands_beside_the_results(course, capsys):
    path = results_file(course, generated(5))
    assert run(course, NAME, path) == 0
    page = course / "results.html"
    assert capsys.readouterr().out == f"{page}: the class, without names\n"
    assert "student000" not in page.read_text()
    assert run(course, NAME, path) == 0, "a page of ours is written again"
    assert run(course, NAME, path, "--names") == 0
    assert "student000" in (course / "results-names.html").read_text()
    assert "student000" not in page.read_text(), "names stand in the page that one shows"


def test_another_file_is_not_written_over(course, capsys):
    path = results_file(course, generated(5))
    write(course / "results.html", b"<p>mine</p>")
    assert run(course, NAME, path) == 2
    assert "another file than a report: move it away" in capsys.readouterr().err
    assert (course / "results.html").read_bytes() == b"<p>mine</p>"


WRONG = {
    "no file": (None, "No such file", 1),
    "a folder": ("folder", "a folder stands where a file belongs", 1),
    "no JSON": (b"<html>", "is not what `autograder grade lab00_toy ... --json` writes", 2),
    "bytes": (b"\xff\xfe\x00", "is not what", 2),
    "another thing": (b'{"a": 1}', "missing required field `lab`", 2),
    "another schema": (b'{"schema": 1, "lab": "lab00_toy", "results": []}', "schema 1", 2),
    "another lab": (b'{"schema": 2, "lab": "lab09", "results": []}', "results of lab09", 2),
    "too many points": (b'{"schema": 2, "lab": "lab00_toy", "results": [{"student": "a", "lab":'
                        b'"x", "status": "graded", "score": 9, "max_score": 3}]}', "9.0 of 3", 2),
}  # fmt: skip


@pytest.mark.parametrize("content, why, code", WRONG.values(), ids=WRONG)
def test_what_is_no_result_is_named_in_one_line(course, capsys, content, why, code):
    path = course / "r.json"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        write(path, content)
    assert run(course, NAME, path) == code
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and why in err and "r.json" in err
    assert not (course / "r.html").exists()


# ---- code for other programs --------------------------------------------------------------------


def class_with_code():
    tests, stub = [test_result("ex1", "a")], [test_result("ex1", "a", "failed", 2, "not attempted")]
    code = {"ex1": f"%matplotlib inline\n{RIGHT1}\n  !ls", "w1": "Because of Müller."}
    hard = {"student": "b=1", "answers": {"ex1": "\udcff = 1"}}
    return Report(
        lab=LAB,
        results=(
            result("ann", tests, score=3.0, max_score=9.0, answers=code, own="HELPER = 1",
                   written={"w1": 10.0}),
            result("untouched", stub),
            result(hard.pop("student"), tests, **hard),
            apart("absent", "missing"),
        ),
        names={"ann": "=HYPERLINK(1)", "b=1": "@SUM"},
    )  # fmt: skip


def read(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("named, files", [(False, ["001", "002"]), (True, ["001_ann", "002"])])
def test_code_for_jplag_and_dolos(course, tmp_path, named, files):
    rows = graded_rows(class_with_code(), named)
    folder = tmp_path / "code"
    assert export_cells(load_lab(NAME, course), rows, folder, named) == 2
    submissions = sorted((folder / "submissions").iterdir())
    assert [path.stem for path in submissions] == files
    code = read(submissions[0])
    assert RIGHT1 in code and "HELPER = 1" in code and "Müller" not in code
    assert "# %matplotlib inline" in code and "  # !ls" in code
    compile(code, "ann", "exec")
    base = read(folder / "base" / "release.py")
    assert 'raise NotImplementedError("Exercise 1")' in base and "# Toy" not in base
    listed = list(csv.DictReader((folder / "info.csv").open(newline="")))
    assert [line["filename"] for line in listed] == [f"submissions/{n}.py" for n in files]
    assert listed[0]["full_name"] == ("1 ann (=HYPERLINK(1))" if named else "1")
    assert "java -jar jplag.jar" in read(folder / "README.txt")


def test_a_folder_that_holds_files_is_left_alone(course, tmp_path, capsys):
    path = results_file(course, generated(3))
    mine = write(tmp_path / "mine/notes.txt", b"mine")
    assert run(course, NAME, path, "--cells", mine.parent) == 2
    assert "is there already: name a new folder" in capsys.readouterr().err
    assert [p.name for p in mine.parent.iterdir()] == ["notes.txt"]
    assert run(course, NAME, path, "--cells", tmp_path / "new") == 0
    assert f"{tmp_path / 'new'}: code of 3 submissions" in capsys.readouterr().out
