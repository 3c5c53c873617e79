"""Sets a bundle up from the network, as its README says, and checks an exercise: make test-setup.

Some hundred MB are loaded for each way (GBs, where there is no build of torch for CPUs). What they
take up is printed (pytest -s), and held to the README (autograder.bundle.tree.SIZES).
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autograder import cli
from autograder.bundle.tree import SIZES

ROOT = Path(__file__).parents[2]
LAB = "lab01_quantization"
OURS = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
CODE = """
from efflib.lab import CheckFailed, Lab
from efflib import zoo
import efflib, jupyterlab, ipywidgets
lab = Lab("lab01_quantization")
try:
    lab.check("ex1")
except CheckFailed as error:
    print("CheckFailed", error)
print(efflib.__file__)
"""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
INSTALL = [".venv/bin/pip", "install", "--constraint", "constraints.txt"]
WAYS = {
    "pip": [[sys.executable, "course.py", "setup"]],
    "uv": [["uv", "sync", "--python", sys.executable]],
    "wheel": [
        [sys.executable, "-m", "venv", ".venv"],
        [".venv/bin/pip", "install", "--index-url", CPU_INDEX, "{torch}"],
        [*INSTALL, "{wheel}"],
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("made")
    assert cli.run(["bundle", LAB, "--out", str(out), "--course", str(ROOT)]) == 0
    return out


@pytest.mark.skipif(os.name == "nt", reason="paths of this test are those of Linux and macOS")
@pytest.mark.parametrize("way", WAYS)
def test_two_commands_set_it_up(way, made, tmp_path):
    if way == "uv" and not shutil.which("uv"):
        pytest.skip("uv is not installed")
    with zipfile.ZipFile(next(made.glob("*.zip"))) as archive:
        archive.extractall(tmp_path)
    [root] = tmp_path.iterdir()
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    [torch] = re.findall(r"^torch==.*", (root / "constraints.txt").read_text(), re.MULTILINE)
    for command in WAYS[way]:
        wheel = str(next(made.glob("*.whl")))
        words = [word.format(wheel=wheel, torch=torch) for word in command]
        subprocess.run(words, cwd=root, env=clean, check=True)
    if way == "wheel":  # it brings the labs along
        shutil.rmtree(root / "labs")
        shutil.rmtree(root / "efflib")
    python = str(root / ".venv" / "bin" / "python")
    ran = subprocess.run(
        [python, "-c", CODE], cwd=root, env=clean, capture_output=True, text=True, check=True
    )
    assert "[ok]" in ran.stdout and "[fail]" not in ran.stdout
    assert "CheckFailed exercise 1 is not done yet" in ran.stdout
    assert str(root) in ran.stdout.splitlines()[-1]
    subprocess.run([python, "-m", "jupyter", "lab", "--version"], cwd=root, env=clean, check=True)
    files = [p for p in (root / ".venv").rglob("*") if p.is_file() and not p.is_symlink()]
    size = sum(path.stat().st_size for path in files) / 1e9
    print(f"{way}: .venv takes up {size:.2f} GB")
    build = "gpu" if list((root / ".venv").rglob("site-packages/nvidia")) else "cpu"
    assert abs(size - SIZES[build][1]) < 0.2 * SIZES[build][1]
