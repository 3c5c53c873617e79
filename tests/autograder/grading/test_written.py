"""Written answers are found by their question; where one may be elsewhere, a person looks."""

import copy
import json

import pytest
from toylab import cell, notebook

from autograder.grading.rebuild import rebuild
from autograder.intake.notebook import parse_notebook

STUB = "*Write your answer here.*"
Q1 = "**Question 1.** Why does one outlier spoil the grid of all the other weights?"
Q2 = "**Question 2.** Explain both ends of your curve, and say where you would stop."
ANSWER = "Because the step grows with the largest weight."


def release():
    return notebook(
        [
            cell("markdown", "# Toy", cell_id="title"),
            cell("code", "import math", "setup", "l"),
            cell("markdown", Q1, cell_id="q1"),
            cell("markdown", STUB, "w1", "s"),
            cell("markdown", Q2, cell_id="q2"),
            cell("markdown", STUB, "w2", "s"),
            cell("markdown", "## Stretch: clip on purpose", cell_id="stretch"),
        ]
    )


def read(edit, stripped=False):
    """(answers of written questions, look) after `edit(cells)`."""
    nb = copy.deepcopy(release())
    edit(nb["cells"])
    if stripped:
        for made in nb["cells"]:
            made["metadata"] = {}
            made.pop("id", None)
    cells = [parse_notebook(json.dumps(n).encode()) for n in (nb, release())]
    result = rebuild(*cells)
    given = {k: v for k, v in result.answers.items() if k in ("w1", "w2") and v != STUB}
    return given, result.look


def own(text, kind="markdown"):
    return cell(kind, text, cell_id="own")


PLACES = {
    "its cell": lambda c: c[3].update(source=ANSWER),
    "below its cell": lambda c: c.insert(4, own(ANSWER)),
    "above its cell": lambda c: c.insert(3, own(ANSWER)),
    "in place of its cell": lambda c: c.__setitem__(3, own(ANSWER)),
    "raw": lambda c: c.__setitem__(3, own(ANSWER, "raw")),
    "in a code cell": lambda c: c.__setitem__(3, own(ANSWER, "code")),
    "as a comment": lambda c: c.insert(4, own(f"# {ANSWER}", "code")),
    "as a string": lambda c: c.insert(4, own(f"'''{ANSWER}'''", "code")),
    "question reworded": lambda c: (c[2].update(source=Q1[:-2] + "s!"), c.insert(4, own(ANSWER))),
    "question deleted": lambda c: (c.insert(4, own(ANSWER)), c.pop(2)),
    "in the question": lambda c: c[2].update(source=f"{Q1}\n\n{ANSWER}"),
    "at the end": lambda c: c.append(own(ANSWER)),
    "at the beginning": lambda c: c.insert(0, own(ANSWER)),
}


@pytest.mark.parametrize("stripped", [False, True], ids=["", "stripped"])
@pytest.mark.parametrize("place", PLACES)
def test_an_answer_is_found_wherever_it_stands(place, stripped):
    answers, look = read(PLACES[place], stripped)
    assert ANSWER in answers["w1"]
    assert ("w1" in look) == (stripped or place != "its cell")
    if place not in ("at the end", "at the beginning"):
        assert "w2" not in answers, "and for no other question"
    assert all(text.startswith("Written question") and text.endswith(".") for text in look.values())


@pytest.mark.parametrize("stripped", [False, True])
def test_what_was_not_answered_needs_nobody(stripped):
    assert read(lambda c: None, stripped) == ({}, {})


def test_both_answers_without_any_metadata():
    def edit(c):
        c[3].update(source=ANSWER)
        c[5].update(source="At both ends it is worse.")

    answers, look = read(edit, stripped=True)
    assert answers == {"w1": ANSWER, "w2": "At both ends it is worse."}
    assert look["w1"] == "Written question 1: the answer was found in cell 4."


def test_a_second_cell_of_an_answer_is_shown_with_the_first():
    answers, look = read(lambda c: (c[3].update(source=ANSWER), c.insert(4, own("Also: noise."))))
    assert answers == {"w1": f"{ANSWER}\n\nAlso: noise."}
    assert look == {"w1": "Written question 1: there is more of the answer in cell 5."}
