"""Which of a student's files is graded."""

from dataclasses import dataclass

from autograder.intake.archive import Entry, EntryError, is_notebook, is_zip, shown, unzip
from autograder.intake.lms import Parcel, Stamp, upload_number
from autograder.intake.notebook import MAX_NOTEBOOK_BYTES, Notebook, NotebookError, read_notebook
from autograder.intake.other_lab import other_lab
from autograder.intake.timestamps import MAX_TIMESTAMP_BYTES, parse_timestamp
from autograder.labs.manifest import LabSpec

MAX_STUDENT_ZIP = 50_000_000
MAX_STUDENT_BYTES = 300_000_000  # of all files of one student that are read, after unpacking
MAX_NOTEBOOKS = 10  # of one student, to choose from
TIMESTAMP = "timestamp.txt"  # nbgrader's
NO_NOTEBOOK = "there is no notebook (.ipynb) in the submission"
MARKED_LATE = "The course system marks it as late."  # a note


class Unclear(Exception):
    """Several hand-ins of a student, and nothing says which one counts; or another lab's only."""


@dataclass(frozen=True)
class Candidate:
    """A notebook that may be the one; `cells` is what is wrong with it, if it cannot be read."""

    file: str
    cells: Notebook | Exception
    notes: tuple[str, ...] = ()
    when: Stamp = None


@dataclass(frozen=True)
class Found:
    """A notebook's file, with Canvas's number, and its path in what the student sent."""

    entry: Entry
    upload: Stamp
    path: tuple[str, ...]


class Budget:
    """Counts what is read of one student's files, so that many large ones have an end too."""

    def __init__(self, total: int) -> None:
        self.left = total

    def read(self, entry: Entry, limit: int) -> bytes:
        if self.left <= 0:
            raise EntryError(f"the files hold more than {MAX_STUDENT_BYTES // 10**6} MB")
        data = entry.read(min(limit, self.left))
        self.left -= len(data)
        return data


def choose(parcels: list[Parcel], lab: LabSpec) -> Candidate:
    """The notebook to grade of everything that one student sent.

    Raises EntryError or NotebookError with what is wrong, Unclear if a person has to say.
    """
    budget = Budget(MAX_STUDENT_BYTES)
    found, errors = [], []
    for parcel in parcels:
        try:
            own = candidates(parcel, budget)
            found += own
            if not own and len(parcels) > 1:
                raise EntryError(NO_NOTEBOOK)
        except EntryError as error:
            if len(parcels) == 1:
                raise
            errors.append(f"{shown(parcel.labels[0])} was not used: {error}.")
    if not found:
        raise EntryError(" ".join(errors) or NO_NOTEBOOK)
    found, others = of_this_lab_only(found, lab)
    if not found:
        raise Unclear(f"{'; '.join(others)}: what is recorded stays")
    errors += [f"{told}: it was not used." for told in others]
    best, notes = pick(found, lab, several=len(parcels) > 1)
    if isinstance(best.cells, Exception):
        raise best.cells
    return Candidate(best.file, best.cells, (*notes, *errors, *best.notes), best.when)


def candidates(parcel: Parcel, budget: Budget) -> list[Candidate]:
    """Every notebook of a parcel."""
    when, notes = sent(parcel, budget)
    found = notebooks_of(parcel, budget)
    if len(found) > MAX_NOTEBOOKS:
        raise EntryError(f"there are {len(found)} notebooks: hand in one")
    if any(map(is_notebook, parcel.files)) and not any(one.upload for one in found):
        zips = ", ".join(entry.name for entry in parcel.files if is_zip(entry))
        notes += [f"Not looked at, since a notebook is beside: {zips}."] if zips else []
    made = [read_one(one.entry, budget, when or one.upload) for one in found]
    return [Candidate(c.file, c.cells, (*notes, *c.notes), c.when) for c in made]


def notebooks_of(parcel: Parcel, budget: Budget) -> list[Found]:
    """Zips are opened if no notebook is beside, or if they may be newer. Raises EntryError."""
    files = list(parcel.files)
    found = [
        Found(entry, upload_number(entry.parts[0]), entry.parts[1:] or entry.parts)
        for entry in filter(is_notebook, files)
    ]
    if not found or any(one.upload for one in found):
        for archive in filter(is_zip, parcel.files):
            data = budget.read(archive, MAX_STUDENT_ZIP)
            packed = list(unzip(data, archive.name))
            files += packed
            upload, inside = upload_number(archive.parts[0]), archive.parts[1:]
            found += [Found(e, upload, (*inside, *e.parts)) for e in filter(is_notebook, packed)]
    for entry in files:
        escapes = ".." in entry.parts or entry.parts[0] == ""
        if escapes or (entry.kind == "other" and not found):
            entry.read(0)  # raises its reason
    return found


