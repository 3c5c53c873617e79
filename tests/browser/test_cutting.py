"""What of a chapter is on a slide.  Needs MyST, not a browser."""

import sys
from pathlib import Path

import pytest
from docutils.core import publish_doctree
from myst_parser.docutils_ import Parser

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "course"
sys.path.insert(0, str(COURSE / "_ext"))
import cutting  # noqa: E402

SETTINGS = {
    "myst_enable_extensions": ["dollarmath", "attrs_inline"],
    "doctitle_xform": False,
    "report_level": 5,  # figures of the examples are not there
}


def cut(text: str) -> list[cutting.Slide]:
    return cutting.cut(publish_doctree(text, parser=Parser(), settings_overrides=SETTINGS))


def shown(slide: cutting.Slide) -> tuple[str, list[str], list[str]]:
    """Title, lines and kinds of pictures."""
    title = slide.statement or slide.heading
    points = [point.astext() for point in slide.points]
    return title.astext(), points, [type(picture).__name__ for picture in slide.pictures]


TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n"
FIGURE = "```{figure} x.svg\n:alt: A line.\n\nA line. [It rises]{.slide}.\n```\n"


def test_a_chapter_in_order():
    slides = cut(
        f"""# Title

Text. [You need courage]{{.point}}.

## One

Said only. And [what holds]{{.slide}}, since [so]{{.point}}.

$$ x $$

{TABLE}
{TABLE}
### Two

{FIGURE}
## Bare

Said as well. Nothing is shown.
"""
    )
    assert [shown(slide) for slide in slides] == [
        ("Title", ["You need courage"], []),
        ("what holds", ["so"], ["math_block", "table"]),
        ("what holds", [], ["table"]),
        ("It rises", [], ["figure"]),
    ]
    assert [slide.heading.astext() for slide in slides] == ["Title", "One", "One", "Two"]
    assert slides[-1].above.astext() == "One" and slides[-1].place == "two"
    assert slides[1].notes[0].astext().startswith("Said only")
    assert slides[-1].notes[-1].astext().startswith("Said as well")


def test_a_line_above_the_first_section_stands_on_the_title():
    slides = cut(f"# Title\n\n[Statement]{{.slide}}.\n\n{TABLE}\n[You need x]{{.point}}.\n")
    assert [shown(s) for s in slides] == [
        ("Title", ["You need x"], []),
        ("Statement", [], ["table"]),
    ]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Short: it is one sentence.", "Short: it is one sentence."),
        ("Two. Sentences.", "One"),
        ("A sentence before the picture:", "One"),
        ("Long " * 30 + "sentence.", "One"),
    ],
)
def test_a_short_first_sentence_is_the_title(text, title):
    assert shown(cut(f"# Title\n\n## One\n\n{text}\n\n{TABLE}")[1])[0] == title
    assert len(cut(f"# Title\n\n## One\n\n{text}\n")) == 1


def test_figures_stand_beside_one_another_if_they_ask_for_it():
    figure = "```{figure} x.svg\n:alt: A line.\nCLASS\n```\n"
    beside = figure.replace("CLASS", ":figclass: beside\n")
    plain = figure.replace("CLASS\n", "")
    slides = cut(f"# Title\n\n## One\n\n{plain}\n{beside}\n{plain}")
    assert [len(slide.pictures) for slide in slides] == [0, 2, 1]
    off = figure.replace("CLASS", ":figclass: off-slides\n")
    assert len(cut(f"# Title\n\n## One\n\n{off}")) == 1


def test_what_cannot_be_read_from_the_last_row_is_left_to_the_chapter():
    many = TABLE + "| 1 | 2 |\n" * cutting.MOST_ROWS
    wide = TABLE + f"| {'x' * cutting.MOST_CHARACTERS} | 2 |\n"
    long = "```text\n" + "line\n" * (cutting.MOST_ROWS + 1) + "```\n"
    assert len(cut(f"# Title\n\n## One\n\n{many}\n{wide}\n{long}\n")) == 1
    code = "```text\nline\n```\n"
    [_, one] = cut(f"# Title\n\n## One\n\n{code}\n{code}")
    assert len(one.pictures) == 1, "the second piece is left out"


def test_a_chapter_without_a_heading_is_refused():
    with pytest.raises(ValueError, match="has no heading, so no slides"):
        cut("Text.\n")


def test_code_on_the_title_is_spoken():
    first, second = cut("# T\n\nText.\n\n```text\nmake it\n```\n\n## One\n\n```text\nrun\n```\n")
    assert shown(first) == ("T", [], [])
    assert [one.astext().strip() for one in first.notes] == ["Text.", "make it"]
    assert shown(second) == ("One", [], ["literal_block"])
