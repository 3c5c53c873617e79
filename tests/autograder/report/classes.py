"""Classes for the tests of the report, as the grader's JSON would hold them."""

import math
import random

from autograder.grading.results import (
    NOT_ATTEMPTED,
    CellRun,
    ExerciseResult,
    Late,
    Report,
    Result,
    TestResult,
)

LAB = "lab00_toy"
SCRIPT = '<script>document.title = "owned"</script>'


def test_result(exercise, name, outcome="passed", points=2.0, message="", kind="public", cause=""):
    passed = outcome == "passed"
    return TestResult(
        exercise=exercise,
        test=name,
        title=f"title of {name}",
        kind=kind,
        outcome=outcome,
        points=points if passed else 0.0,
        max_points=points,
        invariant=f"what {name} asks for",
        cause=cause or f"cause of {name}",
        message=message,
    )


test_result.__test__ = False


def result(student, tests, **changes):
    """A graded result; tests: of all exercises."""
    names = dict.fromkeys(test.exercise for test in tests)
    parts = []
    for name in names:
        own = tuple(test for test in tests if test.exercise == name)
        points, top = (math.fsum(getattr(t, key) for t in own) for key in ("points", "max_points"))
        parts.append(ExerciseResult(
            exercise=name, title=f"Exercise {name}", points=points, max_points=top, tests=own
        ))  # fmt: skip
    made = dict(
        student=student,
        lab=LAB,
        status="graded",
        score=math.fsum(part.points for part in parts),
        max_score=math.fsum(part.max_points for part in parts),
        exercises=tuple(parts),
        suite_hash="suite",
        started="2026-10-01T12:00:00+00:00",
        seconds=3.0,
    )
    return Result(**(made | changes))


def apart(student, status, reason=""):
    return Result(student=student, lab=LAB, status=status, reason=reason, max_score=90.0)


def generated(students=300, exercises=6, tests=8, seed=0):
    """A large class: abilities and difficulties drawn, passing by the logistic model."""
    rng = random.Random(seed)
    columns = [(f"ex{e}", f"test_{e}_{t}", rng.gauss(-0.3, 1.2)) for e in range(1, exercises + 1)
               for t in range(tests)]  # fmt: skip
    points = 90 / len(columns)
    results, late = [], {}
    for number in range(students):
        student, ability = f"student{number:03d}", rng.gauss(0.5, 1.2)
        stops = rng.randrange(2, exercises + 1) if rng.random() < 0.15 else exercises
        if rng.random() < 0.03:
            stops = 0
        made = []
        for exercise, name, difficulty in columns:
            passes = rng.random() < 1 / (1 + math.exp(difficulty - ability))
            opened = int(exercise[2:]) <= stops
            outcome = "passed" if passes and opened else "failed"
            message = "" if passes else f"it is {rng.random():.4f}, not {rng.random():.4f}"
            message = message if opened else NOT_ATTEMPTED
            kind = "public" if name.endswith(("0", "1")) else "hidden"
            made.append(test_result(exercise, name, outcome, points, message, kind))
        cells = tuple(
            CellRun(label=f"cell {n}, ex{n}", seconds=abs(rng.gauss(0.4, 0.4)))
            for n in range(1, exercises + 1)
        )
        results.append(result(
            student, made, cells=cells, answers={f"ex{n}": "" for n in range(1, exercises + 1)},
            max_score=90.0, seconds=abs(rng.gauss(6, 2)),
        ))  # fmt: skip
        if rng.random() < 0.08:
            late[student] = Late(results[-1].score, 5.0, rng.random() * 200_000)
    for number in range(12):
        results.append(apart(f"absent{number}", "missing", "nothing handed in"))
    names = {f"student{number:03d}": f"Ann-Marie Müller the {number}th" for number in range(300)}
    return Report(lab=LAB, results=tuple(results), names=names, late=late)
