"""`lab = Lab("lab01_quantization")`: what a notebook uses to check, predict, hint and report."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from efflib.lab import cards, look
from efflib.lab.dependencies import failing_below, mend_first
from efflib.lab.display import bring_into_view, in_sandbox, show
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
        self._scores: dict[str, tuple[float | None, str]] = {}
        self._hints_shown: dict[str, int] = {}
        self._folder: Path | None = None
        if in_sandbox():
            return
        torch.manual_seed(SEED)
        notebook = sys._getframe(1).f_globals.get(VSCODE_NOTEBOOK)
        self._folder = find_folder(name, notebook)
        header, rows = ["", name, ""], setup_rows(self._folder)
        show(look.text_table(header, rows), look.html_table(header, rows))

    def check(self, key: str) -> None:
        """Run the public tests of an exercise on the functions of the calling notebook.

        Raises CheckFailed if one of them failed, ValueError for an unknown exercise, and
        FileNotFoundError where the lab's files are not beside the notebook.
        """
        if in_sandbox():
            return
        exercise = self._exercise(key)
        namespace = sys._getframe(1).f_globals
        reports = self._run(key, namespace)
        state, first = cards.state(reports), ""
        if state == "failed":
            run = partial(self._run, namespace=namespace)
            first = mend_first(failing_below(exercise, self._exercises(), namespace, run))
        about = summary(exercise, reports, first)
        show(cards.text_cards(about, reports), cards.html_cards(about, reports))
        if state in ("failed", "open"):  # what cannot be verified here is nothing to mend
            bring_into_view()
            todo = "the card above says what is missing" if cards.attempted(reports) else "write it"
            raise CheckFailed(f"{exercise.label} is not done yet: {todo}")

    def _run(self, key: str, namespace: dict) -> list[TestReport]:
        """The public tests of an exercise, on the functions of a notebook."""
        from efflib.lab.runner import run_tests

        found = run_tests([self._folder / TESTS], LocalStudent(namespace), SEED, only=key)
        self._reports[key] = [self._with_cell(report) for report in found]
        return self._reports[key]

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
            return tell(f"There are no hints for {key}.")
        i = min(self._hints_shown.get(key, 0), len(hints) - 1)
        self._hints_shown[key] = i + 1
        title = f"Hint {i + 1} of {len(hints)} for {key}"
        said = look.element("", title, "b") + look.element("", hints[i])
        show(f"{title}: {hints[i]}", look.block(said, "eff-question"))

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
        """Set a prediction by hand, where there is no widget, and say what was taken.

        Raises ValueError for a name that no question has, and for what is no answer to it.
        """
        if in_sandbox():
            return
        if key not in self._predictions:
            asked = ", ".join(map(repr, self._predictions)) or "none so far: run its cell first"
            raise ValueError(f"no question is called {key!r}; asked were {asked}")
        prediction = self._predictions[key]
        prediction.take(value)
        tell(f"{key}: {prediction.answered()}")

    def reveal(self, key: str, truth: object, right: Sequence = ()) -> None:
        """Say in one sentence what was predicted under `key` and what came out.

        right: where the truth is a range of options ("2 to 4"), those that are in it.
        """
        if in_sandbox():
            return
        self._truths[key] = truth
        tell(compare(self._predictions.get(key) or Prediction(key), truth, right))

    def score(self, name: str, value: float | None, unit: str = "") -> None:
        """Note a place on a lab's board, for `report`; None: it does not count."""
        if in_sandbox():
            return
        self._scores[name] = value, unit
        tell(f"{name}: {scored(value, unit)}")

    def use(self, name: str | Path | None = None, text: str | Path | None = None):
        """A model of one's own, to run one's functions on: an `efflib.zoo.own_model.OwnModel`.

        name: a folder in the Hub's layout, "owner/name" at the Hub, or a model of the zoo; without
        one what the variable EFFLIB_MODEL says, or "target".  text: a file, or the course's code.
        Raises ValueError, with what is wanted, for a model that is not there or not known.
        """
        if in_sandbox():
            return None
        from efflib.zoo.own_model import open_model

        own = open_model(name, text, tell)
        weights = sum(linear.weight.numel() for linear in own.linears.values())
        held_out = f"{own.loss():.3f} nats a token on {own.held_out[:, 1:].numel()} held-out tokens"
        tell(f"{len(own.linears)} linears with {weights:,} weights; {held_out}")
        return own

    def report(self) -> None:
        """Show what the public tests gave so far, predictions beside results, and the board."""
        if in_sandbox():
            return
        header = ["exercise", "title", "public points", "hidden points"]
        rows = [[e.key, e.title, *self._score(e)] for e in self._exercises().values()]
        tables = [(header, [*rows, ["", "all", *self._total()]])]
        keys = [*self._predictions, *(k for k in self._truths if k not in self._predictions)]
        if keys:
            tables.append((["prediction", "you said", "result"], list(map(self._outcome, keys))))
        if self._scores:
            board = [[name, scored(*score)] for name, score in self._scores.items()]
            tables.append((["board", "score"], board))
        text = "\n\n".join(look.text_table(*table) for table in tables)
        show(text, "".join(look.html_table(*table) for table in tables))

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


def summary(exercise: Exercise, reports: Sequence[TestReport], first: str) -> cards.Summary:
    """'Exercise 1 · Scale and zero point · 2 of 4 public tests', '3 of 6 points', ..."""
    reached, public = points_of(reports)
    passed = sum(report.outcome == "passed" for report in reports)
    head = f"{exercise.label.capitalize()} · {exercise.title} · "
    head += f"{passed} of {len(reports)} public tests"
    hidden, footer = exercise.points - public, ""
    if hidden > 0:
        kinds = f": {'; '.join(exercise.hidden)}" if exercise.hidden else ""
        footer = f"{hidden:g} more points by hidden tests{kinds}."
    return cards.Summary(head, f"{reached:g} of {public:g} points", first, footer)


def scored(value: float | None, unit: str) -> str:
    return "does not count" if value is None else said(value, unit)


def tell(sentence: str) -> None:
    show(sentence, look.block(look.element("eff-question", sentence)))
