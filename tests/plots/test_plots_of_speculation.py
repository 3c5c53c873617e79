"""Figures of speculation: what is drawn is what was given."""

import pytest

from efflib.plots import speculation


def test_a_text_of_two_writers():
    words = ["def", " f", "(x):\n", "    ", "return", " x"]
    figure, alt = speculation.text_of_two(words, [True, False, True, True, False, True], "head")
    (ax,) = figure.axes
    assert len(ax.patches) == 3  # blanks have no box
    letters = "".join(text.get_text() for text in ax.texts)
    assert letters == "".join(words).replace("\n", "")
    assert "67 percent" in alt


def test_overlap_says_what_both_share():
    figure, alt = speculation.overlap("ab", [0.5, 0.5], [0.9, 0.1], [0.0, 1.0], "head")
    left, right = figure.axes
    assert [bar.get_height() for bar in left.patches] == [0.5, 0.5, 0.9, 0.1]
    assert [bar.get_height() for bar in right.patches] == [0.0, 1.0]
    assert "Shared 0.60" in alt


def test_curves():
    figure, alt = speculation.curves(
        [1, 2, 4], {"draft": [1, 2, 3]}, {"formula": [1, 2, 2.5]}, ("g", "tokens"), "head", 1.0
    )
    lines = figure.axes[0].get_lines()
    assert list(lines[0].get_ydata()) == [1, 2, 3] and lines[1].get_ydata()[2] == pytest.approx(2.5)
    assert "formula: 1.00, 2.00, 2.50" in alt
