"""`autograder doctor`: can labs be released and graded here, and if not, what is to be done?"""

import importlib.metadata
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

PACKAGES = ("torch", "safetensors", "msgpack", "msgspec", "pytest", "nbgrader", "jupytext")
MIN_PYTHON = (3, 11)
FREE_GB = 1.0

Row = tuple[str, bool, str]  # what, whether it is well, detail or remedy


def examine(course_root: Path) -> Iterator[Row]:
    """Rows as they are found out; the slow ones (packages, sandbox) come last."""
    from autograder.labs.manifest import lab_names, load_lab

    yield row("python", python_version)
    for name in PACKAGES:
        yield row(name, lambda name=name: importlib.metadata.version(name))
    yield row("course", lambda: course_folder(course_root))
    yield row("disk", lambda: free_space(course_root))
    for name in lab_names(course_root) if (course_root / "labs").is_dir() else ():
        yield row(name, lambda name=name: lab_summary(load_lab(name, course_root)))
    if sys.platform != "linux":
        remedy = "grading needs Linux (bubblewrap); use a container or WSL 2"
        yield "sandbox", False, f"{platform.system()}: {remedy}"
        return
    from autograder.sandbox.diagnose import diagnose

    yield from diagnose()


def row(name: str, work: Callable[[], str]) -> Row:
    try:
        return name, True, work()
    except importlib.metadata.PackageNotFoundError:
        return name, False, "not installed: make setup"
    except Exception as error:  # a doctor reports what it meets
        return name, False, f"{error}"


def python_version() -> str:
    if sys.version_info < MIN_PYTHON:
        raise RuntimeError(f"{platform.python_version()}: the course needs 3.11 or later")
    return platform.python_version()


def course_folder(root: Path) -> str:
    missing = [name for name in ("labs", "nbgrader_config.py") if not (root / name).exists()]
    if missing:
        raise RuntimeError(
            f"{root} has no {' and no '.join(missing)}: give --course DIR, or make a course folder "
            "with `autograder course new FOLDER`"
        )
    return str(root)


def free_space(root: Path) -> str:
    free = shutil.disk_usage(root).free / 1e9
    if free < FREE_GB:
        raise RuntimeError(f"{free:.1f} GB free: results and feedback need {FREE_GB:g}")
    return f"{free:.0f} GB free"


def lab_summary(lab) -> str:
    written = sum(lab.written.values())
    return f"{len(lab.tests)} tests, {lab.max_score:g} points, {written:g} more by hand"
