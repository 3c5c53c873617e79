"""A lab on a real JupyterHub, from Release to feedback, by what the buttons of the pages send.

Release, Collect, Autograde, Generate and Release Feedback are formgrader's; Fetch, Validate, Submit
and Fetch Feedback are the Assignment List's.  test_clicks.py goes the same way in a browser.
"""

import contextlib
import os
import subprocess
import time
from pathlib import Path

import nbcourse
import pytest
from classroom import ADA, EVE, TEACHER
from toy_course import COURSE, LAB, answer, gradebook, score, whole

HALF = "def scale(numbers, factor):\n    return None"
HOSTILE = """
import os
for folder in {folders}:
    try:
        open(os.path.join(folder, "owned-by-eve"), "w").write("x")
    except OSError:
        pass
"""


def test_students_have_the_wheel_and_no_grader(room):
    code = (
        "import importlib.util as u; print(u.find_spec('autograder'), u.find_spec('efflib').origin)"
    )
    found = room.python(ADA, "-c", code)
    assert found.startswith("None ") and str(room.folder / "student") in found
    found = room.python(TEACHER, "-c", code.replace("u.find_spec('autograder')", "'here'"))
    assert str(room.folder / "teacher") in found


def test_release_and_fetch(room):
    listed = room.formgrader("assignments", "GET")
    assert [(one["name"], one["status"]) for one in listed] == [(LAB, "draft")]
    room.formgrader(f"assignment/{LAB}/release")
    for user in (ADA, EVE):
        room.button(user, "fetch", COURSE, LAB)
        there = {path.name for path in (room.home(user) / LAB).iterdir()}
        assert {"toy.ipynb", "test_public.py", "exercises.toml"} <= there


def test_validate_runs_the_checks_in_the_students_environment(room):
    def validated():
        path = f"/user/{ADA}/assignments/validate"
        return room.call("POST", path, path=f"{LAB}/toy.ipynb")

    for answers in ({}, whole() | {"ex1": HALF}):
        answer(room, ADA, **answers)
        failed = validated()["value"]["failed"]
        assert failed[0]["source"] == 'lab.check("ex1")' and "CheckFailed" in failed[0]["error"]
    answer(room, ADA, **whole())
    told = validated()
    assert told["success"] and not told["value"].get("failed"), told


def test_submit_hand_in_again_and_collect(room):
    answer(room, ADA, **(whole() | {"ex1": HALF}))
    room.button(ADA, "submit", COURSE, LAB)
    room.formgrader(f"assignment/{LAB}/collect")
    answer(room, ADA, **whole())
    time.sleep(1.1)  # nbgrader's times have seconds
    room.button(ADA, "submit", COURSE, LAB)
    places = [str(room.home(TEACHER)), str(room.home(TEACHER) / COURSE), str(room.folder), "/tmp"]
    attack = HOSTILE.format(folders=places)
    answer(room, EVE, **(whole() | {"ex1": attack + nbcourse.RIGHT["ex1"]}))
    room.button(EVE, "submit", COURSE, LAB)
    room.formgrader(f"assignment/{LAB}/collect")
    course = room.home(TEACHER) / COURSE
    collected = (course / "submitted" / ADA / LAB / "toy.ipynb").read_text()
    assert "return None" not in collected, "the newer hand-in replaced the older"
    names = {
        one["student"]: one["last_name"] for one in room.formgrader(f"submissions/{LAB}", "GET")
    }
    assert names == {ADA: "Lovelace", EVE: "Mallory"}


def test_autograde_by_button_is_in_the_sandbox(room):
    for user in (ADA, EVE):
        told = room.formgrader(f"submission/{LAB}/{user}/autograde")
        assert told["success"], told
    assert score(room, ADA) == 90 and score(room, EVE) == 90
    owned = Path("owned-by-eve")
    places = [room.home(TEACHER), room.home(TEACHER) / COURSE, room.folder, Path("/tmp")]
    assert not [place for place in places if (place / owned).exists()]
    # the same code, run as the teacher without a sandbox, does write there
    room.python(TEACHER, "-c", HOSTILE.format(folders=[str(room.home(TEACHER))]))
    assert (room.home(TEACHER) / owned).exists()
    (room.home(TEACHER) / owned).unlink()


def test_a_grade_by_hand_and_feedback_that_the_student_fetches(room):
    with gradebook(room) as book:
        grade = book.find_grade("w1", "toy", LAB, ADA)
        number, needed = grade.id, grade.needs_manual_grade
    assert needed
    room.formgrader(f"grade/{number}", "PUT", {"manual_score": 7})
    assert score(room, ADA) == 97
    room.formgrader(f"assignment/{LAB}/generate_feedback")
    room.formgrader(f"assignment/{LAB}/release_feedback")
    room.button(ADA, "fetch_feedback", COURSE, LAB)
    [page] = (room.home(ADA) / LAB / "feedback").rglob("*.html")
    assert "97" in page.read_text() and nbcourse.CANARY not in page.read_text()
    others = [path for path in room.exchange.rglob("*.html") if os.access(path, os.R_OK)]
    assert len(others) >= 2
    listing = f"import os; print(os.listdir({str(others[0].parent)!r}))"
    with pytest.raises(AssertionError, match="Permission denied"):
        room.python(EVE, "-c", listing)


def test_what_a_class_costs(room):
    """Prints what one server and one graded hand-in take, for the sizes in course/hub.md."""
    sizes = {user: memory_mb(user) for user in (TEACHER, ADA, EVE)}
    print(f"\nMB (proportional) of single-user servers: {sizes}")
    assert all(size > 0 for size in sizes.values())


def memory_mb(user):
    """Of all processes of a user, shared pages counted in parts."""
    numbers = subprocess.run(["pgrep", "-u", user], capture_output=True, text=True).stdout.split()
    texts = []
    for number in numbers:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            texts.append(Path(f"/proc/{number}/smaps_rollup").read_text())
    found = [int(line.split()[1]) for text in texts for line in text.splitlines()
             if line.startswith("Pss:")]  # fmt: skip
    return round(sum(found) / 1000)
