"""A folder as a zip and as a wheel, the same bytes from the same files."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from autograder.errors import StorageError

DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say
EPOCH = "315532800"  # the same for setuptools
BUILD = "from setuptools import build_meta; print(build_meta.build_wheel({out!r}))"
TOLD = 800  # characters of what setuptools said


def write_zip(folder: Path, target: Path) -> Path:
    """All files of a folder, below a folder with the zip's own name."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            name = f"{target.stem}/{path.relative_to(folder).as_posix()}"
            about = zipfile.ZipInfo(name, DATE)
            about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(about, path.read_bytes())
    return target


def write_wheel(folder: Path, out: Path) -> Path:
    """What setuptools makes of the folder's pyproject.toml; leaves its own files in the folder."""
    made = subprocess.run(
        [sys.executable, "-c", BUILD.format(out=str(out))],
        cwd=folder,
        env=os.environ | {"SOURCE_DATE_EPOCH": EPOCH},
        capture_output=True,
        text=True,
    )
    if made.returncode:
        raise StorageError(f"setuptools made no wheel: {made.stderr.strip()[-TOLD:]}")
    return out / made.stdout.split()[-1]
