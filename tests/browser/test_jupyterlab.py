"""Opens lab01 in JupyterLab under headless Chromium, works an exercise wrong and then right.

`make test-browser` (needs the system's Chromium); screenshots land in build/screenshots/.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import jupytext
import nbformat
import pytest
from playwright.sync_api import Page, sync_playwright

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
LAB = "lab01_quantization"
TOPIC = "quantization.ipynb"
SHOTS = ROOT / "build" / "screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 120
SETTINGS = {
    # all cells in the page, also those that are scrolled away
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """JupyterLab over a copy of the released lab; yields (base URL, folder)."""
    folder = tmp_path_factory.mktemp("student") / LAB
    shutil.copytree(ROOT / "labs" / LAB, folder)
    port, home = free_port(), tmp_path_factory.mktemp("home")
    for plugin, settings in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    folders = {"JUPYTER_CONFIG_DIR": home, "JUPYTERLAB_SETTINGS_DIR": home / "settings"}
    env = {**os.environ, **{k: str(v) for k, v in folders.items()}}
    options = ["--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token="]
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={folder}"],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(SECONDS):
        try:
            urllib.request.urlopen(url + "/api/status").read()
            break
        except OSError:
            time.sleep(1)
    yield url, folder
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


def open_and_run_all(browser, url: str, shot: str) -> Page:
    """The notebook with every cell run; the page waits until the kernel is idle again."""
    page = browser.new_page(viewport={"width": 1280, "height": 1600})
    page.goto(f"{url}/lab/tree/{TOPIC}?reset", timeout=SECONDS * 1000)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=SECONDS * 1000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    page.wait_for_timeout(3000)
    page.wait_for_selector('[data-status="idle"]', timeout=SECONDS * 1000)
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{shot}.png")
    return page


def edit_solution(folder: Path, grade_id: str, source: str) -> None:
    notebook = nbformat.read(folder / TOPIC, as_version=4)
    [cell] = [
        c for c in notebook.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id
    ]
    cell.source = source
    nbformat.write(notebook, folder / TOPIC)


def canonical(grade_id: str) -> str:
    """The solution of an exercise, as a student would have typed it."""
    notebook = jupytext.read(ROOT / "solutions" / LAB / "quantization.py")
    [cell] = [c for c in notebook.cells if c.metadata.get("solution") == grade_id]
    return "\n".join(line for line in cell.source.splitlines() if "### " not in line)


def test_untouched_lab_says_what_to_do(server, browser):
    url, _ = server
    page = open_and_run_all(browser, url, "untouched")
    card = page.locator("text=not attempted").first
    card.scroll_into_view_if_needed(timeout=SECONDS * 1000)
    page.screenshot(path=SHOTS / "untouched_check.png")
    page.close()


def test_wrong_solution_shows_a_card_and_the_right_one_passes(server, browser):
    url, folder = server
    right = canonical("ex1")
    wrong = right.replace("torch.round(", "(")
    assert wrong != right
    edit_solution(folder, "ex1", wrong)
    page = open_and_run_all(browser, url, "wrong")
    card = page.locator("text=usual cause").first
    card.scroll_into_view_if_needed(timeout=SECONDS * 1000)
    page.screenshot(path=SHOTS / "wrong_check.png")
    page.close()

    edit_solution(folder, "ex1", right)
    page = open_and_run_all(browser, url, "right")
    assert page.locator("text=✓").count() > 0
    page.close()
