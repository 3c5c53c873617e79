"""How test reports are shown: HTML cards in Jupyter, plain text elsewhere. Everything is escaped.

✗ zero is exact
    observed     0.0 came back as 0.0117
    rule         the code of 0.0 must dequantize to exactly 0
    usual cause  zero point not rounded before use
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from efflib.lab import look
from efflib.lab.report import TestReport

SYMBOLS = {"passed": "✓", "failed": "✗", "not verified": "?", "open": "○"}
SHOWN_FIRST = ("failed", "not verified", "passed")
NOT_ATTEMPTED = "not attempted yet: write the function in the cell above, run it, run this again"
UNCHANGED = "whoever calls a function goes on using what it passed: work on a new tensor"
UNDEFINED = "run the cell that defines it, then this one again"
NOT_VERIFIED = "not verified here, so it earns no points"
EXPECTED = ", expected "  # how the expectations of a test file put what was right


@dataclass(frozen=True)
class Summary:
    """What stands around the cards. head: what was checked; points: what it gave; first: what to
    mend before anything else; footer: what comes later; untried: what is said where a function is
    still as it was given out."""

    head: str
    points: str = ""
    first: str = ""
    footer: str = ""
    untried: str = NOT_ATTEMPTED


def rows(
    report: TestReport, show_observed: bool = True, untried: str = NOT_ATTEMPTED
) -> list[tuple[str, str]]:
    """(label, text): what was observed and expected, the rule, the usual cause."""
    if report.outcome == "passed":
        return [("rule", report.invariant)]
    said = observed_rows(report.observed) if show_observed and report.observed else []
    if report.outcome == "not verified":
        return [*said, ("so", NOT_VERIFIED)]
    if report.kind == "NotImplementedError":
        return [("next" if untried == NOT_ATTEMPTED else "so", untried)]
    if report.kind == "Undefined":
        return [*said, ("next", UNDEFINED)]
    if report.kind == "ChangedArgument":
        return [*said, ("rule", UNCHANGED)]
    return [*said, ("rule", report.invariant), ("usual cause", report.cause)]


def observed_rows(text: str) -> list[tuple[str, str]]:
    seen, comma, right = text.rpartition(EXPECTED)
    return [("observed", seen), ("expected", right)] if comma else [("observed", text)]


def text_card(report: TestReport, show_observed: bool = True) -> str:
    """Symbol and title, then a line for each of `rows`."""
    lines = [f"    {label:<11}  {text}" for label, text in rows(report, show_observed)]
    return "\n".join([f"{SYMBOLS[report.outcome]} {report.title}", *lines])


def html_card(report: TestReport, show_observed: bool = True, untried: str = NOT_ATTEMPTED) -> str:
    title = f"{SYMBOLS[report.outcome]} {report.title}"
    return look.labelled(title, rows(report, show_observed, untried))


def in_order(reports: Sequence[TestReport]) -> list[TestReport]:
    """Failed ones first: that is what the reader has to act on."""
    return sorted(reports, key=lambda report: SHOWN_FIRST.index(report.outcome))


def to_mend(reports: Sequence[TestReport]) -> list[TestReport]:
    """Those that did not pass, failed ones first; one for all that saw one argument changed."""
    kept: dict[tuple, TestReport] = {}
    for report in in_order(reports):
        if report.outcome == "passed":
            continue
        changed = report.kind == "ChangedArgument"
        key = (report.observed,) if changed else (report.test, report.title)
        if key in kept:
            report = replace(kept[key], title=f"{kept[key].title}; {report.title}")
        kept[key] = report
    return list(kept.values())


def attempted(reports: Sequence[TestReport]) -> bool:
    """False if every test met an untouched stub."""
    return not reports or any(r.kind != "NotImplementedError" for r in reports)


def state(reports: Sequence[TestReport]) -> str:
    """Of an exercise: open (not attempted), or the first of SHOWN_FIRST that a test came to."""
    if not attempted(reports):
        return "open"
    found = {report.outcome for report in reports} or {"failed"}
    return next(outcome for outcome in SHOWN_FIRST if outcome in found)


def text_cards(about: Summary, reports: Sequence[TestReport], show_observed: bool = True) -> str:
    """What to mend first, the summary, a card for each report that did not pass, the others."""
    passed = [r.title for r in reports if r.outcome == "passed"]
    lines = [text_card(r, show_observed) for r in to_mend(reports)]
    if not attempted(reports):
        lines = [NOT_ATTEMPTED]
    if passed:
        lines.append("✓ passed: " + "; ".join(passed))
    head = f"{SYMBOLS[state(reports)]} {about.head}"
    head += f" · {about.points}" if about.points else ""
    return "\n".join(line for line in (about.first, head, *lines, about.footer) if line)


def html_cards(about: Summary, reports: Sequence[TestReport], show_observed: bool = True) -> str:
    """As `text_cards`, the passed ones folded."""
    now, passed = state(reports), [r for r in reports if r.outcome == "passed"]
    share = None if now == "open" or not reports else len(passed) / len(reports)
    parts = [look.element("eff-first", about.first)] if about.first else []
    parts.append(look.bar(SYMBOLS[now], about.head, share, about.points))
    if now == "open":
        parts.append(look.element("eff-note", about.untried))
    else:
        parts += [html_card(report, show_observed, about.untried) for report in to_mend(reports)]
    if passed:
        folded = "".join(html_card(report) for report in passed)
        parts.append(f"<details><summary>✓ {len(passed)} passed</summary>{folded}</details>")
    if about.footer:
        parts.append(look.element("eff-note", about.footer))
    return look.block("".join(parts), f"eff-card eff-{now.split()[0]}")
