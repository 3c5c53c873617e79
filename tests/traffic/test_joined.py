"""Lab 18's engine out of somebody's parts: texts as alone and blocks free, whoever goes."""

from functools import partial
from pathlib import Path

import pytest
import torch

from autograder.labs.source import read_percent
from efflib.decoding.sampling import generate
from efflib.models.config import LlamaConfig
from efflib.models.llama import Llama
from efflib.traffic.joined import Joined, Parts, Room, trace

SOURCE = Path(__file__).parents[2] / "solutions" / "lab18_engine" / "engine.py"


@pytest.fixture(scope="module")
def parts() -> Parts:
    """The solution's, read from its cells."""
    own = {"torch": torch, "F": torch.nn.functional, "nn": torch.nn}
    for cell in read_percent(SOURCE).cells:
        if cell.metadata.get("solution"):
            exec(cell.source, own)
    return Parts(*(own[n] for n in ("layout", "step", "slots", "attend", "Blocks", "take_out")))


@pytest.fixture(scope="module")
def model() -> Llama:
    torch.manual_seed(0)
    config = LlamaConfig(11, 16, 24, 2, 4, 2, 4, tie_word_embeddings=True)
    return Llama(config).double()


ASKED = [([0, *range(1, n)], 5 + n) for n in (2, 9, 4, 7)]


def alone(model: Llama) -> list[list[int]]:
    rows = [generate(model, torch.tensor([prompt]), n)[0] for prompt, n in ASKED]
    return [row[len(prompt) :].tolist() for row, (prompt, _) in zip(rows, ASKED, strict=True)]


def oracle(right: list[list[int]], every: int, text: list[int], n: int) -> list[int]:
    """The true tokens, each `every`-th of them wrong."""
    for (prompt, _), answer in zip(ASKED, right, strict=True):
        whole = prompt + answer
        if whole[: len(text)] == text and len(text) >= len(prompt):
            made = whole[len(text) : len(text) + n]
            return [(t + 1) % 11 if (len(text) + i) % every == 0 else t for i, t in enumerate(made)]
    raise AssertionError("a text that is no beginning of any answer")


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("room", [Room(40, 2, 64, 4), Room(13, 2, 5, 4), Room(12, 2, 3, 3)])
def test_texts_are_those_of_generate(parts, model, room, every):
    right = alone(model)
    engine = Joined(model, parts, room, partial(oracle, right, every))
    assert engine.run(ASKED) == right
    assert engine.cache.free == room.blocks
    assert room.blocks != 40 or not engine.put_back
    assert room.blocks != 13 or engine.put_back
    if every == 1:
        assert engine.held == 0 < engine.proposed
    if every == 100:
        assert engine.held == engine.proposed > 0


def test_who_is_cancelled_gives_its_blocks_back(parts, model):
    engine = Joined(model, parts, Room(40, 2, 64, 3))
    names = [engine.add(*one) for one in ASKED]
    engine.step()
    engine.cancel(names[1])  # runs
    engine.cancel(names[3])  # waits
    while engine.busy:
        engine.step()
    engine.cancel(names[0])  # has gone
    right = alone(model)
    assert engine.answers == {names[i]: right[i] for i in (0, 2)}
    assert engine.cache.free == 40


def test_a_request_that_never_has_room_is_refused(parts, model):
    with pytest.raises(ValueError, match="do not fit into 3 blocks"):
        Joined(model, parts, Room(3, 2)).add([1, 2, 3], 5)


def test_a_trace_is_the_same_again_and_shares_beginnings():
    first, again = trace(8), trace(8)
    assert first == again
    for four in (first[:4], first[4:]):
        assert len({tuple(prompt[:32]) for prompt, _ in four}) == 1
    assert first[0][0][:32] != first[4][0][:32]
