"""More training text: the source of the Python packages that the course pins.

The standard library's 2.7 M tokens are learned by heart in a few passes; a model that learns by
heart shows other phenomena than one that generalizes. These packages are installed with the
course, at the versions of constraints.txt, so every machine reads nearly the same text. Only
training reads them: perplexities are measured on held-out text of the standard library, which
every Python carries.

Left out: tests, files that are tables, and files that repeat the held-out text (some packages
carry copies of standard modules).
"""

import hashlib
import importlib.metadata
import sysconfig
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from efflib.zoo import corpus
from efflib.zoo.tokenizer import load_tokenizer

PACKAGES = (
    "IPython",
    "dask",
    "distributed",
    "docutils",
    "fontTools",
    "hypothesis",
    "jinja2",
    "jupyter_server",
    "matplotlib",
    "nbconvert",
    "networkx",
    "numpy",
    "pydantic",
    "pygments",
    "scipy",
    "sqlalchemy",
    "sympy",
    "torch",
    "tornado",
    "traitlets",
    "transformers",
)
PACKAGE_CHARACTERS = 6_000_000  # of one package at most, so that none is most of the text
SHORTEST, LONGEST = 500, 100_000  # characters of a file: below stubs, above tables
LINE = 30  # shorter lines are alike everywhere
FILES = 256  # that are encoded at once: an encoding takes much more memory than its ids
COPIED = 0.2  # share of a file's lines that may stand in the held-out text as well


def held_out_lines() -> frozenset[str]:
    texts = [t for s in corpus.SPLITS for t in corpus.documents(s, held_out=True).values()]
    lines = (line.strip() for text in texts for line in text.splitlines())
    return frozenset(line for line in lines if len(line) >= LINE)


def is_copy(text: str, held_out: frozenset[str]) -> bool:
    """Whether more than COPIED of the text's long lines stand in the held-out text."""
    lines = [line.strip() for line in text.splitlines() if len(line.strip()) >= LINE]
    return bool(lines) and sum(line in held_out for line in lines) > COPIED * len(lines)


@cache
def documents() -> dict[str, str]:
    """{'numpy/ma/core.py': text} of every file that is read, sorted by package and name.

    Raises:
        FileNotFoundError: a package is not installed.
    """
    root, held_out, found = Path(sysconfig.get_path("purelib")), held_out_lines(), {}
    for package in PACKAGES:
        if not (root / package).is_dir():
            raise FileNotFoundError(f"{package} is not in {root}: training needs `make train`")
        size = 0
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root)
            if size > PACKAGE_CHARACTERS or any("test" in part for part in name.parts):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            if SHORTEST < len(text) < LONGEST and not is_copy(text, held_out):
                found[name.as_posix()] = text
                size += len(text)
    return found


def provenance() -> dict:
    """Versions of the packages, number of files, and a digest of their text."""
    state = hashlib.sha256()
    for name, text in documents().items():
        state.update(f"{name}\0{len(text)}\0{text}".encode())
    versions = importlib.metadata.packages_distributions()
    named = {p: importlib.metadata.version(versions[p][0]) for p in PACKAGES}
    return {"versions": named, "files": len(documents()), "sha256": state.hexdigest()}


def text_ids() -> Tensor:
    """The ids of every file, in an order that mixes the packages. [N] int64"""
    texts = list(documents().values())
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).tolist()
    pieces = []
    for i in range(0, len(order), FILES):
        encoded = load_tokenizer().encode_batch([texts[j] for j in order[i : i + FILES]])
        pieces += [torch.tensor(e.ids) for e in encoded]
    return torch.cat(pieces)
