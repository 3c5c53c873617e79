"""What a card says for each outcome, and that nothing from a student becomes markup."""

import re
from html.parser import HTMLParser

import pytest

from efflib.lab import cards, look
from efflib.lab.report import TestReport

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"
CAUSE = "zero point not rounded"
SUMMARY = cards.Summary("2 of 4", "6 of 12 points", "mend 1 first", "footer")


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
        assert all(name in ("style", "class") for name, _ in attrs)
        self.open.append(tag)
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_failed_card_says_what_was_seen_the_rule_and_the_usual_cause():
    assert cards.text_card(report()).splitlines() == [
        "✗ zero is exact",
        "    observed     0.0 came back as 0.0117",
        "    rule         the code of 0.0 dequantizes to exactly 0",
        "    usual cause  zero point not rounded",
    ]


def test_an_argument_that_several_tests_saw_changed_is_told_once():
    seen = "f changed its argument x in place"
    changed = [report(t, observed=seen, kind="ChangedArgument") for t in ("a", "b")]
    text = cards.text_cards(SUMMARY, [*changed, report("c")])
    assert text.count(seen) == 1 and "a; b" in text and "c" in text


def test_what_was_expected_has_a_label_of_its_own():
    observed = "codes [1, 2], expected of nothing, expected [1, 3]"
    rows = cards.rows(report(observed=observed))
    assert rows[:2] == [("observed", "codes [1, 2], expected of nothing"), ("expected", "[1, 3]")]


def test_what_was_observed_can_be_left_out():
    for card in (cards.text_card(report(), False), cards.html_card(report(), False)):
        assert "0.0117" not in card and "exactly 0" in card and CAUSE in card
    for page in (cards.text_cards, cards.html_cards):
        assert "0.0117" not in page(SUMMARY, [report()], show_observed=False)


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
    lines = cards.text_cards(SUMMARY, reports).splitlines()
    assert [line for line in lines if not line.startswith("    ")] == [
        "mend 1 first",
        "✗ 2 of 4 · 6 of 12 points",
        "✗ c",
        "? b",
        "✓ passed: a; d",
        "footer",
    ]
    html = cards.html_cards(SUMMARY, reports)
    text = Tags(html).text
    parts = ["mend 1 first", "2 of 4", "✗ c", "? b", "✓ a"]
    assert [text.index(part) for part in parts] == sorted(map(text.index, parts))
    assert html.index("<details>") < html.index("✓ a") < html.index("</details>")


def test_an_exercise_that_nobody_began_is_one_line_not_one_per_test():
    reports = [report(kind="NotImplementedError")] * 4
    assert not cards.attempted(reports)
    assert cards.text_cards(SUMMARY, reports).count("not attempted") == 1
    assert Tags(cards.html_cards(SUMMARY, reports)).text.count("not attempted") == 1
    assert cards.attempted([*reports, report()]) and cards.attempted([])


@pytest.mark.parametrize("outcome", ["passed", "failed", "not verified"])
def test_nothing_becomes_markup(outcome):
    hostile = TestReport("ex1", "t", HOSTILE, 1, HOSTILE, HOSTILE, outcome, HOSTILE)
    about = cards.Summary(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    for html in (
        cards.html_card(hostile),
        cards.html_cards(about, [hostile]),
        look.html_table([HOSTILE], [[HOSTILE]]),
    ):
        page = Tags(html)
        assert page.open == [] and not page.names & {"script", "img"}
        assert HOSTILE in page.text


def test_a_text_table_has_columns():
    table = look.text_table(["a", "long header"], [["longer cell", "b"], ["", "c"]])
    assert table.splitlines() == ["a            long header", "longer cell  b", "             c"]


def test_each_state_has_a_sign_and_a_colour_of_its_own():
    reports = {
        "open": [report(kind="NotImplementedError")] * 2,
        "passed": [report(outcome="passed")],
        "failed": [report(outcome="passed"), report(outcome="not verified"), report()],
        "not verified": [report(outcome="passed"), report(outcome="not verified")],
    }
    heads = set()
    for state, found in reports.items():
        assert cards.state(found) == state
        html = cards.html_cards(SUMMARY, found)
        heads.add((html.split('class="eff eff-card ')[1].split('"')[0], cards.SYMBOLS[state]))
    assert len(heads) == 4 and cards.state([]) == "failed"


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.1)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme, paper", [(0, "#ffffff"), (1, "#111111")])
def test_every_text_can_be_read(theme, paper):
    """On JupyterLab's paper of that theme and on the tints; 4.5 is WCAG's bar for text."""
    blocks = look.style().split("}")
    colours = dict(re.findall(r"--eff-([\w-]+):[^;]*?(#[0-9a-f]{6})", blocks[theme]))
    pairs = [(ink, paper) for ink in ("ink", "soft", "good", "bad", "accent")]
    pairs += [("ink", "tint"), ("soft", "tint"), ("good", "good-tint"), ("bad", "bad-tint")]
    pairs += [("soft", "good-tint"), ("soft", "bad-tint"), ("good", "tint"), ("bad", "tint")]
    for ink, ground in pairs:
        assert contrast(colours[ink], colours.get(ground, ground)) >= 4.5, (ink, ground)
