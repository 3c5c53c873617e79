"""Edits: each piece fits in one place, or the error names it."""

import pytest

from autograder.triad.edits import EditError, edited, new_statements

TEXT = '''\
import math

FIRST = 1


def one(x):
    """A docstring."""
    y = x + 1
    return y


@staticmethod
def two(x):
    y = x + 1

    return y


class Three:
    def method(self, x):
        y = x + 1
        return y

    def other(self, x):
        return x
'''


def changes(edit):
    """Lines of TEXT that an edit changes: {number from 1: line}, where it keeps their number."""
    before, after = TEXT.split("\n"), edited(TEXT, edit).split("\n")
    assert len(before) == len(after)
    return {i: b for i, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b}


FITS = {
    "anywhere": ("-FIRST = 1\n+FIRST = 2", {3: "FIRST = 2"}),
    "inside of a function": ("@@ one\n-    y = x + 1\n+    y = x", {8: "    y = x"}),
    "the same in another": ("@@ two\n-    y = x + 1\n+    y = x", {14: "    y = x"}),
    "a method": ("@@ Three.method\n-        return y\n+        return x", {22: "        return x"}),
    "a decorator": ("@@ two\n-@staticmethod\n+@classmethod", {12: "@classmethod"}),
    "with what stands around it": (
        "     y = x + 1\n\n-    return y\n+    return x",
        {16: "    return x"},
    ),
    "two pieces, in any order": (
        "@@ two\n-    y = x + 1\n+    y = 2\n@@ one\n-    y = x + 1\n+    y = 1",
        {8: "    y = 1", 14: "    y = 2"},
    ),
    "nothing between them": (
        "@@ one\n-    y = x + 1\n+    y = 1\n@@ one\n-    return y\n+    return 1",
        {8: "    y = 1", 9: "    return 1"},
    ),
}


@pytest.mark.parametrize("edit, lines", FITS.values(), ids=FITS)
def test_a_piece_changes_the_one_place_where_it_fits(edit, lines):
    assert changes(edit) == lines


def test_lines_come_and_go():
    assert edited("a\nb\nc", " b\n+d") == "a\nb\nd\nc"
    assert edited("a\nb\nc", "-b") == "a\nc"
    assert edited("a\nb\nc", "+d\n a") == "d\na\nb\nc"


WRONG = {
    "twice": ("-    y = x + 1\n+    y = x", "stands 2 times in the text, not once:\n *y = x"),
    "nowhere": ("@@ one\n-    y = x\n+    y = 1", "stands 0 times in one"),
    "in another function": ("@@ one\n-FIRST = 1\n+FIRST = 2", "stands 0 times in one"),
    "no such function": ("@@ four\n-    y = x + 1", "four is defined 0 times"),
    "no such method": ("@@ Three.third\n-    y = x + 1", "Three.third is defined 0 times"),
    "nothing": ("", "says what goes or stays"),
    "no change": (" FIRST = 1", "says what goes or stays"),
    "only new lines": ("+FIRST = 2", "says what goes or stays"),
    "a line of another kind": (
        "FIRST = 1\n+FIRST = 2",
        "begins with a blank, - or \\+, not: FIRST",
    ),
    "one into the other": (
        "@@ one\n-    y = x + 1\n     return y\n@@ one\n-    return y\n+    return x",
        "two pieces change the same lines",
    ),
}


@pytest.mark.parametrize("edit, said", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_named(edit, said):
    with pytest.raises(EditError, match=said):
        edited(TEXT, edit)


def test_new_statements_are_those_that_changed_with_their_decorators():
    text = edited(TEXT, "@@ two\n-    return y\n+    return x\n@@\n-FIRST = 1\n+FIRST = 3")
    assert new_statements(text, TEXT) == (
        "FIRST = 3\n\n\n@staticmethod\ndef two(x):\n    y = x + 1\n\n    return x\n"
    )
    assert new_statements(TEXT, TEXT).strip() == ""
