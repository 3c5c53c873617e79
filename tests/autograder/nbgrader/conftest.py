"""Fixtures shared by the tests of this folder."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nbgrader():
    """Runs an nbgrader command in a course folder, as an instructor does; returns what it said."""

    def run(course: Path, *command: str, code: int = 0) -> str:
        shutil.copy(ROOT / "nbgrader_config.py", course)
        environment = os.environ | {"JUPYTER_CONFIG_DIR": str(course / "no-jupyter-config")}
        done = subprocess.run(
            [sys.executable, "-m", "nbgrader", *command],
            cwd=course,
            env=environment,
            capture_output=True,
            text=True,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    return run
