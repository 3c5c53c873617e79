"""Formgrader in a real Jupyter server: its buttons grade in our sandbox, its pages are harmless."""

import nbcourse
import pytest
from formgrader_server import running
from payloads import dangers

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("home")) as started:
        yield started


def test_the_lab_and_its_submissions_are_listed(server):
    [assignment] = server.api("assignments")
    assert assignment["name"] == nbcourse.LAB and assignment["num_submissions"] == 3
    assert {row["student"] for row in server.api(f"submissions/{nbcourse.LAB}")} == {
        "ada",
        "bob",
        "cleo",
    }


def test_the_autograde_button_grades_in_the_sandbox(server):
    assert "ada: graded, 50 of 90" in server.autograde("ada")
    assert "bob: rejected, 0 of 90 the file holds merge-conflict markers" in server.autograde("bob")
    assert "cleo: graded, 90 of 90" in server.autograde("cleo")
    rows = {row["student"]: row for row in server.api(f"submissions/{nbcourse.LAB}")}
    assert all(row["autograded"] for row in rows.values())
    told = {name: (row["score"], row["needs_manual_grade"]) for name, row in rows.items()}
    assert told == {"ada": (50, True), "bob": (0, False), "cleo": (90, True)}


def test_a_person_grades_the_written_question(server):
    server.autograde("cleo")
    notebook = server.notebook("cleo")
    page = server.get(f"submissions/{notebook['id']}/")
    assert "Because it" in page and "return" in page and nbcourse.CANARY not in page
    grades = {g["name"]: g for g in server.api(f"grades?submission_id={notebook['id']}")}
    assert grades["w1"]["needs_manual_grade"] and grades["w1"]["max_score"] == 10
    server.api(f"grade/{grades['w1']['id']}", {"manual_score": 7.5}, "PUT")
    comments = {c["name"]: c for c in server.api(f"comments?submission_id={notebook['id']}")}
    server.api(f"comment/{comments['w1']['id']}", {"manual_comment": "Say *more*."}, "PUT")
    made = server.api(f"assignment/{nbcourse.LAB}/cleo/generate_feedback", method="POST")
    assert made["success"], made
    folder = server.course / "feedback" / "cleo" / nbcourse.LAB
    feedback = (folder / "toy.html").read_text()
    assert "97.5 of 100 points" in feedback and "Say <em>more</em>." in feedback
    server.autograde("cleo")  # the button again: what the person gave stays
    assert (server.notebook("cleo")["score"], server.notebook("cleo")["needs_manual_grade"]) == (
        97.5,
        False,
    )


def test_a_page_with_an_attack_in_the_answer_is_like_any_other(server):
    pages = []
    for student in ("ada", "cleo"):
        server.autograde(student)
        number = server.notebook(student)["id"]
        pages.append(server.get(f"submissions/{number}/").replace(number, "ID"))
    attacked, harmless = pages
    assert "alert(1)" in attacked
    assert sorted(set(dangers(attacked))) == sorted(set(dangers(harmless)))


def test_a_lab_that_is_unknown_is_an_error_and_no_crash(server):
    answer = server.api("submission/lab99/ada/autograde", method="POST")
    assert not answer["success"] and "there is no lab 'lab99'" in answer["error"]
