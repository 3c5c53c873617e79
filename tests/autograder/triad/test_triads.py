"""Every lab of this course, without a sandbox and under one seed: what its tests make of the triad,
of spoilt results (sweep.py), and of what the cards declare (domain.py).

Wrong variants have to fail one of the tests that they name.  `make test-nightly` has them fail all
of these, and takes everything through 20 seeds and the sandbox; by day the demonstration class does
(tests/autograder/nbgrader/test_demo.py), and work that is none.
"""

import tempfile
from pathlib import Path

import pytest

from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import lab_names, load_lab
from autograder.labs.source import build_source
from autograder.triad.domain import domains, untried
from autograder.triad.forked import at_hand
from autograder.triad.judge import missing_variants
from autograder.triad.run import run_seeds, solved_cells, with_one_test
from autograder.triad.sweep import sweep
from autograder.triad.variants import collect_variants
from efflib.kernel_lab.student_kernel import RUNS_IN

ROOT = Path(__file__).parents[3]
SEEDS = 1
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=lab_names(ROOT))
def found(request, tmp_path_factory):
    """{check: problems} of a lab; its cells run, and its tests are collected, once for all."""
    lab = load_lab(request.param, ROOT)
    source = build_source(ROOT, lab.name, tmp_path_factory.mktemp("source"))
    solved = parse_notebook(source.read_bytes())
    cells = solved_cells(lab, solved)
    checks = {
        "triad": lambda: triad_problems(lab, solved),
        "domain": lambda: domain_problems(lab, cells),
        "sweep": lambda: [hole for ex in lab.exercises for hole in sweep(lab, cells, ex)],
    }
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as runs:
        patch.setenv(RUNS_IN, runs)  # the same kernel runs once on the same numbers
        return at_hand(lab, cells, lambda: {name: check() for name, check in checks.items()})


def triad_problems(lab, solved):
    variants = with_one_test(collect_variants(lab, solved))
    rows = list(run_seeds(lab, solved, SEEDS, chosen=variants))
    problems = [f"{row.variant.student}: {row.problem}" for row in rows if row.problem]
    return problems + missing_variants(lab, rows)


def domain_problems(lab, cells):
    seen = list(domains(lab, cells))
    assert {domain.exercise for domain in seen} == set(lab.exercises)
    return [line for domain in seen for line in untried(lab, cells, domain)]


def test_triad(found):
    """Right solutions get everything, wrong ones fail where they must."""
    assert not found["triad"], "\n".join(["", *found["triad"]])


def test_every_declared_corner_is_tried(found):
    assert not found["domain"], "\n".join(["", *found["domain"]])


def test_no_test_passes_for_a_spoilt_result(found):
    """Not for one that is NaN, infinite or complex; dtypes are looked at."""
    assert not found["sweep"], "\n".join(["", *found["sweep"]])
