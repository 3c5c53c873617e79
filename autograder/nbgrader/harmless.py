"""HTML of what students write: code is escaped, markdown keeps an allow-list of tags."""

import functools

from markupsafe import Markup
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors.sanitize import SanitizeHTML
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

KEPT = 1_000  # texts
CODE_STYLE = HtmlFormatter(style="default", cssclass="highlight")
TAGS = "a abbr blockquote br code dd del div dl dt em h1 h2 h3 h4 h5 h6 hr li ol p pre span strong"
TAGS += " sub sup table tbody td th thead tr ul"


def is_web_link(tag: str, name: str, value: str) -> bool:
    """Other addresses lead from a feedback page to files that nobody has, or further."""
    return name == "href" and value.lower().startswith(("http://", "https://", "#"))


ATTRIBUTES = {"div": ["class"], "span": ["class"], "a": is_web_link}
SANITIZER = SanitizeHTML(tags=TAGS.split(), attributes=ATTRIBUTES, strip=True)


@functools.lru_cache(maxsize=KEPT)  # many hand in the same; questions and set-up are on every page
def coloured(source: str) -> str:
    return highlight(source, PythonLexer(), CODE_STYLE)


@functools.lru_cache(maxsize=KEPT)
def rendered(markdown: str) -> Markup:
    """Markdown as HTML of harmless tags only."""
    renderer = IPythonRenderer(escape=True, exclude_anchor_links=True)
    html = MarkdownWithMath(renderer=renderer).render(markdown)
    return Markup(SANITIZER.sanitize_html_tags(html))
