"""Is a folder (or a zip) one student's, or do the folders of several lie in it?

`class/s01/toy.ipynb` looks like `alice/work/toy.ipynb`.  A student chooses what lies in the own
folder, so that this alone never makes other people's work of it: what decides is what a student
does not choose, which is the roster, the map and what the folder around all others is called.
Where these say nothing, nobody is graded by a guess, and a sentence names what was found.
"""

import re
from collections.abc import Iterable

from autograder.intake.archive import (
    MAX_DEPTH,
    Entry,
    EntryError,
    is_notebook,
    is_zip,
    shown,
    unzip,
)
from autograder.intake.choose import (
    MAX_STUDENT_BYTES,
    MAX_STUDENT_ZIP,
    Budget,
    notebooks_of,
    own_ids,
    read_one,
)
from autograder.intake.layout import NUMBERED, lab_folders, looks_like, of_this_lab
from autograder.intake.lms import METADATA, Parcel, is_nobodys, looks_exported, parcels_of
from autograder.intake.notebook import Notebook
from autograder.intake.other_lab import other_lab
from autograder.intake.owners import HOW, Owner, mapped_id, owners_of
from autograder.intake.roster import Roster
from autograder.labs.manifest import LabSpec

# what nbgrader, Gradescope, Blackboard and teachers call a folder of hand-ins
OF_A_CLASS = re.compile(
    r"submitted|submissions|hand-?ins|students|class|exports?|assignment_\d+_export|gradebook_.+",
    re.IGNORECASE,
)
OF_MOODLE = re.compile(r".+-\d+", re.DOTALL)  # course, assignment and number
COPY = re.compile(r"(?:[ _-]*\(\d+\)|[ _-]+copy|-\d+)+", re.IGNORECASE)  # "class (1).zip"
MAX_NAMES = 5  # in one sentence
MAX_ASKED = 200  # names that are looked up, and notebooks that are read, to see what lies there


def unwrapped(
    entries: list[Entry], called: str, lab: LabSpec, roster: Roster | None, mapping: dict[str, str]
) -> list[Entry]:
    """The entries without the folders that lie around everyone's.

    called: the name of the folder or zip that they are in.
    """
    level, beside = entries, []
    for _ in range(MAX_DEPTH):
        top = alone(level)
        inner = below(level, top) if top is not None else []
        if not inner or owned(parcels_of(level), roster, mapping):
            break
        beside += [entry for entry in level if is_nobodys(entry)]
        # a name counts only below folders that are the class's: others may be a student's choice
        ours = level is entries and named_as_class(level, top, called, lab)
        level, called = inner, top
        if ours or known_inside(inner, roster, mapping) > 1:
            level = entries = beside + inner
            beside = []
    return entries


def alone(entries: Iterable[Entry]) -> str | None:
    """What everything lies in, if that is one thing and no course system named it."""
    entries = [e for e in entries if not is_nobodys(e) and e.parts != (METADATA,)]
    tops = {entry.parts[0] for entry in entries}
    return tops.pop() if len(tops) == 1 and not looks_exported(entries) else None


def below(entries: Iterable[Entry], top: str) -> list[Entry]:
    found = [entry for entry in entries if entry.parts[0] == top and len(entry.parts) > 1]
    return [Entry(entry.parts[1:], entry.kind, entry.read) for entry in found]


def named_as_class(entries: list[Entry], top: str, called: str, lab: LabSpec) -> bool:
    """Whether the one folder on the top level is the class's by its name."""
    inner = below(of_this_lab(entries, lab)[0], top)
    if OF_MOODLE.fullmatch(top) and looks_exported(inner):
        return True
    if OF_A_CLASS.fullmatch(top) or NUMBERED.fullmatch(top) or top in lab_folders(lab):
        lone = handed_in(inner)
        return not (len(lone) == 1 and len(lone[0]) == 1 and looks_like(lone[0][0], lab))
    return plain(top) == plain(called) and not of_one(inner, lab)


def plain(name: str) -> str:
    return COPY.sub("", name).strip().casefold()


def owned(parcels: list[Parcel], roster: Roster | None, mapping: dict[str, str]) -> bool:
    """Whether roster or map say whose all of them are."""
    if roster is None:
        return bool(parcels) and all(mapped_id(parcel, mapping) for parcel in parcels)
    found = [owner for parcel in parcels for owner in owners_of(parcel, roster, mapping)]
    return bool(found) and all(isinstance(owner, Owner) for owner in found)


def known_inside(inner: list[Entry], roster: Roster | None, mapping: dict[str, str]) -> int:
    """How many students of the roster or the map have a folder or file there."""
    found = {None}
    if roster is None and not mapping:
        return 0
    for parcel in parcels_of(inner)[:MAX_ASKED]:
        if roster is None:
            found.add(mapped_id(parcel, mapping))
        else:
            owners = owners_of(parcel, roster, mapping)
            found |= {owner.id for owner in owners if isinstance(owner, Owner)}
    return len(found - {None})


