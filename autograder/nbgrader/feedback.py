"""feedback/<student>/<lab>/<topic>.html: points, what each test found, comments; readable offline.

nbgrader's GenerateFeedback runs the show (so `nbgrader generate_feedback` and formgrader's button
make the same page, with manual scores and comments); this exporter renders the executed notebook.
The page is one file without scripts and without anything from the network.  Code and messages are
escaped, written answers and comments pass an allow-list of tags.
"""

import hashlib
import json
import re
from collections.abc import Iterable

import jinja2
from markupsafe import Markup
from nbconvert.exporters import Exporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook, SubmittedNotebook
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution

from autograder.grading.results import NOT_ATTEMPTED
from autograder.grading.structure import exercise_name
from autograder.labs.hashing import efflib_hash, grader_hash
from autograder.nbgrader.executed import not_graded
from autograder.nbgrader.feedback_page import PAGE
from autograder.nbgrader.harmless import coloured, rendered
from autograder.nbgrader.page_style import page_style
from autograder.nbgrader.questions import question_of

UNTRIED = "not attempted: what was handed in has the function as it was given out"
TEMPLATE = jinja2.Environment(autoescape=True).from_string(PAGE)


class Grades(NbGraderPreprocessor):
    """nbgrader's scores and comments, written into the notebook's metadata for `page`."""

    def preprocess(self, nb, resources):
        place = resources["nbgrader"]
        with Gradebook(place["db_url"], "") as gradebook:  # "": no course of another name is made
            ids = (place["notebook"], place["assignment"], place["student"])
            place |= add_grades(nb, gradebook.find_submission_notebook(*ids))
        return nb, resources


def add_grades(nb: NotebookNode, notebook: SubmittedNotebook) -> dict[str, float]:
    """Scores, comments and which scores a person still has to give; returns the sums.

    The same as nbgrader's preprocessor GetGrades, with two queries for all cells.
    """
    grades = {grade.name: grade for grade in notebook.grades}
    comments = {comment.name: comment.comment for comment in notebook.comments}
    for cell in nb.cells:
        if is_solution(cell):
            cell.metadata.nbgrader["comment"] = comments[cell.metadata.nbgrader.grade_id]
        if is_grade(cell):
            grade = grades[cell.metadata.nbgrader.grade_id]
            unscored = grade.auto_score is None and grade.manual_score is None
            told = {"score": grade.score, "points": grade.max_score, "awaits": unscored}
            cell.metadata.nbgrader.update(told)
    late = notebook.late_submission_penalty or 0.0
    score = notebook.score - late
    return {"score": score, "max_score": notebook.max_score, "late_penalty": late}


class FeedbackExporter(Exporter):
    """Executed notebook (see executed.py) with scores in its metadata -> page."""

    file_extension = ".html"

    def from_notebook_node(self, nb, resources=None, **kwargs):
        nb, resources = super().from_notebook_node(nb, resources, **kwargs)
        return page(nb, resources["nbgrader"]), resources


def page(nb: NotebookNode, grading: dict) -> str:
    """The feedback page. grading: score, max_score and late_penalty of nbgrader's gradebook."""
    about = nb.metadata["autograder"]
    parts = [part(nb, index) for index, cell in enumerate(nb.cells) if is_grade(cell)]
    for one in parts:
        one["shared"] = shared_losses(one, parts)
    refusal = not_graded(about["reason"])  # the page says it already
    return TEMPLATE.render(
        about=about,
        made_from=made_from(nb, grading),
        comments=comments(filter(is_solution, nb.cells), besides=refusal),
        score=grading["score"],
        max_score=grading["max_score"],
        late=grading["late_penalty"],
        parts=parts,
        awaited=[part["title"] for part in parts if part["awaits"]],
        style=page_style(),
        number=lambda value: f"{value:g}",
    )


