"""When something was handed in, by the timestamp.txt that nbgrader writes.

One format, read strictly: `2026-10-01 23:59:00[.123456] [zone]`, as `nbgrader submit` and
`nbgrader zip_collect` write it.  A general date parser guesses, and can be made to fail in ways
that nobody expects by a file that comes from a student.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

MAX_TIMESTAMP_BYTES = 200
WRITTEN = re.compile(
    r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?"
    r"(?: ([A-Za-z][A-Za-z0-9_+/-]{0,40})| ?([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)


def parse_timestamp(text: str | bytes) -> tuple[datetime | None, str]:
    """(time in UTC without a zone, as the gradebook keeps it; what is wrong with it or "")."""
    if isinstance(text, bytes):
        text = text[: MAX_TIMESTAMP_BYTES + 1].decode("utf-8", "replace")
    match = WRITTEN.fullmatch(text.strip()) if len(text) <= MAX_TIMESTAMP_BYTES else None
    if match is None:
        return None, "it is not a time as nbgrader writes it"
    day, time, fraction, name, sign, hours, minutes = match.groups()
    try:
        local = datetime.fromisoformat(f"{day} {time}.{(fraction or '0').ljust(6, '0')}")
        zone = zone_named(name) if name else offset(sign, hours, minutes)
        utc = local.replace(tzinfo=zone or UTC).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # month 13, an offset of 99 hours, year 1 east of Greenwich
        return None, "there is no such time"
    return utc, "" if zone else f"its time zone {name} is not known, so it was read as UTC"


def zone_named(name: str) -> tzinfo | None:
    """A zone of the IANA data ("UTC", "CET", "Europe/Berlin"), which has few abbreviations."""
    if name in ("UTC", "GMT"):  # also where the system has no data of zones
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, outside the data, a folder of it
        return None


def offset(sign: str | None, hours: str | None, minutes: str | None) -> tzinfo:
    """From "+", "02", "00"; without them UTC, which is what nbgrader takes it for."""
    if sign is None:
        return UTC
    delta = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-delta if sign == "-" else delta)


def duration(seconds: float) -> str:
    """ "3 d 4 h", "4 h 10 min", "12 min": the two largest units."""
    minutes = max(1, round(seconds / 60))
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    first = next(index for index, (value, _) in enumerate(parts) if value)
    return " ".join(f"{value} {unit}" for value, unit in parts[first : first + 2] if value)
