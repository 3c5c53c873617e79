"""The table of oracles names tests that exist, all of them, and the versions that are compared."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "course" / "oracles.md").read_text(encoding="utf-8")
FIXTURES = ROOT / "tests" / "oracles" / "fixtures"
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)
# tests of the stored files, which compare nothing
ABOUT_FILES = {
    "test_the_fixture_names_its_versions",
    "test_the_pruning_fixture_names_its_versions",
    "test_the_gptq_fixture_names_its_versions",
}


def rows() -> list[list[str]]:
    lines = [line for line in TEXT.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if "library" not in row and set(row[0]) != {"-"}]


def functions_of(path: Path) -> set[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {n.name for n in body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}


def stored_versions(name: str) -> dict[str, str]:
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        return dict(str(line).split() for line in arrays["versions"])


@pytest.mark.parametrize("file, function", sorted(set(NAMED)))
def test_every_test_of_the_table_exists(file, function):
    assert function in functions_of(ROOT / file)
    if file.startswith("tests/oracles"):
        assert "pytestmark = pytest.mark.oracle" in (ROOT / file).read_text(encoding="utf-8")


def test_every_oracle_stands_in_the_table():
    for path in (ROOT / "tests" / "oracles").glob("test_*.py"):
        here = {name for file, name in NAMED if file == f"tests/oracles/{path.name}"}
        assert functions_of(path) - ABOUT_FILES == here, path.name


def test_every_row_names_a_version_that_runs_and_where_it_is_shown():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)$", pins, re.MULTILINE))
    versions["autoawq"] = stored_versions("autoawq")["awq"]
    versions["llmcompressor"] = stored_versions("llmcompressor")["llmcompressor"]
    assert len(rows()) > 30
    for row in rows():
        name, version = row[1].removesuffix(", stored").split()
        assert versions[name] == version, row
        places = re.findall(r"`([\w/]+\.py)", row[-1])
        assert places and all((ROOT / place).is_file() for place in places), row


def test_a_false_oracle_without_a_test_is_stated_where_it_is_named():
    for row in rows():
        if "::" not in row[-1]:
            source = (ROOT / row[-1].strip("`")).read_text(encoding="utf-8").lower()
            assert row[1].split()[0] in source, row
