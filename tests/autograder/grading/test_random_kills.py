"""Parts of the grader are killed at random moments: the gradebook is that of an undisturbed run.

STUDENTS and KILLS (of each kind of process; half as many where sandboxes are cold) say how many,
SEED which moments; `make test-soak` has 60 and 10.
"""

import os
import random
import time

import disturbed
import pytest
from disturbed import KINDS, Disturbed, eventually, in_file, points, results

from autograder.sandbox import limits

pytestmark = pytest.mark.slow
STUDENTS, KILLS = int(os.environ.get("STUDENTS", 8)), int(os.environ.get("KILLS", 1))
SEED = int(os.environ.get("SEED", random.SystemRandom().randrange(10**6)))


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory):
    return disturbed.hand_in(tmp_path_factory.mktemp("class") / "in", STUDENTS)


@pytest.fixture(scope="module")
def undisturbed(handed_in, tmp_path_factory):
    """(course, seconds that grading took)"""
    course = disturbed.new_course(tmp_path_factory.mktemp("undisturbed") / "course")
    started = time.monotonic()
    assert disturbed.grading(course, handed_in).wait() == 0, (course / "log.txt").read_text()
    return course, time.monotonic() - started


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
def test_kills_change_nothing_and_leave_nothing(warm, undisturbed, handed_in, tmp_path):
    calm, seconds = undisturbed
    expected = {student: points(result) for student, result in results(calm).items()}
    course, rng = disturbed.new_course(tmp_path / "course"), random.Random(f"{SEED} {warm}")
    kinds = list(KINDS) if warm else [kind for kind in KINDS if kind != "zygote"]
    kinds *= KILLS if warm else max(1, KILLS // 2)
    rng.shuffle(kinds)
    print(f"SEED={SEED}", *kinds)
    run = Disturbed(course, handed_in, warm)
    with disturbed.orphans() as left:
        for kind in kinds:
            run.kill(kind, rng, seconds if kind == "coordinator" else seconds / KILLS)
            assert kind != "coordinator" or eventually(lambda: not left()), left()
        code = run.finish()
        assert eventually(lambda: not left()), left()
        told = {student: points(r) for student, r in results(course).items() if certain(r)}
        assert told.items() <= expected.items(), "what is told without doubt is right"
        print(f"exit code {code}, {len(expected) - len(told)} faults and doubtful results")
        run.start()
        assert run.finish() == 0
        assert eventually(lambda: not left()), left()
    assert "Traceback" not in (course / "log.txt").read_text()
    assert {student: points(result) for student, result in results(course).items()} == expected
    assert in_file(course) == in_file(calm)
    assert disturbed.files(course) == disturbed.files(calm)
    assert list((course / "tmp").iterdir()) == []
    assert run.groups or limits.usable_parents() is None
    assert not any(folder.exists() for folder in run.groups)


def certain(result) -> bool:
    return result.status != "fault" and not result.doubtful
