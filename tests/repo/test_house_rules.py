"""Rules that keep the code readable: small files, short functions, imports in one direction."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = 250
MAX_FUNCTION_LINES = 45
SOURCES = sorted(
    path
    for package in ("efflib", "autograder")
    for path in (ROOT / package).rglob("*.py")
    if "suites" not in path.parts
)
NAMES = [str(path.relative_to(ROOT)) for path in SOURCES]


def imported_modules(path: Path) -> set[str]:
    """Absolute names of all modules that a file imports, also inside functions."""
    package = path.relative_to(ROOT).parent.parts
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {stem} | {f"{stem}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_files_and_functions_stay_small(path):
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{node.name} has {lines} lines"


def under(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("path", SOURCES, ids=NAMES)
def test_imports_run_one_way(path):
    parts = path.relative_to(ROOT).parts
    imported = imported_modules(path)
    if parts[0] == "efflib":
        assert not {m for m in imported if under(m, "autograder")}, "efflib imports the autograder"
    if parts[:2] == ("efflib", "lab"):
        own = {m for m in imported if under(m, "efflib") and not under(m, "efflib.lab")}
        techniques = {m for m in own if m != "efflib" and not under(m, "efflib.zoo")}
        assert not techniques, f"the lab runtime imports {techniques}: a lab may withhold them"


def test_importing_the_package_loads_no_technique():
    import subprocess
    import sys

    code = "import sys, efflib; print([m for m in sys.modules if m == 'torch' or 'efflib.' in m])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# The rooms of autograder/, each of which may import the ones before it, and errors.py.
ROOMS = [
    "errors",
    "sandbox",
    "labs",
    "bundle",
    "intake",
    "grading",
    "nbgrader",
    "own",
    "lms",
    "report",
    "triad",
]
ROOMS += ["commands", "doctor", "demo", "cli"]
AUTOGRADER = [path for path in SOURCES if path.is_relative_to(ROOT / "autograder")]


def room(module: str) -> str:
    """ "autograder.intake.archive" -> "intake"."""
    return module.split(".")[1]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def own_imports(path: Path) -> set[str]:
    """Modules of autograder/ that a file imports, also inside functions."""
    known = {module_of(other) for other in AUTOGRADER} - {"autograder"}
    return {name for name in imported_modules(path) if name in known} - {module_of(path)}


def test_every_file_of_the_autograder_stands_in_a_room():
    assert {room(module_of(path)) for path in AUTOGRADER if path.stem != "__init__"} == set(ROOMS)


@pytest.mark.parametrize("path", AUTOGRADER, ids=map(module_of, AUTOGRADER))
def test_rooms_import_in_one_direction(path):
    if module_of(path) == "autograder":
        return
    here = ROOMS.index(room(module_of(path)))
    upwards = [name for name in own_imports(path) if ROOMS.index(room(name)) > here]
    assert not upwards, f"{room(module_of(path))} stands before {upwards}"


def test_no_circle_inside_a_room():
    graph = {module_of(path): own_imports(path) for path in AUTOGRADER}
    sorter = graphlib.TopologicalSorter(graph)
    sorter.prepare()  # raises CycleError, which names the circle


def test_no_two_test_files_have_one_name():
    """pytest imports them by their bare name: the second of two is refused where both are run."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
