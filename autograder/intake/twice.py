"""Finds people who would stand in the gradebook twice, because another file gives them other ids.

Ids name the rows of the gradebook.  A roster from another system, or none where there was one,
makes a second person of everyone, whose grades nobody can put together again.
"""

import re
from collections.abc import Iterable

from autograder.intake.names import alike, canonical, safe_id
from autograder.intake.roster import Person, Roster

MADE_OF_CANVAS = re.compile(r"(.+)_(\d+)(?:-[0-9a-f]{10})?")  # names of files there: name_number
MAX_NAMES = 5  # of people in one sentence


def renamed(people: Roster, known: Iterable[str]) -> dict[str, str]:
    """id on the roster -> the other id under which the gradebook knows that person."""
    listed = {student.casefold() for student in people}
    old = [student for student in known if student.casefold() not in listed]
    there = {student.casefold() for student in known}
    by_key = {canonical(student): student for student in old}
    by_number = {match[2]: one for one in old if (match := MADE_OF_CANVAS.fullmatch(one))}
    found = {}
    for student, person in people.items():
        if student.casefold() in there:
            continue
        fits = [by_key[key] for key in keys(person) if key in by_key]
        fits += [by_number[n] for n in [person.numbers.get("Canvas")] if n in by_number]
        if fits:
            found[student] = fits[0]
    return found


def keys(person: Person) -> set[str]:
    """By what a person may be called in the gradebook, as `canonical`."""
    last, comma, first = person.name.partition(",")
    names = [person.name, f"{first.strip()} {last.strip()}"] if comma else [person.name]
    return person.handles | {canonical(safe_id(name)) for name in names if name}


def namesakes(handed_in: dict[str, str], known: dict[str, str]) -> dict[str, str]:
    """id of a hand-in -> other id of the gradebook's, with the same name.

    handed_in, known: id -> name of the person, which may be "".
    """
    others = {one: name for one, name in known.items() if name and one not in handed_in}
    found = {}
    for student, name in handed_in.items():
        if student in known:
            continue
        match = MADE_OF_CANVAS.fullmatch(student)
        own = name or (match[1] if match else student)
        fits = [one for one, name_of_one in others.items() if alike(own, name_of_one)]
        if fits:
            found[student] = fits[0]
    return found


def told(pairs: dict[str, str]) -> str:
    """ "jdoe is S1001 there, ..." """
    some = [f"{new} is {old} there" for new, old in sorted(pairs.items())[:MAX_NAMES]]
    return ", ".join(some + ["..."] * (len(pairs) > MAX_NAMES))
