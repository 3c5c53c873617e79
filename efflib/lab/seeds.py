"""Random numbers of tests and of student code: a function of the run, the test and nothing else.

So no other test, no change of a suite and no edit elsewhere in a notebook moves a grade.
"""

import hashlib
import random

import numpy
import torch

NUMPY_SEEDS = 2**32


def derived_seed(*parts: object) -> int:
    """A seed of 63 bits for these parts, for example a student, a lab and the name of a test."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_all(seed: int) -> None:
    """Seeds the global generators of Python, NumPy and torch.

    torch.manual_seed formats three tracebacks for devices that are not in use, at every call.
    """
    random.seed(seed)
    numpy.random.seed(seed % NUMPY_SEEDS)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def states() -> tuple:
    """The states of all three, for `restore`."""
    return random.getstate(), numpy.random.get_state(), torch.random.get_rng_state()


def restore(saved: tuple) -> None:
    random.setstate(saved[0])
    numpy.random.set_state(saved[1])
    torch.random.set_rng_state(saved[2])
