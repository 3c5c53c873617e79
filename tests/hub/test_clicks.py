"""The way of test_jupyterhub.py, clicked in a headless Chromium.

A student in the Assignment List of JupyterLab, the teacher in formgrader.
"""

import shutil

import nbcourse
import pytest
from classroom import ADA, TEACHER
from playwright.sync_api import expect, sync_playwright
from toy_course import LAB, answer, score, whole

MS = 300_000  # ends a click that hangs
expect.set_options(timeout=MS)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def teacher(browser, room):
    return sign_in(browser, room, TEACHER, f"/user/{TEACHER}/formgrader/")


@pytest.fixture(scope="module")
def ada(browser, room):
    """JupyterLab with the Assignment List open."""
    page = sign_in(browser, room, ADA, f"/user/{ADA}/lab")
    page.get_by_role("menuitem", name="Nbgrader").click()
    page.get_by_role("menuitem", name="Assignment List").click()
    return page


def sign_in(browser, room, user, path):
    """Signs in on the hub's page, which leads on to this one."""
    page = browser.new_context(viewport={"width": 1300, "height": 900}).new_page()
    page.set_default_timeout(MS)
    page.goto(f"http://127.0.0.1:{room.port}/hub/login?next={path}")
    page.fill("input[name=username]", user)
    page.fill("input[name=password]", "any")
    page.click("#login_submit")
    page.wait_for_url(f"**{path}**")
    return page


def listed(page, which):
    """A list of the Assignment List: released, fetched or submitted."""
    return page.locator(f"#{which}_assignments_list")


def pressed(page, column):
    """What formgrader says to a press on a column's button; its dialog is closed again."""
    page.locator(f"td.{column} a").first.click()
    dialog = page.locator(".modal-dialog")
    expect(dialog).to_contain_text("Log Output")
    said = dialog.inner_text()
    dialog.get_by_role("button", name="OK").click()
    expect(dialog).to_have_count(0)
    return said


def validated(page):
    """What JupyterLab says to Validate; its dialog is closed again."""
    fetched = listed(page, "fetched")
    button = fetched.get_by_role("button", name="Validate")
    if not button.is_visible():
        fetched.get_by_text(LAB).click()  # unfolds the notebooks of the lab
    button.click()
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("Validation Results")
    said = dialog.inner_text()
    dialog.get_by_role("button", name="Ok").click()
    expect(dialog).to_have_count(0)
    return said


def test_release_and_fetch(teacher, ada, room):
    assert f"Successfully released '{LAB}'" in pressed(teacher, "release")
    ada.locator("#refresh_assignments_list").click()
    listed(ada, "released").get_by_role("button", name="Fetch").click()
    expect(listed(ada, "fetched")).to_contain_text(LAB)
    assert (room.home(ADA) / LAB / "toy.ipynb").is_file()


def test_validate_says_which_check_fails(ada, room):
    said = validated(ada)
    assert 'lab.check("ex1")' in said and "exercise 1 is not done yet" in said
    answer(room, ADA, **whole())
    assert "Success! Your notebook passes all the tests" in validated(ada)


def test_submit_collect_and_autograde(teacher, ada, room):
    listed(ada, "fetched").get_by_role("button", name="Submit").click()
    expect(listed(ada, "submitted")).to_contain_text(LAB)
    assert f"Collecting submission: {ADA} {LAB}" in pressed(teacher, "collect")
    teacher.locator("td.num-submissions a").click()
    assert f"{ADA}: graded, 90 of 90" in pressed(teacher, "autograde")
    expect(teacher.locator("table")).to_contain_text("90 / 100")


def test_points_by_hand(teacher, room):
    teacher.get_by_role("link", name="Manual Grading").click()
    teacher.get_by_role("link", name=LAB).click()
    teacher.get_by_role("link", name="toy", exact=True).click()
    teacher.get_by_role("link", name="Submission #1").click()
    expect(teacher.locator("body")).to_contain_text(nbcourse.RIGHT["w1"].replace("*", ""))
    points = teacher.locator("input.score")
    expect(points).to_have_count(3)
    # until the page has the grades, it listens to nothing
    expect(points.first).to_have_attribute("placeholder", "50")
    with teacher.expect_response("**/formgrader/api/grade/*") as saved:
        points.last.fill("7")
        points.last.press("Tab")
    assert saved.value.ok
    assert score(room, ADA) == 97


def test_feedback_comes_back_to_its_student(teacher, ada, room):
    teacher.goto(f"http://127.0.0.1:{room.port}/user/{TEACHER}/formgrader/manage_assignments")
    assert "Successfully generated feedback" in pressed(teacher, "generate-feedback")
    assert "Successfully released feedback" in pressed(teacher, "release-feedback")
    ada.locator("#refresh_assignments_list").click()
    listed(ada, "submitted").get_by_role("button", name="Fetch Feedback").click()
    expect(listed(ada, "submitted")).to_contain_text("view feedback", ignore_case=True)
    [page] = (room.home(ADA) / LAB / "feedback").rglob("*.html")
    assert "97" in page.read_text() and nbcourse.CANARY not in page.read_text()
