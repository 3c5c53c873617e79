"""Rows of what was not graded, and names of what grades, made without what grading needs."""

from autograder.grading.judge import plain
from autograder.grading.results import Result
from autograder.intake.discover import Rejected, Submission
from autograder.labs.manifest import LabSpec
from autograder.sandbox.launch import SandboxSpec


def sandbox_name(unsafe: bool) -> str:
    return "none" if unsafe else "bubblewrap"


def sandbox_spec(lab: LabSpec, unsafe: bool) -> SandboxSpec:
    budget = lab.budget
    return SandboxSpec(
        lab.withhold, budget.memory_mb, budget.processes, unsafe, preload=lab.preload
    )


def rejected(lab: LabSpec, submission: Rejected) -> Result:
    """The row of a submission that holds nothing to grade."""
    return Result(
        student=submission.student,
        lab=lab.name,
        status=submission.status,
        reason=plain(submission.reason),
        max_score=lab.max_score,
        written=lab.written,
        suite_hash=lab.suite_hash,
        efflib_hash=lab.efflib_hash,
    )


def fault(lab: LabSpec, submission: Submission, reason: str) -> Result:
    """The row of a submission at which the grader itself failed: no grade."""
    return Result(
        student=submission.student,
        lab=lab.name,
        status="fault",
        reason="grader fault: " + plain(reason),
        max_score=lab.max_score,
        submission_hash=submission.digest,
        suite_hash=lab.suite_hash,
        efflib_hash=lab.efflib_hash,
    )
