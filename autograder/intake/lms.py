"""What names of files and folders say about who sent them, in the downloads of course systems.

Canvas      muelleranna_LATE_12345_678901_quantization-1.ipynb   (files, side by side)
Moodle      Anna Müller_123456_assignsubmission_file_/...        (or the file's name appended)
Blackboard  Lab 1_amueller_attempt_2026-10-01-23-59-00_quantization.ipynb
Gradescope  submission_12345/..., described by submission_metadata.yml
otherwise   a folder, a notebook or a zip with a student's id or name

What the system writes comes first in a name, and a student's own file name last: so a mark of a
system (_assignsubmission_, _attempt_ with a time) is looked for where it stands first, and what
comes behind it says nothing about whose the file is.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

import yaml

from autograder.intake.archive import Entry, EntryError, is_notebook, is_zip

CANVAS = re.compile(
    r"(?P<name>[^_/]+)(?P<late>_LATE)?_(?P<number>\d+)_(?P<upload>\d+)_(?P<file>.+)", re.ASCII
)
MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_[a-z]+(?:_.*)?", re.ASCII)
# the title of the assignment and a login, either of which may have a _ in it
BLACKBOARD = re.compile(
    r"(?P<title>.+?)_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_.+|\.[^.]+)", re.ASCII
)
GRADESCOPE = re.compile(r"submission_(?P<number>\d+)", re.ASCII)
HANDED_IN = (".ipynb", ".zip")  # how names of hand-ins end
METADATA = "submission_metadata.yml"  # Gradescope's
MAX_METADATA = 50_000_000
# ("time", UTC), ("attempt", time in an unknown zone) or ("upload", Canvas's running number)
Stamp = tuple[str, datetime | int] | None


@dataclass(frozen=True)
class Sender:
    """Whom a name says that a file is from; what it does not say is empty."""

    label: str  # the name itself, or its part that stands for the person
    system: str = ""  # "Canvas" | "Moodle" | "Blackboard" | "Gradescope"
    name: str = ""  # of the person
    number: str = ""  # by which the system knows the person (Gradescope: the submission)
    handles: tuple[str, ...] = ()  # ids, logins, e-mail addresses
    doubt: str = ""  # why nobody can tell whose it is
    second: str = ""  # another number that the system may mean


@dataclass(frozen=True)
class Parcel:
    """Files that came under one name."""

    senders: tuple[Sender, ...]  # several for a group's common submission
    files: tuple[Entry, ...]
    when: Stamp = None
    late: bool = False  # as the system says

    @property
    def labels(self) -> tuple[str, ...]:
        """Its names where it was found."""
        return tuple(dict.fromkeys(entry.parts[0] for entry in self.files))


def sender_of(top: str, alone: bool) -> Sender:
    """From the name of something on the top level; alone: a file, not a folder of files."""
    canvas = CANVAS.fullmatch(top) if alone else None
    moodle, blackboard = MOODLE.fullmatch(top), BLACKBOARD.fullmatch(top)
    if canvas and blackboard and canvas.start("file") == blackboard.end("title") + 1:
        canvas = None  # "Lab_1_2034567_attempt_...": an assignment Lab_1, and a number as the login
    if canvas and (moodle or blackboard):
        return Sender(top, "Canvas", doubt="may be a name of two course systems")
    if canvas:
        name, number = canvas["name"], canvas["number"]
        # "Anna_5" as a name gives anna_5_77_888_x: of number 77, or of anna's, called 888_x
        second = canvas["upload"] if re.match(r"\d+_.", canvas["file"], re.ASCII) else ""
        return Sender(f"{name}_{number}", "Canvas", name, number, second=second)
    if moodle and (not blackboard or moodle.end("number") < blackboard.end("title")):
        name = moodle["name"]
        name = "" if name == "Participant" else name  # what blind marking calls everyone
        return Sender(f"{moodle['name']}_{moodle['number']}", "Moodle", name, moodle["number"])
    if blackboard:
        return of_blackboard(blackboard["title"])
    if not alone and (match := GRADESCOPE.fullmatch(top)):
        return Sender(top, "Gradescope", number=match["number"])
    handed_in = alone and top.lower().endswith(HANDED_IN)
    text = top.rpartition(".")[0] if handed_in else top
    return Sender(text, "", text, handles=(text,))


def of_blackboard(title: str) -> Sender:
    """ "Lab 1_anna_m": the title and a login; where one ends and the other begins, nobody says.

    So all of m, anna_m and Lab 1_anna_m are handles: a roster tells which of them is a login.
    """
    parts = title.split("_")
    logins = tuple("_".join(parts[i:]) for i in range(len(parts) - 1, -1, -1))
    return Sender(title, "Blackboard", handles=logins)


def upload_number(top: str) -> Stamp:
    """Canvas numbers all uploads; of two files of one student, the higher number is newer."""
    match = CANVAS.fullmatch(top)
    return ("upload", int(match["upload"])) if match else None


def attempt_time(top: str) -> Stamp:
    match = BLACKBOARD.fullmatch(top)
    try:
        # in the server's own zone, which nobody tells: good for order only
        return ("attempt", datetime.strptime(match["when"], "%Y-%m-%d-%H-%M-%S")) if match else None
    except ValueError:
        return None


def is_alone(entry: Entry) -> bool:
    return len(entry.parts) == 1 and entry.kind != "folder"


def is_nobodys(entry: Entry) -> bool:
    """A file on the top level that is neither a hand-in nor named by a course system."""
    ordinary = is_alone(entry) and entry.kind == "file" and entry.parts != (METADATA,)
    handed_in = is_notebook(entry) or is_zip(entry)
    return ordinary and not handed_in and not sender_of(entry.parts[0], True).system


def parcels_of(entries: Iterable[Entry]) -> list[Parcel]:
    """Entries put together by sender; other files on the top level are nobody's."""
    groups: dict[tuple, list[Entry]] = {}
    senders: dict[tuple, Sender] = {}
    metadata = None
    for entry in entries:
        if entry.parts == (METADATA,):
            metadata = entry
            continue
        if is_nobodys(entry):
            continue
        sender = sender_of(entry.parts[0], is_alone(entry))
        attempt = attempt_time(entry.parts[0])  # two attempts are two parcels
        key = (sender.system, sender.label, attempt)
        senders.setdefault(key, sender)
        groups.setdefault(key, []).append(entry)
    parcels = [
        Parcel((senders[key],), tuple(files), key[2], any(map(marked_late, files)))
        for key, files in groups.items()
    ]
    return described(parcels, read_metadata(metadata)) if metadata else parcels


