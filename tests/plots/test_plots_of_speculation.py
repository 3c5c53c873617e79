"""Figures of speculation: what is drawn is what was given."""

import pytest

from efflib.plots import speculation


def test_a_text_of_two_writers():
    words = ["def", " f", "(x):\n", "    ", "return", " x"]
    figure, alt = speculation.text_of_two(words, [True, False, True, True, False, True], "head")
    (ax,) = figure.axes
    assert len(ax.patches) == len(words)  # a box for each token, blanks and ends of lines too
    on_blue = [box.get_facecolor()[3] > 0 for box in ax.patches]
    assert on_blue == [True, False, True, True, False, True]
    letters = "".join(text.get_text() for text in ax.texts)
    assert letters == "".join(words).replace("\n", "↵").replace(" ", "·")
    assert "67 percent" in alt


def test_short_lines_stand_side_by_side():
    words = [f"line {i}\n" for i in range(8)]
    figure, _ = speculation.text_of_two(words, [True] * 8, "head")
    corners = [box.get_xy() for box in figure.axes[0].patches]
    assert len(set(corners)) == 8
    rows, columns = {y for _, y in corners}, {x for x, _ in corners}
    assert len(rows) == 1 and len(columns) == 8 and max(columns) + 7 <= speculation.WIDTH
    figure, _ = speculation.text_of_two(["a" * 60 + "\n", "b"], [True, False], "head")
    assert {box.get_x() for box in figure.axes[0].patches} == {0}


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
    bands = {"luck": [(1, 1.5), (2, 2.5), (3, 3.5)]}
    figure, alt = speculation.curves([1, 2, 4], {}, {}, ("g", "tokens"), "head", bands=bands)
    assert "luck: 1.00 to 1.50, 2.00 to 2.50, 3.00 to 3.50" in alt
    assert len(figure.axes[0].collections) == 1
