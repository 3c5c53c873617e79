"""The marks in chapters from which slides are cut, and the library that shows them."""

import re
from pathlib import Path

import pytest

COURSE = Path(__file__).parents[2] / "course"


@pytest.mark.parametrize("path", sorted((COURSE / "chapters").glob("*.md")), ids=lambda p: p.stem)
def test_marks_of_a_chapter_are_known(path):
    text = path.read_text()
    assert set(re.findall(r"\]\{\.([\w-]+)\}", text)) <= {"slide", "point"}
    assert not re.search(r"^#.*\]\{\.", text, re.MULTILINE), "a heading needs no mark"


def test_reveal_js_is_there_with_its_license_and_asks_nobody():
    folder = COURSE / "_static" / "slides"
    assert "MIT" in (folder / "reveal.js").read_text()[:200]
    assert (folder / "reveal.LICENSE").read_text().startswith("Copyright (C) 2011-")
    template = (COURSE / "_templates" / "slides.html").read_text()
    for name in re.findall(r"_static/slides/([\w.]+)", template):
        assert (folder / name).is_file()
    assert "http" not in template
