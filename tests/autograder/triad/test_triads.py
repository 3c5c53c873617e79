"""The triad of every lab of this course, through the sandbox (`autograder triad` prints it)."""

from pathlib import Path

import pytest

from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import lab_names, load_lab
from autograder.labs.source import build_source
from autograder.triad.run import missing_variants, run_triad

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("name", lab_names(ROOT))
def test_triad(name, tmp_path):
    """Right solutions get everything, wrong ones fail where they must, no work gets nothing."""
    lab = load_lab(name, ROOT)
    solved = parse_notebook(build_source(ROOT, name, tmp_path).read_bytes())
    rows = list(run_triad(lab, solved))
    problems = [f"{row.variant.student}: {row.problem}" for row in rows if row.problem]
    assert not problems + missing_variants(lab, rows)
