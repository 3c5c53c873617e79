"""Due dates, extensions and penalties of a course: course.toml in its folder.

    [lab01_quantization]
    due = 2026-10-01T21:59:00Z
    zone = "Europe/Berlin"
    points_per_day = 10.0
    [lab01_quantization.extensions]
    "s01" = 2026-10-08T21:59:00Z

`autograder course` writes it, an editor may as well.  Late work loses points_per_day for every day
that has begun after the due date, at most all its points.  Students with an extension have that
date in place of the other.  Times are shown in the zone in which the due date was given.
"""

import json
import math
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from autograder.errors import UsageError, files_told
from autograder.intake.timestamps import parse_timestamp, zone_named

FILE = "course.toml"
DAY = 86_400
SHORT = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)(:\d\d)?(?: ?(Z|\S+))?", re.ASCII)
TIME_FORM = "a time looks like '2026-10-01 23:59 Europe/Berlin' or '2026-10-01 23:59 +02:00'"
HEAD = """\
# Due dates, extensions and penalties, in UTC; written by `autograder course`.
# They hold from the next `autograder grade` on, which grades nothing anew for that.
"""


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for one lab; times in UTC, without a zone, as the gradebook has them."""

    due: datetime | None = None
    points_per_day: float = 0.0
    extensions: dict[str, datetime] = {}
    zone: str = ""  # in which times are shown; UTC, if none is named

    def penalty(self, seconds_late: float, points: float) -> float:
        """Points to take off work of so many points."""
        return min(points, self.points_per_day * math.ceil(max(0.0, seconds_late) / DAY))


def read_terms(course_root: Path) -> dict[str, Terms]:
    """Lab -> terms. Raises UsageError, which names the file and what is wrong in it."""
    path = Path(course_root) / FILE
    try:
        with files_told(path):
            data = path.read_bytes() if path.exists() else b""
        found = msgspec.convert(tomllib.loads(data.decode()), type=dict[str, Terms])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path}: {error}") from None
    return {lab: checked(path, lab, terms) for lab, terms in found.items()}


def checked(path: Path, lab: str, terms: Terms) -> Terms:
    """The same in UTC. Raises UsageError for times without a zone, and for terms without sense."""
    dates = [terms.due, *terms.extensions.values()]
    if any(date is not None and date.tzinfo is None for date in dates):
        raise UsageError(f"{path}: a time of {lab} has no zone (2026-10-01T21:59:00Z has)")
    if terms.extensions and terms.due is None:
        raise UsageError(f"{path}: {lab} has extensions, and no due date")
    if not (math.isfinite(terms.points_per_day) and terms.points_per_day >= 0):
        raise UsageError(f"{path}: points_per_day of {lab} is {terms.points_per_day}")
    if terms.zone and zone_named(terms.zone) is None:
        raise UsageError(f"{path}: the time zone {terms.zone!r} of {lab} is not known")
    later = {student: utc(date) for student, date in terms.extensions.items()}
    return Terms(terms.due and utc(terms.due), terms.points_per_day, later, terms.zone)


def utc(date: datetime) -> datetime:
    return date.astimezone(UTC).replace(tzinfo=None)


def write_terms(course_root: Path, terms: dict[str, Terms]) -> Path:
    """Writes the file anew; comments of an editor's are not kept."""
    lines = [HEAD]
    for lab, own in sorted(terms.items()):
        if own == Terms():
            continue
        lines.append(f"[{json.dumps(lab)}]")
        lines += [f"due = {own.due.isoformat()}Z"] if own.due else []
        lines += [f"zone = {json.dumps(own.zone)}"] if own.zone else []
        lines += [f"points_per_day = {float(own.points_per_day)}"] if own.points_per_day else []
        if own.extensions:
            lines.append(f"[{json.dumps(lab)}.extensions]")
        for student, date in sorted(own.extensions.items()):
            lines.append(f"{json.dumps(student)} = {date.isoformat()}Z")
        lines.append("")
    path = Path(course_root) / FILE
    partial = path.with_name(f".{FILE}.new")
    with files_told(path):
        partial.write_text("\n".join(lines), encoding="utf-8")
        partial.replace(path)
    return path


def parse_when(text: str) -> datetime:
    """ "2026-10-01 23:59 Europe/Berlin" in UTC, without a zone. Raises UsageError."""
    match = SHORT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no time: {TIME_FORM}")
    day, time, seconds, zone = match.groups()
    if zone is None:
        raise UsageError(f"{text!r} has no time zone: {TIME_FORM}")
    zone = "UTC" if zone == "Z" else zone
    when, problem = parse_timestamp(f"{day} {time}{seconds or ':00'} {zone}")
    if when is None or problem:
        raise UsageError(f"{text!r}: {problem or 'there is no such time'} ({TIME_FORM})")
    return when


def zone_in(text: str) -> str:
    """The name of the zone in a time that `parse_when` takes; "" for an offset, and for UTC."""
    zone = SHORT.fullmatch(text.strip())[4]
    return "" if zone[0] in "+-" or zone in ("Z", "UTC", "GMT") else zone


def shown_time(when: datetime, zone: str = "") -> str:
    """when: in UTC, without a zone; zone: a name of the IANA data."""
    known = zone_named(zone) if zone else None
    if known is None:
        return f"{when:%Y-%m-%d %H:%M} UTC"
    return f"{when.replace(tzinfo=UTC).astimezone(known):%Y-%m-%d %H:%M} {zone}"
