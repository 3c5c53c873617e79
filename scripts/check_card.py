"""Draws README's picture of a check: the wrong function of lab 1 and its card, as wide as a phone.

    .venv/bin/python scripts/check_card.py          writes course/figures/check_card.png

Needs Chromium and the extra `browser`. The card is what `lab.check("ex1")` shows.
"""

import ast
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from efflib.lab import cards
from efflib.lab.exercises import read_exercises
from efflib.lab.lab import SEED, summary
from efflib.lab.runner import run_tests
from efflib.lab.student import LocalStudent

ROOT = Path(__file__).parents[1]
LAB = ROOT / "solutions" / "lab01_quantization"
PICTURE = ROOT / "course" / "figures" / "check_card.png"
WIDTH = 440  # pixels of the page: letters of 13 are still 11 on a phone of 390
RIGHT, WRONG = "torch.round(-lo / scale).to(torch.int32)", "(-lo / scale).to(torch.int32)"
NEEDED = ("code_range", "affine_parameters", "quantize", "dequantize")
PAGE = """<body style="margin: 8px; font: 13px sans-serif">
<div style="border: 1px solid #d0d4da; border-radius: 6px; padding: 0 10px; overflow: hidden;
background: #f7f8fa">{code}</div>{card}</body>"""


def functions() -> dict[str, str]:
    """{name: source} of the functions that the exercise's tests call."""
    text = (LAB / "quantization.py").read_text()
    found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {f.name: ast.get_source_segment(text, f) for f in found if f.name in NEEDED}


def shown(source: str) -> str:
    """The end of a function, as a notebook colours it."""
    lines = [line for line in source.splitlines() if "###" not in line]
    body = ["def affine_parameters(lo, hi, bits, symmetric):", "    ..."]
    code = "\n".join([*body, *lines[-3:]])
    style = HtmlFormatter(noclasses=True, nobackground=True, cssstyles="font-size: 13px")
    return highlight(code, PythonLexer(), style)


def main() -> None:
    found = functions()
    found["affine_parameters"] = found["affine_parameters"].replace(RIGHT, WRONG)
    if WRONG not in found["affine_parameters"]:
        raise ValueError(f"lab 1 has no line with {RIGHT}")
    namespace: dict = {}
    exec("import torch\nfrom torch import Tensor\n" + "\n\n".join(found.values()), namespace)
    reports = run_tests([LAB / "test_public.py"], LocalStudent(namespace), SEED, only="ex1")
    card = cards.html_cards(summary(read_exercises(LAB)["ex1"], reports, ""), reports)
    page_text = PAGE.format(code=shown(found["affine_parameters"]), card=card)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        size = {"width": WIDTH, "height": 200}
        page = browser.new_page(viewport=size, device_scale_factor=2)
        page.set_content(page_text)
        page.screenshot(path=PICTURE, full_page=True)
        browser.close()
    print(f"{PICTURE.relative_to(ROOT)}: {len(reports)} tests")


if __name__ == "__main__":
    main()
