"""Where the hidden suites are: those of the course, or private ones (--suites DIR)."""

import os
from pathlib import Path

from autograder.labs.material import SUITES

GO_THERE = "go to a course folder, or make one with `autograder course new FOLDER`"
MADE_FROM = "made_from.toml"  # in a folder that `course new` made: see autograder.own.record
VARIABLE = "AUTOGRADER_SUITES"  # --suites sets it; set it yourself for nbgrader and formgrader


def suites_root(course_root: Path) -> Path:
    """The folder of --suites, else the course's suites or autograder/suites, else the package's.

    It is one of them and never a mixture: a lab that private suites lack is not graded by public
    ones.
    """
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).resolve()
    own = (course_root / "suites", course_root / "autograder" / "suites")
    return next((folder for folder in own if folder.is_dir()), SUITES)


def lab_names(course_root: Path) -> list[str]:
    """Labs that have a hidden suite."""
    return sorted(path.parent.name for path in suites_root(course_root).glob("*/manifest.toml"))


def all_suites(course_root: Path) -> dict[str, Path]:
    """Lab -> its suite, of this course's labs and of all others that are installed, by name."""
    found = {}
    for root in (SUITES, suites_root(course_root)):
        found |= {path.parent.name: path.parent for path in root.glob("*/manifest.toml")}
    return dict(sorted(found.items()))


def way_to_release(lab: str, course_root: Path) -> str:
    """What helps where a lab is not released: in a folder without its source no release can."""
    if (course_root / "solutions" / lab).is_dir():
        return f"run `autograder release {lab}`"
    return GO_THERE


def no_such_lab(lab: str, course_root: Path) -> str:
    """Which labs there are, and how another comes into a course folder."""
    known = ", ".join(lab_names(course_root)) or "none"
    told = f"there is no lab {lab!r} in {suites_root(course_root)} (found: {known})"
    if (course_root / MADE_FROM).is_file():
        told += ". `autograder course update LAB` brings one that is installed into this folder"
    return told
