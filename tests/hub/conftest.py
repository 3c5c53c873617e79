"""Puts the helpers of the nbgrader tests on the path: the toy lab is theirs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "autograder" / "nbgrader"))
