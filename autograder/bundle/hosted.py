"""For places that open a repository or a notebook: Binder, dev containers, Colab."""

import shutil
from pathlib import Path

import nbformat

from autograder.bundle.project import FILES
from autograder.errors import UsageError
from autograder.labs.manifest import LabSpec

PYTHON = "python-3.11"
# Colab has all other packages, torch for its GPUs among them
INSTALL = "%pip install --quiet --no-deps {url}"
CELL_ID = "install"


def write_hosted(out: Path) -> None:
    """Settings that Binder and dev containers (Codespaces, VS Code) find in a repository."""
    for name, target in {
        "devcontainer.json": ".devcontainer/devcontainer.json",
        "binder.txt": ".binder/requirements.txt",
    }.items():
        (out / target).parent.mkdir()
        shutil.copyfile(FILES / name, out / target)
    (out / ".binder" / "runtime.txt").write_text(f"{PYTHON}\n", encoding="utf-8")


def write_colab(labs: list[LabSpec], url: str, out: Path) -> list[Path]:
    """The labs' notebooks with a first cell that installs the wheel from where it will lie."""
    if not (url.startswith("https://") and url.endswith(".whl")) or url.split() != [url]:
        raise UsageError(f"--colab: the https address of the wheel, not {url!r}")
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for lab in labs:
        notebook = nbformat.read(lab.release_notebook, as_version=4)
        first = nbformat.v4.new_code_cell(INSTALL.format(url=url), id=CELL_ID)
        first.metadata["tags"] = ["demo"]  # grading leaves it out
        notebook.cells.insert(0, first)
        paths.append(out / lab.release_notebook.name)
        nbformat.write(notebook, paths[-1])
    return paths
