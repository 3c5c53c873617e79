"""Which course folder is meant: `autograder` and `nbgrader` must not act on two different ones.

nbgrader takes CourseDirectory.root of a nbgrader_config in Jupyter's own folders (~/.jupyter, ...)
wherever it is called, and so does a hub's formgrader; `autograder` looks upwards from the current
folder.  Imports nothing heavy.
"""

import json
from pathlib import Path

NAME = "nbgrader_config"
reading: list[Path] = []  # a configuration that is being read: it may ask us itself


def course_upwards(here: Path) -> Path | None:
    """The first folder upwards with a nbgrader_config.py or solutions in it."""
    for folder in (here, *here.parents):
        if (folder / f"{NAME}.py").is_file() and folder not in jupyter_folders():
            return folder
        if (folder / "solutions").is_dir():
            return folder
    return None


def jupyter_folders() -> list[Path]:
    from jupyter_core.paths import jupyter_config_path

    return [Path(folder) for folder in jupyter_config_path()]


def configured_root() -> Path | None:
    """CourseDirectory.root as Jupyter's folders set it, which holds for nbgrader everywhere."""
    if reading:
        return None
    for folder in jupyter_folders():  # the first one wins
        for path in (folder / f"{NAME}.json", folder / f"{NAME}.py"):
            root = root_in(path) if path.is_file() else None
            if root:
                return Path(root).expanduser().resolve()
    return None


def root_in(path: Path) -> str | None:
    """CourseDirectory.root of one file; None if it says nothing of it."""
    reading.append(path)
    try:
        if path.suffix == ".json":
            return json.loads(path.read_bytes()).get("CourseDirectory", {}).get("root")
        from traitlets.config import PyFileConfigLoader

        config = PyFileConfigLoader(path.name, path=str(path.parent)).load_config()
        return config.get("CourseDirectory", {}).get("root") or None
    except (Exception, SystemExit):  # nbgrader itself says what is wrong with it
        return None
    finally:
        reading.pop()


def two_courses(here: Path, elsewhere: Path) -> str:
    return (
        f"this is the course {here}, and nbgrader acts on {elsewhere}, as nbgrader_config in "
        "Jupyter's folder says (jupyter --paths)"
    )
