"""Sphinx configuration of the course text (make site)."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Efficient LLM inference"
author = "The course authors"
extensions = ["myst_nb", "sphinx.ext.mathjax", "front_page", "slides"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
nb_execution_mode = "off"  # figures and tables are made by commands that stand beside them
templates_path = ["_templates"]
html_theme = "furo"
html_title = project
html_show_copyright = False
# formulas without a network: MathJax in one file that the site serves itself
MATHJAX = Path(find_spec("sphinx-mathjax-offline").origin).parent / "static/mathjax/tex-svg.js"
html_static_path = [str(MATHJAX), "_static"]
html_css_files = ["course.css"]
html_search_scorer = str(Path(__file__).parent / "_ext" / "search_order.js")
mathjax_path = MATHJAX.name
html_context = {"mathjax": MATHJAX.name}  # for the slides
exclude_patterns = ["_build", "_templates", "chapters/_generated"]
