"""Grades notebooks of the efficient-LLM course.

Student code runs in a sandbox that holds no test and no solution; tests, expected values and the
verdict stay outside. `autograder --help` lists the commands.
"""

import sys

# jsonschema, which nbformat imports, compiles a grammar of internet addresses for a second if it
# finds one.  No schema of a notebook asks for that check.
sys.modules.setdefault("rfc3987_syntax", None)
