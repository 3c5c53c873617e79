"""Opens the deck of every chapter in headless Chromium and looks at each slide."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted(path.stem for path in (ROOT / "course" / "chapters").glob("*.md"))
SMALLEST = 0.75  # of the letters of a slide; at 0.6 slides.js gives up
LOWEST = 200  # pixels of a figure, of 720

# What Chromium shows of the slide in sight: boxes that are too full, letters, formulas, figures.
LOOK = """() => {
  const slide = deck.getCurrentSlide();
  const all = (selector) => [...slide.querySelectorAll(selector)];
  const seen = (selector) => all(selector).filter((x) => !x.closest(".notes"));
  const bottom = slide.getBoundingClientRect().bottom;
  return {
    title: slide.querySelector("h2").innerText,
    tooFull: [slide, ...seen(".pictures, .pictures > *, figure")]
      .filter((x) => x.scrollHeight > x.clientHeight + 1 || x.scrollWidth > x.clientWidth + 1)
      .map((x) => x.className || x.tagName),
    below: seen("p, li, table, img, pre").filter((x) => x.getBoundingClientRect().bottom > bottom)
      .map((x) => x.innerText),
    letters: Number(slide.style.getPropertyValue("--letters") || 1),
    unset: seen(".math").filter((x) => !x.querySelector("svg")).map((x) => x.innerText),
    wrong: seen("[data-mjx-error]").map((x) => x.getAttribute("data-mjx-error")),
    figures: seen("figure img").map((x) => (x.naturalWidth ? x.clientHeight : 0)),
  };
}"""


def opened(browser, site: Path, name: str, scheme: str = "light") -> tuple[Page, list[str]]:
    """A deck, and what goes wrong in it."""
    page = browser.new_page(viewport={"width": 1280, "height": 720}, color_scheme=scheme)
    wrong: list[str] = []
    own = (site.as_uri(), "data:", "about:")
    page.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
    page.on("requestfailed", lambda request: wrong.append(f"{request.url} failed"))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto((site / "chapters" / f"{name}-slides.html").as_uri())
    page.wait_for_function("window.deck && deck.isReady()")
    return page, wrong


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_slide_of_a_deck_is_whole(site, browser, name):
    page, wrong = opened(browser, site, name)
    count = page.evaluate("deck.getTotalSlides()")
    assert count >= 3
    for number in range(count):
        page.evaluate(f"deck.slide({number})")
        slide = page.evaluate(LOOK)
        where = f"{name}, slide {number + 1}: {slide['title']}"
        assert slide["title"], where
        assert (slide["tooFull"], slide["below"]) == ([], []), where
        assert slide["letters"] >= SMALLEST, where
        assert (slide["unset"], slide["wrong"]) == ([], []), where
        assert all(height >= LOWEST for height in slide["figures"]), where
    assert wrong == []
    page.close()


def test_a_slide_that_is_too_full_is_found(site, browser):
    page, _ = opened(browser, site, CHAPTERS[0])
    more = "<p>more</p>".join("" for _ in range(60))
    page.evaluate(f"document.querySelector('section.present').innerHTML += '{more}'")
    page.evaluate("fit(deck.getCurrentSlide())")
    found = page.evaluate(LOOK)
    assert found["tooFull"] and found["below"] and found["letters"] == pytest.approx(0.6)
    page.close()


def test_a_title_has_no_command_and_no_number_stands_apart_from_its_percent(site, browser):
    for name in CHAPTERS:
        page, _ = opened(browser, site, name)
        assert page.locator("section:first-child .pictures pre").count() == 0, name
        texts = page.locator("section h2, section .points").all_text_contents()
        assert not [text for text in texts if re.search(r"\d %", text)], name
        page.close()


@pytest.mark.parametrize(("scheme", "paper"), [("light", 255), ("dark", 19)])
def test_decks_are_light_or_dark(site, browser, scheme, paper):
    page, _ = opened(browser, site, CHAPTERS[0], scheme)
    shade = "getComputedStyle(document.querySelector('.reveal-viewport')).backgroundColor"
    assert page.evaluate(shade).startswith(f"rgb({paper}, ")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")  # chosen on another page
    assert page.evaluate(shade).startswith("rgb(19, ")
    page.close()


def test_a_chapter_leads_to_its_slides_and_back(site, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto((site / "chapters" / f"{CHAPTERS[0]}.html").as_uri())
    page.get_by_role("link", name="Slides of this chapter").click()
    page.wait_for_function("window.deck && deck.isReady()")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**-slides.html#/1")
    page.locator("section.present .above a").click()
    assert f"{CHAPTERS[0]}.html#" in page.url
    page.close()


def test_the_speaker_s_view_shows_the_chapter_s_text(site, browser):
    page, _ = opened(browser, site, "lab01_quantization")
    page.keyboard.press("ArrowRight")
    said = page.locator("section.present .notes p").first.text_content()
    assert page.locator("section.present .notes mjx-container").count() > 0
    with page.expect_popup() as popup:
        page.keyboard.press("s")
    popup.value.wait_for_function(
        "text => document.body.textContent.includes(text)", arg=said[:20], timeout=10_000
    )
    assert popup.value.locator("mjx-container").count() > 0
    assert popup.value.locator("mjx-assistive-mml").count() == 0
    popup.value.close()
    page.close()
