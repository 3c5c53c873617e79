"""Attacks on secrecy and on the machine, run by student code in a real sandbox."""

from pathlib import Path

import pytest
from attacks import ATTACKS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: f"{a.row}-{a.name}")
def test_attack_gets_nothing(victim, attack):
    cell = attack.cell.replace("COURSE", repr(str(Path(__file__).parents[3])))
    assert victim.run(cell) == attack.returns
