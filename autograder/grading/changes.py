"""What a new result of a student's changes against the one before, and why it could."""

from autograder.grading.results import Result, TestResult

REASONS = {  # hash in the result -> what is another one
    "submission_hash": "another submission",
    "suite_hash": "another suite",
    "efflib_hash": "another efflib",
    "grader_hash": "another grader",
    "seed": "another seed",
    "sandbox": "another sandbox",
}


def differences(before: Result, after: Result) -> list[str]:
    """Lines on what changed: score and reasons first, then the tests; none if nothing did."""
    old, new = tests_of(before), tests_of(after)
    lines = []
    for key in dict.fromkeys([*old, *new]):
        said = (told(old.get(key)), told(new.get(key)))
        if said[0] != said[1]:
            lines.append(f"  {' '.join(key)}: {said[0]} -> {said[1]}")
    if not lines and before.score == after.score:
        return []
    scores = f"{before.score:g} -> {after.score:g} of {after.max_score:g} points"
    return [f"{after.student}: {scores} ({', '.join(reasons(before, after))})", *lines]


def tests_of(result: Result) -> dict[tuple[str, str, str], TestResult]:
    tests = (test for exercise in result.exercises for test in exercise.tests)
    return {(test.exercise, test.kind, test.test): test for test in tests}


def told(test: TestResult | None) -> str:
    return f"{test.outcome}, {test.points:g} of {test.max_points:g}" if test else "no such test"


def reasons(before: Result, after: Result) -> list[str]:
    """What differs in what decided the two results."""
    names = [
        words for name, words in REASONS.items() if getattr(before, name) != getattr(after, name)
    ]
    return names or ["submission, suite, efflib, grader and seed are the same: not reproducible"]
