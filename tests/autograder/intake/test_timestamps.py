"""timestamp.txt in nbgrader's one format; anything else is no timestamp, and never an error."""

from datetime import datetime

import pytest
from handed_in import GOOD, rows
from hypothesis import given
from hypothesis import strategies as st
from nbgrader.utils import parse_utc
from toylab import NAME, write

from autograder.intake.discover import Submission
from autograder.intake.timestamps import duration, parse_timestamp
from autograder.nbgrader.gradebook import read_timestamp

WRITTEN = [  # as nbgrader's exchange and zip_collect write them
    "2026-10-01 23:59:00.123456 UTC",
    "2026-10-01 23:59:00 UTC",
    "2026-10-01 23:59:00.5 CET",
    "2026-10-01 23:59:00",
    "2026-10-01 23:59:00.120000",
    "2026-10-01 23:59:00+02:00",
    "2026-10-01 23:59:00 Europe/Berlin",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_what_nbgrader_writes_means_what_it_means_to_nbgrader(text):
    assert parse_timestamp(text + "\n") == (parse_utc(text), "")


ABSURD = [
    "9" * 5000,
    "1e999999999",
    "2026-10-01 23:59:00 " + "9" * 100,
    "2026-13-41 25:61:61 UTC",
    "0001-01-01 00:00:00+14:00",
    "9999-12-31 23:59:59-14:00",
    "2026-10-01 23:59:00+99:99",
    "2026-10-01 23:59:00 ../../etc/passwd",
    "2026-10-01 23:59:00 /etc/localtime",
    "tomorrow",
    "",
    "2026-10-01T23:59:00Z",
    "２０２６-10-01 23:59:00",
    "\0",
]


@pytest.mark.parametrize("text", ABSURD, ids=range(len(ABSURD)))
def test_anything_else_is_no_timestamp_and_a_note(tmp_path, text):
    path = write(tmp_path / "alice" / NAME / "timestamp.txt", text.encode())
    write(tmp_path / "alice" / NAME / "toy.ipynb", GOOD)
    assert read_timestamp(path) is None
    row = rows(tmp_path)["alice"]
    assert isinstance(row, Submission)
    assert len(row.notes) == 1 and row.notes[0].startswith("timestamp.txt was not used: ")


def test_a_sound_one_needs_no_note(tmp_path):
    path = write(tmp_path / "alice" / NAME / "timestamp.txt", b"2026-10-01 23:59:00 UTC\n")
    write(tmp_path / "alice" / NAME / "toy.ipynb", GOOD)
    assert read_timestamp(path) == datetime(2026, 10, 1, 23, 59)
    assert rows(tmp_path)["alice"].notes == ()


def test_an_unknown_zone_is_told():
    assert parse_timestamp("2026-10-01 23:59:00 XYZT") == (
        datetime(2026, 10, 1, 23, 59),
        "its time zone XYZT is not known, so it was read as UTC",
    )


def test_a_link_or_a_large_file_is_no_timestamp(tmp_path):
    real = write(tmp_path / "real.txt", b"2026-10-01 23:59:00 UTC")
    (tmp_path / "link.txt").symlink_to(real)
    large = write(tmp_path / "large.txt", b"2026-10-01 23:59:00 UTC" + b" " * 10_000_000)
    assert read_timestamp(real)
    for path in (tmp_path / "link.txt", large, tmp_path, tmp_path / "none.txt"):
        assert read_timestamp(path) is None


@given(st.binary(max_size=60) | st.text("0123456789-:. +eUTC", max_size=45).map(str.encode))
def test_no_bytes_raise(data):
    time, problem = parse_timestamp(data)
    assert time is None or time.tzinfo is None
    assert time is not None or problem


@pytest.mark.parametrize(
    "seconds, told",
    [(1, "1 min"), (3600, "1 h"), (3660, "1 h 1 min"), (90_000, "1 d 1 h"), (172_801, "2 d")],
)
def test_durations(seconds, told):
    assert duration(seconds) == told
