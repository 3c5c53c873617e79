"""Every card of an exercise has a link to the rules that hold in all of them."""

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