def made_from(nb: NotebookNode, grading: dict) -> str:
    """Hash of all that a page says, and of the code that says it."""
    shown = [[cell.cell_type, cell.source, cell.metadata] for cell in nb.cells]
    sums = [grading[key] for key in ("score", "max_score", "late_penalty")]
    made = [nb.metadata["autograder"], shown, sums, grader_hash(), efflib_hash()]
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()


def part(nb: NotebookNode, index: int) -> dict:
    """What the page says of one graded cell: an exercise's check, or a written question."""
    cell = nb.cells[index]
    graded = cell.metadata.nbgrader
    said = {"id": graded.grade_id, "score": graded.score, "points": graded.points}
    said |= {"awaits": graded.awaits}
    if is_solution(cell):
        return said | {
            "title": part_title(nb, graded.grade_id),
            "question": rendered(question_of(nb, graded.grade_id)),
            "answer": rendered(cell.source),
            "comments": comments([cell]),
        }
    name = graded.grade_id.removesuffix("-check")
    solutions = [c for c in nb.cells[:index] if belongs(c, name)]
    tests = cell.metadata.get("autograder", {})
    return said | {
        "title": part_title(nb, graded.grade_id),
        "cards": cards(tests),
        "code": Markup("".join(coloured(c.source) for c in solutions)),
        "source": "\n".join(c.source for c in solutions),
        "comments": comments(solutions),
    }


def part_title(nb: NotebookNode, grade_id: str) -> str:
    """ "ex2-check" -> "Exercise 2: Clip", "w1" -> "Written question 1"."""
    if re.fullmatch(r"w\d+", grade_id):
        return f"Written question {grade_id[1:]}"
    name = grade_id.removesuffix("-check")
    told = nb.metadata.get("autograder", {}).get("titles", {}).get(name)
    return exercise_name(name).capitalize() + (f": {told}" if told else "")


def shared_losses(one: dict, parts: list[dict]) -> list[str]:
    """Titles of other exercises that lost points too, and whose functions this one's code calls."""
    lost = [p for p in parts if "source" in p and p["score"] < p["points"]]
    return [
        other["title"]
        for other in lost
        if one in lost and other is not one and calls(one["source"], other["source"])
    ]


def calls(source: str, other: str) -> bool:
    """Whether source calls a function that other defines; one pass each, however many there are."""
    defined = set(re.findall(r"^def (\w+)", other, re.MULTILINE))
    return not defined.isdisjoint(re.findall(r"\b(\w+)\s*\(", source))


def belongs(cell: NotebookNode, exercise: str) -> bool:
    """A solution cell of this exercise: ex2, ex2-b, ..."""
    name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
    return is_solution(cell) and (name == exercise or name.startswith(f"{exercise}-"))


def cards(exercise: dict) -> Markup:
    """The cards of an exercise's tests: failed ones open, passed ones folded."""
    from efflib.lab.cards import Summary, html_cards
    from efflib.lab.report import TestReport

    reports = [
        TestReport(
            exercise=test["exercise"],
            test=test["test"],
            title=f"{test['title']} ({test['kind']} test, {points_of(test)})",
            points=test["max_points"],
            invariant=test["invariant"],
            cause=test["cause"],
            outcome=test["outcome"],
            observed=test["message"],
            kind="NotImplementedError" if test["message"] == NOT_ATTEMPTED else "",
        )
        for test in exercise.get("tests", ())
    ]
    passed = sum(report.outcome == "passed" for report in reports)
    about = Summary(f"{passed} of {len(reports)} tests passed", untried=UNTRIED)
    return Markup(html_cards(about, reports))


def points_of(test: dict) -> str:
    return f"{test['points']:g} of {test['max_points']:g} points"


def comments(cells: Iterable[NotebookNode], besides: str = "") -> list[Markup]:
    found = dict.fromkeys(cell.metadata.nbgrader.get("comment") for cell in cells)
    return [rendered(text) for text in found if text and text != besides]
