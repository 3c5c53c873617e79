"""A course that has released its lab."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "nbgrader"))
import nbcourse  # noqa: E402

from autograder.nbgrader.release import release  # noqa: E402


@pytest.fixture(scope="session")
def released(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return root
