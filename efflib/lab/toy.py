"""A toy to try out what a notebook of the course can do: a check, a prediction, hints.

    toy = Toy()
    toy.check("toy")      # the tests of toy_tests.py, on the notebook's own function
    toy.hint("toy")

It is no lab: nothing of it is graded, and a check that fails shows its card and does not stop the
notebook, so that "Run All" goes on while the toy's function is still wrong.
"""

import sys
from pathlib import Path

from efflib.lab import cards
from efflib.lab.display import in_sandbox, show
from efflib.lab.exercises import Exercise
from efflib.lab.lab import Lab, summary
from efflib.lab.runner import run_tests
from efflib.lab.setup_card import SEED
from efflib.lab.student import LocalStudent

TESTS = Path(__file__).with_name("toy_tests.py")
EXERCISE = Exercise(
    key="toy",
    title="Tokens per second",
    points=2,
    functions=("tokens_per_second",),
    hints=(
        "A second has 1000 milliseconds.",
        "How many times do the milliseconds of one token go into those of a second?",
        "1000 divided by the milliseconds of a token.",
    ),
)


class Toy(Lab):
    """`check`, `predict`, `answer`, `reveal` and `hint`, as a `Lab` has them."""

    def __init__(self) -> None:
        self.name = "toy"
        self._reports, self._predictions, self._truths, self._hints_shown = {}, {}, {}, {}
        self._folder = None

    def _exercises(self) -> dict[str, Exercise]:
        return {EXERCISE.key: EXERCISE}

    def check(self, key: str = "toy") -> None:
        """Show the card of the toy's tests. Raises ValueError for another key, else nothing."""
        if in_sandbox():
            return
        exercise = self._exercise(key)
        namespace = sys._getframe(1).f_globals
        found = run_tests([TESTS], LocalStudent(namespace), SEED, only=key)
        self._reports[key] = [self._with_cell(report) for report in found]
        about = summary(exercise, self._reports[key], "")
        show(cards.text_cards(about, found), cards.html_cards(about, found))
