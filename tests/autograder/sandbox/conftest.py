"""Sandboxes that tests share where one test cannot disturb the next.

Each file gets its own: what one imports or leaves behind must not meet the tests of another,
which run in any order when pytest-xdist deals the files out.
"""

import pytest
from victims import WITHHELD, Victim

from autograder.sandbox.launch import SandboxSpec


@pytest.fixture(scope="module")
def victim():
    """One sandbox for all tests of a file; who kills it gets a new one at the next call."""
    student = Victim(SandboxSpec(withhold=WITHHELD))
    yield student
    student.close()


@pytest.fixture(scope="module")
def small():
    """A sandbox with little memory and few processes, for bombs."""
    student = Victim(SandboxSpec(memory_mb=640, processes=40))
    yield student
    student.close()


@pytest.fixture(scope="module")
def fragile():
    """A sandbox whose interpreter tests damage; what it defines is there again after its death."""
    student = Victim(SandboxSpec(), ["def attack(): return 8"])
    yield student
    student.close()
