"""Rules that keep the code readable: small files, short functions, imports in one direction."""

import ast
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
