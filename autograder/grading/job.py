"""What a worker does with one submission."""

from autograder.grading.results import encode
from autograder.grading.ungraded import fault
from autograder.intake.discover import Submission
from autograder.labs.manifest import LabSpec
from autograder.sandbox.launch import SandboxUnavailable


def grade_job(
    lab: LabSpec, submission: Submission, *, seed: int | None, unsafe: bool, shared: bool = False
) -> bytes:
    """A Result as JSON, so nothing of a student's is ever unpickled."""
    from autograder.grading import verdict

    seconds = verdict.SHARE_SECONDS if shared else verdict.SUBMISSION_SECONDS
    try:
        return encode(verdict.grade_one(lab, submission, seed=seed, unsafe=unsafe, seconds=seconds))
    except SandboxUnavailable:
        raise
    except Exception as error:  # the grader's own bug must not stop the class
        return encode(fault(lab, submission, f"{type(error).__name__}: {error}"))
