"""Finds people who would stand in the gradebook twice, because another file gives them other ids.

Ids name the rows of the gradebook.  A roster from another system, or none where there was one,
makes a second person of everyone, whose grades nobody can put together again.
"""

import re
from collections.abc import Iterable, Mapping

from autograder.errors import UsageError
from autograder.intake.names import alike, canonical, exact_key, safe_id
from autograder.intake.roster import Person, Roster

MADE_OF_CANVAS = re.compile(r"(.+)_(\d+)(?:-[0-9a-f]{10})?")  # names of files there: name_number
MAX_NAMES = 5  # of people in one sentence
WITH_ROSTER = "give a roster with the gradebook's ids, for example in a column with the heading id"
REMOVE = "nbgrader db student remove {} in the course folder, with --force where it has grades"


def same_ids(
    where: str, people: Roster, known: dict[str, str], before: Mapping[str, Person] | None = None
) -> list[str]:
    """Sentences on people who may stand in the gradebook by another id.

    where: what the roster is called; known: id -> name in the gradebook; before: another roster of
    the same course, by whose numbers and addresses ids are told apart.

    Raises UsageError if the roster gives people of the gradebook other ids. A name alone says so
    only if more people are known by name than by id: else one of them may be a namesake.
    """
    others = renamed(people, known, before)
    named = named_alike(people, known, before)
    named = {one: old for one, old in named.items() if one not in others}
    if len(named) > len(people.keys() & known.keys()):
        others, named = others | named, {}
    if others:
        old = others[min(others)]
        raise UsageError(
            f"{where}. The gradebook knows {len(others)} of them by other ids ({told(others)}), "
            f"and they would stand there twice: {WITH_ROSTER}; or, if these ids are to stay, take "
            f"the others out: {REMOVE.format(old)}, and so on"
        )
    if named:
        return [
            f"In the gradebook somebody of the same name has another id ({told(named)}), whom the "
            "roster lacks. If that is the same person, stop, and give the id of the gradebook"
        ]
    return []


def renamed(
    people: Roster, known: Iterable[str], before: Mapping[str, Person] | None = None
) -> dict[str, str]:
    """id on the roster -> the other id under which the gradebook knows that person.

    before: people as another roster of the course has them.
    """
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
    earlier = [one for one in (before or {}).values() if one.id in old]
    for student, person in people.items():  # also who is there by both ids: it must not go on
        fits = [one.id for one in earlier if same_person(person, one)]
        if len(fits) == 1:
            found.setdefault(student, fits[0])
    return found


def same_person(one: Person, other: Person) -> bool | None:
    """What numbers, logins and addresses say; None: nothing."""
    numbers = {each.numbers.get("Canvas") for each in (one, other)}
    if None not in numbers:
        return len(numbers) == 1
    if one.handles & other.handles:
        return True
    addresses = {canonical(each.email) for each in (one, other)}
    return None if "" in addresses else False


def named_alike(
    people: Mapping[str, Person],
    known: dict[str, str],
    before: Mapping[str, Person] | None = None,
) -> dict[str, str]:
    """id on the roster -> other id of the gradebook's, with the same full name, once in both.

    Not where numbers or addresses say that they are two.
    """
    here, there = {}, {}
    for student, person in people.items():
        here.setdefault(exact_key(person.name), []).append(student)
    for student, name in known.items():
        there.setdefault(exact_key(name), []).append(student)
    found = {}
    for name, (student, *more) in here.items():
        old, *others = there.get(name, [""])
        if not name or not old or more or others or student in known or old in people:
            continue
        earlier = (before or {}).get(old)
        if earlier is None or same_person(people[student], earlier) is not False:
            found[student] = old
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
