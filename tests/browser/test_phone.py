"""Pages as a phone shows them, 390 by 844: none wider than the screen, and letters to be read."""

import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "autograder" / part) for part in ("report", "nbgrader")]
import nbcourse  # noqa: E402
from classes import LAB, generated, result, test_result  # noqa: E402

from autograder.grading.results import Report  # noqa: E402
from autograder.nbgrader.release import release  # noqa: E402
from autograder.report.page import report_page  # noqa: E402

pytestmark = pytest.mark.browser

SHOTS = ROOT / "build" / "screenshots"
WIDTH, HEIGHT = 390, 844
SMALLEST = 11  # pixels of a letter
OVER = """() => {
  const scrolls = (x) => x &&
    (getComputedStyle(x).overflowX !== "visible" || scrolls(x.parentElement));
  return [...document.body.querySelectorAll("*")]
    .filter((x) => x.getBoundingClientRect().right > innerWidth + 1 && !scrolls(x.parentElement))
    .map((x) => x.outerHTML.slice(0, 90)) }"""


def opened(browser, path: Path, shot: str = "") -> Page:
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    page.goto(path.as_uri())
    SHOTS.mkdir(parents=True, exist_ok=True)
    if shot:
        page.screenshot(path=SHOTS / f"phone_{shot}.png", full_page=True)
    return page


def fits(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH, page.evaluate(OVER)


def test_every_page_of_the_site_fits(site, browser):
    names = [path for path in site.rglob("*.html") if "slides" not in path.name]
    assert len(names) > 25
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    too_wide = {}
    for path in names:
        page.goto(path.as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > WIDTH:
            too_wide[path.name] = page.evaluate(OVER)
    assert too_wide == {}
    page.close()


@pytest.mark.parametrize("named", [False, True], ids=["anonymous", "named"])
@pytest.mark.parametrize("students", [12, 300])
def test_the_class_page_fits_and_its_numbers_stand_apart(browser, tmp_path, named, students):
    path = tmp_path / "class.html"
    path.write_text(report_page(generated(students), "Toy", named))
    page = opened(browser, path, f"class_{students}_{named}")
    fits(page)
    together = page.evaluate(
        """() => { const boxes = [...document.querySelectorAll(".heat thead tr:last-child th a")]
            .map((a) => { const range = document.createRange(); range.selectNodeContents(a);
              return range.getBoundingClientRect() });
          return boxes.filter((box, i) => i && box.left < boxes[i - 1].right).length }"""
    )
    assert together == 0
    # a test of the item analysis stands whole: no cell of it is beyond the edge
    cut = page.locator(".items td").evaluate_all(
        "cells => cells.filter(x => x.getBoundingClientRect().right > innerWidth).length"
    )
    assert cut == 0 and page.locator(".items td").count() > 0
    page.close()


def test_a_number_of_late_ones_is_a_count(browser, tmp_path):
    """Beside counts stood a row's number: "taken off here: 3" of one who was late."""
    from autograder.intake.choose import MARKED_LATE

    made = [result(f"s{i}", [test_result("ex1", "a", points=i)]) for i in range(1, 4)]
    made[0] = result("s1", [test_result("ex1", "a", points=1)], notes=(MARKED_LATE,))
    for named in (False, True):
        path = tmp_path / "late.html"
        path.write_text(report_page(Report(lab=LAB, results=tuple(made)), "Toy", named))
        page = opened(browser, path)
        told = page.locator("p").filter(has_text="Marked as late by the course system")
        assert "nothing is taken off here: 1" in " ".join(told.inner_text().split())
        page.close()


@pytest.fixture(scope="module")
def feedback(tmp_path_factory):
    """The page of a student with a long title, points lost, and nothing attempted in exercise 2."""
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    lab = nbcourse.load(root)
    graded = nbcourse.graded(
        lab, nbcourse.submission(lab, nbcourse.right(lab)), ["test_clip_by_hand"]
    )
    nbcourse.record(root, lab, [graded])
    return root / "feedback" / "ada" / lab.name / "toy.html"


@pytest.mark.parametrize("title", ["Clip", "A whole model", "A whole model of a good many layers"])
def test_points_stand_in_the_line_of_their_heading(browser, feedback, tmp_path, title):
    """They fell out of the heading where it just fitted its line, and pushed the card aside."""
    path = tmp_path / "feedback.html"
    path.write_text(feedback.read_text().replace("Exercise 2: Clip", f"Exercise 2: {title}"))
    page = opened(browser, path, f"feedback_{len(title)}")
    fits(page)
    for heading in page.locator("h2:has(.points)").all():
        box, points = heading.bounding_box(), heading.locator(".points").bounding_box()
        assert points["y"] + points["height"] <= box["y"] + box["height"] + 1
    lefts = page.locator(".eff-card").evaluate_all(
        "cards => cards.map(card => card.getBoundingClientRect().left)"
    )
    assert lefts and set(lefts) == {lefts[0]}
    widths = page.locator(".eff-card").evaluate_all(
        "cards => cards.map(card => card.getBoundingClientRect().width)"
    )
    assert min(widths) > 330
    page.close()


@pytest.mark.parametrize("name", ["lab14_batching", "lab05_kv_cache"])
def test_upright_slides_fill_the_screen_with_letters_to_be_read(site, browser, name):
    page = opened(browser, site / "chapters" / f"{name}-slides.html")
    page.wait_for_function("window.deck && deck.isReady()")
    fits(page)
    for number in range(page.evaluate("deck.getTotalSlides()")):
        page.evaluate(f"deck.slide({number})")
        smallest, high = page.evaluate(
            """() => { const slide = deck.getCurrentSlide(), scale = deck.getScale();
              const words = [...slide.querySelectorAll("h2, .points li, td")];
              const sizes = words.map((x) => parseFloat(getComputedStyle(x).fontSize) * scale);
              return [Math.min(...sizes), slide.getBoundingClientRect().height] }"""
        )
        assert smallest >= SMALLEST, f"slide {number + 1}"
        assert high > 0.9 * HEIGHT
    page.screenshot(path=SHOTS / f"phone_slides_{name}.png")
    page.set_viewport_size({"width": 844, "height": 390})  # turned: the wide slide again
    page.wait_for_timeout(300)
    box = page.evaluate("(() => deck.getCurrentSlide().getBoundingClientRect().toJSON())()")
    assert box["width"] / box["height"] == pytest.approx(1280 / 720, rel=0.01)
    page.close()
