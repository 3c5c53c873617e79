"""Attacks on secrecy and on the machine, run by student code in a real sandbox."""

import pytest
from attacks import ATTACKS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: f"{a.row}-{a.name}")
def test_attack_gets_nothing(victim, attack):
    assert victim.run(attack.cell) == attack.returns
