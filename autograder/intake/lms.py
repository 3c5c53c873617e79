"""What names of files and folders say about who sent them, in the downloads of course systems.

Canvas      muelleranna_LATE_12345_678901_quantization-1.ipynb   (files, side by side)
Moodle      Anna Müller_123456_assignsubmission_file_/...        (or the file's name appended)
Blackboard  Lab 1_amueller_attempt_2026-10-01-23-59-00_quantization.ipynb
Gradescope  submission_12345/..., described by submission_metadata.yml
otherwise   a folder, a notebook or a zip with a student's id or name
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
MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_[a-z]+(?:_.*)?", re.ASCII)
BLACKBOARD = re.compile(
    r".+_(?P<login>[^_]+)_attempt_(?P<when>\d{4}(?:-\d\d){5})(?:_.+|\.[^.]+)", re.ASCII
)
GRADESCOPE = re.compile(r"submission_(?P<number>\d+)", re.ASCII)
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
    if alone and (match := CANVAS.fullmatch(top)):
        name, number = match["name"], match["number"]
        return Sender(f"{name}_{number}", "Canvas", name, number)
    if match := MOODLE.fullmatch(top):
        name = match["name"]
        name = "" if name == "Participant" else name  # what blind marking calls everyone
        return Sender(f"{match['name']}_{match['number']}", "Moodle", name, match["number"])
    if match := BLACKBOARD.fullmatch(top):
        return Sender(match["login"], "Blackboard", handles=(match["login"],))
    if not alone and (match := GRADESCOPE.fullmatch(top)):
        return Sender(top, "Gradescope", number=match["number"])
    handed_in = alone and top.lower().endswith((".ipynb", ".zip"))
    text = top.rpartition(".")[0] if handed_in else top
    return Sender(text, "", text, handles=(text,))


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


def parcels_of(entries: Iterable[Entry]) -> list[Parcel]:
    """Entries put together by sender; other files on the top level are nobody's."""
    groups: dict[tuple, list[Entry]] = {}
    senders: dict[tuple, Sender] = {}
    metadata = None
    for entry in entries:
        alone = is_alone(entry)
        if entry.parts == (METADATA,):
            metadata = entry
            continue
        sender = sender_of(entry.parts[0], alone)
        ordinary = alone and entry.kind == "file" and not sender.system
        if ordinary and not (is_notebook(entry) or is_zip(entry)):
            continue
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
            people = [one for one in people if isinstance(one, dict)] if people else []
            senders = tuple(person(parcel.senders[0], one) for one in people)
            when = created(about.get(":created_at"))
            parcel = replace(parcel, senders=senders or parcel.senders, when=when)
        result.append(parcel)
    return result


def person(sender: Sender, told: dict) -> Sender:
    name, sid, email = (str(told.get(key) or "").strip() for key in (":name", ":sid", ":email"))
    return replace(sender, name=name, handles=tuple(filter(None, (sid, email))))


def created(value: object) -> Stamp:
    """A time of the metadata, in UTC and without a zone."""
    value = value.get("utc") if isinstance(value, dict) else value
    if isinstance(value, datetime):
        return "time", value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return ("time", datetime(value.year, value.month, value.day)) if type(value) is date else None
