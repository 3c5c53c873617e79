"""The triad of every lab of this course: all variants under one seed without a sandbox, and a
few through it.  Wrong ones have to fail one of the tests that they name; `make test-nightly` has
them fail all of these, and takes everything through both, with 20 seeds.
"""

from pathlib import Path

import pytest

from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import lab_names, load_lab
from autograder.labs.source import build_source
from autograder.triad.judge import missing_variants
from autograder.triad.run import a_few, run_seeds, run_triad, with_one_test
from autograder.triad.variants import collect_variants

ROOT = Path(__file__).parents[3]
SEEDS = 1


@pytest.mark.slow
@pytest.mark.parametrize("name", lab_names(ROOT))
def test_triad(name, tmp_path):
    """Right solutions get everything, wrong ones fail where they must, no work gets nothing."""
    lab = load_lab(name, ROOT)
    solved = parse_notebook(build_source(ROOT, name, tmp_path).read_bytes())
    variants = collect_variants(lab, solved)
    rows = list(run_seeds(lab, solved, SEEDS, chosen=with_one_test(variants)))
    graded = list(run_triad(lab, solved, chosen=a_few(variants)))
    problems = [f"{row.variant.student}: {row.problem}" for row in rows + graded if row.problem]
    assert not problems + missing_variants(lab, rows)
