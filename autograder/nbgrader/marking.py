"""marking/<lab>/<question>.html: one written question with all answers of the class.

For marking one question at a time: question and rubric, the model answer folded beside them (of the
lab's source, if it is there: students never get this page), and every answer with the student's
pictures, in an order that is not the alphabet's and stays the same.  Scores are given in
formgrader, to which every answer has a link.  Offline, without scripts; what students wrote passes
the same allow-list of tags as on the feedback page.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import jinja2
import nbformat
from markupsafe import Markup
from nbformat import NotebookNode
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory

from autograder.labs.hashing import grader_hash
from autograder.labs.manifest import LabSpec
from autograder.nbgrader.executed import NOT_GIVEN, released_answers, safe_markdown
from autograder.nbgrader.folders import executed_path, write_file
from autograder.nbgrader.harmless import rendered
from autograder.nbgrader.page_style import page_style
from autograder.nbgrader.pages import said_made_from
from autograder.nbgrader.questions import model_answers, place_of, question_of

FORMGRADER = "http://localhost:8888/formgrader/submissions"
MAX_PICTURES = 8  # of one student's, at one question
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="made-from" content="{{ made_from }}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ lab.title }}: {{ name }}</title>
<style>
{{ style }}body { max-width: 55em }
h2 { font-size: 1.1em }
.answer { border: none; padding: 0 }
img { max-width: 100%; max-height: 24em; border: 1px solid var(--line); background: #fff }
summary { cursor: pointer; padding: .4em 0 }
/* in a wide window question and model answer stay beside the answers */
@media (min-width: 75em) {
  body { max-width: 84em; display: grid; grid-template-columns: 30em 1fr; column-gap: 2.5em }
  header { grid-column: 1 / -1 }
  aside { position: sticky; top: 1em; align-self: start; max-height: calc(100vh - 2em);
    overflow-y: auto }
  main { min-width: 0 }
  main h2:first-child { margin-top: 0 }
}
</style>
</head>
<body>
<header>
<h1>{{ lab.title }}: {{ name }}, {{ "%g" | format(points) }} points</h1>
<p>{{ answers | length }} answers. Scores and comments are given in formgrader, to which each answer
links; the links work while JupyterLab runs at localhost:8888. Pictures are what the students handed
in; grading did not make them.</p>
</header>
<aside>
<div class="question">{{ question }}</div>
{% if model %}<details class="question"><summary>Model answer</summary>{{ model }}</details>
{% endif -%}
</aside>
<main>
{% for answer in answers %}
<h2 id="{{ answer.student }}">{{ answer.student }} &middot;
<a href="{{ formgrader }}/{{ answer.id }}/#{{ name }}">formgrader</a></h2>
{% if answer.look %}<p class="look">{{ answer.look }}</p>{% endif %}
<div class="answer">{{ answer.text }}</div>
{% for picture in answer.pictures -%}
<p><img src="data:image/png;base64,{{ picture }}" alt="handed in by {{ answer.student }}"></p>
{% endfor %}
{% endfor %}
{% if silent %}<h2>No answer</h2>
<p>{{ silent | join(", ") }}</p>{% endif %}
</main>
</body>
</html>
"""
TEMPLATE = jinja2.Environment(autoescape=True).from_string(PAGE)


class Answer(NamedTuple):
    student: str
    id: str  # of the submission in formgrader
    text: Markup  # empty: nothing was written, and nobody has to look
    look: str
    pictures: list[str]


def write_marking_pages(coursedir: CourseDirectory, gradebook: Gradebook, lab: LabSpec) -> None:
    """A page per written question, unless it is made from the same executed notebooks already."""
    folder = Path(coursedir.root) / "marking" / lab.name
    handed_in = {}
    for notebook in gradebook.notebook_submissions(lab.notebook, lab.name):
        path = executed_path(coursedir, lab, notebook.student.id)
        if path.is_file():
            handed_in[notebook.student.id] = (notebook.id, path)
    source = Path(coursedir.format_path(coursedir.source_directory, ".", lab.name))
    models = model_answers(source / f"{lab.notebook}.ipynb")
    made = hashlib.sha256(f"{lab.suite_hash} {grader_hash()} {sorted(models.items())}".encode())
    for student, (number, path) in sorted(handed_in.items()):
        made.update(f"{student} {number} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    pages = {name: folder / f"{name}.html" for name in lab.written}
    if all(said_made_from(path) == made.hexdigest() for path in pages.values()):
        return
    answers = {name: [] for name in lab.written}
    for student, (number, path) in handed_in.items():
        nb = nbformat.v4.reads(path.read_text(encoding="utf-8"))
        for name in lab.written:
            answers[name].append(answer_of(lab, nb, name, student, number))
    for name, path in pages.items():
        text = page(lab, name, answers[name], made.hexdigest(), models.get(name, ""))
        write_file(path, text.encode())


def page(lab: LabSpec, name: str, answers: list[Answer], made_from: str, model: str = "") -> str:
    nb = nbformat.read(lab.release_notebook, as_version=4)
    return TEMPLATE.render(
        lab=lab,
        name=name,
        points=lab.written[name],
        made_from=made_from,
        formgrader=FORMGRADER,
        style=page_style(),
        question=rendered(question_of(nb, name)),
        model=rendered(model),
        answers=sorted((one for one in answers if one.text), key=lambda one: shuffled(one, name)),
        silent=sorted(one.student for one in answers if not one.text),
    )


def shuffled(answer: Answer, name: str) -> str:
    """A place that has nothing to do with the alphabet, and does not move when others hand in."""
    return hashlib.sha256(f"{name} {answer.student}".encode()).hexdigest()


def answer_of(lab: LabSpec, nb: NotebookNode, name: str, student: str, number: str) -> Answer:
    """What the executed notebook shows of one answer."""
    at = place_of(nb, name)
    look = nb.metadata["autograder"].get("look", {}).get(name, "")
    text = nb.cells[at].source.strip()
    nothing = ("", NOT_GIVEN, safe_markdown(released_answers(lab)[name]).strip())
    shown = Markup("") if text in nothing and not look else rendered(text)
    return Answer(student, number, shown, look, pictures_near(nb, at, name))


def pictures_near(nb: NotebookNode, at: int, name: str) -> list[str]:
    """What was handed in since the last exercise before a question, and in own cells beside it."""
    checks = [index for index, cell in enumerate(nb.cells[:at]) if cell.id.endswith("-check")]
    own = [cell for cell in nb.cells[at:] if cell.id.startswith(f"own-{name}-")]
    near = nb.cells[max(checks, default=-1) + 1 : at]
    cells = [*(cell for cell in near if not cell.id.startswith("own-")), *own]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    found = [output["data"].get("image/png") for output in outputs if "data" in output]
    return list(filter(None, found))[-MAX_PICTURES:]
