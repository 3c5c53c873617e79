"""Checks a built site: no dead link inside it, and no page that asks another host for anything.

    python scripts/check_site.py course/_build/html        what is wrong, a line each; exit 1 if any

Read are pages, style sheets and SVG figures. Links that a reader may follow (a href) may lead to
other hosts, what a browser loads by itself may not. What a script asks for while it runs can't be
read off its text: tests/browser/test_site.py listens to Chromium for that.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {  # attributes whose address a browser loads by itself
    "script": ("src", "href", "xlink:href"),
    "img": ("src", "srcset"),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
    "audio": ("src",),
    "track": ("src",),
    "iframe": ("src",),
    "frame": ("src",),
    "embed": ("src",),
    "object": ("data",),
    "input": ("src",),
    "image": ("href", "xlink:href"),
    "feimage": ("href", "xlink:href"),
    "use": ("href", "xlink:href"),
    "body": ("background",),
}
SAYS_ONLY = {"canonical", "next", "prev", "index", "search", "author", "help", "license", "top"}
CSS_ADDRESS = re.compile(r"""url\(\s*(["']?)(.*?)\1\s*\)|@import\s+(["'])(.*?)\3""", re.DOTALL)


class Reference(NamedTuple):
    address: str
    loaded: bool  # by the browser itself


def in_css(text: str) -> list[Reference]:
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [Reference(url or imported, True) for _, url, _, imported in CSS_ADDRESS.findall(text)]


def sources(name: str, value: str) -> list[str]:
    """The addresses in an attribute; srcset holds several."""
    if name != "srcset" or value.lstrip().startswith("data:"):
        return [value]
    return [part.split()[0] for part in value.split(",") if part.split()]


class Page(HTMLParser):
    """What a page or an SVG refers to, and the places in it that others may name."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[Reference] = []
        self.places: set[str] = set()
        self._in_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        held = {name: value for name, value in attributes if value is not None}
        self.places |= {held[name] for name in ("id", "name") if name in held}
        for name in LOADED.get(tag, ()):
            if name in held:
                self.references += [Reference(a, True) for a in sources(name, held[name])]
        if tag in ("a", "area"):
            links = [held[name] for name in ("href", "xlink:href") if name in held]
            self.references += [Reference(address, False) for address in links]
        if tag == "link" and "href" in held:
            kinds = set(held.get("rel", "").lower().split())
            self.references.append(Reference(held["href"], not kinds or not kinds <= SAYS_ONLY))
        if tag == "meta" and held.get("http-equiv", "").lower() == "refresh":
            _, _, address = held.get("content", "").partition("=")
            self.references.append(Reference(address.strip(), True))
        for value in held.values():  # style="…", and fill="url(#…)" in SVG
            if "url(" in value:
                self.references += in_css(value)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self._in_style = False

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, text: str) -> None:
        if self._in_style:
            self.references += in_css(text)


class Site:
    """A folder of pages, each read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._pages: dict[Path, Page] = {}

    def page(self, path: Path) -> Page:
        if path not in self._pages:
            self._pages[path] = Page(path.read_text(encoding="utf-8"))
        return self._pages[path]

    def references(self, path: Path) -> list[Reference]:
        if path.suffix == ".css":
            return in_css(path.read_text(encoding="utf-8"))
        return self.page(path).references

    def fault(self, path: Path, reference: Reference) -> str | None:
        """What is wrong with a reference, None if it is right."""
        try:
            parts = urlsplit(reference.address.strip())
        except ValueError:
            return f"{reference.address} is no address"
        if parts.scheme in ("data", "mailto"):
            return None
        if parts.scheme or parts.netloc:
            return f"asks for {reference.address}" if reference.loaded else None
        base = self.folder if parts.path.startswith("/") else path.parent
        wanted = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
        if wanted.is_dir():
            wanted = wanted / "index.html"
        if not wanted.is_relative_to(self.folder) or not wanted.is_file():
            return f"{reference.address} is not there"
        place = unquote(parts.fragment)
        if place and wanted.suffix == ".html" and place not in self.page(wanted).places:
            return f"{reference.address}: {wanted.name} has no place #{place}"
        return None

    def faults(self) -> list[str]:
        """All of them.  Raises ValueError for a folder without a page."""
        paths = [p for p in sorted(self.folder.rglob("*")) if p.suffix in (".html", ".css", ".svg")]
        if not any(path.suffix == ".html" for path in paths):
            raise ValueError(f"{self.folder} holds no page: build the site first (make site)")
        found = []
        for path in paths:
            for reference in dict.fromkeys(self.references(path)):
                if fault := self.fault(path, reference):
                    found.append(f"{path.relative_to(self.folder)}: {fault}")
        return found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        found = Site(Path(sys.argv[1])).faults()
    except ValueError as fault:
        sys.exit(str(fault))
    if found:
        sys.exit("\n".join([*found, f"{len(found)} references are wrong"]))
    print("no dead link, and nothing asks another host")


if __name__ == "__main__":
    main()
