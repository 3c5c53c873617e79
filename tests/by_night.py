"""Tests that only a change of what they stand on can break: `make test` leaves them out while that
is as it was when they last passed.

by_night.toml names them and says why: files (`files`), and files in which each lab has slow tests
of its own (`labs`; the first lab's always run).  For each there is a digest of everything that it
stands on: its own text, the modules that it imports (and those that these import; a package counts
with all its modules), files and folders of `also` (what it starts as a command, or reads; {lab} is
the lab), the versions in constraints.txt and of Python.  One line changed anywhere in that, and it
runs in `make test`; BY_NIGHT=1 runs all.  Digests of labs are in by_night_labs.toml.

    python tests/by_night.py            what would run now
    python tests/by_night.py --record [NAME ...]   write the digests of all, or of these (FILE, or
                                        "FILE LAB"), after they passed (make test-nightly does)
"""

import ast
import functools
import hashlib
import os
import platform
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "by_night.toml"
LABS_TABLE = ROOT / "tests" / "by_night_labs.toml"
ALWAYS = ("constraints.txt", "pyproject.toml", "tests/conftest.py")
NO_TEXT = {"__pycache__", ".ipynb_checkpoints", "suites"}  # of `also`; suites are named by lab


def listed() -> dict[str, dict]:
    """{file of tests, from the root: {"why", "also", "passed"}}."""
    return tomllib.loads(TABLE.read_text())["files"]


def listed_by_lab() -> dict[str, dict]:
    """{file of tests, from the root: {"why", "also"}}: each lab has a digest of its own."""
    return tomllib.loads(TABLE.read_text()).get("labs", {})


def passed_by_lab() -> dict[str, dict[str, str]]:
    """{file of tests: {lab: digest}}."""
    return tomllib.loads(LABS_TABLE.read_text()) if LABS_TABLE.is_file() else {}


def labs() -> list[str]:
    """Those that may be left out: the first one never is."""
    return sorted(path.name for path in (ROOT / "solutions").glob("lab*"))[1:]


@functools.cache
def modules() -> dict[str, list[Path]]:
    """{name: files}. A file of tests/ goes by its bare name; a package has all of its modules."""
    found: dict[str, list[Path]] = {}
    for package in ("efflib", "autograder"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if path.name == "__init__.py":
                top = path.parent.parent == ROOT  # its modules are named one by one
                files = [path] if top else sorted(path.parent.glob("*.py"))
                found[name.removesuffix(".__init__")] = files
            else:
                found[name] = [path]
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found.setdefault(path.stem, [path])
    return found


@functools.cache
def imported(path: Path) -> frozenset[Path]:
    """Files of this repository that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            # "from efflib import zoo" is efflib.zoo, and not all of efflib
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= parts & modules().keys() or {node.module}
    return frozenset(file for name in names for file in modules().get(name, ()))


def stands_on(file: str, also: tuple[str, ...] = ()) -> set[Path]:
    """All files whose text decides whether a file of tests passes."""
    reached = {ROOT / name for name in ALWAYS}
    for folder in (ROOT / file).relative_to(ROOT / "tests").parents:
        reached |= set((ROOT / "tests" / folder).glob("conftest.py"))
    for place in also:
        reached |= {path for found in ROOT.glob(place) for path in texts(found)}
    reached.add(ROOT / file)
    return reached.union(*(reached_from(path) for path in reached if path.suffix == ".py"))


@functools.cache
def reached_from(path: Path) -> frozenset[Path]:
    """Files that a file imports, and that these import."""
    reached, todo = set(), [path]
    while todo:
        new = imported(todo.pop()) - reached
        reached |= new
        todo += new
    return frozenset(reached)


def texts(place: Path) -> Iterator[Path]:
    """The file, or all files of the folder."""
    for path in [place] if place.is_file() else place.rglob("*"):
        if path.is_file() and not NO_TEXT & set(path.relative_to(place).parts):
            yield path


def digest(file: str, also: tuple[str, ...] = ()) -> str:
    sums = hashlib.sha256(platform.python_version().encode())
    for path in sorted(stands_on(file, also), key=str):
        sums.update(content(path))
    return sums.hexdigest()


@functools.cache
def content(path: Path) -> bytes:
    """Name and hash of a file."""
    name = path.relative_to(ROOT).as_posix().encode()
    return name + b"\0" + hashlib.sha256(path.read_bytes()).digest()


def digests() -> Iterator[tuple[str, str, str, str]]:
    """(file, lab or "", its digest now, the one with which it passed)."""
    for file, entry in listed().items():
        yield file, "", digest(file, tuple(entry.get("also", ()))), entry.get("passed", "")
    passed = passed_by_lab()
    for file, entry in listed_by_lab().items():
        for lab in labs():
            also = tuple(place.replace("{lab}", lab) for place in entry["also"])
            yield file, lab, digest(file, also), passed.get(file, {}).get(lab, "")


def left_out() -> set[str]:
    """What need not run by day, as nothing that it stands on has changed: files of tests, and
    "file lab" for the slow tests of a lab."""
    if os.environ.get("BY_NIGHT"):
        return set()
    return {f"{file} {lab}".strip() for file, lab, now, passed in digests() if now == passed}


def group_of(nodeid: str) -> str:
    """The file, and the lab of which the test is."""
    file, _, test = nodeid.partition("::")
    lab = re.search(r"\[(lab\d\d_\w+)", test)
    return f"{file} {lab[1]}" if lab else file


def is_left_out(nodeid: str, slow: bool, out: set[str]) -> bool:
    """out: see left_out. Of a lab only slow tests are."""
    return nodeid.partition("::")[0] in out or slow and group_of(nodeid) in out


def record(names: list[str]) -> None:
    """Writes the digests of today into the tables, of all or of these; the words stay."""
    text, by_lab = TABLE.read_text(), passed_by_lab()
    for file, lab, now, _ in digests():
        if names and f"{file} {lab}".strip() not in names:
            continue
        if lab:
            by_lab.setdefault(file, {})[lab] = now
        else:
            head = re.escape(f'[files."{file}"]')
            text = re.sub(rf'({head}\n(?:.+\n)*?passed = )".*"', rf'\1"{now}"', text)
    TABLE.write_text(text)
    if by_lab:
        LABS_TABLE.write_text(in_toml(by_lab))


def in_toml(by_lab: dict[str, dict[str, str]]) -> str:
    parts = ["# Written by `python tests/by_night.py --record`: see by_night.toml.\n"]
    for file, passed in sorted(by_lab.items()):
        rows = (f'{lab} = "{passed[lab]}"\n' for lab in labs() if lab in passed)
        parts.append(f'\n["{file}"]\n{"".join(rows)}')
    return "".join(parts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2:])
    out = left_out()
    for name, of, *_ in digests():
        shown = f"{name} {of}".strip()
        print("unchanged" if shown in out else "runs     ", shown)
