"""Labs that a course folder does not have yet, and folders that are no course."""

import pytest

from autograder import cli
from autograder.labs.manifest import lab_names

NO_COURSE = "go to a course folder, or make one with `autograder course new FOLDER`"


def test_release_of_a_lab_that_is_not_there_names_those_that_are(tmp_path, capsys):
    root = tmp_path / "own"
    assert cli.run(["course", "new", str(root), "--labs", "00"]) == 0
    [there] = lab_names(root)
    for command in (["release", "lab06_paged_attention"], ["release", "labX"]):
        assert cli.run([*command, "--course", str(root)]) == 2
        err = capsys.readouterr().err
        assert f"(found: {there})" in err and "autograder course update LAB" in err
        assert err.count("\n") == 1
    assert cli.run(["course", "update", "6", "--course", str(root)]) == 0
    assert "lab06_paged_attention: " in (out := capsys.readouterr().out) and "new in this" in out
    assert lab_names(root) == [there, "lab06_paged_attention"]
    assert list((root / "labs/lab06_paged_attention").glob("*.ipynb"))
    assert cli.run(["course", "check", "--course", str(root)]) == 0
    assert capsys.readouterr().out.count("nothing to update") == 2
    assert cli.run(["course", "update", "77", "--course", str(root)]) == 2
    own = root / "suites/lab02_smoothquant/manifest.toml"
    own.parent.mkdir()
    own.write_text("mine")
    assert cli.run(["course", "update", "2", "--course", str(root)]) == 2
    assert own.read_text() == "mine", "a lab of the teacher's own was written over"


COMMANDS = (
    ["release"], ["release", "lab01_quantization"], ["course", "check"], ["course", "update", "1"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_outside_of_a_course_folder(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    assert cli.run(command) == 2
    err = capsys.readouterr().err
    assert NO_COURSE in err and err.count("\n") == 1 and not list(tmp_path.iterdir())
