"""Where the hidden suites are: those of the course, or private ones (--suites DIR)."""

import os
from pathlib import Path

VARIABLE = "AUTOGRADER_SUITES"  # --suites sets it; set it yourself for nbgrader and formgrader


def suites_root(course_root: Path) -> Path:
    """The folder of --suites, else the course's autograder/suites, else the package's own.

    It is one of them and never a mixture: a lab that private suites lack is not graded by public
    ones.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    own = course_root / "autograder" / "suites"
    return own if own.is_dir() else Path(__file__).parents[1] / "suites"


def lab_names(course_root: Path) -> list[str]:
    """Labs that have a hidden suite."""
    return sorted(path.parent.name for path in suites_root(course_root).glob("*/manifest.toml"))
