"""Files of tests that only a change of what they stand on can break: `make test` leaves them out
while that is as it was when they last passed.

by_night.toml names them, says why, and keeps a digest of everything they stand on: their own text,
the modules that they import (and those that these import; a package counts with all its modules),
files and folders of `also` (what they start as a command, or read), the versions in constraints.txt
and of Python.  One line changed anywhere in that, and they run in `make test`; BY_NIGHT=1 runs all.

    python tests/by_night.py            what would run now, and why
    python tests/by_night.py --record [FILE ...]   write the digests of all, or of these, after they
                                        passed (make test-nightly does)
"""

import ast
import functools
import hashlib
import os
import platform
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "by_night.toml"
ALWAYS = ("constraints.txt", "pyproject.toml", "tests/conftest.py")


def listed() -> dict[str, dict]:
    """{file of tests, from the root: {"why", "also", "passed"}}."""
    return tomllib.loads(TABLE.read_text())["files"]


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
        path = ROOT / place
        reached |= {path} if path.is_file() else set(path.rglob("*.py"))
    todo = [ROOT / file, *(path for path in reached if path.suffix == ".py")]
    reached.add(ROOT / file)
    while todo:
        new = imported(todo.pop()) - reached
        reached |= new
        todo += new
    return reached


def digest(file: str, also: tuple[str, ...] = ()) -> str:
    sums = hashlib.sha256(platform.python_version().encode())
    for path in sorted(stands_on(file, also)):
        sums.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return sums.hexdigest()


def left_out() -> set[str]:
    """Files of tests that need not run by day: nothing they stand on has changed."""
    if os.environ.get("BY_NIGHT"):
        return set()
    return {
        file
        for file, entry in listed().items()
        if entry.get("passed") == digest(file, tuple(entry.get("also", ())))
    }


def record(files: list[str]) -> None:
    """Writes the digests of today into the table, of all files or of these; its words stay."""
    text = TABLE.read_text()
    for file, entry in listed().items():
        if files and file not in files:
            continue
        now = digest(file, tuple(entry.get("also", ())))
        head = re.escape(f'[files."{file}"]')
        text = re.sub(rf'({head}\n(?:.+\n)*?passed = )".*"', rf'\1"{now}"', text)
    TABLE.write_text(text)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2:])
    for name in listed():
        print("unchanged" if name in left_out() else "runs     ", name)
