"""Style of the feedback and marking pages, light and dark, in the colours of the class page.

Code is coloured by Pygments' accessible styles, whose contrast is at least 7 : 1 on these panels.
"""

import functools
import re

from markupsafe import Markup
from pygments.formatters import HtmlFormatter

from autograder.nbgrader.colours import DARK, LIGHT, variables

CODE = {"light": "a11y-high-contrast-light", "dark": "a11y-high-contrast-dark"}
LAYOUT = """
body { font: 16px/1.5 sans-serif; color: var(--text); background: var(--page); margin: 2em auto;
  padding: 0 1em }
a { color: var(--link) }
h2 { border-bottom: 1px solid var(--line); margin-top: 2em }
td, th { padding: .1em 1.5em .1em 0; text-align: left }
pre { background: var(--panel); padding: .6em; overflow-x: auto; font-size: 14px }
.answer, .comment, .look { border-left: 4px solid var(--quiet); padding: .1em 1em;
  overflow-wrap: anywhere }
.comment, .look { border-color: var(--warn) }
.question { background: var(--panel); padding: .1em 1em }
.formula { font-style: italic; font-family: serif; font-size: 1.05em }
.formula.block { display: block; margin: .5em 1.5em }
sub, sup { line-height: 0 }
.answer table, .question table, .comment table { display: block; overflow-x: auto }
img { max-width: 100%; height: auto }
@media (max-width: 30em) {
  body { margin: 1em auto }
  td, th { padding-right: .8em }
}
"""


@functools.cache
def page_style() -> Markup:
    """Variables, code and cards in both schemes, and the layout that both pages share."""
    light, dark = (f":root {{ {variables(colours)} }}" for colours in (LIGHT, DARK))
    code, dark_code = (HtmlFormatter(style=CODE[s]).get_style_defs(".highlight") for s in CODE)
    dark = f"{dark}\n{dark_code}\n.highlight {{ background: none }}\nbody .eff {{ {dark_card()} }}"
    scheme = ":root { color-scheme: light dark }"
    return Markup(
        f"{scheme}\n{light}\n{code}\n.highlight {{ background: none }}\n"
        f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{LAYOUT}"
    )


def dark_card() -> str:
    """The cards' variables in dark themes, as efflib/lab/look.css has them."""
    from efflib.lab import look

    return re.search(r'data-theme="dark"\] \.eff[^{]*\{([^}]*)\}', look.style())[1].strip()
