"""The check of the built site finds each kind of fault, and nothing in a site that has none."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_site.py"
sys.path.insert(0, str(SCRIPT.parent))
from check_site import Site  # noqa: E402

RIGHT = """<html><head>
<link rel="stylesheet" href="_static/style.css?v=1"><link rel="canonical" href="https://a.example/">
<script src="_static/own.js"></script><style>p { background: url(figure.svg) }</style></head><body>
<p id="here" style="background: url('data:image/png;base64,AA==')">
<a href="#here">here</a> <a href="#">top</a> <a href="part/two.html#there%20too">two</a>
<a href="part/">a folder</a> <a href="https://other.example/page">may be followed</a>
<a href="mailto:somebody@example.org">mail</a>
<img src="figure.svg" srcset="figure.svg 1x, data.svg 2x" alt="">
<svg><defs><path id="p"/></defs><use href="#p"/><rect fill="url(#p)"/></svg></body></html>"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "part").mkdir()
    (tmp_path / "_static" / "style.css").write_text(
        "/* url(https://comment.example) */ p { background: url('../figure.svg') }"
    )
    (tmp_path / "_static" / "own.js").write_text("'use strict';")
    for name in ("figure.svg", "data.svg"):
        (tmp_path / name).write_text('<svg xmlns="http://www.w3.org/2000/svg"><g id="a"/></svg>')
    (tmp_path / "part" / "two.html").write_text('<p id="there too"><a href="../index.html">up</a>')
    (tmp_path / "part" / "index.html").write_text("<p>a folder's page")
    (tmp_path / "index.html").write_text(RIGHT)
    return tmp_path


def test_a_right_site_has_no_fault(site):
    assert Site(site).faults() == []


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<script src="//cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<link href="https://fonts.example/css">',
        '<img src="http://images.example/a.png">',
        '<img src="figure.svg" srcset="figure.svg 1x, https://images.example/a.png 2x">',
        '<iframe src="https://video.example/1"></iframe>',
        '<object data="https://o.example/a.svg"></object>',
        '<p style="background: url(https://images.example/a.png)">',
        "<style>@import 'https://fonts.example/a.css';</style>",
        "<style>@font-face { src: url(https://fonts.example/a.woff2) }</style>",
        '<svg><image href="https://images.example/a.png"/></svg>',
        '<svg><use xlink:href="https://images.example/a.svg#b"/></svg>',
        '<meta http-equiv="refresh" content="0; url=https://other.example/">',
    ],
)
def test_a_request_to_another_host_is_found(site, text):
    (site / "index.html").write_text(RIGHT + text)
    [fault] = Site(site).faults()
    assert fault.startswith("index.html: asks for ") and "example" in fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="gone.html">', "gone.html is not there"),
        ('<a href="part/gone.html#x">', "part/gone.html#x is not there"),
        ('<a href="#gone">', "#gone: index.html has no place #gone"),
        ('<a href="part/two.html#gone">', "two.html has no place #gone"),
        ('<img src="gone.svg">', "gone.svg is not there"),
        ('<script src="gone.js"></script>', "gone.js is not there"),
        ('<a href="../outside.html">', "../outside.html is not there"),
        ('<a href="_static/">', "_static/ is not there"),
    ],
)
def test_a_dead_link_is_found(site, text, said):
    (site.parent / "outside.html").write_text("not of the site")
    (site / "index.html").write_text(RIGHT + text)
    [fault] = Site(site).faults()
    assert fault.startswith("index.html: ") and said in fault


def test_style_sheets_and_figures_are_read_too(site):
    (site / "_static" / "style.css").write_text("@import url(https://fonts.example/a.css);")
    (site / "figure.svg").write_text('<svg><image xlink:href="https://i.example/a.png"/></svg>')
    faults = Site(site).faults()
    assert [fault.split(":")[0] for fault in faults] == ["_static/style.css", "figure.svg"]


def run(folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True)


def test_the_command_fails_loudly(site, tmp_path_factory):
    assert run(site).returncode == 0
    (site / "index.html").write_text(RIGHT + '<a href="gone.html">')
    broken = run(site)
    assert broken.returncode == 1 and "index.html: gone.html is not there" in broken.stderr
    empty = run(tmp_path_factory.mktemp("empty"))
    assert empty.returncode == 1 and "holds no page" in empty.stderr
