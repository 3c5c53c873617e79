"""{lab-map}, {gallery} and {results}, for pages at the top of the site; "10 %" in one line."""

import re

import lab_map
import results
import stories
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class LabMap(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # chapters and notebooks may be new
        return [nodes.raw("", lab_map.drawing(), format="html")]


class Gallery(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # stories may be measured anew
        text = "".join(stories.text(one) for one in stories.stories())
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Results(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.note_reread()  # files may be new
        return self.parse_text_to_nodes(results.page(), allow_section_headings=True)


def keep_percents(app: Sphinx, page: nodes.document) -> None:
    """No line ends between a number and its per cent."""
    for text in list(page.findall(nodes.Text)):
        whole = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)
        if whole != text and not isinstance(text.parent, nodes.FixedTextElement):
            text.parent.replace(text, nodes.Text(whole))


def setup(app: Sphinx) -> dict:
    app.add_directive("lab-map", LabMap)
    app.add_directive("gallery", Gallery)
    app.add_directive("results", Results)
    app.connect("doctree-read", keep_percents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
