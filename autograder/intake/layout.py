"""Of a student's folder what belongs to this lab: nbgrader's <student>/<lab>/.

Decided for one student alone: what one of them hands in must not change how the files of the others
are read.
"""

import re
from collections.abc import Iterable

from autograder.intake.archive import Entry, is_notebook, is_zip, shown
from autograder.labs.manifest import LabSpec

# all of a folder's name: "lab-2026" and "Lab 2 final" are a student's own words
NUMBERED = re.compile(r"lab[ _-]?0*(\d{1,2})(?:[_-][a-z_]+)?", re.IGNORECASE)
Left = dict[str, tuple[str, ...]]  # name on the top level -> notes on what was not looked at


def of_this_lab(entries: list[Entry], lab: LabSpec) -> tuple[list[Entry], Left]:
    """In nbgrader's <student>/<lab>/..., only what lies in the folder of this lab.

    Who has folders of other labs and nothing else handed in nothing.  Who has a folder of this lab
    and files beside it is graded by the folder, and told what was not looked at.
    """
    tops: dict[str, list[Entry]] = {}
    for entry in entries:
        tops.setdefault(entry.parts[0], []).append(entry)
    labs, kept, left = lab_folders(lab), [], {}
    for top, own in tops.items():
        known = labs | numbered_folders(own, lab)
        here = [e for e in own if in_folder(e, lab.name)]
        if any(is_notebook(e) or is_zip(e) for e in here):
            rest = [e for e in own if not in_folder(e, lab.name)]
            beside = [e for e in rest if not in_other_lab(e, lab.name, known)]
            left[top] = not_looked_at(lab.name, beside)
            kept += here
        else:
            rest = [e for e in own if not in_other_lab(e, lab.name, known)]
            others = len(rest) < len(own)
            only = others and all(len(e.parts) == 1 for e in rest)
            kept += [] if only else rest
    return kept, left


def lab_folders(lab: LabSpec) -> set[str]:
    """Names of the course's labs."""
    folder = getattr(lab, "release_dir", None)
    if folder is None or not folder.parent.is_dir():
        return set()
    return {path.name for path in folder.parent.iterdir() if path.is_dir()}


def in_folder(entry: Entry, name: str) -> bool:
    return entry.parts[1:2] == (name,) and (len(entry.parts) > 2 or entry.kind != "file")


def in_other_lab(entry: Entry, lab: str, known: Iterable[str]) -> bool:
    """In a folder with one of these names."""
    if len(entry.parts) < 2 or (len(entry.parts) == 2 and entry.kind == "file"):
        return False
    return entry.parts[1] != lab and entry.parts[1] in known


def numbered_folders(own: Iterable[Entry], lab: LabSpec) -> set[str]:
    """A student's folders with another lab's number, as lab09 beside lab01_quantization.

    Not those with a notebook in them that is called like this lab's.
    """
    number = NUMBERED.fullmatch(lab.name)
    if not number:
        return set()
    notebooks = [e for e in own if is_notebook(e) and len(e.parts) > 1]
    named = {e.parts[1] for e in notebooks if looks_like(e.parts[-1], lab, False)}
    names = {entry.parts[1] for entry in own if len(entry.parts) > 1}
    found = {name: NUMBERED.fullmatch(name) for name in names - named}
    return {name for name, match in found.items() if match and int(match[1]) != int(number[1])}


def looks_like(file: str, lab: LabSpec, unknown: bool = True) -> bool:
    """Is a file called like the lab's notebook? unknown: what to say where that has no name."""
    own = getattr(lab, "release_notebook", None)
    return unknown if own is None else file.casefold().startswith(own.stem.casefold())


def not_looked_at(lab: str, beside: Iterable[Entry]) -> tuple[str, ...]:
    names = [shown("/".join(e.parts[1:])) for e in beside if is_notebook(e) or is_zip(e)]
    return (f"Not looked at, since {lab}/ is there: {', '.join(names)}.",) if names else ()
