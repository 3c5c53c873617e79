"""The folder that a bundle is made of: efflib in part, labs, chapters, figures, set-up."""

import ast
import json
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import efflib
from autograder.bundle.chapters import plain
from autograder.bundle.hosted import write_hosted
from autograder.bundle.parts import Need, Sources, closure, needs, read_sources
from autograder.bundle.project import FILES, pins, pyproject
from autograder.bundle.withheld import Hidden, owners, stand_in, still_withheld
from autograder.errors import UsageError
from autograder.labs.manifest import LabSpec, load_lab
from autograder.labs.material import material
from autograder.labs.suites import all_suites, lab_names

NEEDS = ("LICENSE", "constraints.txt", "pyproject.toml", "course")  # of the course's folder
CHAPTERS = ("chapters/*.md", "glossary.md", "syllabus.md", "questions.md")  # of course/
NOT_COPIED = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}
TRITON = ("efflib.kernels", "efflib.meter")
# GB to load and GB on disk that set-up takes on Linux; `make test-setup` measures the disk
SIZES = {"cpu": (0.3, 1.3), "triton": (0.6, 2.3), "gpu": (2.8, 5.2)}  # triton: with the CPU build
NEEDED = """Kernels in Triton run on Linux only: elsewhere, cells with kernels say that they are not
verified there."""
NOT_NEEDED = """No lab here needs Triton, and set-up does not ask for it (the build for GPUs brings
it along): without it, `efflib.kernels` and `efflib.meter` say so when they are imported."""
SOME = """Modules of `efflib` that hold answers come from your instructor later
([a list](course/withheld.md)). Until then each says so; the labs run on your own functions."""
WITHHELD = """# Modules of efflib that hold answers

They come from your instructor after the labs that are named here. Until then each says so."""


def hidden_parts(course_root: Path, released: Collection[str]) -> Hidden:
    """What is withheld while only these labs are released, and what is kept of it.

    Kept is what modules need that are not withheld; the labs' own cells need nothing of it.
    """
    sources = read_sources(efflib_dir())
    withheld = still_withheld(owners(course_root, sources), released)
    return Hidden(withheld, closure(needed_by_rest(sources, withheld), sources, withheld))


def needed_by_rest(sources: Sources, withheld: Collection[str]) -> set[Need]:
    """What modules that are not withheld import."""
    rest = (ast.parse(text) for module, text in sources.items() if module not in withheld)
    return set().union(*(needs(tree, sources) for tree in rest))


def needed_by_lab(lab: LabSpec, sources: Sources) -> set[Need]:
    """What the cells of a lab and its public tests import."""
    cells = json.loads(lab.release_notebook.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    tests = lab.test_files["public"].read_text(encoding="utf-8")
    return needs(ast.parse(code), sources) | needs(ast.parse(tests), sources)


def uses_triton(labs: list[LabSpec]) -> bool:
    """Whether a lab runs kernels; the package takes 1 GB of disk, so others go without."""
    sources = read_sources(efflib_dir())
    named = {module for lab in labs for module, _ in needed_by_lab(lab, sources)}
    return any(module.startswith(TRITON) for module in named)


def efflib_dir() -> Path:
    return Path(efflib.__file__).parent


def chosen_labs(course_root: Path, names: Iterable[str], released: Iterable[str]) -> list[LabSpec]:
    """The labs of these names (default: all). Raises LabError, UsageError for unknown ones."""
    known = all_suites(course_root)
    unknown = sorted(set(released) - set(known))
    if unknown:
        raise UsageError(f"--with: there is no lab {unknown[0]!r} (found: {', '.join(known)})")
    return [load_lab(name, course_root) for name in names or lab_names(course_root)]


def write_tree(course_root: Path, labs: list[LabSpec], hidden: Hidden, out: Path) -> None:
    """Writes everything below `out`. Raises UsageError where the course lacks a file."""
    course_root = material(course_root)
    missing = [name for name in NEEDS if not (course_root / name).exists()]
    if missing:
        raise UsageError(f"a bundle needs {course_root / missing[0]}, which is missing")
    shutil.copyfile(course_root / "LICENSE", out / "LICENSE")
    (out / "constraints.txt").write_text("\n".join(pins(course_root)) + "\n", encoding="utf-8")
    shutil.copyfile(FILES / "course.py", out / "course.py")
    write_hosted(out)
    write_efflib(hidden, out / "efflib")
    for lab in labs:
        shutil.copytree(
            lab.release_dir, out / "labs" / lab.name, ignore=shutil.ignore_patterns(*NOT_COPIED)
        )
    write_chapters(course_root / "course", out / "course")
    if hidden.withheld:
        (out / "course" / "withheld.md").write_text(withheld_page(hidden), encoding="utf-8")
    (out / "README.md").write_text(readme(labs, hidden), encoding="utf-8")
    text = pyproject(course_root, out, triton=uses_triton(labs))
    (out / "pyproject.toml").write_text(text, encoding="utf-8")


def write_efflib(hidden: Hidden, out: Path) -> None:
    package = efflib_dir()
    for path in sorted(p for p in package.rglob("*") if p.is_file()):
        relative = path.relative_to(package)
        if NOT_COPIED & set(relative.parts):
            continue
        copy = out / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        module = ".".join(("efflib", *relative.with_suffix("").parts))
        if path.suffix == ".py" and module in hidden.withheld:
            source, kept = path.read_text(encoding="utf-8"), hidden.parts.get(module, ())
            text = stand_in(module, source, hidden.withheld[module], kept)
            copy.write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(path, copy)


def write_chapters(course: Path, out: Path) -> None:
    for pattern in CHAPTERS:
        for path in sorted(course.glob(pattern)):
            copy = out / path.relative_to(course)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(plain(path), encoding="utf-8")
    for name in ("figures", "jupyter"):  # jupyter: settings that `course.py lab` reads
        shutil.copytree(course / name, out / name)


def withheld_page(hidden: Hidden) -> str:
    """A list for each lab, or group of labs, after which modules are given out."""
    by_labs: dict[str, list[str]] = {}
    for module, owned in sorted(hidden.withheld.items()):
        by_labs.setdefault(", ".join(owned), []).append(f"- `{module}`")
    parts = [f"After {names}:\n\n" + "\n".join(by_labs[names]) for names in sorted(by_labs)]
    return "\n\n".join([WITHHELD, *parts]) + "\n"


def readme(labs: list[LabSpec], hidden: Hidden) -> str:
    rows = [f"- `labs/{lab.name}/{lab.notebook}.ipynb`: {lab.title}" for lab in labs]
    triton = uses_triton(labs)
    cpu = SIZES["triton" if triton else "cpu"]
    sizes = [
        f"| for CPUs, which set-up takes | {cpu[0]} GB | {cpu[1]} GB |",
        "| for GPUs, where download.pytorch.org is out of reach | {} GB | {} GB |".format(
            *SIZES["gpu"]
        ),
    ]
    return (FILES / "README.md").read_text(encoding="utf-8").format(
        labs="\n".join(rows),
        withheld=SOME if hidden.withheld else "All of `efflib` is here.",
        sizes="\n".join(sizes),
        triton=NEEDED if triton else NOT_NEEDED,
    )  # fmt: skip
