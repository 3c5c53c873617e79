"""Lab 18's board: the grader's engine without a model counts what the lab's own counts with one."""

import tomllib
from pathlib import Path

import pytest
import torch

from autograder.grading.board import loaded
from autograder.labs.source import read_percent
from efflib import zoo
from efflib.decoding.sampling import generate
from efflib.lab.student import LocalStudent
from efflib.traffic.joined import Joined, Parts, Room
from efflib.traffic.simulate import LLAMA_8B

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "autograder" / "suites" / "lab18_engine"
ROOMS = [Room(70, 16, 64, 8), Room(140, 8, 256, 16), Room(11, 16, 30, 5), Room(1120, 1, 10**9, 2)]


@pytest.fixture(scope="module")
def notebook() -> dict:
    """The names of the solution's cells, and of the board's."""
    own = {"torch": torch, "F": torch.nn.functional, "nn": torch.nn}
    for cell in read_percent(ROOT / "solutions" / "lab18_engine" / "engine.py").cells:
        if cell.metadata.get("solution") or cell.source.startswith("def settings()"):
            exec(cell.source, own)
    return own


@pytest.fixture(scope="module")
def board():
    return loaded(SUITE / "board.py")


@pytest.fixture(scope="module")
def asked() -> list:
    found = tomllib.loads((SUITE / "board.toml").read_text())["asked"]
    return [(one["prompt"], one["answer"]) for one in found]


def choices(notebook: dict, **changes) -> LocalStudent:
    return LocalStudent(notebook | changes)


def test_answers_on_file_are_those_of_generate(asked):
    model = zoo.load("draft").double()
    for prompt, answer in asked:
        whole = generate(model, torch.tensor([prompt]), len(answer))[0].tolist()
        assert whole == prompt + answer


def test_the_release_comes_with_the_settings_to_beat(board, notebook):
    assert board.measure(choices(notebook)) == board.measure(board.Released())


@pytest.mark.parametrize("room", ROOMS)
def test_without_a_model_it_counts_what_the_lab_counts_with_one(board, notebook, asked, room):
    parts = Parts(
        *(notebook[n] for n in ("layout", "step", "slots", "attend", "Blocks", "take_out"))
    )
    engine = Joined(zoo.load("draft").double(), parts, room, notebook["own"])
    answers = engine.run([(prompt, len(answer)) for prompt, answer in asked])
    assert answers == [answer for _, answer in asked]
    total = sum(notebook["seconds"](LLAMA_8B._asdict(), *did) for did in engine.log)
    counted = board.measure(choices(notebook, settings=room._asdict))
    assert counted == pytest.approx(total, rel=1e-12)


def test_true_proposals_gain_false_ones_cost_and_no_text_can_change(board, notebook, asked):
    def known(text, n):
        [whole] = [p + a for p, a in asked if (p + a)[: len(text)] == text and len(p) <= len(text)]
        return whole[len(text) : len(text) + n]

    def wrong(text, n):
        return [(token + 1) % 7 for token in known(text, n)]

    none, best, worst = (
        board.measure(choices(notebook, own=own)) for own in (lambda *_: [], known, wrong)
    )
    assert best < board.measure(board.Released()) < none < worst


@pytest.mark.parametrize(
    "settings",
    [
        {"blocks": 71}, {"block": 17}, {"budget": 0}, {"most": -1}, {"blocks": 70.0}, {"more": 1},
        {"blocks": True}, {"blocks": 5}, {"budget": 10**10},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_told(board, notebook, settings):
    given = notebook["settings"]() | settings
    with pytest.raises(ValueError, match=r"settings|memory|fit"):
        board.measure(choices(notebook, settings=lambda: given))


@pytest.mark.parametrize("proposed", [None, 3, "ab", [1.0], [True], [[1]]])
def test_proposals_that_are_no_ints_are_told(board, notebook, proposed):
    with pytest.raises(ValueError, match="list of ints"):
        board.measure(choices(notebook, own=lambda *_: proposed))
