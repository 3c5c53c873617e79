"""The triad of every lab of this course, as `autograder triad` prints it: through the sandbox, and
under a few seeds without it (TRIAD_SEEDS=20 for as many; make test-nightly does that)."""

import os
from pathlib import Path

import pytest

from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import lab_names, load_lab
from autograder.labs.source import build_source
from autograder.triad.judge import joined, missing_variants
from autograder.triad.run import run_seeds, run_triad

ROOT = Path(__file__).parents[3]
SEEDS = int(os.environ.get("TRIAD_SEEDS", "3"))


@pytest.mark.slow
@pytest.mark.parametrize("name", lab_names(ROOT))
def test_triad(name, tmp_path):
    """Right solutions get everything, wrong ones fail where they must, no work gets nothing."""
    lab = load_lab(name, ROOT)
    solved = parse_notebook(build_source(ROOT, name, tmp_path).read_bytes())
    rows = joined(list(run_triad(lab, solved)), list(run_seeds(lab, solved, SEEDS)))
    problems = [f"{row.variant.student}: {row.problem}" for row in rows if row.problem]
    assert not problems + missing_variants(lab, rows)
