"""Sphinx configuration of the course text (make site)."""

project = "Efficient LLM inference"
author = "The course authors"
extensions = ["myst_nb", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
nb_execution_mode = "off"  # figures and tables are made by commands that stand beside them
html_theme = "furo"
html_title = project
exclude_patterns = ["_build", "chapters/_generated"]
