"""Opens formgrader's page and the feedback of a student who attacks both, in headless Chromium."""

import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "autograder" / "nbgrader"))
from formgrader_server import running  # noqa: E402

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = ROOT / "build" / "screenshots"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("home")) as started:
        started.autograde("ada")
        started.api("assignment/lab00_toy/ada/generate_feedback", method="POST")
        yield started


@pytest.fixture
def page():
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser.new_page()
        browser.close()


def visit(page: Page, url: str, shot: str) -> list[str]:
    """Opens the page and clicks whatever says so; returns the addresses that it asked for."""
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.goto(url, wait_until="domcontentloaded")
    page.wait_for_timeout(2000)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{shot}.png", full_page=True)
    for link in page.get_by_text("click").all():
        if link.is_visible():
            link.click()
    assert said == [] and page.title() != "owned"
    assert not [address for address in asked if "evil.example" in address]
    return asked


def test_the_attack_works_where_nothing_stops_it(page, tmp_path):
    from formgrader_server import OWNED

    (tmp_path / "raw.html").write_text(OWNED)
    with pytest.raises(AssertionError):
        visit(page, (tmp_path / "raw.html").as_uri(), "raw")


def test_formgrader_runs_nothing_of_a_student_s(server, page):
    number = server.notebook("ada")["id"]
    visit(page, f"{server.url}/formgrader/submissions/{number}/", "formgrader")
    assert page.get_by_text("Exercise 1").count() or page.get_by_text("Scale").count()


def test_feedback_runs_nothing_and_loads_nothing(server, page):
    feedback = server.course / "feedback" / "ada" / "lab00_toy" / "toy.html"
    assert visit(page, feedback.as_uri(), "feedback") == [feedback.as_uri()]
