"""What --with opens may hold answers of a lab that is still being worked on.

The modules of a later lab stand on those of earlier ones, and bring the definitions that they need:
with lab 3's comes `quantize_model`, which lab 1 asks for.
"""

import ast
from collections.abc import Collection, Iterable
from pathlib import Path

from autograder.bundle.parts import Sources, bound, chosen_statements, read_sources
from autograder.bundle.tree import efflib_dir, hidden_parts
from autograder.bundle.withheld import Hidden, owners
from autograder.errors import UsageError
from autograder.labs.manifest import read_exercises


def refuse_answers(course_root: Path, labs: Iterable[str], over: Collection[str]) -> None:
    """Raises UsageError if giving out what these labs built answers one of `labs` that is not over.

    What a copy of the course holds whatever is over is not looked at.
    """
    if not over:
        return
    sources = read_sources(efflib_dir())
    before, now = hidden_parts(course_root, ()), hidden_parts(course_root, over)
    owned = owners(course_root, sources)
    for lab in labs:
        if lab in over:
            continue
        asked, found = asked_by(course_root, lab), set()
        for module in (module for module, owner in owned.items() if lab in owner):
            found |= asked & (kept(module, sources, now) - kept(module, sources, before))
        if found:
            opened, names = " ".join(f"--with {name}" for name in over), ", ".join(sorted(found))
            raise UsageError(
                f"{opened} gives out answers of {lab}, which is not over ({names}): wait, "
                f"or say --with {lab} as well if it is over"
            )


def asked_by(course_root: Path, lab: str) -> set[str]:
    """Functions that a lab's exercises ask for, whether it is released yet or not."""
    folders = (course_root / "labs" / lab, course_root / "solutions" / lab)
    paths = (folder / "exercises.toml" for folder in folders)
    path = next((path for path in paths if path.is_file()), None)
    exercises = read_exercises(path)[1] if path else {}
    return {name for exercise in exercises.values() for name in exercise.functions}


def kept(module: str, sources: Sources, hidden: Hidden) -> set[str]:
    """Names that a copy has of a module: all of them where nothing is withheld."""
    tree = ast.parse(sources[module])
    names = hidden.parts.get(module, ())
    nodes = tree.body
    if module in hidden.withheld:
        nodes = chosen_statements(tree, names) if names else []
    return {name for node in nodes for name in bound(node)}
