"""What a card says for each outcome, and that nothing from a student becomes markup."""

from html.parser import HTMLParser

import pytest

from efflib.lab import cards
from efflib.lab.report import TestReport

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
CAUSE = "zero point not rounded"


def report(title="zero is exact", outcome="failed", observed="0.0 came back as 0.0117", kind=""):
    return TestReport(
        exercise="ex1",
        test="test_zero_is_exact",
        title=title,
        points=3,
        invariant="the code of 0.0 dequantizes to exactly 0",
        cause=CAUSE,
        outcome=outcome,
        observed=observed,
        kind=kind,
    )


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.names, self.text = [], set(), ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        assert all(name == "style" for name, _ in attrs)
        self.open.append(tag)
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_failed_card_says_what_was_seen_the_rule_and_the_usual_cause():
    assert cards.text_card(report()) == (
        "✗ zero is exact · 0.0 came back as 0.0117 · the code of 0.0 dequantizes to exactly 0"
        " · usual cause: zero point not rounded"
    )


def test_what_was_observed_can_be_left_out():
    for card in (cards.text_card(report(), False), cards.html_card(report(), False)):
        assert "0.0117" not in card and "exactly 0" in card and CAUSE in card
    for page in (cards.text_cards, cards.html_cards):
        assert "0.0117" not in page("summary", [report()], show_observed=False)


def test_a_test_that_could_not_be_verified_says_so_and_is_not_called_passed():
    for card in (cards.text_card, cards.html_card):
        text = card(report(outcome="not verified", observed="no GPU"))
        assert "no GPU" in text and "not verified here" in text and "✓" not in text


def test_an_untouched_stub_is_no_failure_of_a_rule():
    text = cards.text_card(report(kind="NotImplementedError"))
    assert "write the function in the cell above" in text and CAUSE not in text


def test_the_order_is_failed_first_and_passed_last_in_one_line():
    reports = [
        report("a", "passed"),
        report("b", "not verified"),
        report("c"),
        report("d", "passed"),
    ]
    assert [r.title for r in cards.in_order(reports)] == ["c", "b", "a", "d"]
    lines = cards.text_cards("2 of 4", reports, "footer").splitlines()
    assert [line.split(" · ")[0] for line in lines] == [
        "2 of 4",
        "✗ c",
        "? b",
        "✓ passed: a; d",
        "footer",
    ]
    html = cards.html_cards("2 of 4", reports, "footer")
    text = Tags(html).text
    assert text.index("2 of 4") < text.index("✗ c") < text.index("? b") < text.index("✓ a")
    assert html.index("<details>") < html.index("✓ a") < html.index("</details>")


def test_an_exercise_that_nobody_began_is_one_line_not_one_per_test():
    reports = [report(kind="NotImplementedError")] * 4
    assert not cards.attempted(reports)
    assert cards.text_cards("0 of 4", reports).count("not attempted") == 1
    assert cards.html_cards("0 of 4", reports).count("not attempted") == 1
    assert cards.attempted([*reports, report()]) and cards.attempted([])


@pytest.mark.parametrize("outcome", ["passed", "failed", "not verified"])
def test_nothing_becomes_markup(outcome):
    hostile = TestReport("ex1", "t", HOSTILE, 1, HOSTILE, HOSTILE, outcome, HOSTILE)
    for html in (
        cards.html_card(hostile),
        cards.html_cards(HOSTILE, [hostile], HOSTILE),
        cards.html_table([HOSTILE], [[HOSTILE]]),
    ):
        page = Tags(html)
        assert page.open == [] and not page.names & {"script", "img"}
        assert HOSTILE in page.text


def test_a_text_table_has_columns():
    table = cards.text_table(["a", "long header"], [["longer cell", "b"], ["", "c"]])
    assert table.splitlines() == ["a            long header", "longer cell  b", "             c"]
