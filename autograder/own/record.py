"""made_from.toml of a course folder: of which version its labs are, and of which bytes.

    [lab01_quantization]
    version = "0.9.0"
    source = "3f…"         SHA-256 of solutions/<lab>/ as it was copied
    suite = "a0…"          and of suites/<lab>/

So it can be told what a teacher changed and what an upgrade would.
"""

import shutil
from pathlib import Path

import msgspec

import efflib
from autograder.labs.hashing import hash_files
from autograder.labs.manifest import read_toml
from autograder.labs.material import SUITES, installed
from autograder.labs.suites import MADE_FROM

FILE = MADE_FROM
LEFT_OUT = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache"}
HEAD = "# Of which version the labs of this folder are; written by `autograder course`.\n"


class MadeFrom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one lab."""

    version: str
    source: str
    suite: str


def folders(root: Path, lab: str) -> dict[str, tuple[Path, Path]]:
    """{"source", "suite": (where the installed version has it, where the course folder has it)}"""
    return {
        "source": (installed() / "solutions" / lab, root / "solutions" / lab),
        "suite": (SUITES / lab, root / "suites" / lab),
    }


def copy_lab(root: Path, lab: str) -> MadeFrom:
    """Puts the installed version of a lab into the folder, in place of what is there."""
    hashes = {}
    for name, (there, here) in folders(root, lab).items():
        shutil.rmtree(here, ignore_errors=True)
        shutil.copytree(there, here, ignore=shutil.ignore_patterns(*LEFT_OUT))
        hashes[name] = hash_tree(here)
    return MadeFrom(version=efflib.__version__, **hashes)


def hash_tree(folder: Path) -> str:
    """All files of a lab, its triad too; "" if there is no such folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    kept = [path for path in files if not LEFT_OUT & set(path.relative_to(folder).parts)]
    return hash_files(kept, folder) if folder.is_dir() else ""


def read_record(root: Path) -> dict[str, MadeFrom]:
    """Lab -> where it is from; {} in a folder that `course new` did not make. Raises LabError."""
    path = root / FILE
    return read_toml(path, dict[str, MadeFrom]) if path.is_file() else {}


def write_record(root: Path, record: dict[str, MadeFrom]) -> None:
    lines = [HEAD]
    for lab, made in sorted(record.items()):
        lines.append(f"[{lab}]")
        lines += [f'{name} = "{value}"' for name, value in msgspec.structs.asdict(made).items()]
        lines.append("")
    (root / FILE).write_text("\n".join(lines), encoding="utf-8")
