"""The part of a module that is kept: what is named, what that needs, and nothing else."""

import ast

from autograder.bundle.chapters import dead_links, plain
from autograder.bundle.parts import ALL, closure, needs, part_text

A = '''"""Secret words about the answer."""

import math
from math import cos, sin

from efflib.b import helper, unused

# why 3
WIDTH = 3  # of everything
SECRET = "answer"


def scaled(x):
    return helper(sin(x)) * WIDTH


def answer(x):
    return math.exp(x) + cos(x) + unused(SECRET)


@staticmethod
def decorated():
    return scaled(1)
'''
HELPER = "def helper(x):\n    return other(x)\n\n\ndef other(x):\n    return x"
FUTURE = "from __future__ import annotations\n"
B = f"{HELPER}\n\n\ndef unused(x):\n    pass\n"
SOURCES = {"efflib": "", "efflib.a": A, "efflib.b": B}


def needed(code):
    return needs(ast.parse(code), SOURCES)


def test_imports_are_found_wherever_they_stand():
    assert needed("def f():\n    from efflib.a import scaled as s") == {("efflib.a", "scaled")}
    assert needed("from efflib import a\nprint(a.scaled(1))") == {("efflib.a", "scaled")}
    assert needed("import efflib.a as m\nm.scaled") == {("efflib.a", "scaled")}


def test_a_module_that_is_passed_on_is_needed_as_a_whole():
    assert ("efflib.a", ALL) in needed("from efflib import a\nprint(a)")
    assert needed("import efflib.a") == {("efflib.a", ALL)}


def test_what_is_kept_brings_along_what_it_needs_from_modules_that_are_withheld():
    both = ["efflib.a", "efflib.b"]
    kept = closure([("efflib.a", "decorated")], SOURCES, both)
    assert kept == {"efflib.a": {"decorated"}, "efflib.b": {"helper"}}
    assert closure([("efflib.a", "scaled")], SOURCES, ["efflib.a"]) == {"efflib.a": {"scaled"}}
    assert closure([("efflib.a", "scaled")], SOURCES, []) == {}


def test_the_text_has_no_words_and_no_code_of_the_rest():
    text = part_text(A, {"decorated"})
    for kept in ("@staticmethod", "# why 3\nWIDTH = 3  # of everything", "import sin", "helper"):
        assert kept in text
    for gone in ("Secret", "answer", "SECRET", "cos", "math\n", "unused"):
        assert gone not in text
    assert part_text(B, {"helper"}).strip() == HELPER
    assert part_text(A, {ALL}) == A
    assert part_text(FUTURE + B, {"helper"}).startswith(FUTURE)


def test_a_part_runs():
    space = {"__name__": "b"}
    exec(part_text(B, {"helper"}), space)
    assert space["helper"](3) == 3 and "unused" not in space


CHAPTER = """# One
(here)=
## Two
```{include} more.md
```

```{figure} ../figures/x.svg
:alt: A line.

It *rises*.
```
The {term}`zero point` and {term}`codes <code>`; [there](nowhere.md), [out](https://x.org).
[On a slide, [here](https://x.org)]{.slide}. [In $[0,
1]$]{.point}.
```{glossary}
a b
  First
  line.

c
  Second.
```
"""


def test_chapters_are_plain_markdown(tmp_path):
    (tmp_path / "one.md").write_text(CHAPTER)
    (tmp_path / "more.md").write_text("| table |\n")
    text = plain(tmp_path / "one.md")
    assert "## Two\n| table |\n\n![A line.](../figures/x.svg)\n\nIt *rises*.\n" in text
    assert "The zero point and codes; " in text and "{" not in text
    assert "\nOn a slide, [here](https://x.org). In $[0,\n1]$.\n" in text
    assert "**a b**: First\nline.\n\n**c**: Second.\n" in text
    (tmp_path / "one.md").write_text(text)
    assert dead_links(tmp_path) == ["one.md: ../figures/x.svg", "one.md: nowhere.md"]
