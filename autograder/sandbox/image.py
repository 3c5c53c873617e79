"""Which directories a sandbox may see, and where they lie in it.

    the interpreter's prefix      at its own path, every site-packages below it masked
    /usr/lib/<machine>, ...       shared libraries, at their own paths
    /site/<entry>                 allow-listed distributions, one bind per top-level entry
    /site/efflib                  a staged copy of efflib, withheld modules replaced by stubs
    /worker.py, /site/*.py        what serves the grader

Everything else is absent: the course repository, tests, solutions, home directories, shells.
"""

import compileall
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import py_compile
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from autograder.sandbox.limits import SandboxUnavailable

SITE, WORKER = "/site", "/worker.py"
SERVERS = {
    "worker.py": WORKER,
    "confine.py": f"{SITE}/confine.py",
    "namespaces.py": f"{SITE}/namespaces.py",
    "student_shell.py": f"{SITE}/student_shell.py",
    "zygote.py": f"{SITE}/zygote.py",
}
REQUIRED = ("torch", "numpy", "safetensors", "msgpack")
OPTIONAL = ("matplotlib", "ipython", "ipywidgets", "tokenizers", "triton", "einops")
# Requirements that nothing in a sandbox uses: installers, network clients, notebook front ends.
LEFT_OUT = {"setuptools", "pip", "huggingface-hub", "widgetsnbextension", "jupyterlab-widgets"}
WRITABLE = ("/tmp", "/dev/shm", "/w")  # a sandbox has its own, empty at first
PACKAGE_DIRS = ("site-packages", "dist-packages")
NOT_COPIED = {"__pycache__", ".ipynb_checkpoints"}
UNUSED_DAYS = 14  # an image that no grading touched for so long is deleted
STUB = '''"""Withheld: the lab that is graded asks for this module's functions."""


def __getattr__(name):
    fault = AttributeError if name.startswith("__") else ImportError
    raise fault(f"{__name__} is not available in grading: this lab asks you to write it yourself")
'''


# ---- interpreter and shared libraries ------------------------------------------------------------


def interpreter() -> Path:
    """The real executable, also when this process runs in a virtual environment."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))


def system_dirs() -> list[Path]:
    """Directories bound at their own paths: the standard library and shared libraries."""
    stdlib = Path(os.__file__).resolve().parent
    dynload = Path(sysconfig.get_config_var("DESTSHARED") or stdlib)
    prefix = Path(sys.base_prefix).resolve()
    own = [stdlib, dynload] if prefix == Path("/usr") else [prefix / "lib"]
    machine = Path("/usr/lib") / f"{platform.machine()}-linux-gnu"
    shared = [machine if machine.is_dir() else Path("/usr/lib"), Path("/usr/lib64")]
    if not Path("/lib").is_symlink():
        shared += [Path("/lib") / machine.name, Path("/lib64")]
    found = [path for path in dict.fromkeys(own + shared) if path.is_dir()]
    return [p for p in found if not any(p.is_relative_to(q) for q in found if q != p)]


def masked_dirs(bound: list[Path]) -> list[Path]:
    """Every directory of installed packages below the bound ones: covered by an empty one."""
    patterns = [f"{depth}{name}" for name in PACKAGE_DIRS for depth in ("", "python*/")]
    patterns += [f"lib*/python*/{name}" for name in PACKAGE_DIRS]
    found = {path for base in bound for pattern in patterns for path in base.glob(pattern)}
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


# ---- distributions -------------------------------------------------------------------------------


@functools.cache
def package_entries() -> dict[str, Path]:
    """{path below /site: source} of the allow-listed distributions and their requirements."""
    entries: dict[str, Path] = {}
    queue, seen = list(REQUIRED + OPTIONAL), set(LEFT_OUT)
    while queue:
        name = canonicalize_name(queue.pop(0))
        if name in seen:
            continue
        seen.add(name)
        try:
            dist = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in REQUIRED:
                raise SandboxUnavailable(f"{name} is not installed: pip install {name}") from None
            continue
        for entry in top_level(dist):
            source = Path(dist.locate_file(entry)).resolve()
            if source.exists():
                entries.setdefault(entry, source)
        wanted = [Requirement(text) for text in dist.requires or ()]
        queue += [r.name for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    return entries


def top_level(dist: importlib.metadata.Distribution) -> list[str]:
    """What a distribution put into site-packages: packages, modules (and their byte code)."""
    record = dist.read_text("RECORD")
    if record is not None:
        paths = [line.split(",", 1)[0].strip('"') for line in record.splitlines()]
    else:
        paths = [str(path) for path in dist.files or ()]
        for name in (dist.read_text("top_level.txt") or dist.metadata["Name"]).split():
            paths += [name, f"{name}.py"]
    tops = (p if p.startswith("__pycache__/") else p.split("/", 1)[0] for p in paths)
    return [top for top in dict.fromkeys(tops) if top not in ("", "..", "__pycache__", "/")]


# ---- the staged copy of efflib -------------------------------------------------------------------


def efflib_dir() -> Path:
    return Path(importlib.util.find_spec("efflib").submodule_search_locations[0]).resolve()


def servers() -> list[Path]:
    """The files of the grader's that run inside."""
    return [Path(__file__).parent / "inside" / name for name in SERVERS]


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(base) / "efflib-autograder"
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return root


