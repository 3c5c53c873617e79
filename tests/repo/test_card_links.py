"""Every card has a link to the rules that hold in all of them, and no stub stops a cell."""

import ast
import json
import re
from pathlib import Path

import pytest

LABS = sorted((Path(__file__).parents[2] / "labs").glob("lab*/*.ipynb"))
LINK = "[rules for all exercises](#Rules-for-all-exercises)"
CARD = re.compile(r"^### Exercise \d+ ·", re.MULTILINE)


@pytest.mark.parametrize("path", LABS, ids=[path.stem for path in LABS])
def test_each_card_leads_to_the_rules(path):
    cells = json.loads(path.read_text())["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert sum(text.count("\n### Rules for all exercises\n") for text in texts) == 1
    cards = [text for text in texts if CARD.search(text)]
    assert len(cards) >= 6 and all(text.count(LINK) == 1 for text in cards)


@pytest.mark.parametrize("path", LABS, ids=[path.stem for path in LABS])
def test_a_cell_of_stubs_defines_all_its_names(path):
    """A stub outside of a function raises while its cell runs, and leaves the rest undefined."""
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    texts = ["".join(cell["source"]) for cell in cells]
    stubs = [text for text in texts if "raise NotImplementedError(" in text]
    assert len(stubs) >= 6
    for text in stubs:
        bodies = [
            n.body for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Module | ast.ClassDef)
        ]
        assert not any(isinstance(line, ast.Raise) for body in bodies for line in body), text
