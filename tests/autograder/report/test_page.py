"""The page: everything escaped, nobody named unless asked, readable in light and dark."""

import re
from html.parser import HTMLParser

import pytest
from classes import LAB, SCRIPT, apart, generated, result, test_result

from autograder.grading.results import CellRun, Late, Place, Report
from autograder.report.page import report_page
from autograder.report.style import DARK, LIGHT

HOSTILE = f'{SCRIPT}"><img src=x onerror=alert(1)>'
SECRETS = ("ann_id", "Ann-Marie", "ann's cell", "why ann", "folder of ann")


def hostile_report():
    """Student-controlled text in every place that there is, met by two so that it is shown."""
    made = []
    for student in ("ann_id", "bob_id"):
        tests = [
            test_result("ex1", "a", "failed", message=f"message {HOSTILE}"),
            test_result("ex1", "b", "failed", message="not attempted"),
            test_result("ex2", "c", "not verified"),
            test_result("ex2", "d", points=1),
        ]
        cells = (CellRun(label=f"cell 3, {HOSTILE} ann's cell", seconds=9.0, error=HOSTILE),)
        made.append(result(
            student, tests, cells=cells, notes=(HOSTILE,), answers={"ex1": HOSTILE}, own=HOSTILE
        ))  # fmt: skip
    made += [apart("carl", "rejected", f"why ann {HOSTILE}"), apart("dora", "missing")]
    made += [apart("unclear-1", "unclear", f"folder of ann {HOSTILE}"), apart("e", "fault", "bug")]
    names = {"ann_id": f"Ann-Marie {HOSTILE}", "dora": HOSTILE}
    return Report(lab=LAB, results=tuple(made), names=names, late={"ann_id": Late(3, 1, 7200.0)})


class Elements(HTMLParser):
    """Tags and attributes of a page, and whether the elements are closed as they are opened."""

    VOID = {"meta", "br", "col", "img", "rect", "line"}

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.open = set(), [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag:
            assert self.open.pop() in ("tr", "td", "th", "li", "p"), tag
        self.open.pop()


@pytest.mark.parametrize("named", [False, True])
def test_nothing_of_a_student_becomes_markup(named):
    page = report_page(hostile_report(), f"Toy {HOSTILE}", named)
    found = Elements(page)
    assert not found.tags & {"script", "img", "iframe", "link", "object"} and not found.open
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "message &lt;script&gt;" in page and "default-src 'none'" in page


def test_nobody_is_named_unless_asked_for():
    page, named = (report_page(hostile_report(), "Toy", name) for name in (False, True))
    assert not [word for word in (*SECRETS, "dora", "carl") if word in page]
    assert [word in named for word in SECRETS] == [True, True, False, True, True]
    for told in ("Handed in nothing: 1", "nobody can tell whose it is: 1", "grade again: 1"):
        assert told in page
    assert "2 h" in page and "message" in page, "what two students met may be told"


def test_nothing_is_asked_of_another_host():
    page = report_page(generated(20), "Toy")
    found = Elements(page)
    addresses = [v for k, v in found.attributes if k in ("href", "src", "action", "srcset")]
    assert addresses and all(address.startswith("#") for address in addresses)
    assert not re.findall(r"https?:|url\(|@import|//\w", page)


def test_every_test_has_a_column_a_row_and_an_address():
    page = report_page(generated(30), "Toy")
    assert page.count('<tr id="t') == 48 and 'href="#t48"' in page and 'id="t48"' in page
    assert len(re.findall(r"<tr><th>\d+</th>", page)) == 30
    assert page.count("<td class=f") + page.count("<td class=o") + page.count("<td>") > 30 * 48


def test_tests_that_cost_most_come_first_and_those_that_all_pass_are_folded():
    tests = {name: test_result("ex1", name, points=2) for name in "abc"}
    dear = test_result("ex1", "c", "failed", points=2)
    cheap = test_result("ex1", "a", "failed", points=1)
    made = [result("s1", [tests["a"], tests["b"], dear]), result("s2", [cheap, tests["b"], dear])]
    untouched = [test_result("ex1", name, "failed", message="not attempted") for name in "abc"]
    page = report_page(Report(lab=LAB, results=(*made, result("s3", untouched))), "Toy")
    open_rows, folded = page.partition('<h2 id="items">')[2].split("<details>")
    assert re.findall(r'<tr id="t(\d)"', open_rows) == ["3", "1"]
    assert re.findall(r'<tr id="t(\d)"', folded) == ["2"]
    assert "<summary>Tests that everybody passes: 1</summary>" in folded
    assert "<li><b>3</b>graded</li>" in page and "<li><b>1</b>of them untouched</li>" in page


def test_equal_values_share_a_place_on_the_board_and_who_changed_nothing_has_none():
    tests, values = [test_result("ex1", "a")], {"a": 2.0, "b": 1.0, "c": 2.0, "d": 3.0, "e": 9.0}
    places = {name: Place(value=v, released=9.0, unit="s") for name, v in values.items()}
    places["f"] = Place(value=None, released=9.0, unit="s", reason=HOSTILE)
    made = [result(name, tests, board=place) for name, place in places.items()]
    page = report_page(Report(lab=LAB, results=(*made, result("g", tests))), "Toy")
    board = page.partition('<h2 id="board">')[2].partition("<h2")[0]
    assert "Left so: 1; does not count: 1." in " ".join(board.split())
    rows = re.findall(r'<td class="n">(\d)</td><td>\d</td>\n<td class="n">(\d)</td>', board)
    assert rows == [("1", "1"), ("2", "2"), ("2", "2"), ("4", "3")]


@pytest.mark.parametrize("results", [(), (apart("a", "missing"),), (apart("b", "fault", "x"),)])
def test_a_class_without_a_grade_has_a_page(results):
    page = report_page(Report(lab=LAB, results=results), "Toy")
    assert "Nothing was graded" in page and "nan" not in page and not Elements(page).open


def test_what_makes_results_less_than_final_is_told():
    tests = [test_result("ex1", "a")]
    made = [result("a", tests, sandbox="none"), result("b", tests, doubtful=True)]
    page = report_page(Report(lab=LAB, results=tuple(made)), "Toy")
    assert "Graded without a sandbox: 1." in page and "Doubtful" in page
    assert "same tests" not in page
    made[0] = result("a", tests, suite_hash="older")
    assert "Not all were graded with the same tests" in report_page(
        Report(lab=LAB, results=tuple(made)), "Toy"
    )


def luminance(colour):
    """Relative luminance by WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast(colours):
    """Text 4.5 : 1, what else has to be told apart 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11)."""
    for text in ("text", "quiet", "link", "warn"):
        assert contrast(colours[text], colours["page"]) >= 4.5, text
    assert contrast(colours["text"], colours["panel"]) >= 4.5
    for one, other in (("bar", "page"), ("bar", "passed"), ("failed", "passed"), ("open", "page"),
                       ("failed", "page")):  # fmt: skip
        assert contrast(colours[one], colours[other]) >= 3, (one, other)
