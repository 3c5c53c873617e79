"""What a student's code draws follows from the run, the test and the number of the call alone."""

import random

import numpy
import pytest
import torch

from autograder.sandbox.launch import SandboxSpec
from autograder.sandbox.remote import RemoteStudent
from efflib.lab import seeds
from efflib.lab.runner import run_tests

CELL = """
import random, numpy, torch
def draw(): return random.random(), numpy.random.rand(), torch.rand(()).item()
def order(): return [len(word) for word in {"a", "bb", "ccc", "dddd", "eeeee", "ffffff"}]
"""
TEST = """
from efflib.lab import exercise

SEEN = {}

@exercise("ex1", points=1, invariant="i", cause="c")
def test_one(student, rng):
    SEEN["one"] = student.draw(), student.draw()
    assert SEEN["one"][0] != SEEN["one"][1]

@exercise("ex1", points=1, invariant="i", cause="c")
def test_two(student, rng):
    raise AssertionError(repr(student.draw()))
"""


def test_a_seed_depends_on_every_part():
    assert seeds.derived_seed("a", 1) == seeds.derived_seed("a", 1)
    assert len({seeds.derived_seed(*p) for p in [("a", 1), ("a", 2), ("b", 1), ("a1",)]}) == 4
    assert 0 <= seeds.derived_seed("x") < 2**63


def test_seeding_gives_what_torch_manual_seed_gives(monkeypatch):
    saved, told = seeds.states(), []
    torch.manual_seed(2**62 + 5)
    expected = torch.random.get_rng_state()
    seeds.seed_all(2**62 + 5)
    assert torch.equal(torch.random.get_rng_state(), expected)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", told.append)
    seeds.seed_all(7)
    assert told == [7]
    seeds.restore(saved)


def test_states_are_put_back():
    saved = seeds.states()
    first = random.random(), numpy.random.rand(), torch.rand(()).item()
    seeds.seed_all(5)
    seeds.restore(saved)
    assert first == (random.random(), numpy.random.rand(), torch.rand(()).item())


@pytest.fixture
def sandboxed():
    budget = type("B", (), dict(cell_seconds=60.0, notebook_seconds=60.0, call_seconds=60.0))
    student = RemoteStudent(SandboxSpec(unsafe=True), [CELL], budget)
    yield student
    student.close()


def test_no_other_test_moves_what_is_drawn(sandboxed, tmp_path):
    both, alone = tmp_path / "test_both.py", tmp_path / "test_alone.py"
    both.write_text(TEST)
    alone.write_text(TEST.split("@exercise")[0] + "@exercise" + TEST.split("@exercise")[2])
    drawn = [run_tests([file], sandboxed, seed=3)[-1].observed for file in (both, alone, both)]
    assert drawn[0] == drawn[1] == drawn[2] and drawn[0].startswith("(0.")
    assert run_tests([alone], sandboxed, seed=4)[-1].observed != drawn[0]
