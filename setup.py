"""What pyproject.toml cannot list: the course's own files, which a wheel brings along.

A course folder is made from them where there is no clone (`autograder course new`).  They lie where
`autograder.labs.material` looks, and where the students' wheel puts its labs.
"""

from pathlib import Path

from setuptools import setup

SHARE = "share/efficient-llm-course"
FILES = ("LICENSE", "constraints.txt", "pyproject.toml", "nbgrader_config.py")
FOLDERS = ("labs", "solutions", "course")
NOT_COPIED = {"__pycache__", ".ipynb_checkpoints", ".pytest_cache", "_build"}


def data_files() -> list[tuple[str, list[str]]]:
    """[(folder below the environment, files)]"""
    by_folder = {SHARE: list(FILES)}
    for folder in FOLDERS:
        for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
            if not NOT_COPIED & set(path.parts):
                by_folder.setdefault(f"{SHARE}/{path.parent.as_posix()}", []).append(str(path))
    return sorted(by_folder.items())


setup(data_files=data_files())
