"""What targets of the Makefile that start a program hand to it."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("user", "options"), [("0", ["lab", "--allow-root"]), ("1000", ["lab"])])
@pytest.mark.parametrize("target", ["lab", "formgrader"])
def test_jupyterlab_starts_for_root_too(tmp_path, target, user, options):
    """Some containers have no other user; JupyterLab refuses root that does not say so."""
    for name, says in (("jupyter", 'echo "$@" > "$SAID"'), ("id", f"echo {user}")):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    said = tmp_path / "said"
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    subprocess.run(
        ["make", "-s", "-o", "setup", target, f"VENV={tmp_path}"],
        cwd=ROOT,
        env=os.environ | {"PATH": path, "SAID": str(said)},
        check=True,
    )
    assert said.read_text().split() == options
