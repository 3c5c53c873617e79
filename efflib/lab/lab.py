"""`lab = Lab("lab01_quantization")`: what a notebook uses to check, predict, hint and report."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

import torch

from efflib.lab import cards
from efflib.lab.dependencies import failing_below, hint_at
from efflib.lab.display import in_sandbox, show
from efflib.lab.exercises import EXERCISES, TESTS, Exercise, find_folder, read_exercises
from efflib.lab.predict import Prediction, ask, compare, said
from efflib.lab.report import TestReport
from efflib.lab.setup_card import COPY_FOLDER, SEED, setup_rows
from efflib.lab.student import LocalStudent

VSCODE_NOTEBOOK = "__vsc_ipynb_file__"  # VS Code tells a notebook its own path under this name


class CheckFailed(Exception):
    """A check did not pass. One line in a notebook, so that the card above it is what one reads."""

    def _render_traceback_(self) -> list[str]:
        return [f"CheckFailed: {self}"]


class Lab:
    """One lab's set-up, checks, predictions, hints and report. Its state lives in the kernel.

    In the grader's sandbox it looks for no file, and every method does nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._reports: dict[str, list[TestReport]] = {}
        self._predictions: dict[str, Prediction] = {}
        self._truths: dict[str, object] = {}
        self._hints_shown: dict[str, int] = {}
        self._folder: Path | None = None
        if in_sandbox():
            return
        torch.manual_seed(SEED)
        notebook = sys._getframe(1).f_globals.get(VSCODE_NOTEBOOK)
        self._folder = find_folder(name, notebook)
        header, rows = ["", name, ""], setup_rows(self._folder)
        show(cards.text_table(header, rows), cards.html_table(header, rows))

    def check(self, key: str) -> None:
        """Run the public tests of an exercise on the functions of the calling notebook.

        Raises CheckFailed if not all of them passed, ValueError for an unknown exercise, and
        FileNotFoundError where the lab's files are not beside the notebook.
        """
        if in_sandbox():
            return
        from efflib.lab.runner import run_tests

        exercise = self._exercise(key)
        namespace = sys._getframe(1).f_globals
        student = LocalStudent(namespace)
        found = run_tests([self._folder / TESTS], student, SEED, only=key)
        reports = self._reports[key] = [self._with_cell(report) for report in found]
        passed = sum(r.outcome == "passed" for r in reports)
        summary = f"{exercise.label.capitalize()}, {exercise.title}: "
        summary += f"{passed} of {len(reports)} public tests passed"
        footer = f"{points_line(reports, exercise)}."
        if passed < len(reports):
            others = failing_below(exercise, self._exercises(), self._reports, namespace)
            footer += hint_at(others)
        show(cards.text_cards(summary, reports, footer), cards.html_cards(summary, reports, footer))
        if passed < len(reports) or not reports:
            todo = "see the cards above" if cards.attempted(reports) else cards.NOT_ATTEMPTED
            raise CheckFailed(f"{summary}: {todo}.")

    def _exercise(self, key: str) -> Exercise:
        exercises = self._exercises()
        if key not in exercises:
            raise ValueError(f"no exercise {key!r}; this lab has {', '.join(exercises)}")
        return exercises[key]

    def _exercises(self) -> dict[str, Exercise]:
        self._folder = self._folder or find_folder(self.name)
        if self._folder is None:
            raise FileNotFoundError(
                f"{TESTS} and {EXERCISES} of {self.name} are not in {Path.cwd()}: {COPY_FOLDER}"
            )
        return read_exercises(self._folder)

    def _with_cell(self, report: TestReport) -> TestReport:
        """The report, with the exercise in whose cell an undefined function belongs."""
        if report.kind != "Undefined":
            return report
        name = report.observed.split()[0]
        owner = next((e for e in self._exercises().values() if name in e.functions), None)
        cell = f"{report.observed} ({owner.label})" if owner else report.observed
        return replace(report, observed=cell)

    def hint(self, key: str) -> None:
        """Show the next hint of an exercise; the last one stays."""
        if in_sandbox():
            return
        hints = self._exercise(key).hints
        if not hints:
            text = f"There are no hints for {key}."
            return show(text, f"<div>{escape(text)}</div>")
        i = min(self._hints_shown.get(key, 0), len(hints) - 1)
        self._hints_shown[key] = i + 1
        title = f"Hint {i + 1} of {len(hints)} for {key}"
        show(f"{title}: {hints[i]}", cards.html_table([title], [[hints[i]]]))

    def predict(
        self, key: str, question: str, options: Sequence[str] = (), unit: str = ""
    ) -> Prediction:
        """Ask for one of the options, or for a number in a unit. Never blocks.

        The answer is `.value` of what is returned: from a widget where there is one, or from
        `lab.answer(key, value)`.
        """
        before = self._predictions.get(key)
        prediction = Prediction(key, question, tuple(options), unit, before and before.value)
        self._predictions[key] = prediction
        if not in_sandbox():
            ask(prediction)
        return prediction

    def answer(self, key: str, value: object) -> None:
        """Set a prediction by hand, where there is no widget."""
        self._predictions.setdefault(key, Prediction(key)).value = value

    def reveal(self, key: str, truth: object) -> None:
        """Say in one sentence what was predicted under `key` and what came out."""
        if in_sandbox():
            return
        self._truths[key] = truth
        sentence = compare(self._predictions.get(key) or Prediction(key), truth)
        show(sentence, f"<div>{escape(sentence)}</div>")

    def report(self) -> None:
        """Show what the public tests gave so far, and predictions beside results."""
        if in_sandbox():
            return
        header = ["exercise", "title", "public points", "hidden points"]
        rows = [[e.key, e.title, *self._score(e)] for e in self._exercises().values()]
        tables = [(header, [*rows, ["", "all", *self._total()]])]
        keys = [*self._predictions, *(k for k in self._truths if k not in self._predictions)]
        if keys:
            tables.append((["prediction", "you said", "result"], list(map(self._outcome, keys))))
        text = "\n\n".join(cards.text_table(*table) for table in tables)
        show(text, "".join(cards.html_table(*table) for table in tables))

    def _score(self, exercise: Exercise) -> list[str]:
        """What was reached in the public tests, and what is to come from hidden ones."""
        reports = self._reports.get(exercise.key)
        if reports is None:
            return ["not checked yet", f"{exercise.points:g} in all"]
        reached, public = points_of(reports)
        return [f"{reached:g} of {public:g}", f"{exercise.points - public:g} outstanding"]

    def _total(self) -> list[str]:
        """The sums of `_score`: public points reached so far, and all that is still to come."""
        checked = [points_of(reports) for reports in self._reports.values()]
        reached, public = (sum(column) for column in zip((0, 0), *checked, strict=True))
        points = sum(exercise.points for exercise in self._exercises().values())
        return [f"{reached:g} of {public:g}", f"{points - public:g} outstanding"]

    def _outcome(self, key: str) -> list[str]:
        prediction = self._predictions.get(key) or Prediction(key)
        own = "-" if prediction.value is None else said(prediction.value, prediction.unit)
        truth = said(self._truths[key], prediction.unit) if key in self._truths else "-"
        return [key, own, truth]


def points_of(reports: Sequence[TestReport]) -> tuple[float, float]:
    """(points of the tests that passed, points of all tests)."""
    return sum(r.points for r in reports if r.outcome == "passed"), sum(r.points for r in reports)


def points_line(reports: Sequence[TestReport], exercise: Exercise) -> str:
    """'2 of 6 points by these tests; 9 more (of 15) by hidden tests: one-sided ranges, ...'."""
    reached, public = points_of(reports)
    line, hidden = f"{reached:g} of {public:g} points by these tests", exercise.points - public
    if hidden <= 0:
        return line
    kinds = f": {'; '.join(exercise.hidden)}" if exercise.hidden else ""
    return f"{line}; {hidden:g} more (of {exercise.points:g}) by hidden tests{kinds}"
