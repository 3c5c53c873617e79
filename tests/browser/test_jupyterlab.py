"""Opens lab01 in JupyterLab under headless Chromium, as a student does.

`make test-browser` (needs the system's Chromium); screenshots land in build/screenshots/. Most
of it happens in a small notebook with the lab's first exercise, so that a page is ready in seconds.
"""

import contextlib
import json
import os
import re
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
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import Page, TimeoutError, expect, sync_playwright

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
LAB = "lab01_quantization"
TOPIC, SMALL = "quantization.ipynb", "small.ipynb"
SHOTS = ROOT / "build" / "screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SECONDS = 240
expect.set_options(timeout=1000 * SECONDS)
SETUP = f"""import torch
from torch import Tensor, nn
from efflib.lab import Lab
from efflib.plots import explorer, grid
lab = Lab("{LAB}")"""
EXPLORER = """def draw(bits):
    x = torch.linspace(-1, 1, 9)
    return grid.lines(x, [{"x": x}], f"{bits} bits", "x", ["y"]), f"a line for {bits} bits"

explorer.explorer(draw, {"bits": [2, 3, 4]})"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def source() -> nbformat.NotebookNode:
    return jupytext.read(ROOT / "solutions" / LAB / "quantization.py")


def canonical(exercise: str) -> str:
    """The solution of an exercise, as a student would have typed it."""
    [cell] = [c for c in source().cells if c.metadata.get("solution") == exercise]
    return "\n".join(line for line in cell.source.splitlines() if "### " not in line)


def code_range() -> str:
    """The helper that the lab's first cell defines."""
    [cell] = [c for c in source().cells if "def code_range" in c.source]
    return "def code_range" + cell.source.partition("def code_range")[2]


@pytest.fixture(scope="module", params=["light", "dark"])
def server(request, tmp_path_factory):
    """`make lab` over a copy of the released lab, in a theme; yields (URL, folder, theme)."""
    folder = tmp_path_factory.mktemp("student") / LAB
    shutil.copytree(ROOT / "labs" / LAB, folder)
    port, home = free_port(), tmp_path_factory.mktemp("home")
    theme = {"theme": f"JupyterLab {request.param.capitalize()}"}
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    for plugin, settings in {"themes": theme, "notification": quiet}.items():
        extension = home / "settings" / "@jupyterlab" / "apputils-extension"
        extension.mkdir(parents=True, exist_ok=True)
        (extension / f"{plugin}.jupyterlab-settings").write_text(json.dumps(settings))
    folders = {"JUPYTER_CONFIG_DIR": home, "JUPYTERLAB_SETTINGS_DIR": home / "settings"}
    folders |= {"JUPYTER_CONFIG_PATH": ROOT / "course" / "jupyter", "PYTHONPATH": ROOT}
    options = ["--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token="]
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options, f"--ServerApp.root_dir={folder}"],
        env=os.environ | {k: str(v) for k, v in folders.items()},
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
    yield url, folder, request.param
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


def opened(browser, server, notebook: str) -> Page:
    """A notebook whose kernel is ready."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(SECONDS * 1000)
    page.goto(f"{server[0]}/lab/tree/{notebook}?reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    kernel = page.locator(".jp-NotebookPanel-toolbar").get_by_text("Python 3 (ipykernel)")
    expect(kernel).to_be_visible()
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    return page


def run_all(page: Page) -> None:
    """Runs all cells; JupyterLab forgets it without a word while the kernel is not connected."""
    started = page.locator(".jp-InputPrompt").filter(has_text=re.compile(r"\[[\d*]+\]"))
    for _ in range(SECONDS // 10):
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()
        with contextlib.suppress(TimeoutError):
            return started.first.wait_for(timeout=10_000)
    raise TimeoutError("no cell was run")


def shoot(page: Page, server, name: str) -> None:
    """Screenshots at both widths."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    for width in (1280, 800):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(500)
        page.screenshot(path=SHOTS / f"{name}-{server[2]}-{width}.png")
    page.set_viewport_size({"width": 1280, "height": 900})


def write_small(folder: Path, *cells: str) -> None:
    text = [new_markdown_cell(40 * "# Much text\n\n")]
    nb = new_notebook(cells=[new_code_cell(cell) for cell in cells] + text)
    nb.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(nb, folder / SMALL)


def test_run_all_on_a_fresh_lab_stops_at_the_first_exercise_and_shows_it(browser, server):
    page = opened(browser, server, TOPIC)
    shoot(page, server, "opening")
    run_all(page)
    card = page.locator(".eff-card")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("not attempted yet")
    expect(card).to_be_in_viewport()
    shoot(page, server, "fresh")
    page.close()


def test_a_wrong_solution_fails_and_the_right_one_passes(browser, server):
    right = canonical("ex1")
    wrong = right.replace("torch.round(", "(")
    assert wrong != right
    for solution, state in ((wrong, "failed"), (right, "passed")):
        write_small(server[1], SETUP, code_range(), solution, 'lab.check("ex1")')
        page = opened(browser, server, SMALL)
        run_all(page)
        expect(page.locator(f".eff-card.eff-{state}")).to_be_visible()
        if state == "failed":
            assert page.locator(".eff-card").inner_text().count("cause") >= 1
        shoot(page, server, state)
        page.close()


def test_a_prediction_is_taken_or_refused_with_a_reason(browser, server):
    write_small(server[1], SETUP, 'lab.predict("p", "How many?", unit="MB")')
    page = opened(browser, server, SMALL)
    run_all(page)
    field = page.locator('input[placeholder="your number"]')
    for typed, kind in (("abc", "refused"), ("12", "taken")):
        field.fill(typed)
        field.press("Enter")
        expect(page.locator(f".eff-{kind}")).to_be_visible()
        shoot(page, server, f"prediction-{kind}")
    page.close()


def test_a_figure_follows_the_mouse_and_is_there_when_the_notebook_is_opened_again(browser, server):
    write_small(server[1], SETUP, 'lab.predict("p", "How many?", unit="MB")', EXPLORER)
    page = opened(browser, server, SMALL)
    run_all(page)
    figure = page.locator("svg[role=img]")
    expect(figure).to_have_attribute("aria-label", "a line for 2 bits")
    page.locator(".widget-dropdown select").select_option("4")
    expect(figure).to_have_attribute("aria-label", "a line for 4 bits")
    page.keyboard.press("Control+S")
    page.wait_for_timeout(3000)
    page.close()
    page = opened(browser, server, SMALL)
    expect(page.locator("svg[role=img]")).to_have_attribute("aria-label", "a line for 4 bits")
    expect(page.locator(".eff-question").first).to_contain_text("How many?")
    assert not page.get_by_text("Error displaying widget").is_visible()
    shoot(page, server, "reopened")
    page.close()
