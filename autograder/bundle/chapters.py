"""Chapters as plain Markdown: what is included stands in them, figures are ordinary pictures."""

import re
from pathlib import Path

INCLUDE = re.compile(r"^```\{include\} (\S+)\n```$", re.MULTILINE)
FIGURE = re.compile(
    r"^```\{figure\} (\S+)\n((?::\w+:[^\n]*\n)*)\n?(.*?)```$", re.MULTILINE | re.DOTALL
)
ALT = re.compile(r"^:alt: (.*)$", re.MULTILINE)
GLOSSARY = re.compile(r"^```\{glossary\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TERM = re.compile(r"^(?! )(.+)\n(?=  )", re.MULTILINE)  # a line with an indented one below it
ROLE = re.compile(r"\{\w+\}`([^`<]+?)(?: ?<[^`>]*>)?`")  # {term}`zero point`
MARK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\{\.[\w-]+\}")  # [a passage]{.slide}
LABEL = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)  # MyST's targets of links
WITHIN = re.compile(r"\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")  # links to other files


def plain(path: Path) -> str:
    """The text of a chapter that any reader of Markdown shows as it is meant."""
    text = INCLUDE.sub(lambda m: plain(path.parent / m[1]).strip(), path.read_text("utf-8"))
    text = GLOSSARY.sub(entries, text)
    text = MARK.sub(r"\1", ROLE.sub(r"\1", FIGURE.sub(picture, text)))
    return LABEL.sub("", text)


def entries(match: re.Match) -> str:
    """A glossary's terms in bold, each with its explanation as one paragraph."""
    bold = TERM.sub(lambda m: f"**{m[1]}**: ", match[1])
    return re.sub(r"^  (?=\S)", "", bold.replace(":   ", ": "), flags=re.MULTILINE)


def picture(match: re.Match) -> str:
    alt = ALT.search(match[2])
    caption = match[3].strip()
    return f"![{alt[1] if alt else ''}]({match[1]})" + (f"\n\n{caption}" if caption else "")


def dead_links(root: Path) -> list[str]:
    """'file: link' for every link of a Markdown file below root that leads nowhere."""
    found = []
    for path in sorted(root.rglob("*.md")):
        for link, _ in WITHIN.findall(path.read_text("utf-8")):
            if not (path.parent / link.strip()).exists():
                found.append(f"{path.relative_to(root)}: {link}")
    return found
