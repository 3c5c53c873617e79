"""Points, tests and hashes of a lab: what contradicts itself is refused with a sentence."""

import shutil

import pytest
from toylab import NAME, make_course, release, write

from autograder.labs.hashing import hash_folder
from autograder.labs.manifest import Budget, LabError, lab_names, load_lab, suites_root


@pytest.fixture
def course(tmp_path):
    return make_course(tmp_path)


def change(course, path, old, new):
    file = course / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


EXERCISES, PUBLIC = f"labs/{NAME}/exercises.toml", f"labs/{NAME}/test_public.py"
SUITE = f"autograder/suites/{NAME}"
HIDDEN, MANIFEST = f"{SUITE}/test_hidden.py", f"{SUITE}/manifest.toml"


def test_a_sound_lab(course):
    lab = load_lab(NAME, course)
    assert lab_names(course) == [NAME] and suites_root(course) == course / "autograder/suites"
    assert [(t.kind, t.test, t.points) for t in lab.tests] == [
        ("public", "test_scale_by_hand", 20),
        ("public", "test_clip_by_hand", 15),
        ("hidden", "test_scale_negative", 30),
        ("hidden", "test_clip_random", 25),
    ]
    assert lab.max_score == 90 and lab.written == {"w1": 10}
    assert lab.withhold == ("efflib.quantization",)
    assert lab.budget == Budget(cell_seconds=2, call_seconds=3)
    assert lab.exercises["ex1"].functions == ("scale",)
    assert lab.release_notebook.is_file()


def test_a_course_without_suites_uses_those_of_the_package(tmp_path):
    assert suites_root(tmp_path).parent.name == "autograder"
    assert suites_root(tmp_path).is_dir()


BROKEN = {
    "tests give fewer points": (PUBLIC, "points=20", "points=19", "ex1 give 49 points"),
    "points do not sum to 100": (MANIFEST, "w1 = 10", "w1 = 9", "sum to 99"),
    "unknown exercise": (HIDDEN, '"ex2"', '"ex9"', "tests of ['ex9']"),
    "misspelt option": (MANIFEST, "call_seconds", "call_secs", "call_secs"),
    "wrong type": (EXERCISES, "points = 50", 'points = "50"', "$[...].points"),
    "not toml": (MANIFEST, "[written]", "[written", "manifest.toml"),
    "negative points": (MANIFEST, "w1 = 10", "w1 = -10", "not negative"),
    "infinite points": (MANIFEST, "w1 = 10", "w1 = inf", "finite"),
    "preload of what is not torch's": (MANIFEST, "[written]", 'preload = ["os"]\n[written]', "preload"),
    "no such notebook": (MANIFEST, '"toy"', '"toys"', "autograder course new"),
}


@pytest.mark.parametrize("path, old, new, why", BROKEN.values(), ids=BROKEN)
def test_a_contradiction_is_named(course, path, old, new, why):
    change(course, path, old, new)
    with pytest.raises(LabError) as error:
        load_lab(NAME, course)
    assert why in str(error.value)


@pytest.mark.parametrize("path", [EXERCISES, PUBLIC, HIDDEN])
def test_a_missing_file_is_named(course, path):
    (course / path).unlink()
    with pytest.raises(LabError, match=path.rpartition("/")[2]):
        load_lab(NAME, course)


@pytest.mark.parametrize("name", ["nolab", "..", "../suites/" + NAME, ""])
def test_a_lab_that_is_none(course, name):
    with pytest.raises(LabError, match="there is no lab"):
        load_lab(name, course)


def test_hashes_change_with_what_decides_and_with_nothing_else(course):
    before = load_lab(NAME, course)
    for path in (f"{SUITE}/triad/ex1/right_x.py", f"{SUITE}/triad/ex1.diff", f"{SUITE}/__pycache__/x.pyc"):
        write(course / path, b"x = 1")
    write(course / f"labs/{NAME}/.ipynb_checkpoints/toy.ipynb", release())
    assert load_lab(NAME, course).suite_hash == before.suite_hash
    seen = {before.suite_hash}
    for path in (EXERCISES, PUBLIC, HIDDEN, MANIFEST):
        (course / path).write_text((course / path).read_text() + "\n# changed\n")
        seen.add(load_lab(NAME, course).suite_hash)
    assert len(seen) == 5
    assert load_lab(NAME, course).efflib_hash == before.efflib_hash


def test_a_hash_holds_names_and_contents_apart(tmp_path):
    write(tmp_path / "a/x", b"1")
    write(tmp_path / "a/y", b"2")
    write(tmp_path / "b/x", b"2")
    write(tmp_path / "b/y", b"1")
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    hashes = [hash_folder(tmp_path / name) for name in "abc"]
    assert hashes[0] != hashes[1] and hashes[0] == hashes[2]