def read_one(entry: Entry, budget: Budget, when: Stamp) -> Candidate:
    try:
        cells, notes = read_notebook(budget.read(entry, MAX_NOTEBOOK_BYTES))
    except (EntryError, NotebookError) as error:
        return Candidate(entry.name, error, when=when)
    return Candidate(entry.name, cells, notes, when)


def sent(parcel: Parcel, budget: Budget) -> tuple[Stamp, list[str]]:
    """When a parcel was handed in, as far as it says so, and notes on it."""
    notes = [MARKED_LATE] if parcel.late else []
    stamps = [e for e in parcel.files if e.parts[-1] == TIMESTAMP and len(e.parts) <= 3]
    if parcel.when or not stamps or parcel.senders[0].system:  # a student's own file there
        return parcel.when, notes
    try:
        time, problem = parse_timestamp(budget.read(stamps[0], MAX_TIMESTAMP_BYTES))
    except EntryError:
        time, problem = None, "it cannot be read"
    if time is None:
        notes.append(f"{TIMESTAMP} was not used: {problem}; when this was handed in is not known.")
    elif problem:
        notes.append(f"Of {TIMESTAMP}: {problem}.")
    return (("time", time) if time else None), notes


def last_sent(parcels: list[Parcel]) -> Stamp:
    """The newest date of all that a student sent; None if not all is dated, and in one way."""
    budget, found = Budget(MAX_STUDENT_BYTES), []
    for parcel in parcels:
        when = sent(parcel, budget)[0]
        found += [when] if when else [upload_number(entry.parts[0]) for entry in parcel.files]
    kinds = {stamp and stamp[0] for stamp in found}
    return max(found) if len(kinds) == 1 and None not in kinds else None


def of_this_lab_only(found: list[Candidate], lab: LabSpec) -> tuple[list[Candidate], list[str]]:
    """(those that are not certainly of another lab, what to say of each of the others)."""
    kept, others = [], []
    for one in found:
        name = other_lab(one.cells, lab)
        told = f"{one.file} is a notebook of {name}, not of {lab.name}"
        others, kept = ([*others, told], kept) if name else (others, [*kept, one])
    return kept, others


def pick(found: list[Candidate], lab: LabSpec, several: bool) -> tuple[Candidate, list[str]]:
    """(the candidate to grade, notes): the newest of those that are of this lab.

    several: they come from more than one parcel, of which only a date can tell which one counts.
    """
    if len(found) == 1:
        return found[0], []
    ids = {id(one): own_ids(one.cells, lab) for one in found}
    own = [one for one in found if ids[id(one)]]
    last = latest(own)
    if len(last) < len(own) or not several:
        last = [one for one in last if ids[id(one)] == max(map(ids.get, map(id, last)))]
    if len({repr(one.cells) for one in last}) != 1:
        raise no_choice(found, several)
    best = last[0]
    word = "the newest, " if len(last) < len(own) and best.when else ""
    notes = [f"There were several notebooks; {word}{best.file} was graded."]
    for one in found:
        if isinstance(one.cells, Exception) and newer(one, best):
            notes.append(f"{one.file} is newer, but {one.cells}.")
    return best, notes


def latest(found: list[Candidate]) -> list[Candidate]:
    """The newest ones; all of them, unless all are dated in the same way."""
    kinds = {one.when and one.when[0] for one in found}
    if len(kinds) != 1 or None in kinds:
        return found
    newest = max(one.when[1] for one in found)
    return [one for one in found if one.when[1] == newest]


def newer(one: Candidate, other: Candidate) -> bool:
    alike = one.when and other.when and one.when[0] == other.when[0]
    return bool(alike and one.when[1] > other.when[1])


def no_choice(found: list[Candidate], several: bool) -> Exception:
    if several:
        names = ", ".join(one.file for one in found)
        return Unclear(f"there are several hand-ins ({names}): keep only the one that counts")
    names = ", ".join(base(one.file) for one in found)
    return EntryError(f"there are {len(found)} notebooks ({names}): hand in one")


def base(name: str) -> str:
    return name.rpartition("/")[2]


def own_ids(cells: Notebook | Exception, lab: LabSpec) -> int:
    """How many of the lab's exercise ids a notebook has."""
    ids = set() if isinstance(cells, Exception) else {cell.grade_id for cell in cells}
    return len(ids & (set(lab.exercises) | set(lab.written)))
