"""HTML of what students write: code is escaped, markdown keeps an allow-list of tags."""

import functools

from markupsafe import Markup, escape
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from autograder.nbgrader.formulas import readable

KEPT = 1_000  # texts
# Longer texts are shown as they are: the time that mistune and pygments take can grow with the
# square of the characters, which is more than a minute for 50 000 of begun formulas.
LONG = 10_000
CODE = HtmlFormatter(cssclass="highlight")  # its colours: page_style.py
TAGS = "a abbr blockquote br code dd del div dl dt em h1 h2 h3 h4 h5 h6 hr li ol p pre span strong"
TAGS += " sub sup table tbody td th thead tr ul"


def is_web_link(tag: str, name: str, value: str) -> bool:
    """Other addresses lead from a feedback page to files that nobody has, or further."""
    return name == "href" and value.lower().startswith(("http://", "https://", "#"))


ATTRIBUTES = {"div": ["class"], "span": ["class"], "a": is_web_link}
SANITIZER = SanitizeHTML(tags=TAGS.split(), attributes=ATTRIBUTES, strip=True)


class Renderer(IPythonRenderer):
    """Formulas as text in italics: the pages run no scripts, so nothing would typeset them."""

    def inline_math(self, body: str) -> str:
        if body != body.strip():  # "$5 and $7" are prices
            return self.escape_html(f"${body}$")
        return f'<span class="formula">{readable(body)}</span>'

    def block_math(self, body: str) -> str:
        return f'<span class="formula block">{readable(body)}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(body)


@functools.lru_cache(maxsize=KEPT)  # many hand in the same; questions and set-up are on every page
def coloured(source: str) -> str:
    if len(source) > LONG:
        return f'<div class="highlight">{as_it_is(source)}</div>'
    return highlight(source, PythonLexer(), CODE)


@functools.lru_cache(maxsize=KEPT)
def rendered(markdown: str) -> Markup:
    """Markdown as HTML of harmless tags only."""
    if len(markdown) > LONG:
        return as_it_is(markdown)
    renderer = Renderer(escape=True, exclude_anchor_links=True)
    html = MarkdownWithMath(renderer=renderer).render(markdown)
    return Markup(SANITIZER.sanitize_html_tags(html))


def as_it_is(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(escape(text))
