"""Pictures of lab 0: a title that says what is in it, and a text for those who see none."""

import pytest

from efflib.plots import roofline

BATCHES = (1, 2, 4, 8)
TIMES = (0.05, 0.06, 0.07, 0.1)


def said(picture) -> tuple[str, str]:
    fig, alt = picture
    return " ".join(fig.get_suptitle().split()), alt


def test_two_lines_say_where_they_meet():
    title, alt = said(
        roofline.two_lines((1, 4, 16), (0.001, 0.004, 0.016), (0.005, 0.006, 0.01), 5.75, "7B")
    )
    assert title == "7B: they meet at batch 6"
    assert "at batch 16 16.0 ms and 10.0 ms" in alt
    title, _ = said(roofline.two_lines((1, 2), (1, 2), (5, 7), float("inf"), "7B"))
    assert title == "7B: moving takes longer for every batch"


def test_the_roof_names_what_lies_left_of_the_ridge():
    points = {"one token": (0.5, 6e9), "prompt": (40.0, 60e9)}
    title, alt = said(roofline.roof(80e9, 16e9, points, "This machine"))
    assert title == "This machine: one token left of the ridge, where bytes decide"
    assert "ridge at 5" in alt and "prompt at 40" in alt
    title, _ = said(roofline.roof(80e9, 16e9, {"prompt": (40.0, 60e9)}, "X"))
    assert "nothing left" in title


@pytest.mark.parametrize("ridge", [4.0, float("inf")])
def test_over_the_batch_says_how_many_times_one(ridge):
    title, alt = said(roofline.over_batch(BATCHES, {"whole step": TIMES}, TIMES, ridge))
    assert title.startswith("8 sequences take 2.0 times as long as one")
    assert "4: 70 ms" in alt


def test_the_opening_shows_the_effect_and_names_no_ratio():
    title, alt = said(roofline.opening(BATCHES, TIMES))
    assert "times" not in title and "8: 100 ms" in alt


def test_served_says_where_goodput_is_best():
    title, _ = said(roofline.served((1, 2, 3), (1, 2, 2.5), (1, 1.9, 0.5), "fast"))
    assert title == "Goodput is best at 2 a second, 1.9, and 0.5 at 3, where 2.5 are finished"


def test_perplexities_stand_over_their_work():
    title, alt = said(roofline.by_passes((1.0, 8.0), (9.5, 8.25), ("stride 64", "stride 8")))
    assert title == "The same model and text: 9.50 to 8.25, for 8 times the work"
    assert "stride 8: 8.25" in alt
