"""What is bound into a sandbox, checked without starting one."""

import ast
import importlib.metadata
import os
import time
from pathlib import Path

import pytest

from autograder.sandbox import image
from autograder.sandbox.limits import SandboxUnavailable

SANDBOX = Path(image.__file__).parent


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    image.staged.cache_clear()
    yield tmp_path
    image.staged.cache_clear()


def test_only_allow_listed_packages_are_bound():
    entries = image.package_entries()
    assert {"torch", "numpy", "safetensors", "msgpack"} <= set(entries)
    absent = ["efflib", "autograder", "nbgrader", "_pytest", "pip", "setuptools", "transformers"]
    assert not any(name in entries for name in absent)
    assert not any(name.endswith(".pth") or "__editable__" in name for name in entries)


def test_single_modules_come_with_their_byte_code():
    entries = image.package_entries()
    assert "typing_extensions.py" in entries
    assert any(name.startswith("__pycache__/typing_extensions.") for name in entries)


class NoRecord(importlib.metadata.Distribution):
    """A distribution without a list of files, as some systems' package managers leave them."""

    def read_text(self, filename):
        return {"top_level.txt": "thing\nother\n", "METADATA": "Name: thing\n"}.get(filename)

    def locate_file(self, path):
        return Path("/nowhere") / path


def test_a_distribution_without_a_record_is_found_by_its_top_level_names():
    assert image.top_level(NoRecord()) == ["thing", "thing.py", "other", "other.py"]


def test_every_directory_of_packages_is_masked(tmp_path):
    wanted = ["python3.11/site-packages", "python3/dist-packages", "site-packages"]
    for name in [*wanted, "python3.11/json"]:
        (tmp_path / name).mkdir(parents=True)
    assert image.masked_dirs([tmp_path]) == sorted(tmp_path / name for name in wanted)


def test_system_directories_are_no_homes_and_do_not_overlap():
    found = image.system_dirs()
    assert all(
        path.is_absolute() and path.name.startswith(("lib", "x86", "aarch", "python"))
        for path in found
    )
    assert not any(a != b and a.is_relative_to(b) for a in found for b in found)


@pytest.mark.parametrize("inside", [True, False])
def test_a_course_inside_a_bound_directory_is_refused(monkeypatch, tmp_path, inside, cache):
    efflib = tmp_path / "lib" / ("efflib" if inside else "python3.11/site-packages/efflib")
    efflib.mkdir(parents=True)
    monkeypatch.setattr(image, "system_dirs", lambda: [tmp_path / "lib"])
    monkeypatch.setattr(image, "efflib_dir", lambda: efflib)
    if inside:
        with pytest.raises(SandboxUnavailable, match="move the course"):
            image.binds(())
    else:
        assert (tmp_path / "lib/python3.11/site-packages") in image.binds(())[1]


# ---- the image ----------------------------------------------------------------------------------


def test_an_image_is_built_once_and_again_when_something_changes(cache, monkeypatch, tmp_path):
    first = image.staged(("efflib.quantization",))
    made = (first / "efflib" / "__init__.py").stat().st_mtime_ns
    image.staged.cache_clear()
    assert image.staged(("efflib.quantization",)) == first
    assert (first / "efflib" / "__init__.py").stat().st_mtime_ns == made
    assert image.staged(()) != first
    monkeypatch.setattr(image, "STUB", image.STUB + "# changed\n")
    image.staged.cache_clear()
    assert image.staged(("efflib.quantization",)) != first


def test_withheld_modules_are_stubs_with_their_submodules(cache):
    own = image.staged(("efflib.quantization.linear", "efflib.zoo"))
    quantization = own / "efflib" / "quantization"
    assert (quantization / "linear.py").read_text() == image.STUB
    assert (quantization / "kmeans.py").read_text() != image.STUB
    stubs = set(path.read_text() for path in (own / "efflib" / "zoo").rglob("*.py"))
    assert stubs == {image.STUB}
    others = [p for p in (own / "efflib" / "zoo").rglob("*") if p.is_file()]
    assert all(path.suffix in (".py", ".pyc") for path in others)


def test_an_image_holds_no_stale_byte_code_links_or_grader(cache, monkeypatch, tmp_path):
    root = tmp_path / "efflib"
    (root / "__pycache__").mkdir(parents=True)
    (root / "__pycache__" / "secret.cpython-311.pyc").write_bytes(b"x")
    (root / "__init__.py").write_text("")
    (root / "link.py").symlink_to(SANDBOX / "session.py")
    monkeypatch.setattr(image, "efflib_dir", lambda: root)
    files = {
        str(p.relative_to(image.staged(()))) for p in image.staged(()).rglob("*") if p.is_file()
    }
    tag = [name for name in files if name.endswith(".pyc")]
    assert files - set(tag) == {"efflib/__init__.py", *image.SERVERS}
    assert len(tag) == 1


@pytest.mark.parametrize("name", ["efflib.quantisation", "efflib", "torch", "efflib.x; y", ""])
def test_a_module_that_does_not_exist_cannot_be_withheld(cache, name):
    with pytest.raises(ValueError, match="cannot withhold"):
        image.staged((name,))


def test_old_images_are_deleted(cache):
    old = image.cache_root() / ("0" * 32)
    old.mkdir(parents=True)
    os.utime(old, (0, time.time() - (image.UNUSED_DAYS + 1) * 86_400))
    kept = image.staged(())
    assert kept.is_dir() and not old.exists()


# ---- the code of the sandbox itself --------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(SANDBOX.rglob("*.py")), ids=lambda path: path.stem)
def test_nothing_is_ever_unpickled(path):
    tree = ast.parse(path.read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names |= {alias.name for node in imports for alias in node.names}
    assert not names & {"pickle", "marshal", "dill", "cloudpickle", "shelve", "load"}


def test_the_worker_imports_nothing_of_the_grader():
    assert {path.name for path in image.servers()} == set(image.SERVERS)
    for path in image.servers():
        tree = ast.parse(path.read_text())
        modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not any(module.startswith("autograder") for module in modules)


def test_a_python_where_the_sandbox_has_an_empty_folder_is_told(monkeypatch):
    """bwrap alone would say "execvp /tmp/...: No such file or directory"."""
    for place in ("/tmp/envs/python3.11/bin/python3.11", "/dev/shm/python"):
        monkeypatch.setattr(image, "interpreter", lambda place=place: Path(place))
        with pytest.raises(SandboxUnavailable, match=f"Python lies in {place}.* use a Python"):
            image.binds(())


def test_the_folders_of_its_own_are_those_that_a_sandbox_is_started_with():
    from autograder.sandbox.launch import WRITABLE_MB

    assert set(image.WRITABLE) == set(WRITABLE_MB)
