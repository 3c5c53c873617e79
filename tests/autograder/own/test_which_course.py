"""`autograder` and `nbgrader` act on one course, or say that they would not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nbgrader"))
import nbcourse  # noqa: E402

from autograder import cli  # noqa: E402
from autograder.commands.options import course_folder  # noqa: E402
from autograder.errors import UsageError  # noqa: E402

CONFIG = (nbcourse.ROOT / "nbgrader_config.py").read_text()


@pytest.fixture
def two(tmp_path, monkeypatch):
    """Two course folders; Jupyter's own folder names the second."""
    for name in ("one", "other"):
        nbcourse.make_course(tmp_path / name)
        (tmp_path / name / "nbgrader_config.py").write_text(CONFIG)
    config = tmp_path / "jupyter" / "nbgrader_config.py"
    config.parent.mkdir()
    config.write_text(f'c = get_config()\nc.CourseDirectory.root = "{tmp_path / "other"}"\n')
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(config.parent))
    return tmp_path


def test_in_the_other_course_autograder_asks_which_is_meant(two, monkeypatch, capsys):
    monkeypatch.chdir(two / "one")
    assert cli.run(["course", "show"]) == 2
    err = capsys.readouterr().err
    assert str(two / "one") in err and str(two / "other") in err and "--course" in err
    assert err.count("\n") == 1
    assert course_folder(Path(".")) == two / "one", "--course decides"


def test_in_the_same_course_and_outside_of_any_both_take_the_configured_one(two, monkeypatch):
    for here in (two / "other", two / "other" / "solutions", two):
        monkeypatch.chdir(here)
        assert course_folder(None) == two / "other"


@pytest.mark.parametrize("text", ["c = get_config()\n", "1/0\n", "raise SystemExit\n", ""])
def test_a_configuration_that_names_no_course_or_is_broken_counts_for_nothing(
    two, monkeypatch, text
):
    (two / "jupyter" / "nbgrader_config.py").write_text(text)
    monkeypatch.chdir(two / "one")
    assert course_folder(None) == two / "one"


def test_a_configuration_in_json_and_one_with_the_plug_in_count_too(two, monkeypatch):
    monkeypatch.chdir(two / "one")
    path = two / "jupyter" / "nbgrader_config.py"
    path.write_text(CONFIG + path.read_text())
    with pytest.raises(UsageError, match="nbgrader acts on"):
        course_folder(None)
    path.unlink()
    json = f'{{"CourseDirectory": {{"root": "{two / "other"}"}}}}'
    path.with_suffix(".json").write_text(json)
    with pytest.raises(UsageError, match="nbgrader acts on"):
        course_folder(None)


@pytest.mark.slow
def test_nbgrader_says_on_which_course_it_acts(two):
    said = {}
    for name in ("one", "other"):
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", "db", "student", "list"],
            cwd=two / name,
            env=os.environ | {"JUPYTER_CONFIG_DIR": str(two / "jupyter")},
            capture_output=True,
            text=True,
        )
        said[name] = done.stdout + done.stderr
        assert done.returncode == 0, said
    told = f"this is the course {two / 'one'}, and nbgrader acts on {two / 'other'}"
    assert said["one"].count(told) == 1 and "nbgrader acts on" not in said["other"]
    assert not (two / "one" / "gradebook.db").exists() and (two / "other/gradebook.db").exists()
