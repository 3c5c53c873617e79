"""Two directives, for pages at the top of the site: {lab-map} and {gallery}."""

import lab_map
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


def setup(app: Sphinx) -> dict:
    app.add_directive("lab-map", LabMap)
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
