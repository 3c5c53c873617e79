"""How test reports are shown: HTML cards in Jupyter, plain text elsewhere. Everything is escaped.

✗ zero is exact · 0.0 came back as 0.0117 · the code of 0.0 must dequantize to exactly 0
  · usual cause: zero point not rounded before use
"""

from html import escape

from efflib.lab.report import TestReport

SYMBOLS = {"passed": "✓", "failed": "✗", "not verified": "?"}
WORDS = {"passed": "passed", "failed": "failed", "not verified": "not verified here"}
COLORS = {"passed": "#0072b2", "failed": "#b23c00", "not verified": "#666666"}
NOT_ATTEMPTED = "not attempted yet: write the function in the cell above, run it, run this again"
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


def in_order(reports: list[TestReport]) -> list[TestReport]:
    """Failed ones first: that is what the reader has to act on."""
    return sorted(
        reports, key=lambda r: list(SYMBOLS).index(r.outcome) if r.outcome != "failed" else -1
    )


def attempted(reports: list[TestReport]) -> bool:
    """False if the code behind every test still is the untouched stub."""
    return any(r.kind != "NotImplementedError" for r in reports)


def text_cards(summary: str, reports: list[TestReport], footer: str = "") -> str:
    """The summary, a card for each report that did not pass, the passed ones in one line."""
    if not attempted(reports):
        return "\n".join([summary, NOT_ATTEMPTED, footer])
    failed = [text_card(r) for r in in_order(reports) if r.outcome != "passed"]
    passed = [r.title for r in reports if r.outcome == "passed"]
    lines = [summary, *failed]
    if passed:
        lines.append("✓ passed: " + "; ".join(passed))
    return "\n".join([*lines, *([footer] if footer else [])])


def html_cards(summary: str, reports: list[TestReport], footer: str = "") -> str:
    """As `text_cards`, the passed ones folded."""
    failed = "".join(html_card(r) for r in in_order(reports) if r.outcome != "passed")
    if not attempted(reports):
        failed = f"<div>{escape(NOT_ATTEMPTED)}</div>"
    passed = [r for r in reports if r.outcome == "passed"]
    folded = ""
    if passed:
        cards = "".join(html_card(r) for r in passed)
        folded = f"<details><summary>✓ {len(passed)} passed</summary>{cards}</details>"
    below = f'<div style="color:#666">{escape(footer)}</div>' if footer else ""
    return f"<div><div><b>{escape(summary)}</b></div>{failed}{folded}{below}</div>"


def html_table(header: list[str], rows: list[list[str]]) -> str:
    """A plain table, every cell escaped."""
    head = "".join(f"<th style='text-align:left'>{escape(h)}</th>" for h in header)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{escape(c)}</td>" for c in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text_table(header: list[str], rows: list[list[str]]) -> str:
    """The same with spaces."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in [header, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)
