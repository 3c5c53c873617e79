"""What the tests of the triad share: the toy course with variants, its solved notebook."""

import json

from toylab import NAME, answered, make_course, write

from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import load_lab

SOLVED = parse_notebook(json.dumps(answered()).encode())


def triad(root):
    return root / "autograder/suites" / NAME / "triad"


def toy(tmp_path, variants=None, public="", hidden=""):
    """(root, lab) of a toy course with more variants, and with more tests in front of its own."""
    root = make_course(tmp_path)
    for path, source in (variants or {}).items():
        write(triad(root) / path, dedent(source).encode())
    for path, more in (
        (root / "labs" / NAME / "test_public.py", public),
        (root / "autograder/suites" / NAME / "test_hidden.py", hidden),
    ):
        path.write_text(path.read_text() + dedent(more))
    return root, load_lab(NAME, root)


def dedent(text):
    lines = text.strip("\n").split("\n")
    return "\n".join(line.removeprefix("        ") for line in lines) + "\n"
