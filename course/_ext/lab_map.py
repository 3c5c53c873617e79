"""The map of the labs on the first page: a graph with their times and what each builds on.

Read from course/labs.toml; a lab that has a chapter is available, links there, and says the time
that the card of its notebook says. The drawing is SVG in the page, so it has the page's colours,
and links, relative to the top of the site. Where the window is narrow, course.css shows a list.
"""

import json
import re
import tomllib
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

COURSE = Path(__file__).parents[1]
LABS = COURSE.parent / "labs"
BOX, GAP = (156, 46), (44, 14)  # width and height, between boxes


class Lab(NamedTuple):
    name: str
    title: str
    builds_on: tuple[str, ...]  # numbers of labs, "05"
    row: int

    @property
    def number(self) -> str:
        return self.name[3:5]

    @property
    def available(self) -> bool:
        return (COURSE / "chapters" / f"{self.name}.md").is_file()


def labs() -> dict[str, Lab]:
    """{number: lab} of labs.toml."""
    rows = tomllib.loads((COURSE / "labs.toml").read_text())["labs"]
    found = [Lab(name, r["title"], tuple(r["builds_on"]), r["row"]) for name, r in rows.items()]
    return {lab.number: lab for lab in found}


def hours(lab: Lab) -> str:
    """The time on the card of a lab's notebook.  Raises ValueError where there is none."""
    for path in sorted((LABS / lab.name).glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if found := re.search(r"^\| Time \| (.+?) \|$", "".join(cell["source"]), re.MULTILINE):
                return found[1]
    raise ValueError(f"no notebook in {LABS / lab.name} has a card with a time")


def said(lab: Lab) -> str:
    """What a box has room for: the time up to its first comma, or that the lab is planned."""
    return hours(lab).partition(",")[0] if lab.available else "planned"


def needed(all_labs: dict[str, Lab], number: str) -> set[str]:
    """Everything that a lab builds on, directly or not."""
    direct = all_labs[number].builds_on
    return set(direct).union(*(needed(all_labs, one) for one in direct))


def arrows(all_labs: dict[str, Lab]) -> list[tuple[str, str]]:
    """(from, to), without those that follow from others: 05 -> 14 from 05 -> 06 -> 14."""
    return [
        (a, b)
        for b, lab in all_labs.items()
        for a in lab.builds_on
        if not any(a in needed(all_labs, other) for other in lab.builds_on if other != a)
    ]


def place(all_labs: dict[str, Lab]) -> dict[str, tuple[int, int]]:
    """Left upper corner of each box: the column is the longest way from a lab without needs."""

    @cache
    def column(number: str) -> int:
        return max((1 + column(one) for one in all_labs[number].builds_on), default=0)

    return {
        number: (4 + column(number) * (BOX[0] + GAP[0]), 4 + lab.row * (BOX[1] + GAP[1]))
        for number, lab in all_labs.items()
    }


def drawing() -> str:
    """The map as SVG."""
    all_labs = labs()
    places = place(all_labs)
    width = max(x for x, _ in places.values()) + BOX[0] + 4
    height = max(y for _, y in places.values()) + BOX[1] + 4
    parts = []
    for a, b in arrows(all_labs):
        (x, y), (to_x, to_y) = places[a], places[b]
        x, y, to_y = x + BOX[0], y + BOX[1] / 2, to_y + BOX[1] / 2
        turn, bend = to_x - GAP[0], GAP[0] * 0.8  # along its own row, then over in the last gap
        parts.append(
            f'<path d="M{x} {y} L{turn} {y} C{turn + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}" '
            'marker-end="url(#lab-map-arrow)"/>'
        )
    for number, lab in all_labs.items():
        parts.append(box(lab, *places[number]))
    head = '<path d="M0 0 L7 3.5 L0 7 z"/>'
    return (
        f'<div class="lab-map"><svg viewBox="0 0 {width} {height}" role="group" '
        'aria-label="Map of the labs: an arrow goes to what builds on a lab"><defs>'
        f'<marker id="lab-map-arrow" markerWidth="7" markerHeight="7" refX="7" refY="3.5" '
        f'orient="auto">{head}</marker></defs>{"".join(parts)}</svg></div>{listed(all_labs)}'
    )


def listed(all_labs: dict[str, Lab]) -> str:
    """The same as a list: what is here, and behind it what is planned."""
    lines = []
    for number, lab in sorted(all_labs.items(), key=lambda pair: not pair[1].available):
        name = f"{number} {escape(lab.title)}"
        kind = "" if lab.available else ' class="lab-planned"'
        if lab.available:
            name = f'<a href="chapters/{lab.name}.html">{name}</a>'
        builds = f", builds on {', '.join(lab.builds_on)}" if lab.builds_on else ""
        lines.append(f"<li{kind}>{name}<span>{escape(said(lab))}{builds}</span></li>")
    return f'<ul class="lab-list">{"".join(lines)}</ul>'


def box(lab: Lab, x: int, y: int) -> str:
    """A lab: a link to its chapter with its time, or that it is planned."""
    texts = (
        f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="6"/>'
        f'<text x="{x + 10}" y="{y + 19}">{lab.number} {escape(lab.title)}</text>'
        f'<text class="lab-time" x="{x + 10}" y="{y + 37}">{escape(said(lab))}</text>'
    )
    if not lab.available:
        return f'<g class="lab-planned">{texts}</g>'
    return f'<a class="lab-here" href="chapters/{lab.name}.html">{texts}</a>'
