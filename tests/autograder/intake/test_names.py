"""Every name becomes a safe id of its own, and spellings of one name are recognized."""

import csv
import io
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autograder.intake.names import (
    STUDENT_ID,
    alike,
    canonical,
    exact_key,
    inert,
    nobodys_id,
    safe_id,
)

NAMES = st.text(max_size=80) | st.text(st.characters(categories=["Cs", "Cc", "Mn", "L"]))


@given(NAMES)
@example("")
@example("..")
@example("x" * 5000)
@example("İ\u0345\ud800")
def test_any_name_gets_an_id_that_is_its_own(name):
    student = safe_id(name)
    assert STUDENT_ID.fullmatch(student) and student not in (".", "..")
    assert safe_id(student) == student
    assert safe_id(name) == student


@given(NAMES, NAMES)
@example("Müller", "Muller")
@example("张伟", "王芳")
@example("a b", "a-b")
def test_different_names_have_different_ids(one, other):
    if one != other and canonical(one) != canonical(other):
        assert safe_id(one) != safe_id(other)


@given(NAMES)
def test_the_id_does_not_depend_on_how_accents_are_stored(name):
    forms = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")}
    assert len({safe_id(form) for form in forms if not STUDENT_ID.fullmatch(form)}) <= 1


def test_ids_are_the_same_for_ever():
    """They name folders and rows of a gradebook: another rule would make other students of them."""
    assert safe_id("amueller") == "amueller"
    assert safe_id("Anna Müller") == safe_id("anna  MÜLLER") == "anna-muller-07ab4c293e"
    assert safe_id("o'hara") == "o-hara-0c57eb3f12"
    assert safe_id("张伟") == "student-a3a0bafd0b"


ALIKE = [
    ("Müller, Anna", "Anna Müller"),
    ("anna_müller", "Anna Müller"),
    ("Anna Mu\u0308ller", "Anna Müller"),
    ("O'Hara, Sean", "sean o'hara"),
    ("O\u2019Hara Sean", "sean o'hara"),
]


@pytest.mark.parametrize("one, other", ALIKE)
def test_spellings_of_one_name(one, other):
    assert exact_key(one) == exact_key(other)


SQUASHED = [
    ("muelleranna", "Anna Müller"),
    ("mulleranna", "Anna Müller"),
    ("mlleranna", "Anna Müller"),  # a system that drops what is not ASCII
    ("Anna Mueller", "Müller, Anna"),
    ("oharasean", "Sean O'Hara"),
    ("ohara sean", "Sean O'Hara"),
    ("vandenbergjan", "Jan van den Berg"),
    ("Grossmann Jo", "Jo Großmann"),
]


@pytest.mark.parametrize("one, other", SQUASHED)
def test_names_as_systems_run_them_together(one, other):
    assert alike(one, other) and alike(other, one)


def test_other_people_are_not_alike():
    assert not alike("Anna Müller", "Hanna Müller")
    assert not alike("Anna Müller", "Anna Maria Müller")
    assert not alike("张伟", "王芳")
    assert not alike("Anna Müller", "Anna Möller"), "both are mlleranna where ASCII is all"
    assert not alike("राम", "रोम") and not alike("กิ ดี", "กุ ดี"), "vowels are marks there"


def test_marks_belong_to_the_letters_before_them():
    assert exact_key("राम") != exact_key("रोम")
    assert exact_key("राम कुमार") == exact_key("कुमार, राम")


def test_no_name_has_the_id_of_a_row_that_is_nobody_s():
    """At Gradescope people write their SID themselves: two rows with one id would be one."""
    for name in (nobodys_id("bob.pdf"), nobodys_id("bob.pdf").upper()):
        assert safe_id(name) != name and STUDENT_ID.fullmatch(safe_id(name))
        assert safe_id(safe_id(name)) == safe_id(name)


# ---- cells of CSV files --------------------------------------------------------------------------

FORMULAS = ["=1+1", "-1+x", "@SUM(1)", "＝1", " =1", "\ufeff=1", '"=1"', "\t=1", "\n=1", "x\n=1",
            "x\r+1", "x;=cmd|'/c calc'!A0", "x; @SUM(1)", 'x;"=1+1"', "x\t=1", "x,=1",
            "x;;=1"]  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_is_a_formula_for_a_program_that_parts_cells_elsewhere(name):
    """A spreadsheet parts them at ; where commas are in numbers, and quotes then mean nothing."""
    file = io.StringIO()
    csv.writer(file).writerow(["s01", inert(name), "90"])
    lines = file.getvalue().replace("\r", "\n").split("\n")
    cells = next(csv.reader(io.StringIO(file.getvalue(), newline="")))
    for parting in ",;\t|":
        cells += [cell for line in lines for cell in line.split(parting)]
    assert [c for c in cells if c.strip(' "\ufeff').startswith(tuple("=+-@＝"))] == []
    assert inert(inert(name)) == inert(name)


@pytest.mark.parametrize("name", ["Müller, Anna", "a@b.c", "O'Hara; Sean", "x = 1, y = 2", ""])
def test_ordinary_cells_stay_as_they_are(name):
    assert inert(name) == name
