"""`lab = Lab("lab01_quantization")`: what a notebook uses to check, predict, hint and report."""

import sys
import tomllib
from pathlib import Path

import torch

from efflib.lab import cards, predict
from efflib.lab.display import in_sandbox, show
from efflib.lab.report import TestReport
from efflib.lab.setup_card import SEED, setup_rows
from efflib.lab.student import LocalStudent

TESTS, EXERCISES = "test_public.py", "exercises.toml"
REPOSITORY = Path(__file__).parents[2]


class CheckFailed(Exception):
    """A check did not pass. One line in a notebook, so that the card above it is what one reads."""

    def _render_traceback_(self) -> list[str]:
        return [f"CheckFailed: {self}"]


def number(points: float) -> str:
    """3 for 3.0, 2.5 for 2.5."""
    return f"{points:g}"


class Lab:
    """One lab's set-up, checks, predictions, hints and report. Its state lives in the kernel.

    Raises FileNotFoundError in `check` and `hint` if the lab's test file is not found beside the
    notebook nor in the course's labs/ folder. In the grader's sandbox every method does nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._reports: dict[str, list[TestReport]] = {}
        self._predictions: dict[str, predict.Prediction] = {}
        self._results: list[list[str]] = []
        self._hints_shown: dict[str, int] = {}
        if in_sandbox():
            return
        torch.manual_seed(SEED)
        files = {file: self._find(file) for file in (TESTS, EXERCISES)}
        rows = setup_rows(files)
        header = ["", name, ""]
        show(cards.text_table(header, rows), cards.html_table(header, rows))

    def _find(self, file: str) -> Path | None:
        folders = [Path.cwd(), REPOSITORY / "labs" / self.name]
        return next((f / file for f in folders if (f / file).is_file()), None)

    def _need(self, file: str) -> Path:
        path = self._find(file)
        if path is None:
            raise FileNotFoundError(
                f"{file} of {self.name} is not beside this notebook (in {Path.cwd()}): "
                "copy the whole folder of the lab, not only the notebook"
            )
        return path

    def _exercise(self, key: str) -> dict:
        exercises = tomllib.loads(self._need(EXERCISES).read_text())
        known = [k for k, v in exercises.items() if isinstance(v, dict)]
        if key not in known:
            raise ValueError(f"no exercise {key!r}; this lab has {', '.join(known)}")
        return exercises[key]

    def check(self, key: str) -> None:
        """Run the public tests of an exercise on the functions of the calling notebook.

        Raises CheckFailed if a test did not pass, ValueError for an unknown exercise.
        """
        if in_sandbox():
            return
        from efflib.lab.runner import run_tests

        namespace = sys._getframe(1).f_globals
        about = self._exercise(key)
        reports = run_tests([self._need(TESTS)], LocalStudent(namespace), SEED, only=key)
        self._reports[key] = reports
        passed = sum(r.outcome == "passed" for r in reports)
        title = f"Exercise {key.removeprefix('ex')}, {about['title']}"
        summary = f"{title}: {passed} of {len(reports)} public tests passed"
        footer = self._footer(reports, about)
        show(cards.text_cards(summary, reports, footer), cards.html_cards(summary, reports, footer))
        if passed < len(reports):
            todo = "see the cards above" if cards.attempted(reports) else cards.NOT_ATTEMPTED
            raise CheckFailed(f"{summary}: {todo}.")

    def _footer(self, reports: list[TestReport], about: dict) -> str:
        got = sum(r.points for r in reports if r.outcome == "passed")
        public = sum(r.points for r in reports)
        hidden = about["points"] - public
        kinds = "; ".join(about.get("hidden", []))
        return (
            f"{number(got)} of {number(public)} points by these tests; "
            f"{number(hidden)} more by hidden tests: {kinds}."
        )

    def hint(self, key: str) -> None:
        """Show the next hint of an exercise; the last one stays."""
        if in_sandbox():
            return
        hints = self._exercise(key).get("hints", [])
        if not hints:
            show(f"{key} has no hints.", f"{key} has no hints.")
            return
        i = min(self._hints_shown.get(key, 0), len(hints) - 1)
        self._hints_shown[key] = i + 1
        title = f"Hint {i + 1} of {len(hints)} for {key}"
        show(f"{title}: {hints[i]}", cards.html_table([title], [[hints[i]]]))

    def predict(
        self, key: str, question: str, options: list[str] | None = None
    ) -> predict.Prediction | None:
        """Ask for a prediction: a widget in a notebook, printed text elsewhere. Never blocks."""
        if in_sandbox():
            return None
        self._predictions[key] = predict.ask(key, question, options)
        return self._predictions[key]

    def answer(self, key: str, value: object) -> None:
        """Set a prediction by hand, where there is no widget."""
        if not in_sandbox():
            self._predictions.setdefault(key, predict.Prediction(key, "")).value = value

    def reveal(self, key: str, found: object) -> None:
        """Say in one sentence what was predicted under `key` and what came out."""
        if in_sandbox():
            return
        sentence = predict.compare(self._predictions.get(key), found)
        self._results.append([key, sentence])
        show(sentence, cards.html_table(["Reveal"], [[sentence]]))

    def report(self) -> None:
        """Show what the public tests gave so far, and predictions against results."""
        if in_sandbox():
            return
        exercises = tomllib.loads(self._need(EXERCISES).read_text())
        rows = []
        for key, about in exercises.items():
            if isinstance(about, dict):
                rows.append([key, about["title"], *self._score(key, about)])
        header = ["exercise", "title", "public points", "still to come from hidden tests"]
        text, html = cards.text_table(header, rows), cards.html_table(header, rows)
        if self._results:
            header = ["prediction", "what came out"]
            text += "\n\n" + cards.text_table(header, self._results)
            html += cards.html_table(header, self._results)
        show(text, html)

    def _score(self, key: str, about: dict) -> list[str]:
        reports = self._reports.get(key)
        if reports is None:
            return ["not checked", ""]
        got = sum(r.points for r in reports if r.outcome == "passed")
        public = sum(r.points for r in reports)
        return [f"{number(got)} of {number(public)}", f"up to {number(about['points'] - public)}"]
