"""feedback/<student>/<lab>/<topic>.html: points, what each test found, comments; readable offline.

nbgrader's GenerateFeedback runs the show (so `nbgrader generate_feedback` and formgrader's button
make the same page, with manual scores and comments); this exporter renders the executed notebook.
The page is one file without scripts and without anything from the network.  Code and messages are
escaped, written answers and comments pass an allow-list of tags.
"""

import re
from collections.abc import Iterable

import jinja2
from markupsafe import Markup
from nbconvert.exporters import Exporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode
from nbgrader.preprocessors import GetGrades
from nbgrader.utils import is_grade, is_solution
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from autograder.grading.structure import exercise_name
from autograder.nbgrader.executed import NOT_ATTEMPTED, not_graded

CODE_STYLE = HtmlFormatter(style="default", cssclass="highlight")
TAGS = "a abbr blockquote br code dd del div dl dt em h1 h2 h3 h4 h5 h6 hr li ol p pre span strong"
TAGS += " sub sup table tbody td th thead tr ul"
CLASSES = {"div": ["class"], "span": ["class"], "a": ["href"]}
SANITIZER = SanitizeHTML(tags=TAGS.split(), attributes=CLASSES, strip=True)
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ about.title }}: feedback</title>
<style>
body { font: 16px/1.5 sans-serif; color: #1a1a1a; max-width: 50em; margin: 2em auto;
  padding: 0 1em }
h2 { border-bottom: 1px solid #ccc; margin-top: 2em }
td, th { padding: .1em 1.5em .1em 0; text-align: left }
pre { background: #f6f6f6; padding: .6em; overflow-x: auto; font-size: 14px }
.points { float: right; font-weight: normal }
.answer, .comment { border-left: 4px solid #999; padding: .1em 1em; overflow-wrap: anywhere }
.comment { border-color: #e69f00 }
{{ code_style }}
</style>
</head>
<body>
<h1>{{ about.title }}</h1>
<p><b>{{ about.student }}</b>: <b>{{ number(score) }} of {{ number(max_score) }} points</b>
{%- if late %}, {{ number(late) }} of them taken off for handing in late{% endif %}
{%- if awaited %}; {{ awaited | join(", ") }} still to be graded by a person{% endif %}.</p>
{% if about.status != "graded" -%}
<p class="comment"><b>Not graded:</b> {{ about.reason }}</p>
{% for comment in comments %}<div class="comment">{{ comment }}</div>{% endfor %}
{% endif -%}
{% if about.sandbox == "none" %}<p class="comment">Graded without a sandbox.</p>{% endif %}
<table>
{% for part in parts -%}
<tr><td>{{ part.title }}</td>
<td>{{ "to be graded" if part.awaits else number(part.score) + " of " + number(part.points) }}</td>
</tr>
{% endfor -%}
</table>
{% if about.remarks %}<h2>Your notebook</h2>
<ul>{% for note in about.remarks %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% for part in parts if about.status == "graded" %}
<h2 id="{{ part.id }}">{{ part.title }}
<span class="points">{% if part.awaits %}to be graded{% else -%}
{{ number(part.score) }} of {{ number(part.points) }}{% endif %}</span></h2>
{{ part.question }}
{{ part.cards }}
{% if part.shared %}<p>This code calls that of {{ part.shared | join(" and ") }}, which lost points
too: one mistake may have cost points in both.</p>{% endif %}
{% if part.answer %}<div class="answer">{{ part.answer }}</div>{% endif %}
{% if part.code %}<details><summary>Your code</summary>{{ part.code }}</details>{% endif %}
{% for comment in part.comments %}<div class="comment">{{ comment }}</div>{% endfor %}
{% endfor %}
</body>
</html>
"""
TEMPLATE = jinja2.Environment(autoescape=True).from_string(PAGE)


class Grades(GetGrades):
    """nbgrader's scores and comments, and which scores a person still has to give."""

    def _get_score(self, cell, resources):
        super()._get_score(cell, resources)
        place = (self.notebook_id, self.assignment_id, self.student_id)
        grade = self.gradebook.find_grade(cell.metadata.nbgrader["grade_id"], *place)
        unscored = grade.auto_score is None and grade.manual_score is None
        cell.metadata.nbgrader["awaits"] = unscored


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
        comments=comments(filter(is_solution, nb.cells), besides=refusal),
        score=grading["score"],
        max_score=grading["max_score"],
        late=grading["late_penalty"],
        parts=parts,
        awaited=[part["title"] for part in parts if part["awaits"]],
        code_style=Markup(CODE_STYLE.get_style_defs(".highlight")),
        number=lambda value: f"{value:g}",
    )


def part(nb: NotebookNode, index: int) -> dict:
    """What the page says of one graded cell: an exercise's check, or a written question."""
    cell = nb.cells[index]
    graded = cell.metadata.nbgrader
    said = {"id": graded.grade_id, "score": graded.score, "points": graded.points}
    said |= {"awaits": graded.awaits}
    if is_solution(cell):
        question = nb.cells[index - 1] if index else cell
        released = question.cell_type == "markdown" and "nbgrader" not in question.metadata
        return said | {
            "title": f"Written question {graded.grade_id.removeprefix('w')}",
            "question": rendered(question.source) if released else "",
            "answer": rendered(cell.source),
            "comments": comments([cell]),
        }
    name = graded.grade_id.removesuffix("-check")
    solutions = [c for c in nb.cells[:index] if belongs(c, name)]
    tests = cell.metadata.get("autograder", {})
    title = exercise_name(name).capitalize()
    return said | {
        "title": f"{title}: {tests['title']}" if tests else title,
        "cards": cards(tests),
        "code": Markup("".join(coloured(c.source) for c in solutions)),
        "source": "\n".join(c.source for c in solutions),
        "comments": comments(solutions),
    }


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
    from efflib.lab.cards import html_cards
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
    return Markup(html_cards(f"{passed} of {len(reports)} tests passed", reports))


def points_of(test: dict) -> str:
    return f"{test['points']:g} of {test['max_points']:g} points"


def coloured(source: str) -> str:
    return highlight(source, PythonLexer(), CODE_STYLE)


def rendered(markdown: str) -> Markup:
    """Markdown as HTML of harmless tags only."""
    renderer = IPythonRenderer(escape=True, exclude_anchor_links=True)
    html = MarkdownWithMath(renderer=renderer).render(markdown)
    return Markup(SANITIZER.sanitize_html_tags(html))


def comments(cells: Iterable[NotebookNode], besides: str = "") -> list[Markup]:
    found = dict.fromkeys(cell.metadata.nbgrader.get("comment") for cell in cells)
    return [rendered(text) for text in found if text and text != besides]
