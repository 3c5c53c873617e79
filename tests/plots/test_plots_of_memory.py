"""Figures of a cache: what is drawn is what was given, and the lecture's tables come out."""

import pytest
import torch

from efflib.plots import memory, turing
from efflib.serving.paged import PagedSequences, slot_of


def slots_of(table, positions, block_size):
    return torch.tensor([slot_of(table, p, block_size) for p in positions.tolist()])


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize(
    "steps, tables",
    [
        (0, "others: blocks 0, 3, 5, 6"),
        (1, "A: blocks 7, 1, 6 tokens"),
        (4, "A: blocks 7, 1, 4, 9 tokens"),
        (5, "A: blocks 7, 1, 4, 9 tokens; B: blocks 7, 1, 4, 9 tokens"),
        (7, "A: blocks 7, 1, 4, 10 tokens; B: blocks 7, 1, 2, 10 tokens"),
    ],
)
def test_the_lecture_step_by_step(steps, tables):
    figure, alt = turing.draw(PagedSequences, slots_of, steps)
    assert alt.endswith(tables)
    words = [word for _, text in turing.STORY[:steps] for word in text.split()]
    assert set(words) <= set(texts(figure))
    assert ("was copied" in turing.draw(PagedSequences, slots_of, 6)[1]) and "copied" not in alt


@pytest.mark.parametrize(
    "steps, said",
    [
        (1, "A prompt of 6 words: A takes the blocks [7, 1]"),
        (3, "A writes 'mathematician' in place: block 1 has no other owner"),
        (4, "A writes 'renowned': its blocks were full, so it takes block 4"),
        (6, "B writes 'throughout': block 4 had two owners and was copied to 2"),
        (7, "A writes 'for' in place: block 4 has no other owner"),
    ],
)
def test_the_title_says_what_happened(steps, said):
    assert turing.draw(PagedSequences, slots_of, steps)[1].startswith(said)


def test_blocks_of_others_are_hatched():
    figure, alt = turing.draw(PagedSequences, slots_of, 0)
    hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
    assert len(hatched) == 4 * turing.SIZE and texts(figure).count("others") == 4
    assert alt.endswith("others: blocks 0, 3, 5, 6")


def test_owners_stand_beside_their_blocks():
    figure, _ = memory.blocks([["x", ""], ["y", "z"]], {"A": ([1, 0], 3), "B": ([1], 2)}, "title")
    assert {"A+B", "A"} <= set(texts(figure))


def test_shares_are_bars_one_behind_the_other():
    rows = {"used": 0.2, "reserved": 0.1, "internal": 0.4, "external": 0.2, "free": 0.1}
    figure, alt = memory.shares({"one": rows, "two": dict(rows, used=0.3, free=0.0)}, "title")
    bars = [bar for bar in figure.axes[0].patches if bar.get_y() > 0.5]  # the upper one is "one"
    ends = [(round(bar.get_x(), 6), round(bar.get_x() + bar.get_width(), 6)) for bar in bars]
    assert ends == [(0, 20), (20, 30), (30, 70), (70, 90), (90, 100)]
    assert "one: used 20.0 %, reserved 10.0 %" in alt and "20.0 %" in texts(figure)


def test_running_and_opening():
    figure, alt = memory.running({"one": [1, 3, 2], "two": [4]}, "title", "sequences")
    assert [list(line.get_ydata()) for line in figure.axes[0].get_lines()] == [[1, 3, 2], [4]]
    assert "one: at most 3, 3 steps" in alt
    figure, alt = memory.opening(0.2, "full")
    assert figure.axes[0].patches[0].get_width() == pytest.approx(20) and "20 %" in alt
