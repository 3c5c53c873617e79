"""Figures of fine-tuning show the numbers that they are given."""

import pytest
import torch

from efflib.plots import finetuning


def test_means_and_spreads_of_both_texts():
    methods = {"rank 1": (0.5, [12.0, 14.0], [9.0, 9.0]), "all": (100.0, [8.0, 8.0], [10.0, 12.0])}
    new, old = finetuning.learned_and_forgotten(methods, (20.0, 8.5), "title").axes
    for ax, values, level in ((new, [13, 8], 20.0), (old, [9, 11], 8.5)):
        line, frozen = ax.get_lines()
        assert list(line.get_xdata()) == [0.5, 100] and list(line.get_ydata()) == values
        assert set(frozen.get_ydata()) == {level}
        assert [t.get_text() for t in ax.texts] == ["rank 1", "all"]


def test_four_parts_one_after_the_other():
    bars = {"full": [1, 2, 4, 8], "lora": [1, 1, 1, 1]}
    ax, near = finetuning.memory_bars(bars, 10, "t").axes
    for side in (ax, near):
        assert [bar.get_width() for bar in side.patches] == [1, 2, 4, 8, 1, 1, 1, 1]
        assert [bar.get_x() for bar in side.patches][:4] == [0, 1, 3, 7]
    assert near.get_xlim() == (0, pytest.approx(11))  # the card; the smallest bar ends at 4
    assert [t.get_text().strip() for t in ax.texts] == ["15 GB", "4 GB"]
    with pytest.raises(ValueError, match="got 2 numbers"):
        finetuning.memory_bars({"full": [1, 2]}, 10, "t")


def test_a_stem_for_every_level():
    books = {"a": (torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([0.25, 0.5, 0.25]))}
    (ax,) = finetuning.levels_and_use(books, "title").axes
    (points,) = ax.get_lines()
    assert list(points.get_xdata()) == [-1, 0, 1] and list(points.get_ydata()) == [25, 50, 25]
    assert "25.0 % to 50.0 %" in ax.get_title()


def test_the_opening_has_a_bar_for_each_and_the_card():
    (ax,) = finetuning.opening({"all": 800.0, "few": 47.0}, 48.0, "title").axes
    assert [bar.get_width() for bar in ax.patches] == [800, 47]
    assert "one card, 48 GB" in [t.get_text() for t in ax.texts]
