"""Opens the report of a large class and of a hostile one in headless Chromium."""

import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "autograder" / "report"))
from classes import generated  # noqa: E402
from test_page import hostile_report  # noqa: E402

from autograder.report.page import report_page  # noqa: E402

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = ROOT / "build" / "screenshots"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


def opened(browser, path, width, scheme):
    """The page, and the addresses that it asked for."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: dialog.dismiss())
    page.goto(path.as_uri())
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"report_{path.stem}_{width}_{scheme}.png", full_page=True)
    return page, asked


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [800, 1280])
@pytest.mark.parametrize("named", [False, True], ids=["anonymous", "named"])
def test_a_class_of_300_fits_the_window_and_asks_for_nothing(
    browser, tmp_path, width, scheme, named
):
    path = tmp_path / f"class_{named}.html"
    path.write_text(report_page(generated(300), "Toy", named))
    page, asked = opened(browser, path, width, scheme)
    assert asked == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".heat tbody tr").count() == 300
    narrowest = page.evaluate(
        "Math.min(...[...document.querySelectorAll('.heat tbody tr:first-child td')]"
        ".map(cell => cell.getBoundingClientRect().width))"
    )
    assert narrowest >= 6
    lines = page.locator(".heat tbody tr").first.evaluate(
        "row => [...row.children].slice(0, 2).map(cell => {"
        "const range = document.createRange(); range.selectNodeContents(cell);"
        "const box = range.getBoundingClientRect(); return (box.top + box.bottom) / 2 })"
    )
    assert abs(lines[0] - lines[1]) < 1, "a student's number stands beside other points"
    colours = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(colours) == ("rgb(255, 255, 255)", "rgb(21, 24, 28)")[scheme == "dark"]
    page.close()


def test_nothing_of_a_student_runs(browser, tmp_path):
    path = tmp_path / "hostile.html"
    path.write_text(report_page(hostile_report(), "Toy", named=True))
    page, asked = opened(browser, path, 800, "light")
    assert asked == [path.as_uri()] and page.title() == "Toy: the class"
    assert page.locator("script, img").count() == 0
    page.close()
