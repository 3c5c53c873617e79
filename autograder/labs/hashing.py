"""Hashes that name a result: it holds as long as none of them changes.

A grade is decided by the submission, the suite, efflib and the grader; each gets a SHA-256.
"""

import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

NOT_SOURCE = {"__pycache__", ".ipynb_checkpoints", "triad", "demo.toml", "given_out"}
# the triad, the demonstration class and what earlier labs gave out decide no grade


def hash_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over names (relative to root) and contents, in a fixed order."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        name = path.relative_to(root).as_posix().encode()
        digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def hash_folder(folder: Path) -> str:
    """All regular files of a folder, without byte code, checkpoints and triads."""
    files = (path for path in folder.rglob("*") if path.is_file())
    kept = [path for path in files if not NOT_SOURCE & set(path.relative_to(folder).parts)]
    return hash_files(kept, folder)


def suite_hash(suite_dir: Path, release_dir: Path) -> str:
    """Changes with the hidden suite and with the release that students got."""
    both = hash_folder(suite_dir) + hash_folder(release_dir)
    return hashlib.sha256(both.encode()).hexdigest()


@cache
def efflib_hash() -> str:
    """efflib's files: the tests compare with them, and student code may import them."""
    return hash_folder(Path(importlib.util.find_spec("efflib").submodule_search_locations[0]))


@cache
def grader_hash() -> str:
    """The grader's own modules, whatever room they are in, and the version of torch."""
    folder = Path(__file__).parents[1]
    files = (path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] != "suites")
    modules = hash_files(files, folder)
    return hashlib.sha256(f"{modules} {importlib.metadata.version('torch')}".encode()).hexdigest()
