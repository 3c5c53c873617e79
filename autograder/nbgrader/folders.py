"""Where nbgrader keeps what of a submission; all of a file is written, or nothing."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from nbgrader.coursedir import CourseDirectory

from autograder.labs.manifest import LabSpec

HANDED_ON = ("timestamp.txt", "submission_secret.txt")  # nbgrader reads them to hand feedback out
MAX_HANDED_ON = 10_000  # bytes
UNFINISHED = ".new-"


def handed_in(coursedir: CourseDirectory, lab: LabSpec, student: str) -> Path:
    return Path(coursedir.format_path(coursedir.submitted_directory, student, lab.name))


def executed_path(coursedir: CourseDirectory, lab: LabSpec, student: str) -> Path:
    folder = coursedir.format_path(coursedir.autograded_directory, student, lab.name)
    return Path(folder) / f"{lab.notebook}.ipynb"


def page_path(coursedir: CourseDirectory, lab: LabSpec, student: str) -> Path:
    folder = coursedir.format_path(coursedir.feedback_directory, student, lab.name)
    return Path(folder) / f"{lab.notebook}.html"


def previous(coursedir: CourseDirectory, lab: LabSpec, student: str) -> dict:
    """What the executed notebook on disk says of itself (executed.about); {} if there is none."""
    try:
        nb = json.loads(executed_path(coursedir, lab, student).read_bytes())
        return dict(nb["metadata"]["autograder"])
    except (OSError, KeyError, ValueError, TypeError):
        return {}


def to_hand_on(folder: Path) -> dict[str, bytes]:
    """nbgrader's own small files; links, pipes and anything large are left behind."""
    paths = {name: folder / name for name in HANDED_ON}
    return {name: path.read_bytes() for name, path in paths.items() if small_file(path)}


def small_file(path: Path) -> bool:
    plain = path.is_file() and not path.is_symlink()
    return plain and path.stat().st_size <= MAX_HANDED_ON


def write_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Puts a folder with these files in place of an earlier one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f"{UNFINISHED}*"):  # of a run that was killed
        shutil.rmtree(left, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(dir=folder.parent, prefix=UNFINISHED))
    try:
        os.chmod(fresh, 0o755)
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def write_file(path: Path, content: bytes) -> None:
    """Writes all of a file or nothing; not at all if it holds this already."""
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
