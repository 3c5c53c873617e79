"""What happens to notebooks between a student's screen and a teacher's folder, seeded.

`hand_in(kit, folder, seed)` writes one submission of the demonstration class's students, damaged in
up to three ways, and says whether it can still be read as a notebook.
"""

import copy
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from autograder.demo.honest import Kit
from autograder.demo.make_class import STUDENTS

Damage = Callable[[dict, random.Random], None]


def junk_cells(nb: dict, rng: random.Random) -> None:
    for source in (
        "1 / 0",
        "torch = 3",
        "import time; time.sleep(0.2)",
        "!ls",
        "def f(:\n  pass",
        "",
    ):
        nb["cells"].insert(rng.randrange(len(nb["cells"])), new_code_cell(source))
    nb["cells"].insert(0, new_markdown_cell("<script>alert(1)</script> my notes"))


def move_a_cell(nb: dict, rng: random.Random) -> None:
    cell = nb["cells"].pop(rng.randrange(len(nb["cells"])))
    nb["cells"].insert(rng.randrange(len(nb["cells"])), cell)


def copy_a_cell(nb: dict, rng: random.Random) -> None:
    nb["cells"].insert(rng.randrange(len(nb["cells"])), copy.deepcopy(rng.choice(nb["cells"])))


def lose_a_cell(nb: dict, rng: random.Random) -> None:
    del nb["cells"][rng.randrange(len(nb["cells"]))]


def strip_metadata(nb: dict, rng: random.Random) -> None:
    nb["metadata"] = {}
    for cell in nb["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)


def change_a_type(nb: dict, rng: random.Random) -> None:
    cell = rng.choice([cell for cell in nb["cells"] if cell["cell_type"] == "code"])
    cell["cell_type"] = "markdown"
    cell.pop("outputs", None)
    cell.pop("execution_count", None)


def strange_cell(nb: dict, rng: random.Random) -> None:
    odd = rng.choice(
        [{"cell_type": "heading", "source": "x"}, {"cell_type": "code", "source": 7}, 5]
    )
    nb["cells"].insert(rng.randrange(len(nb["cells"])), odd)


def loud_outputs(nb: dict, rng: random.Random) -> None:
    for cell in nb["cells"]:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            html = {"text/html": "<img src=x onerror=alert(1)>", "text/plain": "x" * 50_000}
            shown = {"output_type": "display_data", "data": html, "metadata": {}}
            cell["outputs"] = [shown, {"output_type": "stream", "name": "stdout", "text": "\ud800"}]


def grades_itself(nb: dict, rng: random.Random) -> None:
    for cell in nb["cells"]:
        if isinstance(cell, dict) and "nbgrader" in cell.get("metadata", {}):
            cell["metadata"]["nbgrader"] |= {"points": 1000, "locked": False, "solution": True}


DAMAGES: list[Damage] = [
    junk_cells, move_a_cell, copy_a_cell, lose_a_cell, strip_metadata, change_a_type, strange_cell,
    loud_outputs, grades_itself,
]  # fmt: skip


def ends_early(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(1, len(data))]


def conflict(data: bytes, rng: random.Random) -> bytes:
    return b"<<<<<<< HEAD\n" + data[:500] + b"\n=======\n" + data + b"\n>>>>>>> main\n"


def no_text(data: bytes, rng: random.Random) -> bytes:
    return b"\xff\xfe\x00" + data[:100]


def nothing(data: bytes, rng: random.Random) -> bytes:
    return b""


RUINS = [ends_early, conflict, no_text, nothing]
PACKINGS = ["plain", "plain", "plain", "zip", "bzip2", "deep zip", "two", "renamed", "with others"]


def hand_in(kit: Kit, folder: Path, seed: int) -> str:
    """Writes one student's files into `folder`; returns what was done to them, for messages."""
    rng = random.Random(seed)
    name = rng.choice(list(STUDENTS))
    made = STUDENTS[name](kit)
    if isinstance(made, bytes):
        data, done = made, []
    else:
        nb = json.loads(nbformat.writes(made))
        done = rng.sample(DAMAGES, rng.choice([0, 0, 1, 2, 3]))
        for damage in done:
            damage(nb, rng)
        data = json.dumps(nb).encode()
    if rng.random() < 0.1:
        ruin = rng.choice(RUINS)
        data, done = ruin(data, rng), [*done, ruin]
    packing = rng.choice(PACKINGS)
    folder.mkdir(parents=True)
    for path, content in packed(data, packing).items():
        (folder / path).write_bytes(content)
    stamp = rng.choice(["2026-10-01 12:00:00 UTC", "9" * 400, "1e9999999", "tomorrow", None])
    if stamp is not None:
        (folder / "timestamp.txt").write_text(stamp)
    return ", ".join([name, *(step.__name__ for step in done), packing])


def packed(data: bytes, packing: str) -> dict[str, bytes]:
    """{file name: content} of a submission."""
    if packing in ("zip", "bzip2", "deep zip"):
        method = zipfile.ZIP_BZIP2 if packing == "bzip2" else zipfile.ZIP_DEFLATED
        inner = zipped("work/lab.ipynb", data, method)
        return {"all.zip": zipped("x.zip", inner, method) if packing == "deep zip" else inner}
    if packing == "two":
        return {"lab.ipynb": data, "scratch.ipynb": b'{"cells": [], "nbformat": 4}'}
    if packing == "renamed":
        return {"final (2) \u00fc\u4f60.ipynb": data}
    if packing == "with others":
        return {"lab.ipynb": data, "notes.docx": b"PK", ".DS_Store": b"\0", "conftest.py": b"1/0"}
    return {"lab.ipynb": data}


def zipped(name: str, data: bytes, method: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, data)
    return buffer.getvalue()
