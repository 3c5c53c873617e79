"""The set-up card: what this machine has, and whether the lab's files are whole."""

import hashlib
import json
import platform
from importlib import util
from pathlib import Path

import torch

SEED = 0


def setup_rows(files: dict[str, Path | None]) -> list[list[str]]:
    """[state, name, detail] of each line of the card; state is "[ok]" or "[fail]"."""
    rows = [
        ["[ok]", "python", platform.python_version()],
        ["[ok]", "torch", f"{torch.__version__}, {_device()}, {torch.get_num_threads()} threads"],
        ["[ok]", "seed", f"torch.manual_seed({SEED})"],
    ]
    for name, path in files.items():
        found = path is not None
        detail = str(path.parent) if found else "missing: open the notebook in the lab's own folder"
        rows.append(["[ok]" if found else "[fail]", name, detail])
    return rows + fixture_rows()


def _device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def fixture_rows() -> list[list[str]]:
    """One line for each shipped file, by its sha256."""
    spec = util.find_spec("efflib")
    folder = Path(spec.submodule_search_locations[0]) / "zoo" / "checkpoints"
    if not (folder / "hashes.json").is_file():
        return [["[fail]", "checkpoints", "hashes.json is missing: install the course again"]]
    rows = []
    for name, expected in json.loads((folder / "hashes.json").read_text()).items():
        file = folder / name
        if not file.is_file():
            rows.append(["[fail]", name, "missing: install the course again"])
        elif hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            rows.append(["[fail]", name, "damaged: install the course again"])
        else:
            rows.append(["[ok]", name, f"sha256 {expected[:12]}"])
    return rows
