"""The files of a lab that students have: where they are, and what exercises.toml says."""

import os
import sysconfig
import tomllib
from dataclasses import dataclass
from pathlib import Path

TESTS, EXERCISES = "test_public.py", "exercises.toml"
REPOSITORY = Path(__file__).parents[2]
SHARED = Path(sysconfig.get_path("data")) / "share" / "efficient-llm-course"  # put by the wheel


@dataclass(frozen=True)
class Exercise:
    """What students may know of an exercise. points: of its public and hidden tests together."""

    key: str
    title: str
    points: float
    functions: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """'exercise 2' for the key 'ex2'."""
        return f"exercise {self.key.removeprefix('ex')}"


def find_folder(name: str, notebook: str | None = None) -> Path | None:
    """The folder with the lab's tests and exercises.

    It is looked for in the working folder, beside the notebook (a path, where the front end tells
    it), in a folder labs/<name> of the course, upwards from the working folder, and among the files
    that an installed wheel brought along.
    """
    here = Path.cwd()
    beside = [Path(p).parent for p in (notebook, os.environ.get("JPY_SESSION_NAME")) if p]
    courses = [here, *here.parents, REPOSITORY, SHARED]
    for folder in (here, *beside, *(course / "labs" / name for course in courses)):
        if (folder / TESTS).is_file() and (folder / EXERCISES).is_file():
            return folder.resolve()
    return None


def read_exercises(folder: Path) -> dict[str, Exercise]:
    """The exercises of a lab by key, in the order of the file."""
    tables = tomllib.loads((folder / EXERCISES).read_text(encoding="utf-8"))
    return {
        key: Exercise(
            key,
            about["title"],
            about["points"],
            *(tuple(about.get(part, ())) for part in ("functions", "hidden", "hints")),
        )
        for key, about in tables.items()
        if isinstance(about, dict)
    }
