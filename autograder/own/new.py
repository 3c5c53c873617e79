"""`autograder course new` and `course update`: the folder, and a newer version of its labs."""

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from autograder.errors import UsageError, files_told
from autograder.labs.material import SUITES, installed
from autograder.labs.suites import GO_THERE
from autograder.own.record import copy_lab, folders, hash_tree, read_record, write_record

FILES = Path(__file__).parent / "files"
COURSE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it names folders of nbgrader's exchange


def new_course(root: Path, asked: Iterable[str]) -> Iterator[str]:
    """Makes the folder with these labs (default: all); sentences on what to do next.

    Raises UsageError: the folder is in use, or there is no such lab.
    """
    labs = named_labs(asked)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageError(f"{root} is not empty: name a new folder")
    if not COURSE_ID.fullmatch(root.name):
        raise UsageError(
            f"{root.name!r} becomes the course's id for nbgrader: call the folder by letters, "
            "digits and . _ - alone"
        )
    with files_told(root):
        root.mkdir(parents=True, exist_ok=True)
        for name in ("nbgrader_config.py", "README.md"):
            text = (FILES / name).read_text(encoding="utf-8")
            (root / name).write_text(text.replace("{course_id}", root.name), encoding="utf-8")
        write_record(root, {lab: copy_lab(root, lab) for lab in labs})
    from autograder.nbgrader.release import release  # takes a second

    release(root, labs)
    yield f"{root}: a course with {', '.join(labs)}"
    yield f"its id for nbgrader is {root.name}; README.md in it says what each folder is for"
    yield f"next: cd {root}, put your class's list there as roster.csv, autograder doctor"


def update_course(root: Path, labs: list[str]) -> Iterator[str]:
    """Puts the installed version of these labs in place of the folder's, and releases them.

    A lab that the folder does not have comes into it, also named by its number.

    Raises UsageError: nothing to update, or what a teacher changed would be lost.
    """
    record = read_record(root)
    if not record:
        raise UsageError(f"{root} was not made by `autograder course new`: {GO_THERE}")
    labs = [lab if lab in record else named_labs([lab])[0] for lab in labs]
    for lab in labs:
        if lab not in record and not any(here.exists() for _, here in folders(root, lab).values()):
            continue
        if lab not in record:
            raise UsageError(f"{lab} was not put here by `autograder course new`: see course check")
        if changed := own_changes(root, lab):
            raise UsageError(
                f"{' and '.join(changed)} hold changes of yours, which an update would replace: "
                "move them away, and put your changes into the new version"
            )
        if not (installed() / "solutions" / lab).is_dir():
            raise UsageError(f"the installed version has no {lab}")
    from autograder.nbgrader.release import release

    before = set(record)
    for lab in labs:
        with files_told(root):
            write_record(root, record := record | {lab: copy_lab(root, lab)})
            shutil.rmtree(root / "labs" / lab, ignore_errors=True)
        release(root, [lab])
        told = "it is released anew" if lab in before else "new in this folder, and released"
        yield f"{lab}: now of version {record[lab].version}; {told}"


def own_changes(root: Path, lab: str) -> list[str]:
    """The folders of a lab that are no longer as they were copied."""
    made = read_record(root)[lab]
    return [
        str(here.relative_to(root))
        for name, (_, here) in folders(root, lab).items()
        if hash_tree(here) not in ("", getattr(made, name))
    ]


def named_labs(asked: Iterable[str]) -> list[str]:
    """Labs by name or number: "01", "1" and "lab01_quantization" are one. Raises UsageError."""
    known = sorted(p.parent.name for p in SUITES.glob("*/manifest.toml"))
    known = [lab for lab in known if (installed() / "solutions" / lab).is_dir()]
    if not known:
        raise UsageError(f"this installation brought no labs along: {installed()} has none")
    found = []
    for name in asked:
        number = re.fullmatch(r"(?:lab)?(\d{1,2})", name)
        fitting = [lab for lab in known if lab == name or (number and same(lab, number[1]))]
        if len(fitting) != 1:
            raise UsageError(f"there is no lab {name!r} (there are: {', '.join(known)})")
        found += [lab for lab in fitting if lab not in found]
    return sorted(found) or known


def same(lab: str, number: str) -> bool:
    match = re.match(r"lab(\d+)_", lab)
    return bool(match) and int(match[1]) == int(number)
