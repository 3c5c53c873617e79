"""Cuts a chapter into slides.  What is on a slide is read off the chapter's own tree:

- a heading starts a slide, and so does a passage that the chapter marks `[so]{.slide}`: it is the
  slide's title, and the heading stands small above it; where the text below a heading begins with
  a paragraph of one short sentence, that is the title;
- passages marked `[so]{.point}` are its lines; above the first section they belong to slide 1;
- figures, formulas, and tables and code that are small enough stand below; a second figure or
  table starts another slide with the same title, unless it is a figure of the class `beside`,
  and a second piece of code is left to the chapter; code on the title's slide is spoken;
- a passage that is marked `.slide` in a figure's caption is the title of that figure's slide;
- what has the class `off-slides` is left out, and so are slides that have only a heading;
- all other text between is what the speaker's view shows.
"""

import re
from dataclasses import dataclass, field

from docutils import nodes

TITLE, POINT, BESIDE, OFF = "slide", "point", "beside", "off-slides"
SHORT = 120  # characters of a sentence
MOST_ROWS, MOST_CHARACTERS = 11, 130  # of a table or code: more can't be read from the last row
FIGURE = (nodes.figure, nodes.image)
LARGE = (*FIGURE, nodes.table, nodes.literal_block)
SPOKEN = (nodes.paragraph, nodes.bullet_list, nodes.enumerated_list, nodes.definition_list)


@dataclass
class Slide:
    """Nodes of a chapter that are shown together."""

    heading: nodes.title
    place: str  # the id of the heading's section
    above: nodes.title | None  # the heading that this one stands under
    statement: nodes.Element | None = None  # its title, if not the heading
    points: list[nodes.Element] = field(default_factory=list)
    pictures: list[nodes.Element] = field(default_factory=list)
    notes: list[nodes.Element] = field(default_factory=list)

    bare: bool = False  # its title is no more than the first sentence below a heading

    @property
    def empty(self) -> bool:
        return (self.bare or self.statement is None) and not (self.points or self.pictures)

    @property
    def full(self) -> bool:
        return any(isinstance(picture, LARGE) for picture in self.pictures)

    def next(self, statement: nodes.Element | None = None) -> "Slide":
        return Slide(self.heading, self.place, self.above, statement)


def marked(node: nodes.Node, *classes: str) -> list[nodes.inline]:
    return [one for one in node.findall(nodes.inline) if set(classes) & set(one["classes"])]


def short_sentence(node: nodes.Node) -> bool:
    text = node.astext()
    return isinstance(node, nodes.paragraph) and bool(
        len(text) <= SHORT and re.fullmatch(r"[^.:]+(: [^.:]+)?\.", text)
    )


def small(node: nodes.Element) -> bool:
    """Whether a table or code can be read on a slide."""
    if isinstance(node, nodes.table):
        rows = [
            [entry.astext() for entry in row.findall(nodes.entry)]
            for row in node.findall(nodes.row)
        ]
        widths = (max(map(len, column)) for column in zip(*rows, strict=True))
        return len(rows) <= MOST_ROWS and sum(widths) <= MOST_CHARACTERS
    lines = node.astext().splitlines()
    return len(lines) <= MOST_ROWS and max(map(len, lines), default=0) <= MOST_CHARACTERS


class Cutter:
    """Walks a chapter in the order of its text."""

    def __init__(self) -> None:
        self.slides: list[Slide] = []

    def section(self, section: nodes.section, above: nodes.title | None) -> None:
        heading = section[section.first_child_matching_class(nodes.title)]
        slide = Slide(heading, section["ids"][0], above)
        self.slides.append(slide)
        first = section[section.index(heading) + 1 :][:1]
        if above and first and short_sentence(first[0]):
            slide.statement, slide.bare = first[0], True
        for child in section.children:
            self.block(child, heading)

    def block(self, node: nodes.Node, heading: nodes.title) -> None:
        if isinstance(node, nodes.section):
            self.section(node, heading)
        elif not isinstance(node, nodes.Element) or OFF in node.get("classes", ()):
            return
        elif isinstance(node, (nodes.math_block, *LARGE)):
            self.picture(node)
        elif isinstance(node, SPOKEN):
            self.text(node)
        elif isinstance(node, nodes.container | nodes.compound):
            for child in node.children:
                self.block(child, heading)

    def text(self, node: nodes.Element) -> None:
        """Its marked passages; a text that has none is spoken."""
        for passage in marked(node, TITLE, POINT):
            slide = self.slides[-1]
            if TITLE in passage["classes"]:
                self.slides.append(slide.next(passage))
            elif slide.above is None:
                self.slides[0].points.append(passage)
            else:
                slide.points.append(passage)
        self.slides[-1].notes.append(node)

    def picture(self, node: nodes.Element) -> None:
        if isinstance(node, nodes.table | nodes.literal_block) and not small(node):
            return
        slide = self.slides[-1]
        if isinstance(node, nodes.literal_block) and slide is self.slides[0]:
            slide.notes.append(node)
            return
        if isinstance(node, nodes.literal_block) and slide.full:
            return
        titles = marked(node, TITLE) if isinstance(node, nodes.figure) else []
        if titles:
            self.slides.append(slide.next(titles[0]))
        elif slide.full and BESIDE not in node.get("classes", ()):
            self.slides.append(slide.next(slide.statement))
        self.slides[-1].pictures.append(node)


def cut(chapter: nodes.document) -> list[Slide]:
    """The slides of a chapter; the first is its title.  Raises ValueError without a heading."""
    at = chapter.first_child_matching_class(nodes.section)
    if at is None:
        raise ValueError(f"{chapter.get('source')} has no heading, so no slides")
    cutter = Cutter()
    cutter.section(chapter[at], None)
    first, *others = cutter.slides
    kept, spoken = [first], []
    for slide in others:
        if slide.empty:  # what is said under a bare heading is said with the next slide
            spoken += slide.notes
        else:
            slide.notes = spoken + slide.notes
            kept.append(slide)
            spoken = []
    kept[-1].notes += spoken
    return kept
