"""A course folder of one's own: what `course new` makes, and that every command works in it."""

import shutil
import zipfile
from pathlib import Path

import pytest

from autograder import cli, doctor
from autograder.labs.manifest import LabError, lab_names, load_lab
from autograder.nbgrader.course import course_directory
from autograder.own import record
from autograder.own.new import named_labs

ROOT = Path(__file__).parents[3]
LABS = ["lab01_quantization", "lab06_paged_attention"]
ROSTER = 'id,name,email,login,canvas id\ns01,"Müller, Anna",anna.mueller@uni.edu,amueller,12345\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("own") / "spring-2027"
    assert cli.run(["course", "new", str(root), "--labs", "01", "6"]) == 0
    return root


@pytest.fixture
def course(made, tmp_path):
    return Path(shutil.copytree(made, tmp_path / made.name))


def test_it_has_its_labs_their_suites_and_settings_of_its_own(made):
    assert lab_names(made) == LABS and sorted(p.name for p in (made / "labs").iterdir()) == LABS
    for lab in LABS:
        released = {p.name: p.read_bytes() for p in (ROOT / "labs" / lab).iterdir() if p.is_file()}
        assert {p.name: p.read_bytes() for p in (made / "labs" / lab).iterdir()} == released
        assert load_lab(lab, made).suite_dir == made / "suites" / lab
        assert list((made / "build" / "source" / lab).glob("*.ipynb")), (
            "Manage Assignments reads it"
        )
    assert course_directory(made).course_id == "spring-2027"
    assert "{" not in (made / "README.md").read_text()


def test_its_doctor_speaks_of_its_own_labs(made):
    names = [name for name, _, _ in doctor.examine(made) if name.startswith("lab")]
    assert names == LABS


def test_labs_are_named_by_number_or_name():
    assert named_labs(["01", "6", "lab01_quantization", "lab6"]) == LABS
    assert named_labs([]) == lab_names(ROOT)


WRONG = {
    "a folder in use": ([], "is not empty"),
    "an unknown lab": (["new", "--labs", "77"], "there is no lab '77'"),
    "a name that is no id": (["a course"], "becomes the course's id"),
}


