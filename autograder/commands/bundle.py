"""`autograder bundle`: what students get instead of the repository."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import efflib
from autograder.bundle.hosted import write_colab
from autograder.bundle.pack import last_commit, write_wheel, write_zip
from autograder.bundle.parts import ALL
from autograder.bundle.too_early import refuse_answers
from autograder.bundle.tree import chosen_labs, hidden_parts, write_tree
from autograder.bundle.withheld import Hidden
from autograder.errors import files_told
from autograder.labs.material import material

NAME = f"efficient-llm-course-{efflib.__version__}"


def bundle_labs(
    root: Path,
    names: Sequence[str],
    released: Sequence[str],
    out: Path | None,
    *,
    colab: str | None = None,
) -> Iterator[str]:
    """Writes the zip and the wheel; says what they are and what they give away.

    Raises LabError, UsageError, StorageError.
    """
    out = out or root / "build" / "bundle"
    date = last_commit(material(root))
    labs = chosen_labs(root, names, released)
    refuse_answers(root, [lab.name for lab in labs], released)
    hidden = hidden_parts(root, released)
    notebooks = [] if colab is None else write_colab(labs, colab, out / "colab")
    with tempfile.TemporaryDirectory() as folder, files_told(out):
        out.mkdir(parents=True, exist_ok=True)
        write_tree(root, labs, hidden, Path(folder))
        made = [
            write_zip(Path(folder), out / f"{NAME}.zip", date),
            write_wheel(Path(folder), out, date),
        ]
    for path in made:
        yield f"{path}: {path.stat().st_size / 1e6:.1f} MB"
    if notebooks:
        yield f"{out / 'colab'}: {len(notebooks)} notebooks that install {colab}"
    yield f"labs: {', '.join(lab.name for lab in labs)}"
    yield from told(hidden)


def told(hidden: Hidden) -> Iterator[str]:
    """What is withheld, and what students can read all the same."""
    yield f"modules of efflib: {len(hidden.stubs)} are stubs, {len(hidden.parts)} are there in part"
    for module, names in sorted(hidden.parts.items()):
        kept = "all of it" if ALL in names else ", ".join(sorted(names))
        yield f"    {module} ({', '.join(hidden.withheld[module])}): {kept}"
