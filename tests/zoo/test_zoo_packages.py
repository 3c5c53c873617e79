"""The packages' text: what is left out, and that it is the same every time."""

import pytest

from efflib.zoo import packages


def test_a_copy_of_held_out_text_is_left_out():
    lines = [f"    a line of text that is long enough, number {i}" for i in range(10)]
    held_out = frozenset(line.strip() for line in lines)
    assert packages.is_copy("\n".join(lines), held_out)
    other = "\n".join(line.replace("number", "and another, number") for line in lines)
    assert not packages.is_copy(other, held_out)
    assert not packages.is_copy("\n".join([other, lines[0]]), held_out)
    assert not packages.is_copy("short\nlines", held_out)


@pytest.fixture
def few(monkeypatch):
    """Packages that every installation of the course has; training reads more (extra `train`)."""
    packages.documents.cache_clear()
    monkeypatch.setattr(packages, "PACKAGES", ("jinja2", "networkx", "traitlets"))
    yield packages.PACKAGES
    packages.documents.cache_clear()


def test_no_document_repeats_the_held_out_text(few):
    held_out = packages.held_out_lines()
    assert len(held_out) > 1000
    texts = packages.documents()
    assert not any(packages.is_copy(text, held_out) for text in texts.values())
    assert not any("test" in part for name in texts for part in name.split("/"))
    assert {name.split("/")[0] for name in texts} == set(few)


def test_the_provenance_names_every_version(few):
    told = packages.provenance()
    assert told["versions"].keys() == set(few) and told["files"] == len(packages.documents())


def test_a_missing_package_is_named(monkeypatch):
    packages.documents.cache_clear()
    monkeypatch.setattr(packages, "PACKAGES", ("no_such_package",))
    with pytest.raises(FileNotFoundError, match="no_such_package.*make train"):
        packages.documents()
    packages.documents.cache_clear()
