"""--suites DIR: own hidden tests, own points and own seeds in place of the public ones."""

import os
import shutil

import pytest
from toylab import EXERCISES, HIDDEN, MANIFEST, NAME, answered, make_course, write

from autograder import cli
from autograder.grading.results import read_report
from autograder.labs.manifest import load_lab
from autograder.labs.suites import VARIABLE, suites_root
from efflib.lab.seeds import derived_seed

OWN = (
    HIDDEN.replace("points=30", "points=20").replace("points=25", "points=5")
    + '''
    from pathlib import Path
    Path("{told}").write_text(str(rng.initial_seed()))


@exercise("ex1", points=10, invariant="nothing is left out", cause="a private rule")
def test_scale_of_nothing(student, rng):
    assert student.scale([], 1.0) == [0.0]


@exercise("ex2", points=20, invariant="all of it", cause="another private rule")
def test_clip_of_nothing(student, rng):
    assert student.clip([], 0.0, 1.0) == []
'''
)


@pytest.fixture
def course(tmp_path):
    root = make_course(tmp_path / "course")
    write(root / "in/alice/toy.ipynb", answered())
    return root


@pytest.fixture
def private(tmp_path):
    suite = tmp_path / "private" / NAME
    write(suite / "test_hidden.py", OWN.replace("{told}", str(tmp_path / "told")).lstrip().encode())
    write(suite / "manifest.toml", f'seed = "sieve"\n{MANIFEST}'.encode())
    return suite.parent


def test_they_stand_in_place_of_the_public_ones_while_a_command_runs(course, private, tmp_path):
    arguments = ["--course", str(course), "--unsafe-no-sandbox", "--json", str(tmp_path / "r.json")]
    command = ["grade", NAME, str(course / "in"), *arguments, "--suites", str(private)]
    assert cli.run(command) == 0
    [result] = read_report(tmp_path / "r.json").results
    got = {test.test: test.outcome for about in result.exercises for test in about.tests}
    assert got["test_scale_of_nothing"] == "failed" and result.score == 80
    seed = derived_seed("alice", NAME, "sieve")
    assert (tmp_path / "told").read_text() == str(derived_seed(seed, "test_clip_random"))
    assert VARIABLE not in os.environ and suites_root(course) != private
    assert "test_scale_of_nothing" not in {test.test for test in load_lab(NAME, course).tests}


def test_without_a_seed_of_its_own_a_suite_has_the_seeds_it_always_had(course):
    assert load_lab(NAME, course).seed == ""
    assert derived_seed("alice", NAME, *filter(None, [""])) == derived_seed("alice", NAME)


def test_a_lab_that_private_suites_lack_is_not_graded_by_public_ones(course, private, capsys):
    (private / NAME).rename(private / "lab00_other")
    command = ["grade", NAME, str(course / "in"), "--course", str(course)]
    assert cli.run([*command, "--suites", str(private)]) == 2
    assert f"no lab '{NAME}'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["doctor", "release", "bundle", "grade x y", "triad"])
def test_a_folder_without_suites_is_told(command, course, capsys):
    arguments = ["--suites", str(course), "--course", str(course)]
    assert cli.run([*command.split(), *arguments]) == 2
    assert "no <lab>/manifest.toml in" in capsys.readouterr().err


def test_nbgrader_takes_them_from_the_environment(course, private, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(private))
    assert suites_root(course) == private
    assert load_lab(NAME, course).suite_dir == private / NAME


def test_a_release_has_their_points_and_public_tests(tmp_path, private):
    """Both files may stand in the private suite; the rest of the lab is the course's."""
    from autograder.labs.source import build_source

    root = tmp_path / "own"
    source = root / "solutions" / NAME
    cells = '# %% solution="ex1"\n### BEGIN SOLUTION\nx = 1\n### END SOLUTION\n'
    cells += '# %% check="ex1"\nlab.check("ex1")\n# %% [markdown] written="w1"\n# Why?\n'
    write(source / "toy.py", cells.encode())
    write(source / "test_public.py", b"# public\n")
    one = EXERCISES.partition("[ex2]")[0]
    write(source / "exercises.toml", one.encode())
    shutil.copytree(private, root / "autograder" / "suites")
    assert '"points": 50' in build_source(root, NAME).read_text()
    write(root / "autograder/suites" / NAME / "exercises.toml", one.replace("50", "45").encode())
    write(root / "autograder/suites" / NAME / "test_public.py", b"# private\n")
    notebook = build_source(root, NAME)
    assert '"points": 45' in notebook.read_text()
    assert (notebook.parent / "test_public.py").read_bytes() == b"# private\n"
