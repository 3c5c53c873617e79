"""HTML that looks the same in notebooks and feedback pages, light and dark. Everything is escaped.

Every block brings its style along, since a notebook shows each output by itself.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from pathlib import Path


@cache
def style() -> str:
    return (Path(__file__).parent / "look.css").read_text(encoding="utf-8")


def block(inside: str, kind: str = "") -> str:
    """HTML `inside` as one block with its style."""
    return f'<style>{style()}</style><div class="{f"eff {kind}".strip()}">{inside}</div>'


def element(kind: str, text: str, tag: str = "div") -> str:
    return f'<{tag} class="{kind}">{escape(text)}</{tag}>'


def labelled(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A title, and below it labels in one column and texts in another."""
    pairs = "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in rows)
    return f"<dl>{element('eff-title', title, 'dt')}{pairs}</dl>"


def bar(sign: str, text: str, share: float | None = None, right: str = "") -> str:
    """The head of a card: sign and text, a meter for a share, and something at the right."""
    parts = [element("eff-sign", sign, "span"), element("eff-text", text, "span")]
    if share is not None:
        parts.append(f'<div class="eff-meter"><span style="width:{share:.0%}"></span></div>')
    parts += [element("eff-right", right, "span")] if right else []
    return f'<div class="eff-bar">{"".join(parts)}</div>'


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table, every cell escaped."""

    def row(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(c)}</{tag}>' for c in cells)}</tr>"

    body = "".join(row("td", cells) for cells in rows)
    return block(f"<table><thead>{row('th', header)}</thead><tbody>{body}</tbody></table>")


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same with spaces."""
    table = [header, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines)
