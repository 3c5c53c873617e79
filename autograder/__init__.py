"""Grades notebooks of the efficient-LLM course.

Student code runs in a sandbox that holds no test and no solution; tests, expected values and the
verdict stay outside. `autograder --help` lists the commands.
"""
