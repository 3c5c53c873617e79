"""`make lab` opens JupyterLab without the menus of teachers and without a question about news."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jupyterlab

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


def test_the_plugin_that_asks_about_news_is_left_out_under_its_own_name():
    settings = ROOT / "course" / "jupyter" / "labconfig" / "page_config.json"
    plugin = "@jupyterlab/apputils-extension:announcements"
    assert json.loads(settings.read_text())["disabledExtensions"][plugin]
    programs = (Path(jupyterlab.__file__).parent / "static").glob("*.js")
    assert any(plugin in path.read_text(encoding="utf-8") for path in programs)
