"""Where the course's own files are: sources of labs, chapters, figures, versions of packages.

A clone has them beside the package, and an installed wheel brings them along (setup.py).  A course
folder of a teacher's own (autograder.own) has copies of its labs, and takes the rest from there.
"""

import sysconfig
from pathlib import Path

CLONE = Path(__file__).parents[2]
SHARED = Path(sysconfig.get_path("data")) / "share" / "efficient-llm-course"
MARK = "constraints.txt"  # stands where everything else is: LICENSE, pyproject.toml, course, ...
SUITES = Path(__file__).parents[1] / "suites"


def installed() -> Path:
    """The folder with solutions/ and course/ of the version that is installed."""
    return CLONE if (CLONE / MARK).is_file() else SHARED


def material(course_root: Path) -> Path:
    """The course's own folder if it is a clone, else the installed one."""
    return course_root if (course_root / MARK).is_file() else installed()


def file_of(course_root: Path, name: str) -> Path:
    """A file of the course: its own where it has one, else the installed one."""
    own = course_root / name
    return own if own.exists() else installed() / name
