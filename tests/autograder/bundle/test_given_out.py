"""Modules open lab by lab in one and the same wheel, by files that a release brings."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from autograder import cli
from autograder.bundle.given_out import given_out
from autograder.bundle.tree import chosen_labs, hidden_parts, write_tree
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
FIRST, SECOND, SIXTH = "lab01_quantization", "lab02_smoothquant", "lab06_paged_attention"
TRY = """
import sys
sys.modules["autograder"] = None
for name in ("efflib.quantization.kmeans._midpoints", "efflib.serving.paged.PagedSequences"):
    module, _, what = name.rpartition(".")
    try:
        print(getattr(__import__(module, fromlist=[what]), what).__module__)
    except ImportError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A student's efflib, made for all labs before any is over, and the folder of labs."""
    root = tmp_path_factory.mktemp("student")
    write_tree(ROOT, chosen_labs(ROOT, (), ()), hidden_parts(ROOT, ()), root)
    return root


def python(home, code, folder):
    folder.mkdir(parents=True, exist_ok=True)
    env = os.environ | {"PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=env,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def bring(folder, lab, *over):
    for name, text in given_out(ROOT, lab, over).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_wheel_for_one_lab_has_the_efflib_of_a_wheel_for_all(home, tmp_path):
    """So no wheel need be exchanged for the next lab."""
    write_tree(ROOT, chosen_labs(ROOT, [FIRST], ()), hidden_parts(ROOT, ()), tmp_path)
    texts = [
        {p.relative_to(root): p.read_bytes() for p in (root / "efflib").rglob("*.py")}
        for root in (home, tmp_path)
    ]
    assert texts[0] == texts[1]


def test_what_a_lab_built_opens_with_the_files_of_the_next(home, tmp_path):
    closed = python(home, TRY, tmp_path / "labs" / FIRST)
    assert closed[0].startswith(
        "efflib.quantization.kmeans._midpoints is not in what you have: lab01"
    )
    assert "lab06_paged_attention builds it" in closed[1]
    bring(tmp_path / "labs" / SECOND, SECOND, FIRST)
    for lab in (FIRST, SECOND, SIXTH):  # in the folder itself, and in those beside it
        opened = python(home, TRY, tmp_path / "labs" / lab)
        assert opened == ["efflib.quantization.kmeans", closed[1]]
    bring(tmp_path / "labs" / "lab07", "lab07_attention_sinks", FIRST, SIXTH)
    assert python(home, TRY, tmp_path / "labs" / FIRST)[1] == "efflib.serving.paged"


def test_it_opens_in_a_kernel_that_has_met_the_stub_already(home, tmp_path):
    bring(tmp_path / "far" / "aside", SECOND, FIRST)
    code = """
import os, shutil
import efflib.quantization.kmeans as linear
try:
    linear._midpoints
except ImportError:
    shutil.move("../far/aside/given_out", "given_out")
print(linear._midpoints.__code__.co_filename.startswith(os.getcwd()))
import inspect
print("def _midpoints" in inspect.getsource(linear._midpoints), hasattr(linear, "no_such_thing"))
"""
    assert python(home, code, tmp_path / "lab") == ["True", "True False"]


def test_all_that_is_given_out_can_be_imported(home, tmp_path):
    """With the stubs and parts of a wheel that was made before any lab was over."""
    labs = [FIRST, "lab03_awq", SIXTH]
    bring(tmp_path / SECOND, SECOND, *labs)
    names = [
        ".".join(p.relative_to(tmp_path / SECOND / "given_out").with_suffix("").parts)
        for p in (tmp_path / SECOND / "given_out").rglob("*.py")
    ]
    assert len(names) > 3
    code = (
        f"import importlib\nfor name in {names}:\n    importlib.import_module(name)\nprint('all')"
    )
    assert python(home, code, tmp_path / SECOND) == ["all"]


def test_a_release_brings_them_and_no_grade_hangs_on_them(tmp_path):
    root = tmp_path / "course"
    assert cli.run(["course", "new", str(root), "--labs", "01", "02"]) == 0
    before = load_lab(SECOND, root).suite_hash
    run = ["release", SECOND, "--with", FIRST, "--course", str(root)]
    assert cli.run(run) == 0
    linear = root / "labs" / SECOND / "given_out" / "efflib" / "quantization" / "linear.py"
    assert linear.read_bytes() == (ROOT / "efflib/quantization/linear.py").read_bytes()
    lab = load_lab(SECOND, root)
    assert lab.suite_hash == before
    shutil.copytree(root / "labs" / SECOND, root / "submitted" / "s01" / SECOND)
    [row] = discover(root / "submitted", lab)
    assert row.student == "s01" and hasattr(row, "cells")
    assert cli.run(["release", SECOND, "--course", str(root)]) == 0 and not linear.exists()


@pytest.mark.parametrize("over, why", [("lab99", "there is no lab 'lab99'"), (SECOND, "its own")])
def test_what_cannot_be_given_out_is_told(tmp_path, capsys, over, why):
    assert cli.run(["release", SECOND, "--with", over, "--course", str(ROOT)]) == 2
    assert why in capsys.readouterr().err
