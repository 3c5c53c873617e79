"""A lab's board: a number without points, of the student's own functions, on the class page."""

import pytest
from toylab import NAME, answered, cell, make_course, release, write

from autograder.grading.board import place_of, told_place
from autograder.grading.results import Report, decode_result, encode
from autograder.grading.verdict import grade_one
from autograder.intake.discover import discover
from autograder.labs.manifest import load_lab
from autograder.report.page import report_page

BOARD = """
UNIT = "steps"


class Released:
    def choose(self, n):
        return n


def measure(student):
    values = [student.choose(n) for n in (3, 4)]
    if min(values) < 0:
        raise ValueError("choose gives no negative number")
    return float(sum(values))
"""
CHOICE = "def choose(n):\n    return n"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = make_course(tmp_path_factory.mktemp("course"))
    (root / "autograder" / "suites" / NAME / "board.py").write_text(BOARD)
    made = release()
    made["cells"].append(cell("code", CHOICE, cell_id="choice"))
    write(root / "labs" / NAME / "toy.ipynb", made)
    return root


OWN = {
    "released": CHOICE,
    "better": "def choose(n):\n    return n - 2",
    "worse": "def choose(n):\n    return 2 * n",
    "negative": "def choose(n):\n    return -n",
    "raises": 'def choose(n):\n    raise ValueError(f"a secret {n}")',
    "ends": "import os\n\ndef choose(n):\n    os._exit(1)",
    "for ever": "def choose(n):\n    while True:\n        pass",
    "gone": "choose = None",
    "spoilt": "def choose(n):\n    return n - seen\n\nseen = 0\n\n"
    "def scale(numbers, factor):\n    global seen\n    seen = 9\n    return numbers",
}


@pytest.fixture(scope="module")
def graded(course, tmp_path_factory):
    folder, lab = tmp_path_factory.mktemp("class"), load_lab(NAME, course)
    for name, source in OWN.items():
        made = answered()
        made["cells"].append(cell("code", source, cell_id="choice"))
        write(folder / name.replace(" ", "") / "toy.ipynb", made)
    rows = {row.student: row for row in discover(folder, lab)}
    return {name: grade_one(lab, rows[name.replace(" ", "")]) for name in OWN}


@pytest.mark.slow
def test_a_board_has_a_value_or_a_reason_and_moves_no_point(graded):
    values = {name: result.board.value for name, result in graded.items()}
    assert values == dict.fromkeys(OWN) | {
        "released": 7.0, "better": 3.0, "worse": 14.0, "spoilt": 7.0,
    }  # fmt: skip
    assert {r.score for name, r in graded.items() if name != "spoilt"} == {90}
    assert not any(r.doubtful or r.cut_off for r in graded.values())
    assert {r.board.released for r in graded.values()} == {7.0}


@pytest.mark.slow
def test_a_student_is_told_the_place_and_no_word_of_an_exception(graded):
    told = {name: [n for n in r.notes if "board" in n] for name, r in graded.items()}
    assert told["released"] == told["spoilt"] == []
    assert told["better"] == ["The board (no points): 3 steps; as released: 7."]
    assert "choose gives no negative number" in told["negative"][0]
    assert "secret" not in "".join(sum(told.values(), []))
    assert all(len(told[name]) == 1 for name in ("raises", "ends", "for ever", "gone"))
    assert "raised an exception" in told["gone"][0] and "ended the process" in told["ends"][0]


@pytest.mark.slow
def test_the_class_page_has_the_board_and_no_name(graded):
    for result in graded.values():
        assert decode_result(encode(result)) == result
    page = report_page(Report(lab=NAME, results=tuple(graded.values())), "Toy")
    board = page.partition('<h2 id="board">')[2].partition("<h2")[0]
    assert "as the lab is released: 7" in " ".join(board.split())
    assert "Left so: 2; does not count: 5" in " ".join(board.split())
    assert board.index(">3<") < board.index(">14<") and board.count("<tr><td") == 2
    assert "worse" not in board
    named = report_page(Report(lab=NAME, results=tuple(graded.values())), "Toy", named=True)
    assert "worse" in named.partition('<h2 id="board">')[2].partition("<h2")[0]


def test_a_lab_without_a_board_has_none(tmp_path):
    lab = load_lab(NAME, make_course(tmp_path))
    assert place_of(lab, None, 0) is None and told_place(None) == []
    page = report_page(Report(lab=NAME, results=()), "Toy")
    assert "board" not in page
