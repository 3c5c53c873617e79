"""What a test makes of a student's values fails that test, and never fills the machine."""

import pytest
from toylab import NAME, answered, make_course, write

from autograder.grading.batch import grade_many
from autograder.grading.pool import run_jobs
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab
from autograder.sandbox import own_memory
from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.session import Session

pytestmark = pytest.mark.slow
NEVER = 3600.0
TOO_MUCH = (own_memory.MOST_MB + 500) * 2**20
LIMIT = "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"
GROWING = f"""

@exercise("ex1", points=30, invariant="negative numbers are multiplied too", cause="abs")
def test_scale_negative(student, rng):
    text = student.scale([-1.0], 2.0)
    assert isinstance(text, list) or text * {TOO_MUCH // 2000}
"""


def job(item: str) -> bytes:
    if item == "much":
        return str(len(bytearray(TOO_MUCH))).encode()
    if item == "little":
        return str(len(bytearray(2**20))).encode()
    with Session(SandboxSpec(warm=item == "warm")) as session:
        return session.run_cell(LIMIT).stdout.strip().encode()


def test_a_process_that_grades_has_a_bound_and_its_sandboxes_have_their_own():
    items = ["much", "little", "warm", "cold"]
    found = dict(run_jobs(job, items, 1, NEVER))
    assert isinstance(found["much"], MemoryError)
    assert found["little"] == b"%d" % 2**20
    here = Session(SandboxSpec())
    with here:
        unbounded = here.run_cell(LIMIT).stdout.strip().encode()
    assert found["warm"] == found["cold"] == unbounded


def test_a_test_that_would_fill_the_memory_fails_and_the_others_count(tmp_path):
    root = make_course(tmp_path)
    hidden = root / f"autograder/suites/{NAME}/test_hidden.py"
    text = hidden.read_text()
    first, last = text.index('@exercise("ex1"'), text.index('@exercise("ex2"')
    hidden.write_text(text[:first] + GROWING + "\n\n" + text[last:])
    long = "def scale(numbers, factor):\n    return [3.0, 6.0] if factor == 3 else 'x' * 2000"
    write(root / "in/ada.ipynb", answered(ex1=long))
    write(root / "in/bob.ipynb", answered())
    lab = load_lab(NAME, root)
    results = {r.student: r for r in grade_many(lab, discover(root / "in", lab), jobs=1)}
    assert (results["ada"].score, results["bob"].score) == (60, 90)
    assert results["ada"].status == "graded" and not results["ada"].doubtful
