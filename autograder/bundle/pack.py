"""A folder as a zip and as a wheel, the same bytes from the same files of the same commit."""

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from autograder.errors import StorageError

NO_COMMIT = 1767225600  # 2026-01-01, where there is no git or no commit
BUILD = "from setuptools import build_meta; print(build_meta.build_wheel({out!r}))"
TOLD = 800  # characters of what setuptools said


def last_commit(folder: Path) -> int:
    """When a repository's last commit was made, in seconds since 1970: the files' date."""
    command = ["git", "log", "-1", "--format=%ct"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except OSError:  # no git
        return NO_COMMIT
    return int(done.stdout) if done.stdout.strip() else NO_COMMIT


def write_zip(folder: Path, target: Path, epoch: int) -> Path:
    """All files of a folder, below a folder with the zip's own name, with one date."""
    date = time.gmtime(epoch)[:6]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = f"{target.stem}/{path.relative_to(folder).as_posix()}"
            about = zipfile.ZipInfo(name, date)
            about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(about, path.read_bytes())
    return target


def write_wheel(folder: Path, out: Path, epoch: int) -> Path:
    """What setuptools makes of the folder's pyproject.toml; leaves its own files in the folder."""
    made = subprocess.run(
        [sys.executable, "-c", BUILD.format(out=str(out))],
        cwd=folder,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)},
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise StorageError(f"setuptools made no wheel: {made.stderr.strip()[-TOLD:]}")
    return out / made.stdout.split()[-1]
