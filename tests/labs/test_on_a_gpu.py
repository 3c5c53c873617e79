"""Every lab's solved functions work where the tensors that they are given are: on a GPU too.

The lab's own public tests call them on the device that stands for one. An arange or a zeros that
was made on the CPU fails here as it would there, results are where the arguments were, and nothing
is copied back to the CPU.
"""

from pathlib import Path

import pytest
from border import Crossed

from autograder.intake.notebook import parse_notebook
from autograder.labs.manifest import load_lab
from autograder.labs.source import build_source
from autograder.triad.forked import Run, at_hand, run_all
from autograder.triad.run import solved_cells

ROOT = Path(__file__).parents[2]
LABS = sorted(path.parent.name for path in ROOT.glob("autograder/suites/*/manifest.toml"))
# What is made of Python's numbers (a table of blocks, 16 levels, a token) has to be sent there.
SEND = {
    "RowCache": "a mask, from lengths",
    "slots_of": "the table",
    "verify": "the last token",
    "quantize_nf4": "the levels",
    "dequantize_nf4": "the levels",
    "mass_of": "powers of the decay",
    "KeptTokens": "powers of the decay",
    "own_text": "the first tokens",
    "LoRALinear": "new parameters",
    "add_lora": "new parameters",
    "add_adapters": "new parameters",
    "joined": "positions and a mask, from lengths",
    "qkv_part": "numbers of heads",
    "attend": "the tables",
}
TAKES_NO_TENSORS = ("lab14_batching",)


def crossed(lab, folder):
    """{exercise: (tests that failed, what crossed)}."""
    solved = parse_notebook(build_source(ROOT, lab.name, folder).read_bytes())
    cells = solved_cells(lab, solved)
    runs = {
        name: Run((f"import border; border.cross(globals(), {list(one.functions)!r})",), name)
        for name, one in lab.exercises.items()
    }
    outcomes = at_hand(lab, cells, lambda: run_all(lab, cells, list(runs.values()), "public"))
    return {
        name: (
            [(saw.test, saw.observed) for saw in outcome.saw if not saw.passed],
            [Crossed(*note) for note in outcome.recorded],
        )
        for name, outcome in zip(runs, outcomes, strict=True)
    }


@pytest.mark.parametrize("name", [name for name in LABS if name not in TAKES_NO_TENSORS])
def test_the_functions_of_a_lab_work_there(name, tmp_path):
    by_exercise = crossed(load_lab(name, ROOT), tmp_path)
    assert {exercise: failed for exercise, (failed, _) in by_exercise.items() if failed} == {}
    notes = [note for _, own in by_exercise.values() for note in own]
    assert sum(note.calls for note in notes) >= 5, "hardly a call was made there"
    assert [note for note in notes if note.left or note.here] == []
    assert [note for note in notes if note.arrived and note.name not in SEND] == []
