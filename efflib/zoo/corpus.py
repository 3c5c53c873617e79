"""The zoo's text: what every Python installation carries.

Two splits, each with training documents and held-out documents:

- ``code``: the source of the standard library, without tests, generated tables and bundled
  packages;
- ``prose``: the language reference that ``help()`` prints, ``pydoc_data.topics``.

Nothing is downloaded and nothing is committed: the text is read from the running Python, so
another Python version gives slightly different text. `digest` tells whether two installations
read the same one; a model card records the digest its perplexities belong to.

The held-out names are fixed lists. Several topics of ``pydoc_data`` repeat whole sections of one
another (``compound`` holds ``if``, ``for`` and ``with``; ``specialnames`` holds
``customization``), so the held-out topics are chosen among those that no other topic repeats.
"""

import hashlib
import sysconfig
from functools import cache
from pathlib import Path
from typing import Literal

Split = Literal["code", "prose"]
SPLITS: tuple[Split, ...] = ("code", "prose")

HELD_OUT_MODULES = (
    "asyncio/queues.py",
    "asyncio/streams.py",
    "bisect.py",
    "calendar.py",
    "configparser.py",
    "copy.py",
    "csv.py",
    "dis.py",
    "email/message.py",
    "fnmatch.py",
    "fractions.py",
    "functools.py",
    "getopt.py",
    "graphlib.py",
    "gzip.py",
    "heapq.py",
    "html/parser.py",
    "http/cookies.py",
    "json/decoder.py",
    "logging/config.py",
    "multiprocessing/pool.py",
    "netrc.py",
    "pprint.py",
    "queue.py",
    "sched.py",
    "shlex.py",
    "shutil.py",
    "statistics.py",
    "tempfile.py",
    "textwrap.py",
    "timeit.py",
    "tokenize.py",
    "tomllib/_parser.py",
    "urllib/robotparser.py",
)

HELD_OUT_TOPICS = (
    "calls",
    "debugger",
    "formatstrings",
    "import",
    "objects",
    "strings",
    "typesmapping",
)

# Tests, other people's packages, tables of characters, and files that differ by machine.
_EXCLUDED_FOLDERS = frozenset(
    "site-packages dist-packages test tests idle_test idlelib lib2to3 encodings pydoc_data "
    "ensurepip turtledemo lib-dynload __pycache__ __phello__".split()
)
_EXCLUDED_PREFIXES = ("_sysconfigdata", "__phello__")


def _code_files() -> dict[str, Path]:
    """Map 'json/decoder.py' to its path, for every module of the split, sorted by name."""
    root = Path(sysconfig.get_path("stdlib"))
    files = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        generated = parts[-1].startswith(_EXCLUDED_PREFIXES) or parts[0].startswith("config-")
        if not generated and not _EXCLUDED_FOLDERS.intersection(parts[:-1]):
            files["/".join(parts)] = path
    return files


@cache
def documents(split: Split, held_out: bool) -> dict[str, str]:
    """Return {name: text} of a split's held-out or training documents, in a fixed order.

    Raises:
        ValueError: for an unknown split.
    """
    if split == "code":
        texts = {
            name: path.read_text(encoding="utf-8", errors="replace")
            for name, path in _code_files().items()
            if (name in HELD_OUT_MODULES) == held_out
        }
    elif split == "prose":
        from pydoc_data.topics import topics

        texts = {
            name: topics[name] for name in sorted(topics) if (name in HELD_OUT_TOPICS) == held_out
        }
    else:
        raise ValueError(f"split must be one of {SPLITS}, got {split!r}")
    return texts


@cache
def digest(split: Split, held_out: bool) -> str:
    """The sha256 of a split's documents, names included: equal digests mean equal text."""
    state = hashlib.sha256()
    for name, text in documents(split, held_out).items():
        state.update(f"{name}\0{len(text)}\0".encode())
        state.update(text.encode())
    return state.hexdigest()
