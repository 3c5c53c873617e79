"""A reveal.js deck beside each chapter, chapters/<name>-slides.html, and a link to it there.

What is on the slides: cutting.py.  Slides are rendered by the builder that renders the chapter, so
formulas, terms and numbers are the chapter's own, and figures are the same files.
"""

from collections.abc import Iterator
from html import escape
from itertools import groupby

import cutting
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

FOLDER = "chapters/"
ENDING = "-slides"


def has_deck(docname: str) -> bool:
    return docname.startswith(FOLDER)


class Deck:
    """Renders the slides of one chapter."""

    def __init__(self, builder: StandaloneHTMLBuilder, docname: str) -> None:
        self.builder, self.page = builder, docname.removeprefix(FOLDER) + ".html"

    def html(self, node: nodes.Element) -> str:
        return self.builder.render_partial(node.deepcopy())["fragment"]

    def plain(self, node: nodes.Element) -> str:
        """What stands in a heading."""
        return self.html(nodes.inline("", "", *(child.deepcopy() for child in node.children)))

    def line(self, node: nodes.Element) -> str:
        """What stands in a heading, a passage or a sentence, as a line of its own."""
        parts = [child.deepcopy() for child in node.children]
        if isinstance(parts[0], nodes.Text):
            parts[0] = nodes.Text(parts[0][:1].upper() + parts[0][1:])
        if isinstance(parts[-1], nodes.Text):
            parts[-1] = nodes.Text(parts[-1].removesuffix("."))
        return self.html(nodes.inline("", "", *parts))

    def picture(self, node: nodes.Element, slide: cutting.Slide) -> str:
        """A figure whose caption has the slide's title as a sentence does not say it again."""
        copy = node.deepcopy()
        if isinstance(node, nodes.figure) and slide.statement in node.findall(nodes.inline):
            [caption] = copy.findall(nodes.caption)
            [passage] = cutting.marked(caption, cutting.TITLE)
            if passage not in caption.children:
                raise ValueError(f"{node.source}: a title stands in other marks of a caption")
            at = caption.index(passage)
            before = "".join(one.astext() for one in caption[:at]).rstrip()
            after = "".join(one.astext() for one in caption[at + 1 :])
            if before[-1:] in ("", ".") and after[:1] in ("", "."):
                caption.remove(passage)
                if after:
                    caption[at] = nodes.Text(caption[at].removeprefix(".").lstrip())
                if not caption.astext():
                    copy.remove(caption)
        return self.html(copy)

    def pictures(self, slide: cutting.Slide) -> str:
        """All of a slide, its figures beside one another."""
        shown = ""
        for figures, group in groupby(
            slide.pictures, lambda node: isinstance(node, cutting.FIGURE)
        ):
            one = "".join(self.picture(node, slide) for node in group)
            shown += f'<div class="figures">{one}</div>' if figures else one
        return shown

    def slide(self, slide: cutting.Slide) -> str:
        above = slide.heading if slide.statement else slide.above
        title = slide.statement or slide.heading
        parts = []
        if above is not None:
            link = f'<a href="{escape(self.page)}#{escape(slide.place)}">{self.plain(above)}</a>'
            parts.append(f'<p class="above">{link}</p>')
        parts.append(f"<h2>{self.line(title)}</h2>")
        if slide.points:
            lines = "".join(f"<li>{self.line(point)}</li>" for point in slide.points)
            parts.append(f'<ul class="points">{lines}</ul>')
        if slide.pictures:
            parts.append(f'<div class="pictures">{self.pictures(slide)}</div>')
        if slide.notes:
            said = "".join(self.html(note) for note in slide.notes)
            parts.append(f'<aside class="notes">{said}</aside>')
        return f"<section>{''.join(parts)}</section>\n"


def decks(app: Sphinx) -> Iterator[tuple[str, dict, str]]:
    """A page for each chapter: its name, what its template shows, the template."""
    builder = app.builder
    if not isinstance(builder, StandaloneHTMLBuilder):
        return
    for docname in sorted(filter(has_deck, app.env.found_docs)):
        chapter = app.env.get_and_resolve_doctree(docname, builder)
        builder.post_process_images(chapter)
        builder.current_docname, builder.imgpath = docname, "../_images"
        deck = Deck(builder, docname)
        slides = cutting.cut(chapter)
        context = {
            "title": slides[0].heading.astext(),
            "chapter": deck.page,
            "slides": "".join(deck.slide(slide) for slide in slides),
        }
        yield docname + ENDING, context, "slides.html"


def link(app: Sphinx, chapter: nodes.document, docname: str) -> None:
    """Leads from a chapter to its slides, below the heading."""
    at = chapter.first_child_matching_class(nodes.section)
    if app.builder.format != "html" or not has_deck(docname) or at is None:
        return
    target = docname.removeprefix(FOLDER) + ENDING + ".html"
    text = f'<p class="slides-link"><a href="{escape(target)}">Slides of this chapter</a></p>'
    chapter[at].insert(1, nodes.raw("", text, format="html"))


def setup(app: Sphinx) -> dict:
    app.connect("html-collect-pages", decks)
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