def source_files(root: Path) -> list[Path]:
    """Regular files of a package, relative to it, without byte code."""
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    relative = (path.relative_to(root) for path in files)
    return sorted(path for path in relative if not NOT_COPIED & set(path.parts))


def is_withheld(path: Path, withhold: tuple[str, ...]) -> bool:
    """path: a file relative to efflib's directory, e.g. quantization/linear.py."""
    module = ".".join(("efflib", *path.with_suffix("").parts)).removesuffix(".__init__")
    return any(module == name or module.startswith(f"{name}.") for name in withhold)


@functools.cache
def staged(withhold: tuple[str, ...]) -> Path:
    """Directory with `efflib` and the worker as the sandbox sees them, cached by content.

    Raises ValueError where a module to withhold does not exist: a typing error would leak it.
    """
    root = efflib_dir()
    files = source_files(root)
    for name in withhold:
        if not re.fullmatch(r"efflib(\.\w+)+", name) or not any(
            is_withheld(path, (name,)) for path in files
        ):
            raise ValueError(f"cannot withhold {name!r}: efflib has no such module")
    digest = hashlib.sha256(f"{sys.version} {STUB} {sorted(withhold)}".encode())
    for path in [root / file for file in files] + servers():
        digest.update(f"{os.path.relpath(path, root)} ".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    target = cache_root() / digest.hexdigest()[:32]
    if target.is_dir():
        os.utime(target)
    else:
        build_image(root, files, withhold, target)
        remove_unused(target.parent)
    return target


def build_image(root: Path, files: list[Path], withhold: tuple[str, ...], target: Path) -> None:
    """Writes all of the image or nothing; two graders may do so at once."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="new-") as folder:
        new = Path(folder) / "image"
        (new / "efflib").mkdir(parents=True)
        for file in files:
            copy = new / "efflib" / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not is_withheld(file, withhold):
                shutil.copyfile(root / file, copy)
            elif file.suffix == ".py":
                copy.write_text(STUB)
        for server in servers():
            shutil.copyfile(server, new / server.name)
        compileall.compile_dir(
            new / "efflib",
            quiet=2,
            stripdir=new,
            prependdir=SITE,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        try:
            new.rename(target)
        except OSError:
            if not target.is_dir():
                raise


def remove_unused(root: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 86_400
    for old in root.iterdir():
        if old.stat().st_mtime < oldest:
            shutil.rmtree(old, ignore_errors=True)


# ---- all of it -----------------------------------------------------------------------------------


def binds(withhold: tuple[str, ...]) -> tuple[list[tuple[Path, str]], list[Path]]:
    """([(source, path in the sandbox)], [directories to mask]), all read-only.

    Raises SandboxUnavailable where one of them would show the grader's own files.
    """
    system = system_dirs()
    for path in (*system, interpreter()):
        if any(path.is_relative_to(folder) for folder in WRITABLE):
            raise SandboxUnavailable(
                f"Python lies in {path}, and a sandbox has an empty folder of its own in place of "
                f"{' and '.join(WRITABLE)}: use a Python that is installed elsewhere"
            )
    masks = masked_dirs(system)
    pairs = [(path, str(path)) for path in (*system, interpreter())]
    pairs += [(source, f"{SITE}/{entry}") for entry, source in package_entries().items()]
    for secret in (Path(__file__).resolve().parents[1], efflib_dir()):
        for source, _ in pairs:
            hidden = any(secret.is_relative_to(mask) for mask in masks)
            if secret.is_relative_to(source) and not hidden:
                raise SandboxUnavailable(
                    f"{secret} lies in {source}, which student code has to read: move the course"
                )
    own = staged(withhold)
    pairs.append((own / "efflib", f"{SITE}/efflib"))
    pairs += [(own / name, inside) for name, inside in SERVERS.items()]
    return pairs, masks
