"""Whose a parcel is: by a map, by the roster, or by the name alone.

Never guessed: where several students fit, or none, the answer is a sentence that says what to do.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autograder.intake.archive import shown
from autograder.intake.lms import HANDED_IN, Parcel, Sender
from autograder.intake.names import alike, canonical, exact_key, safe_id, words
from autograder.intake.roster import Person, Roster, map_key

HOW = "name it and the student's id in a CSV with the columns folder,id and give that as --map"


@dataclass(frozen=True)
class Owner:
    id: str
    name: str = ""
    known: tuple[str, str] = ("", "")  # system, and what it knows the person by; none if mapped


def owners_of(parcel: Parcel, roster: Roster | None, mapping: dict[str, str]) -> list[Owner | str]:
    """One owner for each sender, or a sentence that says why nobody knows."""
    for label in parcel.labels:
        if "/" in label or label in ("", "..") or ":" in label:
            return [f'"{shown(label)}" is no name of a student\'s folder or file: {HOW}']
    mapped = mapped_id(parcel, mapping)
    if mapped:
        known = (roster or {}).get(mapped)
        return [Owner(mapped, known.name if known else name_of(parcel))]
    name = shown(parcel.labels[0])
    doubts = [sender.doubt for sender in parcel.senders if sender.doubt]
    if doubts:
        return [f'"{name}" {doubts[0]}: {HOW}']
    found = []
    for sender in parcel.senders:
        one = without_roster(sender, name) if roster is None else on_roster(sender, name, roster)
        found.append(one if isinstance(one, str) else replace(one, known=known_by(sender)))
    return found


def known_by(sender: Sender) -> tuple[str, str]:
    """What is the same in all that one person hands in, and another one's in what others do."""
    if sender.system == "Gradescope":  # which lets people write their SID themselves
        address = next((h for h in sender.handles if "@" in h), "")
        return sender.system, address.casefold() or sender.name
    numbered = sender.system in ("Canvas", "Moodle")
    return sender.system, sender.label if numbered or sender.system == "Blackboard" else ""


def not_one(owners: Iterable[Owner]) -> str:
    """Why owners with one id may be several people; "" if nothing says so."""
    found = {one.known for one in owners if one.known[1]}
    addressed = {(system, name) for system, name in found if system == "Gradescope" and "@" in name}
    found = addressed or found  # a name says nothing beside an address
    if len({name for _, name in found}) < 2:
        return ""
    names = " and ".join(sorted(shown(name) for _, name in found))
    return f"may be each of {names}: give a --roster that tells them apart, or {HOW}"


def other_people(parts: list[tuple[Owner, Parcel]]) -> str:
    """Why hand-ins of one student may not be the student's; "" if nothing says so.

    At Gradescope, who hands in for a group names its members, who are not asked.
    """
    groups = {parcel.labels[0]: set(map(known_by, parcel.senders)) for _, parcel in parts}
    if len(set(map(frozenset, groups.values()))) < 2 or max(map(len, groups.values())) < 2:
        return ""
    told = [f"{label} ({', '.join(sorted(name for _, name in groups[label]))})" for label in groups]
    return f"was handed in with different people ({shown_all(told)}): keep only the one that counts"


def shown_all(texts: list[str]) -> str:
    return "; ".join(shown(text) for text in texts)


def mapped_id(parcel: Parcel, mapping: dict[str, str]) -> str | None:
    names = [sender.label for sender in parcel.senders]
    for label in parcel.labels:
        names += [label, label.rpartition(".")[0] if label.lower().endswith(HANDED_IN) else label]
    return next((mapping[map_key(name)] for name in names if map_key(name) in mapping), None)


def name_of(parcel: Parcel) -> str:
    return parcel.senders[0].name


def without_roster(sender: Sender, label: str) -> Owner | str:
    """The id that the name itself gives, the same one for every lab."""
    if sender.system == "Canvas":  # the number is the same for the whole of a student's time there
        return Owner(safe_id(f"{sender.name}_{sender.number}"))
    if sender.system == "Gradescope" and not (sender.handles or sender.name):
        return f'"{label}" is a number of Gradescope\'s: keep submission_metadata.yml beside it'
    if sender.handles:  # an address or a login, or the name of a folder
        student = safe_id(sender.handles[0])
        return Owner(student, "" if student == sender.name else sender.name)
    # Moodle's number is another one in every assignment, so that only the name can be an id
    return Owner(safe_id(sender.name or f"participant-{sender.number}"), sender.name)


def on_roster(sender: Sender, label: str, roster: Roster) -> Owner | str:
    """The one student on the roster whom the name fits."""
    people = list(roster.values())
    fitting = logins(sender, people) if sender.system == "Blackboard" else matches(sender, people)
    who = f'"{label}"'
    if sender.system == "Gradescope" and sender.name:
        who += f" ({shown(sender.name)})"
    if sender.second and any(one.numbers.get(sender.system) == sender.second for one in people):
        return (
            f"{who} may be of number {sender.number} or {sender.second} of {sender.system}: {HOW}"
        )
    if len(fitting) == 1 and claims_only(sender, fitting[0]):
        return f"{who} gives the SID of {fitting[0].id} with another name and address: {HOW}"
    if len(fitting) == 1:
        return Owner(fitting[0].id, fitting[0].name or sender.name)
    if (
        not fitting
        and sender.system == "Moodle"
        and any(alike(sender.name, p.name) for p in people)
    ):
        return (
            f"{who} has none of the numbers on the roster, which Moodle makes anew for every "
            f"assignment: give the worksheet of this one as --roster, or {HOW}"
        )
    if not fitting:
        return f"{who} fits nobody on the roster: {HOW}"
    names = ", ".join(one.id for one in fitting[:5]) + (", ..." if len(fitting) > 5 else "")
    return f"{who} fits several students on the roster ({names}): {HOW}"


def claims_only(sender: Sender, one: Person) -> bool:
    """Whether nothing but a SID, which people write themselves, says that a sender is this one."""
    address = sender.system == "Gradescope" and known_by(sender)[1]
    if not (address and "@" in address and one.email and sender.name and one.name):
        return False
    return address not in one.handles and not set(words(sender.name)) & set(words(one.name))


def logins(sender: Sender, people: list[Person]) -> list[Person]:
    """Everyone who has one of the logins that may stand in a name of Blackboard's."""
    may_be = set(map(canonical, sender.handles))
    local = {handle.partition("@")[0] for handle in may_be}
    return [
        one
        for one in people
        if canonical(one.id) in may_be
        or one.handles & may_be
        or {handle.partition("@")[0] for handle in one.handles} & local
    ]


def matches(sender: Sender, people: list[Person]) -> list[Person]:
    """Who fits best: the first rule that finds anyone decides."""
    if sender.system in ("Canvas", "Moodle"):
        found = [one for one in people if one.numbers.get(sender.system) == sender.number]
        if found:
            return found
        people = [one for one in people if sender.system not in one.numbers]
    handles = set(map(canonical, sender.handles))
    exact = exact_key(sender.name)
    alone = len(sender.handles) == 1  # a SID and an address must not be two people's
    rules = (
        lambda one: alone and one.id in sender.handles,
        lambda one: handles & one.handles,
        lambda one: (
            handles & {handle.partition("@")[0] for handle in one.handles}
            or (exact and exact == exact_key(one.name))
        ),
        lambda one: alike(sender.name, one.name),
    )
    return next((found for rule in rules if (found := list(filter(rule, people)))), [])
