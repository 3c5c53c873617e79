"""The hub of a file of tests; the helpers of the nbgrader tests, whose toy lab it serves."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "autograder" / "nbgrader"))

from classroom import INSTALLED, PROXY, PYTHON  # noqa: E402
from toy_course import toy_room  # noqa: E402


@pytest.fixture(scope="module")
def room():
    assert os.geteuid() == 0, "makes system users: run it as root, on a machine of your own"
    for path in (PROXY, INSTALLED / "env", Path(PYTHON)):
        assert path.exists(), f"{path} is missing: make test-hub installs it"
    made = toy_room()
    yield made
    made.close()
