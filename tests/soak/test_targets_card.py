"""What the card of the target says of all held-out text: some minutes, `make test` has a sample."""

import json

import pytest

from efflib import zoo
from efflib.zoo import cards, corpus
from efflib.zoo.checkpoints import FOLDER
from efflib.zoo.training import saved_recipe


def test_the_card_of_the_target_holds_what_is_measured_on_all_of_the_text():
    report = json.loads((FOLDER / "target" / "training.json").read_text())
    measured = cards.evaluate(zoo.load("target"), saved_recipe(report["recipe"]))
    for split in corpus.SPLITS:
        same_text = report["digests"][f"{split} held-out"] == corpus.digest(split, True)
        # as in tests/zoo/test_zoo_checkpoints.py
        assert measured[split] == pytest.approx(report[split], rel=1e-3 if same_text else 0.1)
