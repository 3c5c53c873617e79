"""`make lab` opens JupyterLab without the menus of teachers."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def nbgraders_line(**environment) -> str:
    """What JupyterLab says of nbgrader's extension."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "labextension", "list"],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": programs} | environment,
        check=True,
    )
    [line] = [x for x in (done.stdout + done.stderr).splitlines() if "@jupyter/nbgrader v" in x]
    return line


def test_the_teachers_extension_is_there_and_make_lab_leaves_it_out():
    recipe = (ROOT / "Makefile").read_text().partition("\nlab:")[2].splitlines()[1]
    assert "JUPYTER_CONFIG_PATH=$(CURDIR)/course/jupyter" in recipe
    assert "enabled" in nbgraders_line()
    assert "disabled" in nbgraders_line(JUPYTER_CONFIG_PATH=str(ROOT / "course" / "jupyter"))
