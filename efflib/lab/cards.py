"""How test reports are shown: HTML cards in Jupyter, plain text elsewhere. Everything is escaped.

✗ zero is exact · 0.0 came back as 0.0117 · the code of 0.0 must dequantize to exactly 0
  · usual cause: zero point not rounded before use
"""

from collections.abc import Sequence
from html import escape

from efflib.lab.report import TestReport

SYMBOLS = {"passed": "✓", "failed": "✗", "not verified": "?"}
WORDS = {"passed": "passed", "failed": "failed", "not verified": "not verified here"}
COLORS = {"passed": "#0072b2", "failed": "#b23c00", "not verified": "#666666"}
SHOWN_FIRST = ("failed", "not verified", "passed")
NOT_ATTEMPTED = "not attempted yet: write the function in the cell above, run it, run this again"
UNCHANGED = "whoever calls a function goes on using what it passed: work on a new tensor"
UNDEFINED = "run the cell that defines it, then this one again"


def parts(report: TestReport, show_observed: bool = True) -> list[str]:
    """What a card says after the title: what was observed, the rule, the usual cause."""
    if report.outcome == "passed":
        return [report.invariant]
    said = [report.observed] if show_observed and report.observed else []
    if report.outcome == "not verified":
        return [*said, "not verified here, so it earns no points"]
    if report.kind == "NotImplementedError":
        return [NOT_ATTEMPTED]
    if report.kind == "Undefined":
        return [*said, UNDEFINED]
    if report.kind == "ChangedArgument":
        return [*said, UNCHANGED]
    return [*said, report.invariant, f"usual cause: {report.cause}"]


def text_card(report: TestReport, show_observed: bool = True) -> str:
    """One line: symbol, title and `parts`."""
    return " · ".join([f"{SYMBOLS[report.outcome]} {report.title}", *parts(report, show_observed)])


def html_card(report: TestReport, show_observed: bool = True) -> str:
    """One block: symbol and title in bold, below it one line for each of `parts`."""
    color = COLORS[report.outcome]
    head = f"{SYMBOLS[report.outcome]} {escape(report.title)}"
    word = f'<span style="color:{color}">{WORDS[report.outcome]}</span>'
    lines = "".join(f"<div>{escape(part)}</div>" for part in parts(report, show_observed))
    return (
        f'<div style="border-left:4px solid {color};padding:2px 10px;margin:6px 0">'
        f"<b>{head}</b> · {word}{lines}</div>"
    )


def in_order(reports: Sequence[TestReport]) -> list[TestReport]:
    """Failed ones first: that is what the reader has to act on."""
    return sorted(reports, key=lambda report: SHOWN_FIRST.index(report.outcome))


def attempted(reports: Sequence[TestReport]) -> bool:
    """False if every test met an untouched stub."""
    return not reports or any(r.kind != "NotImplementedError" for r in reports)


def text_cards(
    summary: str, reports: Sequence[TestReport], footer: str = "", show_observed: bool = True
) -> str:
    """The summary, a card for each report that did not pass, the passed ones in one line."""
    passed = [r.title for r in reports if r.outcome == "passed"]
    lines = [text_card(r, show_observed) for r in in_order(reports) if r.outcome != "passed"]
    if not attempted(reports):
        lines = [NOT_ATTEMPTED]
    if passed:
        lines.append("✓ passed: " + "; ".join(passed))
    return "\n".join(line for line in (summary, *lines, footer) if line)


def html_cards(
    summary: str, reports: Sequence[TestReport], footer: str = "", show_observed: bool = True
) -> str:
    """As `text_cards`, the passed ones folded."""
    passed = [r for r in reports if r.outcome == "passed"]
    others = [html_card(r, show_observed) for r in in_order(reports) if r.outcome != "passed"]
    if not attempted(reports):
        others = [f"<div>{escape(NOT_ATTEMPTED)}</div>"]
    if passed:
        cards = "".join(html_card(r) for r in passed)
        others.append(f"<details><summary>✓ {len(passed)} passed</summary>{cards}</details>")
    below = f'<div style="opacity:0.75">{escape(footer)}</div>' if footer else ""
    return f"<div><div><b>{escape(summary)}</b></div>{''.join(others)}{below}</div>"


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table, every cell escaped."""

    def row(tag: str, cells: Sequence[str]) -> str:
        inside = "".join(f'<{tag} style="text-align:left">{escape(c)}</{tag}>' for c in cells)
        return f"<tr>{inside}</tr>"

    body = "".join(row("td", cells) for cells in rows)
    return f"<table><thead>{row('th', header)}</thead><tbody>{body}</tbody></table>"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same with spaces."""
    table = [header, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines)
