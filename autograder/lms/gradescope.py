"""Inside Gradescope's autograder container: one submission in, results.json out.

    /autograder/submission/                what the student uploaded
    /autograder/submission_metadata.json   who that is
    /autograder/results/results.json       points and words of every test

A container mostly allows no sandbox within.  Then student code runs as another user, who cannot
read the tests and cannot write the results; the instructor guide says what that does not promise.
"""

import json
import os
import sys
from pathlib import Path

from autograder.grading.batch import grade_many
from autograder.grading.results import Result, TestResult
from autograder.intake.discover import read_submission
from autograder.intake.names import safe_id
from autograder.labs.manifest import load_lab
from autograder.sandbox.launch import STUDENT_USER

BASE = Path("/autograder")
OUTCOMES = {"passed": "passed", "failed": "failed", "not verified": "failed"}


def student_of(metadata: dict) -> str:
    """The id of who submitted: the student number, else the e-mail address, as in the intake."""
    users = metadata.get("users") or [{}]
    told = [str(users[0].get(key) or "") for key in ("sid", "email", "name")]
    return safe_id(next(filter(None, told), f"submission-{metadata.get('id', 0)}"))


def sandbox_works() -> bool:
    from autograder.sandbox.diagnose import diagnose

    return all(well for _, well, _ in diagnose())


def as_results(result: Result) -> dict:
    """Gradescope's results.json. Points are those of tests; questions are graded there by hand."""
    if result.status not in ("graded", "rejected"):
        raise RuntimeError(f"not graded: {result.reason}")
    tests = [test for exercise in result.exercises for test in exercise.tests]
    lines = [result.reason, *result.notes]
    lines += [f"{cell.label}: {cell.error}" for cell in result.cells if cell.error]
    return {
        "score": result.score,
        "output": "\n".join(filter(None, lines)),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": [as_test(test) for test in tests],
        "extra_data": {"sandbox": result.sandbox},
    }


def as_test(test: TestResult) -> dict:
    said = [test.message, f"rule: {test.invariant}", f"usual cause: {test.cause}"]
    hidden = " (hidden)" if test.kind == "hidden" else ""
    return {
        "name": f"{test.exercise}: {test.title}{hidden}",
        "score": test.points,
        "max_score": test.max_points,
        "status": OUTCOMES[test.outcome],
        "output": "" if test.outcome == "passed" else "\n".join(filter(None, said)),
        "output_format": "text",
        "visibility": "visible",
    }


def main(lab_name: str, base: Path = BASE) -> None:
    """Grades what lies below `base` and writes its results.json."""
    unsafe = not sandbox_works()
    if unsafe and os.environ.get(STUDENT_USER) is None:
        raise SystemExit(f"no sandbox can be made here, and {STUDENT_USER} names no user")
    lab = load_lab(lab_name, base / "source")
    metadata = json.loads((base / "submission_metadata.json").read_text(encoding="utf-8"))
    row = read_submission(base / "submission", student_of(metadata), lab)
    [result] = grade_many(lab, [row], jobs=1, unsafe=unsafe)
    text = json.dumps(as_results(result), indent=1)
    (base / "results" / "results.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
