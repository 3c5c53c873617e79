"""course.toml: dates in UTC whatever zone they were given in, and penalties by the day."""

import math
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder import cli
from autograder.errors import UsageError
from autograder.intake.terms import DAY, Terms, parse_when, read_terms, write_terms

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,10}", fullmatch=True)
TIMES = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)).map(
    lambda time: time.replace(microsecond=0)
)
POINTS = st.floats(0, 1000, allow_nan=False)


@given(
    due=TIMES, points=POINTS, extensions=st.dictionaries(IDS, TIMES, max_size=4), lab=st.text("ab.")
)
def test_what_is_written_is_read_again(tmp_path_factory, due, points, extensions, lab):
    folder = tmp_path_factory.mktemp("course")
    terms = {lab: Terms(due, points, extensions), "other": Terms(points_per_day=1.0)}
    write_terms(folder, terms)
    assert read_terms(folder) == terms


def test_no_file_is_no_terms(tmp_path):
    assert read_terms(tmp_path) == {}


@pytest.mark.parametrize(
    "text, utc",
    [
        ("2026-10-01 23:59 Europe/Berlin", "2026-10-01 21:59"),
        ("2026-12-01 23:59 Europe/Berlin", "2026-12-01 22:59"),
        ("2026-10-01 23:59:30 UTC", "2026-10-01 23:59:30"),
        ("2026-10-01T23:59Z", "2026-10-01 23:59"),
        ("2026-10-01 23:59 -05:00", "2026-10-02 04:59"),
    ],
)
def test_times_with_a_zone(text, utc):
    assert parse_when(text) == datetime.fromisoformat(utc)


@pytest.mark.parametrize(
    "text, why",
    [
        ("2026-10-01 23:59", "has no time zone"),
        ("2026-10-01", "is no time"),
        ("tomorrow", "is no time"),
        ("2026-13-01 23:59 UTC", "there is no such time"),
        ("2026-10-01 23:59 Berlin", "its time zone Berlin is not known"),
    ],
)
def test_what_is_no_time(text, why):
    with pytest.raises(UsageError, match=why):
        parse_when(text)


@given(st.floats(0, 1e7), POINTS, POINTS)
def test_penalties(seconds, per_day, points):
    taken = Terms(points_per_day=per_day).penalty(seconds, points)
    assert taken == min(points, per_day * math.ceil(seconds / DAY)) and 0 <= taken <= points


def test_a_second_is_a_day_that_has_begun():
    terms = Terms(points_per_day=10)
    assert [terms.penalty(s, 90) for s in (0, 1, DAY, DAY + 1, 99 * DAY)] == [0, 10, 10, 20, 90]


WRONG = {
    "no TOML": ("[lab", "course.toml: "),
    "bytes": (b"\xff", "course.toml: "),
    "an unknown key": ("[lab]\ndeu = 2026-10-01T00:00:00Z", "unknown field `deu`"),
    "no zone": ("[lab]\ndue = 2026-10-01T00:00:00", "a time of lab has no zone"),
    "a text": ('[lab]\ndue = "soon"', "course.toml: "),
    "no such zone": ('[lab]\nzone = "Berlin"', "the time zone 'Berlin' of lab is not known"),
    "less than nothing": ("[lab]\npoints_per_day = -1", "points_per_day of lab is -1"),
    "not a number": ("[lab]\npoints_per_day = nan", "points_per_day of lab is nan"),
    "no due date": ("[lab.extensions]\na = 2026-10-01T00:00:00Z", "extensions, and no due date"),
}


@pytest.mark.parametrize("content, why", WRONG.values(), ids=WRONG)
def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path, capsys, content, why):
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "course.toml").write_bytes(data)
    assert cli.run(["course", "show", "--course", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1


# ---- the commands -------------------------------------------------------------------------------


@pytest.fixture
def course(tmp_path):
    (tmp_path / "autograder/suites/lab").mkdir(parents=True)
    (tmp_path / "autograder/suites/lab/manifest.toml").write_text('notebook = "x"\n')
    return tmp_path


def run(course, *arguments):
    return cli.run(["course", *arguments, "--course", str(course)])


def test_dates_by_command(course, capsys):
    assert run(course, "due", "lab", "2026-10-01 23:59 Europe/Berlin") == 0
    assert run(course, "extend", "lab", "s01@uni.edu", "2026-10-08 23:59 Europe/Berlin") == 0
    assert run(course, "late", "lab", "10") == 0
    assert run(course, "show") == 0
    (course / "autograder/suites/other").mkdir()
    (course / "autograder/suites/other/manifest.toml").write_text('notebook = "x"\n')
    assert run(course, "show") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "nothing is set for other"
    assert out[-3:-1] == [
        "lab: due 2026-10-01 23:59 Europe/Berlin; late work loses 10 points for every day that has "
        "begun, at most all its points",
        "  s01@uni.edu has until 2026-10-08 23:59 Europe/Berlin",
    ]
    assert run(course, "extend", "lab", "s01@uni.edu", "none") == 0
    assert run(course, "late", "lab", "0") == 0
    assert read_terms(course)["lab"] == Terms(
        due=datetime(2026, 10, 1, 21, 59), zone="Europe/Berlin"
    )
    assert run(course, "due", "lab", "2026-10-01 23:59 +02:00") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "lab: due 2026-10-01 21:59 UTC"
    assert run(course, "due", "lab", "none") == 0 and read_terms(course) == {}


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["due", "lab9", "2026-10-01 23:59 UTC"], "there is no lab 'lab9' (found: lab)"),
        (["due", "lab", "2026-10-20 23:59 UTC"], "the extensions of s02 would end before"),
        (["extend", "lab", "s01", "2026-09-01 23:59 UTC"], "an extension has to be later"),
        (["extend", "lab", "../x", "2026-11-01 23:59 UTC"], "'../x' is not a student id"),
        (["extend", "lab", "s01", "none"], "s01 has no extension"),
        (["late", "lab", "inf"], "inf points a day"),
        (["late", "lab", "many"], "'many' is no number: say how many points are taken off"),
    ],
)
def test_wrong_use_is_one_line_and_changes_nothing(course, capsys, arguments, why):
    due, until = datetime(2026, 10, 1), datetime(2026, 10, 8)
    write_terms(course, {"lab": Terms(due, 5.0, {"s02": until})})
    before = (course / "course.toml").read_bytes()
    assert run(course, *arguments) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1
    assert (course / "course.toml").read_bytes() == before


def test_an_extension_is_for_somebody_on_the_roster(course, capsys):
    assert run(course, "due", "lab", "2026-10-01 23:59 UTC") == 0
    assert run(course, "extend", "lab", "s99", "2026-10-08 23:59 UTC") == 0, "there is no roster"
    (course / "roster.csv").write_text("id\ns01\n")
    assert run(course, "extend", "lab", "s01", "2026-10-08 23:59 UTC") == 0
    assert run(course, "extend", "lab", "s98", "2026-10-08 23:59 UTC") == 2
    assert "s98 is not on the roster" in capsys.readouterr().err
    assert run(course, "extend", "lab", "s99", "none") == 0, "what is there can be taken back"
    assert set(read_terms(course)["lab"].extensions) == {"s01"}


def test_an_extension_needs_a_due_date(course, capsys):
    assert run(course, "extend", "lab", "s01", "2026-10-08 23:59 UTC") == 2
    assert "has no due date: set one first" in capsys.readouterr().err
