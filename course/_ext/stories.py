"""The gallery: each story of the trained models with its sentence, figure and command.

Read from course/chapters/_generated/phenomena/, which `python -m efflib.zoo.phenomena` writes; the
order is that of the table of phenomena.
"""

import re
from pathlib import Path
from typing import NamedTuple

GENERATED = Path(__file__).parents[1] / "chapters" / "_generated"


class Story(NamedTuple):
    name: str  # as in the command
    title: str
    sentence: str
    alt: str
    claims: int
    hold: int


def story(path: Path) -> Story:
    """A section as the command wrote it.  Raises ValueError for one of another form."""
    text = path.read_text(encoding="utf-8")
    head = re.match(r"## (\w+)\n\n(.+?): (.+?)\n\n", text)
    alt = re.search(r"^:alt: (.+)$", text, re.MULTILINE)
    if head is None or alt is None:
        raise ValueError(f"{path} has no heading, no sentence or no figure")
    name, title, sentence = head.groups()
    verdicts = re.findall(r"\| (yes|NO) \|$", text, re.MULTILINE)
    sentence = sentence[0].upper() + sentence[1:]
    return Story(name, title, sentence, alt[1], len(verdicts), verdicts.count("yes"))


def stories() -> list[Story]:
    """All of them, in the order of the table."""
    names = re.findall(r"^## (\w+)$", (GENERATED / "phenomena.md").read_text(), re.MULTILINE)
    return [story(GENERATED / "phenomena" / f"{name}.md") for name in names]


def text(one: Story) -> str:
    """MyST text of a story, for a page at the top of the site."""
    return f"""
## {one.title}

{one.sentence}

```{{figure}} figures/phenomena/{one.name}.svg
:alt: {one.alt}
:class: gallery-figure
```

`.venv/bin/python -m efflib.zoo.phenomena {one.name}` measures and draws it. Of its {one.claims}
claims, controls included, {one.hold} hold under each of three seeds.
"""
