"""What `autograder grade` says of the class before it grades: whose ids, and whether they fit."""

from pathlib import Path

from autograder.commands.options import roster_of
from autograder.errors import UsageError
from autograder.intake.discover import Rejected, Submission
from autograder.intake.roster import Roster, read_roster
from autograder.intake.terms import read_terms
from autograder.intake.twice import namesakes, same_ids, told

WITHOUT = (
    "give the --roster with which they were graded; if they are other people of the same name, say "
    "so with --map (columns folder,id)"
)


def about_roster(path: Path, people: Roster, known: dict[str, str], root: Path, lab: str) -> list:
    """Sentences on a roster. Raises UsageError if it gives known people other ids."""
    own = roster_of(root, None)  # where --roster is another file, it says who the known people are
    before = read_roster(own) if own and own.resolve() != path.resolve() else None
    where = f"{path}: {len(people)} students, whose ids are the column '{people.column}'"
    why = f" ({people.why})" if people.why else ""
    said = [where + why, *same_ids(where + why, people, known, before)]
    terms = read_terms(root).get(lab)
    nobody = sorted(set(terms.extensions) - set(people)) if terms else []
    if nobody:
        said.append(
            f"course.toml has extensions for nobody on the roster: {', '.join(nobody)} "
            f"(autograder course extend {lab} ID none takes one back)"
        )
    return said


def unclear(row: Submission | Rejected) -> bool:
    return isinstance(row, Rejected) and row.status == "unclear"


def without_roster(
    rows: list[Submission | Rejected], mapped: set[str], known: dict[str, str]
) -> list[str]:
    """A warning if nobody is known. Raises UsageError if known people have other ids here."""
    present = {row.student: row.name for row in rows if not unclear(row)}
    strangers = {student: name for student, name in present.items() if student not in mapped}
    others = namesakes(strangers, known)
    if others:
        raise UsageError(
            f"{len(others)} of the people here are in the gradebook under other ids "
            f"({told(others)}), and would stand there twice: {WITHOUT}"
        )
    if known and strangers and not known.keys() & present.keys():
        return [
            f"Nobody here ({len(present)}) is among the people of the gradebook ({len(known)}). If "
            "this is the same class, stop, and give the --roster of last time"
        ]
    return []