@pytest.mark.parametrize("more, why", WRONG.values(), ids=WRONG)
def test_what_it_refuses_is_told_in_one_line(tmp_path, capsys, more, why):
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / more[0] if more else tmp_path
    assert cli.run(["course", "new", str(folder), *more[1:]]) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_no_course_is_not_told_to_release_what_it_has_not(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    run = ["grade", LABS[0], str(tmp_path / "in"), "--course", str(tmp_path)]
    assert cli.run(run) == 2
    assert "autograder course new FOLDER" in capsys.readouterr().err
    with pytest.raises(LabError, match="is no course folder with lab01"):
        load_lab(LABS[0], tmp_path)
    [row] = [row for row in doctor.examine(tmp_path) if row[0] == "course"]
    assert not row[1] and "autograder course new" in row[2]
    assert not [name for name, _, _ in doctor.examine(tmp_path) if name.startswith("lab")]


@pytest.mark.slow
def test_release_gives_the_same_bytes_again_and_names_the_class(course):
    (course / "roster.csv").write_text(ROSTER)
    shutil.rmtree(course / "labs" / LABS[0])
    assert cli.run(["release", LABS[0], "--course", str(course)]) == 0
    for path in (ROOT / "labs" / LABS[0]).iterdir():
        assert (course / "labs" / LABS[0] / path.name).read_bytes() == path.read_bytes()
    from nbgrader.api import Gradebook

    with Gradebook(course_directory(course).db_url, "spring-2027") as gradebook:
        student = gradebook.find_student("s01")
        assert (student.first_name, student.last_name) == ("Anna", "Müller")


@pytest.mark.slow
def test_a_bundle_withholds_what_labs_build_that_the_course_does_not_teach(course, tmp_path):
    out = tmp_path / "out"
    assert cli.run(["bundle", "--out", str(out), "--course", str(course)]) == 0
    with zipfile.ZipFile(next(out.glob("*.zip"))) as archive:
        names = archive.namelist()
        awq = next(name for name in names if name.endswith("efflib/quantization/awq.py"))
        assert "lab03_awq" in archive.read(awq).decode()
    assert {name.split("/")[2] for name in names if "/labs/" in name} == set(LABS)


@pytest.mark.slow
def test_a_zip_for_gradescope_is_made_of_its_own_suite(course, tmp_path):
    hidden = course / "suites" / LABS[0] / "test_hidden.py"
    hidden.write_text(hidden.read_text() + "\n# a test of mine\n")
    out = tmp_path / "g.zip"
    assert cli.run(["gradescope", LABS[0], str(out), "--course", str(course)]) == 0
    with zipfile.ZipFile(out) as archive:
        held = archive.read(f"autograder/suites/{LABS[0]}/test_hidden.py").decode()
        assert held.endswith("# a test of mine\n") and "constraints.txt" in archive.namelist()


# ---- upgrades -----------------------------------------------------------------------------------


@pytest.fixture
def newer(tmp_path, monkeypatch):
    """An installed version in which lab 1 has other points, tests, and text."""
    there = tmp_path / "newer"
    for lab in LABS[:1]:
        shutil.copytree(ROOT / "solutions" / lab, there / "solutions" / lab)
        shutil.copytree(ROOT / "autograder" / "suites" / lab, there / "suites" / lab)
    monkeypatch.setattr(record, "installed", lambda: there)
    monkeypatch.setattr("autograder.own.new.installed", lambda: there)
    monkeypatch.setattr(record, "SUITES", there / "suites")
    return there


def check(course, capsys):
    assert cli.run(["course", "check", "--course", str(course)]) == 0
    return capsys.readouterr().out


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_without_an_upgrade_there_is_nothing_to_change(made, capsys):
    told = check(made, capsys)
    assert told.count("nothing to update") == len(LABS) and "would change" not in told


def test_check_tells_points_tests_and_questions_and_changes_nothing(course, newer, capsys):
    before = {p: p.read_bytes() for p in course.rglob("*") if p.is_file()}
    source, suite = newer / "solutions" / LABS[0], newer / "suites" / LABS[0]
    replace(source / "exercises.toml", "points = ", "points = 1")
    replace(suite / "test_hidden.py", "\ndef test_", "\ndef test_renamed_")
    replace(source / "quantization.py", "**Question 1", "**Question 1 (say why)")
    told = check(course, capsys)
    assert "points of ex1: " in told and "question w1 has another text" in told
    assert "1 test new: hidden test_renamed_" in told and "1 test gone: hidden test_" in told
    assert "an update would change" in told and "changed by you" not in told
    assert f"{LABS[1]} (of " in told and "has no such lab; yours stays" in told
    assert {p: p.read_bytes() for p in course.rglob("*") if p.is_file()} == before


@pytest.mark.slow
def test_update_takes_the_new_version_and_refuses_to_lose_work(course, newer, capsys):
    replace(
        newer / "solutions" / LABS[0] / "quantization.py", "**Question 1", "**Question 1 (why?)"
    )
    own = course / "suites" / LABS[0] / "test_hidden.py"
    kept = own.read_text()
    own.write_text(kept + "\n# mine\n")
    assert f"suites/{LABS[0]}: changed by you" in check(course, capsys)
    run = ["course", "update", LABS[0], "--course", str(course)]
    assert cli.run(run) == 2 and own.read_text().endswith("# mine\n")
    assert "hold changes of yours" in capsys.readouterr().err
    own.write_text(kept)
    assert cli.run(run) == 0
    assert "Question 1 (why?)" in (course / "labs" / LABS[0] / "quantization.ipynb").read_text()
    assert f"{LABS[0]} (of " in (told := check(course, capsys)) and "would change" not in told


def test_a_folder_that_nobody_made_has_nothing_to_compare(capsys):
    assert cli.run(["course", "check", "--course", str(ROOT)]) == 2
    assert "nothing to compare" in capsys.readouterr().err
