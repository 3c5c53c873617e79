"""The set-up card: what this machine has, and whether the files of the course are whole."""

import hashlib
import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

SEED = 0
CHECKPOINTS = Path(__file__).parents[1] / "zoo" / "checkpoints"
REINSTALL = "install the course again"
COPY_FOLDER = "copy the whole folder of the lab, not only the notebook, and open it there"


def setup_rows(folder: Path | None, checkpoints: Path = CHECKPOINTS) -> list[list[str]]:
    """[state, name, detail] of each line of the card; state is "[ok]" or "[fail]".

    folder: where the lab's public tests and exercises are, None if they were not found.
    """
    return [
        ["[ok]", "python", platform.python_version()],
        ["[ok]", "torch", f"{torch.__version__}, {torch.get_num_threads()} threads"],
        ["[ok]", "device", device()],
        ["[ok]", "efflib", course_version()],
        ["[ok]", "seed", f"torch.manual_seed({SEED})"],
        ["[ok]", "lab files", str(folder)] if folder else ["[fail]", "lab files", COPY_FOLDER],
        *fixture_rows(checkpoints),
    ]


def device() -> str:
    if torch.cuda.is_available():
        return f"cuda, {torch.cuda.get_device_name()}"
    return f"cpu, {platform.machine()}"


def course_version() -> str:
    try:
        return version("efficient-llm-course")
    except PackageNotFoundError:  # a copied folder
        return "not installed as a package"


def fixture_rows(folder: Path) -> list[list[str]]:
    """One line for all shipped files that are whole, one for each that is not, by their sha256."""
    try:
        hashes = json.loads((folder / "hashes.json").read_text(encoding="utf-8"))
        faults = [(name, fault(folder / name, digest)) for name, digest in hashes.items()]
    except (OSError, ValueError, AttributeError):
        return [["[fail]", "checkpoints", f"hashes.json is missing or damaged: {REINSTALL}"]]
    rows = [["[fail]", name, f"{what}: {REINSTALL}"] for name, what in faults if what]
    whole = len(faults) - len(rows)
    if whole:
        rows.insert(0, ["[ok]", "checkpoints", f"{whole} files with the recorded sha256"])
    return rows


def fault(file: Path, digest: str) -> str:
    """What is wrong with a shipped file, "" if nothing is."""
    if not file.is_file():
        return "missing"
    with file.open("rb") as stream:
        same = hashlib.file_digest(stream, "sha256").hexdigest() == digest
    return "" if same else "damaged"
