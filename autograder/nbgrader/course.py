"""nbgrader's view of a course folder."""

from pathlib import Path

from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config, PyFileConfigLoader

from autograder.nbgrader.config import settings

CONFIG_FILE = "nbgrader_config.py"


def course_directory(course_root: Path, db_url: str | None = None) -> CourseDirectory:
    """nbgrader's view of a course: its own nbgrader_config.py, or the settings of this package."""
    root = Path(course_root).resolve()
    if (root / CONFIG_FILE).is_file():
        config = PyFileConfigLoader(CONFIG_FILE, path=str(root)).load_config()
    else:
        config = Config()
        settings(config)
    coursedir = CourseDirectory(config=config, root=str(root))
    if db_url:
        coursedir.db_url = db_url
    return coursedir
