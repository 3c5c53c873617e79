"""Makes labs/<lab>/ from the lab's source, by nbgrader, and holds the two together.

The same source gives the same bytes, so that a test can say whether labs/ is what solutions/
generates (check_released).
"""

import json
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from nbgrader.converters import GenerateAssignment
from nbgrader.utils import capture_log

from autograder.bundle.given_out import given_out
from autograder.labs.manifest import LabError
from autograder.labs.source import ReleaseError, build_source, lab_sources
from autograder.labs.suites import GO_THERE, lab_names, no_such_lab
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.database import open_gradebook
from autograder.nbgrader.people import class_of, enrol

MAX_BYTES = 300_000
NOT_RELEASED = {".ipynb_checkpoints", "__pycache__"}


def release(
    course_root: Path, labs: Iterable[str] | None = None, over: Collection[str] = ()
) -> list[Path]:
    """Generates labs/<lab>/ of the given labs (default: all); returns the notebooks.

    over: labs whose modules of efflib come along, because they are over.
    """
    names = lab_sources(course_root) if labs is None else list(labs)
    there_to_release(course_root, names)
    people = class_of(course_root)
    given = {name: given_out(course_root, name, over) for name in names}
    for name in names:
        keep_work(course_root / "labs" / name, course_root / "build" / "replaced")
    paths = [generate(course_root, name, course_root, given[name]) for name in names]
    enrol(course_directory(course_root), people)  # what students hand in has a name in formgrader
    return paths


def there_to_release(course_root: Path, names: list[str]) -> None:
    """Raises LabError: which labs there are, or that this is no course folder."""
    if not (course_root / "solutions").is_dir():
        raise LabError(f"{course_root} has no labs' sources: {GO_THERE}")
    known = lab_names(course_root)
    for name in names:
        if name not in known:
            raise LabError(no_such_lab(name, course_root))


def generate(
    course_root: Path, lab: str, out_root: Path, given: Mapping[str, str] | None = None
) -> Path:
    """The release of one lab below out_root, by nbgrader; returns its notebook.

    given: {file that comes along: its text}.

    Raises ReleaseError; StorageError: of the gradebook below out_root.
    """
    source = build_source(course_root, lab, out_root)
    for name, text in (given or {}).items():  # nbgrader copies what stands beside a notebook
        path = source.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    coursedir = course_directory(out_root)
    coursedir.assignment_id = lab
    with open_gradebook(coursedir):  # made if there is none: nbgrader needs 3 s for that
        pass
    converter = GenerateAssignment(coursedir=coursedir, config=coursedir.config)
    converter.force = True
    ran = capture_log(converter)
    if not ran["success"]:
        raise ReleaseError(f"{lab}: nbgrader refused it\n{ran.get('log') or ran['error']}")
    path = out_root / "labs" / lab / source.name
    if path.stat().st_size > MAX_BYTES:
        raise ReleaseError(f"{path} has {path.stat().st_size} bytes, at most {MAX_BYTES} allowed")
    return path


def keep_work(folder: Path, kept: Path) -> None:
    """A release never holds outputs: a notebook with some is someone's work, so copy it away."""
    if any(has_run(path) for path in folder.glob("*.ipynb")):
        kept.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in kept.iterdir()) + 1
        shutil.copytree(folder, kept / f"{folder.name}-{number}")


def has_run(path: Path) -> bool:
    try:
        cells = json.loads(path.read_bytes())["cells"]
        return any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True  # unreadable: not ours either


def check_released(course_root: Path) -> list[str]:
    """Files below labs/ that are not what solutions/ generates: changed, missing or left over."""
    labs = course_root / "labs"
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder)
        (fresh / "labs").mkdir()
        for name in lab_sources(course_root):
            generate(course_root, name, fresh)
        made, there = released_files(fresh / "labs"), released_files(labs)
        names = made.keys() | there.keys()
        return sorted(f"labs/{name}" for name in names if made.get(name) != there.get(name))


def released_files(labs: Path) -> dict[str, bytes]:
    files = {path.relative_to(labs): path for path in labs.glob("*/**/*") if path.is_file()}
    kept = {name: path for name, path in files.items() if not NOT_RELEASED & set(name.parts)}
    return {name.as_posix(): path.read_bytes() for name, path in kept.items()}
