"""pyproject.toml is the one list of dependencies: the other two files must agree with it."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import efflib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(
        r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
}
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = PROJECT["dependencies"] + [r for extra in EXTRAS.values() for r in extra]


@pytest.mark.parametrize("line", REQUIREMENTS)
def test_every_dependency_is_pinned_to_a_version_it_admits(line):
    requirement = Requirement(line)
    name = canonicalize_name(requirement.name)
    assert name in PINS, f"{name} is missing from constraints.txt (make constraints)"
    assert requirement.specifier.contains(PINS[name], prereleases=True)


def test_no_pin_refuses_a_python_that_the_project_admits():
    """Debian 12 has 3.11.2; a pin that needs a later one has a marker and is free below."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    for name in PINS:
        try:
            needed = importlib.metadata.metadata(name).get("Requires-Python")
        except importlib.metadata.PackageNotFoundError:
            continue
        assert needed is None or SpecifierSet(needed).contains(oldest), f"{name} needs {needed}"


def test_the_conda_environment_installs_the_project_with_the_same_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = {d.split("=")[0]: d for d in environment["dependencies"] if isinstance(d, str)}
    [pip] = [d["pip"] for d in environment["dependencies"] if isinstance(d, dict)]
    assert set(conda) == {"python", "pip"}, "dependencies belong in pyproject.toml"
    assert conda["python"] == "python=3.11"
    index, *rest = pip  # torch's, see the next test
    assert index.startswith("--extra-index-url ")
    assert rest == ["--constraint constraints.txt", "--editable ."]


def test_torch_comes_in_its_build_for_cpus():
    """The one of the ordinary index wants another Triton than constraints.txt has."""
    index = "--extra-index-url https://download.pytorch.org/whl/cpu"
    assert index in (ROOT / "environment.yml").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert f"TORCH_INDEX := {index.split()[1]}" in makefile
    assert "--extra-index-url $(TORCH_INDEX) --no-deps torch" in makefile


def test_extras_of_the_design_exist():
    optional = {"cluster", "postgres", "docs", "browser", "oracles", "server"}
    assert set(EXTRAS) == optional | {"dev", "train"}


def test_the_version_stands_in_one_place_and_all_others_agree():
    assert PROJECT["dynamic"] == ["version"] and "version" not in PROJECT
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == efflib.__version__
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    [newest, *_] = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest == efflib.__version__


@pytest.mark.parametrize("path", sorted((ROOT / "course" / "chapters").glob("*.md")), ids=str)
def test_every_figure_of_a_chapter_has_an_alternative_text(path):
    figures = re.findall(r"```\{figure\} (\S+)\n(.*)", path.read_text())
    for name, below in figures:
        assert re.fullmatch(r":alt: .{20,}", below), name
