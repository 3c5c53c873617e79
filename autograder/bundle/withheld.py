"""Which modules a bundle withholds, for whom, and what stands in their place.

A module that is withheld in grading belongs to the lab that builds it (`builds` in its manifest),
else to all labs that withhold it.  It is withheld until all labs that it belongs to are released to
the students.  A package's __init__ is its table of contents, and always there.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autograder.bundle.parts import ALL, Sources, part_text
from autograder.labs.manifest import LabError, Manifest, read_toml
from autograder.labs.suites import all_suites

Owners = dict[str, tuple[str, ...]]  # {module: labs that it belongs to}

STUB = '''"""{what}

{why}.
"""

from efflib import given_out as _given_out

_WHY = {why!r}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    if _given_out.take(globals()) and name in globals():  # it came after this was imported
        return globals()[name]
    raise ImportError(f"{{__name__}}.{{name}} is not in what you have: {{_WHY}}")


if not _given_out.take(globals()) and __name__ == "__main__":
    raise SystemExit(f"not in what you have: {{_WHY}}")
'''


@dataclass(frozen=True)
class Hidden:
    """withheld: modules and their labs; parts: what is kept of some of them."""

    withheld: Owners
    parts: dict[str, set[str]]

    @property
    def stubs(self) -> list[str]:
        """Modules of which nothing is kept."""
        return sorted(self.withheld.keys() - self.parts.keys())


def owners(course_root: Path, sources: Sources) -> Owners:
    """All modules that some lab withholds, also one that this course does not teach.

    Raises LabError for a name that efflib does not have.
    """
    builders: dict[str, list[str]] = {}
    withholders: dict[str, list[str]] = {}
    for lab, suite in all_suites(course_root).items():
        path = suite / "manifest.toml"
        manifest = read_toml(path, Manifest)
        hidden = modules_below(manifest.withhold, sources, path)
        for module in hidden:
            withholders.setdefault(module, []).append(lab)
        for module in modules_below(manifest.builds, sources, path):
            if module not in hidden:
                raise LabError(f"{path}: {module} is in `builds` and not withheld")
            builders.setdefault(module, []).append(lab)
    return {module: tuple(builders.get(module, labs)) for module, labs in withholders.items()}


def modules_below(names: Iterable[str], sources: Sources, path: Path) -> set[str]:
    """The modules under these names, without packages' tables of contents."""
    found = set()
    for name in names:
        below = {m for m in sources if m == name or m.startswith(f"{name}.")}
        if not below:
            raise LabError(f"{path}: efflib has no module {name}")
        found |= below
    packages = {m.rpartition(".")[0] for m in sources}
    return found - packages


def still_withheld(owned: Owners, released: Collection[str]) -> Owners:
    return {m: labs for m, labs in owned.items() if not set(labs) <= set(released)}


def stand_in(module: str, source: str, labs: Sequence[str], kept: Collection[str]) -> str:
    """What the bundle holds in place of a withheld module."""
    if ALL in kept:
        return source
    builds = f"{labs[0]} builds it" if len(labs) == 1 else f"{', '.join(labs)} withhold it"
    why = f"{builds}, and your instructor gives it out afterwards"
    if not kept:
        return STUB.format(what="Not here.", why=why)
    what = f"The part of {module} that this copy of the course runs on."
    head, part, tail = STUB.format(what=what, why=why).partition(f'{why}.\n"""\n')
    return f"{head}{part}\n{part_text(source, kept).strip()}\n\n{tail}"
