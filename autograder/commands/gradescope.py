"""`autograder gradescope LAB OUT`: the zip that Gradescope makes an autograder of."""

import importlib
import zipfile
from pathlib import Path

from autograder.errors import UsageError, files_told
from autograder.labs.hashing import NOT_SOURCE
from autograder.labs.manifest import load_lab
from autograder.labs.material import material

PACKAGES = Path(__file__).parents[2]  # where autograder and efflib are
FILES = PACKAGES / "autograder" / "lms" / "gradescope_files"
REQUIRED = (  # of a grader without nbgrader and commands
    "torch", "numpy", "safetensors", "tokenizers", "msgpack", "msgspec", "pytest", "nbformat",
    "packaging", "pyyaml", "matplotlib", "ipywidgets", "ipython",
)  # fmt: skip
DATE = (1980, 1, 1, 0, 0, 0)


def write_autograder(root: Path, name: str, out: Path) -> str:
    """One zip for one lab: setup.sh, run_autograder, the grader, efflib, this lab and its suite."""
    lab = load_lab(name, root)
    if out.exists():
        raise UsageError(f"{out} exists already")
    trees = {
        "autograder": PACKAGES / "autograder",
        "efflib": Path(importlib.import_module("efflib").__file__).parent,
        f"labs/{name}": lab.release_dir,
        f"autograder/suites/{name}": lab.suite_dir,
    }
    with files_told(out), zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for where, folder in trees.items():
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                inside = path.relative_to(folder)
                skipped = where == "autograder" and inside.parts[0] in ("suites", "demo", "triad")
                if not skipped and not NOT_SOURCE & set(inside.parts):
                    add(archive, f"{where}/{inside.as_posix()}", path.read_bytes())
        for path in sorted(FILES.iterdir()):
            add(archive, path.name, path.read_bytes(), executable=True)
        add(archive, "constraints.txt", pins(material(root)).encode())
        add(archive, "requirements.txt", ("\n".join(REQUIRED) + "\n").encode())
        add(archive, "lab", name.encode())
    return f"{out}: {out.stat().st_size / 1e6:.1f} MB, {lab.max_score:g} points by tests"


def pins(root: Path) -> str:
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    return "".join(x for x in text.splitlines(keepends=True) if not x.startswith("triton=="))


def add(archive: zipfile.ZipFile, name: str, content: bytes, *, executable: bool = False) -> None:
    about = zipfile.ZipInfo(name, DATE)
    about.compress_type = zipfile.ZIP_DEFLATED
    about.external_attr = (0o755 if executable else 0o644) << 16
    archive.writestr(about, content)