def marked_late(entry: Entry) -> bool:
    match = CANVAS.fullmatch(entry.parts[0]) if is_alone(entry) else None
    return bool(match and match["late"])


def looks_exported(entries: Iterable[Entry]) -> bool:
    """Do the names on the top level come from a course system?"""
    return any(
        entry.parts == (METADATA,) or sender_of(entry.parts[0], is_alone(entry)).system
        for entry in entries
    )


# ---- Gradescope ---------------------------------------------------------------------------------


class Plain(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML with Ruby's objects read as the plain data in them."""


Plain.add_multi_constructor("!ruby/", lambda loader, _, node: ruby(loader, node))


def ruby(loader: yaml.Loader, node: yaml.Node) -> object:
    mapping = isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True) if mapping else None


def read_metadata(entry: Entry) -> dict:
    """submission_metadata.yml as a dict; {} if it cannot be read: the folders are then unclear."""
    try:
        found = yaml.load(entry.read(MAX_METADATA), Loader=Plain)
    except (EntryError, yaml.YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def described(parcels: list[Parcel], metadata: dict) -> list[Parcel]:
    """Gradescope's parcels with what the metadata says about them."""
    result = []
    for parcel in parcels:
        about = metadata.get(parcel.labels[0])
        if isinstance(about, dict) and parcel.senders[0].system == "Gradescope":
            people = about.get(":submitters")
            people = people if isinstance(people, list) else []
            people = [one for one in people if isinstance(one, dict)]
            senders = tuple(person(parcel.senders[0], one) for one in people)
            when = created(about.get(":created_at"))
            parcel = replace(parcel, senders=senders or parcel.senders, when=when)
        result.append(parcel)
    return result


def person(sender: Sender, told: dict) -> Sender:
    """Students write their SID themselves: an address there is not the one of their account."""
    name, sid, email = (str(told.get(key) or "").strip() for key in (":name", ":sid", ":email"))
    sid = "" if "@" in sid and email else sid
    return replace(sender, name=name, handles=tuple(filter(None, (sid, email))))


def created(value: object) -> Stamp:
    """A time of the metadata, in UTC and without a zone."""
    value = value.get("utc") if isinstance(value, dict) else value
    if isinstance(value, datetime):
        return "time", value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return ("time", datetime(value.year, value.month, value.day)) if type(value) is date else None
