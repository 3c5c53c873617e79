"""Dockerfiles, dev containers, Binder and Colab: what can be checked without their services."""

import json
import re
from pathlib import Path

import nbformat
import pytest

from autograder import cli
from autograder.bundle.hosted import write_colab, write_hosted
from autograder.grading.rebuild import rebuild
from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import lab_names, load_lab

ROOT = Path(__file__).parents[2]
URL = "https://example.org/efficient_llm_course-0.1.0-py3-none-any.whl"
DOCKER = sorted((ROOT / "docker").glob("*.Dockerfile"))
OTHER_STAGES = {"efficient-llm-course-*.zip"}  # made by `autograder bundle`
INSTRUCTIONS = {"FROM", "RUN", "USER", "WORKDIR", "COPY", "EXPOSE", "CMD", "ENTRYPOINT"}


def instructions(path: Path) -> list[list[str]]:
    """The lines of a Dockerfile as words, without comments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("path", DOCKER, ids=[path.stem for path in DOCKER])
def test_a_dockerfile_copies_what_is_there_and_does_not_stay_root(path):
    lines = instructions(path)
    assert {words[0] for words in lines} <= INSTRUCTIONS
    assert lines[0][0] == "FROM" and ":" in lines[0][1] and not lines[0][1].endswith(":latest")
    for words in lines:
        if words[0] == "COPY":
            sources = [word for word in words[1:-1] if not word.startswith("--")]
            for source in set(sources) - OTHER_STAGES:
                assert (ROOT / source).exists(), source
        if words[0] in ("CMD", "ENTRYPOINT"):
            assert json.loads(" ".join(words[1:]))
    assert [words[1] for words in lines if words[0] == "USER"][-1] != "root"


def test_images_have_the_python_of_the_pins():
    versions = {instructions(path)[0][1] for path in DOCKER}
    assert versions == {"python:3.11-slim-bookworm"}
    files = [ROOT / ".devcontainer", ROOT / "autograder" / "bundle" / "files"]
    for folder in files:
        settings = json.loads((folder / "devcontainer.json").read_text())
        assert ":3.11-" in settings["image"] and settings["postCreateCommand"]


def test_binder_installs_the_bundle_with_the_pins(tmp_path):
    write_hosted(tmp_path)
    lines = (tmp_path / ".binder" / "requirements.txt").read_text().splitlines()
    assert lines[1:] == ["--constraint ../constraints.txt", "--editable ."]
    assert (tmp_path / ".binder" / "runtime.txt").read_text() == "python-3.11\n"
    assert (tmp_path / ".devcontainer" / "devcontainer.json").is_file()


@pytest.mark.parametrize("name", lab_names(ROOT))
def test_a_colab_notebook_is_the_lab_with_one_cell_before_it(name, tmp_path):
    lab = load_lab(name, ROOT)
    [path] = write_colab([lab], URL, tmp_path)
    made, released = (nbformat.read(p, as_version=4) for p in (path, lab.release_notebook))
    nbformat.validate(made)
    assert made.cells[0].source == f"%pip install --quiet --no-deps {URL}"
    assert made.cells[1:] == released.cells
    one, both = (parse_notebook(p.read_bytes()) for p in (lab.release_notebook, path))
    before, after = (rebuild(cells, one).cells for cells in (one, both))
    code = [[cell.source for cell in cells if cell.source.strip()] for cells in (before, after)]
    assert [source for source in code[1] if "%pip" not in source] == code[0]


@pytest.mark.parametrize(
    "url", ["http://x.org/a.whl", "https://x.org/a.zip", "https://x.org/a b.whl"]
)
def test_another_address_is_refused(url, tmp_path, capsys):
    arguments = ["bundle", "lab01_quantization", "--colab", url, "--course", str(ROOT)]
    assert cli.run([*arguments, "--out", str(tmp_path)]) == 2
    assert "the https address of the wheel" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
