"""--with gives out nothing that answers a lab which is still being worked on."""

from pathlib import Path

import pytest

from autograder import cli
from autograder.bundle.given_out import given_out
from autograder.bundle.too_early import refuse_answers
from autograder.errors import UsageError

ROOT = Path(__file__).parents[3]
FIRST, SECOND, THIRD = "lab01_quantization", "lab02_smoothquant", "lab03_awq"


def test_a_later_labs_modules_are_refused_with_the_lab_they_answer(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["bundle", FIRST, "--with", THIRD, "--out", str(out), "--course", str(ROOT)]
    assert cli.run(arguments) == 2 and not out.exists()
    told = capsys.readouterr().err
    assert f"--with {THIRD} gives out answers of {FIRST}" in told and "quantize_model" in told


def test_a_release_refuses_them_too():
    with pytest.raises(UsageError, match=rf"answers of {FIRST}.*\(.*quantize_model"):
        given_out(ROOT, FIRST, [THIRD])


@pytest.mark.parametrize(
    "labs, over", [([SECOND, THIRD], [FIRST]), ([FIRST, THIRD], [FIRST, SECOND]), ([FIRST], [])]
)
def test_what_is_over_is_given_out(labs, over):
    refuse_answers(ROOT, labs, over)
