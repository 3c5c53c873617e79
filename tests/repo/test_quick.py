"""make quick: which tests and labs a change is about."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import quick  # noqa: E402


def test_tests_of_a_change_are_those_that_import_it_by_two_steps():
    changed = ROOT / "autograder" / "triad" / "edits.py"
    names = {path.name for path in quick.dependents({changed})}
    assert {"edits.py", "test_edits.py", "written.py", "variants.py"} <= names
    assert "test_kv_cache.py" not in names
    one_step = {path.name for path in quick.dependents({changed}, steps=1)}
    assert one_step == {"edits.py", "test_edits.py", "written.py"}


def test_labs_of_a_change():
    changed = {
        "solutions/lab04_wanda/wanda.py",
        "autograder/suites/lab02_smoothquant/triad/ex1.diff",
        "autograder/suites/__init__.py",
        "labs/lab05_kv_cache/kv_cache.ipynb",
        "README.md",
    }
    assert quick.labs_of(changed) == ["lab02_smoothquant", "lab04_wanda"]


def test_changed_and_new_files(tmp_path, monkeypatch):
    def git(*args):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *args], cwd=tmp_path,
                       check=True, capture_output=True)  # fmt: skip

    git("init")
    for name in ("same.py", "changed.py"):
        (tmp_path / name).write_text("x = 1\n")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "changed.py").write_text("x = 2\n")
    (tmp_path / "new.py").touch()
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    assert quick.changed_files("HEAD") == {"changed.py", "new.py"}