def lies_inside(parcel: Parcel, roster: Roster | None, mapping: dict[str, str]) -> str:
    """The rest of a sentence, if students of the roster have folders in one that is nobody's."""
    if roster is None or parcel.senders[0].system:
        return ""
    inner = below(parcel.files, parcel.labels[0])
    known = known_inside(inner, roster, mapping)
    names = listed(dict.fromkeys(entry.parts[0] for entry in inner))
    return f"; {names} in it may be students': then grade that folder itself" if known else ""


# ---- what lies in one student's, or a class's ----------------------------------------------------


def handed_in(inner: Iterable[Entry]) -> list[tuple[str, ...]]:
    """Paths of what may be a hand-in."""
    return [entry.parts for entry in inner if is_notebook(entry) or is_zip(entry)]


def of_one(inner: list[Entry], lab: LabSpec) -> bool:
    """Whether what lies in a folder can be one student's only, by its names alone.

    Not by the contents: a damaged file must not make one student of two.
    """
    inner = [Entry(e.parts[1:], e.kind, e.read) if e.parts[0] == lab.name else e for e in inner]
    inner = [entry for entry in inner if entry.parts]
    found = handed_in(inner)
    if not found:
        paths = without_common([entry.parts for entry in inner if entry.kind != "folder"])
        return len({parts[0] for parts in paths if len(parts) > 1}) < 2
    if any(len(parts) > 1 for parts in found):
        return False
    return len(found) == 1 or any(looks_like(parts[0], lab) for parts in found)


def class_in_one(
    entries: list[Entry], lab: LabSpec, roster: Roster | None, mapping: dict[str, str]
) -> tuple[str, str]:
    """(name, a sentence) of the one folder or zip that may hold a class; ("", "") if none may."""
    top = alone(entries)
    if top is None or owned(parcels_of(entries), roster, mapping):
        return "", ""
    inner = below(entries, top) or opened([e for e in entries if e.parts == (top,)], lab)
    packed = len(handed_in(inner)) == 1 and opened(inner, lab)  # class/all.zip
    if not inner or of_one(packed or inner, lab) and not OF_A_CLASS.fullmatch(top):
        return "", ""
    names = listed(dict.fromkeys(entry.parts[0] for entry in packed or inner))
    return top, (
        f"everything lies in {shown(top)}, with {names} in it: if these are students', grade that "
        f"folder or zip itself; if {shown(top)} is one student's, {HOW}"
    )


def opened(entries: list[Entry], lab: LabSpec) -> list[Entry]:
    """What lies in the first zip of these, without one folder around it: people zip folders."""
    inner = []
    try:
        for archive in list(filter(is_zip, entries))[:1]:
            inner = list(unzip(archive.read(MAX_STUDENT_ZIP), archive.name))
    except EntryError:
        return []
    if len({entry.parts[0] for entry in inner}) != 1 or any(len(e.parts) == 1 for e in inner):
        inner = [Entry(("zip", *entry.parts), entry.kind, entry.read) for entry in inner]
    return [
        entry
        for top in {entry.parts[0] for entry in inner}
        for entry in below(of_this_lab(inner, lab)[0], top)
    ]


# ---- one of several that may hold several --------------------------------------------------------


def several_in(parcel: Parcel, lab: LabSpec) -> str:
    """A sentence if hand-ins of this lab lie in several folders of what should be one student's."""
    if parcel.senders[0].system or not maybe_several(parcel):
        return ""
    try:
        paths = without_common(paths_of_lab(parcel, lab))
    except EntryError:
        return ""
    folders = dict.fromkeys(parts[0] for parts in paths if len(parts) > 1)
    names = folders or dict.fromkeys(parts[0] for parts in paths)
    if len(names) < 2 or (not folders and any(looks_like(name, lab) for name in names)):
        return ""
    top = shown(parcel.labels[0])
    return (
        f"{top} may be several students', since hand-ins lie in it as {listed(names)}: if so, "
        f"grade {top} itself; if it is one student's, {HOW}"
    )


def paths_of_lab(parcel: Parcel, lab: LabSpec) -> list[tuple[str, ...]]:
    """Where notebooks lie that are of this lab, or cannot be read. Raises EntryError."""
    budget = Budget(MAX_STUDENT_BYTES)
    found = notebooks_of(parcel, budget)
    if len(found) <= MAX_ASKED:
        found = [one for one in found if may_be_of(read_one(one.entry, budget, None).cells, lab)]
    return [one.path for one in found]


def may_be_of(cells: Notebook | Exception, lab: LabSpec) -> bool:
    return isinstance(cells, Exception) or (own_ids(cells, lab) > 0 and not other_lab(cells, lab))


def maybe_several(parcel: Parcel) -> bool:
    """By the names alone: several notebooks, or zips that are read for them."""
    notebooks = [entry for entry in parcel.files if is_notebook(entry)]
    return len(notebooks) > 1 or (not notebooks and any(map(is_zip, parcel.files)))


def without_common(paths: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Paths without the folders in which all of them lie."""
    while paths and all(len(parts) > 1 for parts in paths) and len({p[0] for p in paths}) == 1:
        paths = [parts[1:] for parts in paths]
    return paths


def listed(names: Iterable[str]) -> str:
    names = list(map(shown, names))
    return ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
