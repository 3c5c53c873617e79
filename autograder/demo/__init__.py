"""A class of thirteen submissions, honest, messy and hostile, that shows what grading does.

`make demo` (python -m autograder.demo) grades it in build/demo; tests/autograder/nbgrader compares
every test of every student with make_class.EXPECTED.
"""
