"""No corner that a card declares is untried, in any lab. `make test-nightly` has twenty seeds."""

from pathlib import Path

import pytest

from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import lab_names, load_lab
from autograder.labs.source import build_source
from autograder.triad.domain import domains, untried
from autograder.triad.run import solved_cells

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", lab_names(ROOT))
def test_every_declared_corner_is_tried(name, tmp_path):
    lab = load_lab(name, ROOT)
    cells = solved_cells(lab, parse_notebook(build_source(ROOT, name, tmp_path).read_bytes()))
    found = list(domains(lab, cells, jobs=1))
    assert {domain.exercise for domain in found} == set(lab.exercises)
    problems = [line for domain in found for line in untried(lab, cells, domain)]
    assert not problems, "\n".join(["", *problems])
