"""Questions out of cells that hold more, formulas as text, colours that can be read."""

import nbformat
import pytest
from nbcourse import ROOT
from nbformat.v4 import new_markdown_cell, new_notebook
from payloads import dangers

from autograder.labs.manifest import lab_names, load_lab
from autograder.nbgrader.colours import DARK, LIGHT
from autograder.nbgrader.formulas import readable
from autograder.nbgrader.harmless import rendered
from autograder.nbgrader.page_style import CODE, dark_card, page_style
from autograder.nbgrader.questions import model_answers, question_of

BOTH = """**"A belief."** It is wrong.

## 6. Written questions

Five points each.

**Question 1, the one of the title.** Why?
*Rubric:* one (1).

**Question 2.** How?

And *then*?
"""


def written(name):
    graded = {"grade_id": name, "grade": True, "solution": True}
    return new_markdown_cell(f"Answer of {name}", metadata={"nbgrader": graded})


def test_a_question_is_cut_out_of_its_cell_also_of_another_answer_s():
    nb = new_notebook(cells=[new_markdown_cell(BOTH), written("w1"), written("w2")])
    first = "**Question 1, the one of the title.** Why?\n*Rubric:* one (1)."
    assert question_of(nb, "w1") == first
    assert question_of(nb, "w2") == "**Question 2.** How?\n\nAnd *then*?"


def test_a_question_without_a_number_is_taken_whole_and_an_answer_is_no_question():
    nb = new_notebook(cells=[new_markdown_cell("Why?"), written("w1"), written("w2")])
    assert [question_of(nb, name) for name in ("w1", "w2")] == ["Why?", ""]
    nb.cells[1].source = "**Question 2.** I ask myself."
    assert question_of(nb, "w2") == ""


@pytest.mark.parametrize("name", lab_names(ROOT))
def test_every_question_of_the_labs_is_found_alone(name):
    lab = load_lab(name, ROOT)
    nb = nbformat.read(lab.release_notebook, as_version=4)
    for number, written_id in enumerate(lab.written, 1):
        text = question_of(nb, written_id)
        assert text.startswith(f"**Question {number}") and text.count("**Question") == 1
        assert "*Rubric:*" in text and "\n#" not in text


def test_model_answers_come_from_the_source_alone(tmp_path):
    nb = new_notebook(cells=[new_markdown_cell("## Text"), written("w1")])
    nb.cells[1].source = "### BEGIN SOLUTION\nBecause.\n### END SOLUTION"
    nbformat.write(nb, tmp_path / "toy.ipynb")
    assert model_answers(tmp_path / "toy.ipynb") == {"w1": "Because."}
    assert model_answers(tmp_path / "none.ipynb") == {}


@pytest.mark.parametrize("tex, text", [
    ("|W|", "|W|"),
    (r"\Delta", "Δ"),
    (r"\max|X_j| / s_j \times \lambda", "max |X<sub>j</sub>| / s<sub>j</sub> ×λ"),
    (r"\frac{a_{ij}}{b}", "(a<sub>ij</sub>) / (b)"),
    (r"\frac{a}{b}", "(a) / (b)"),
    (r"\hat w^{2} \le 1", "w\u0302<sup>2</sup> ≤1"),
    (r"x < y & <b>", "x &lt; y &lt;b&gt;"),
    (r"\unknown{x}", "unknown x"),
])  # fmt: skip
def test_formulas_are_text(tex, text):
    assert readable(tex) == text


def test_a_page_shows_no_dollars_of_formulas_and_those_of_prices():
    html = rendered("By $|W|$, $$x^2$$, for $5 and $7.\n\n\\begin{equation}a\\end{equation}")
    assert '<span class="formula">|W|</span>' in html and "x<sup>2</sup>" in html
    assert "$5 and $7" in html and html.count("$") == 2 and ">a</span>" in html


@pytest.mark.parametrize("tex", ["{" * 50_000, "_{" * 50_000, "\\frac{" * 20_000, "\\hat" * 20_000])
def test_a_formula_nested_without_end_takes_no_time(tex):
    assert readable(tex) is not None


def test_a_formula_holds_no_markup():
    attack = "x_{<script>alert(1)</script>}^{<img src=x onerror=alert(1)>} \\frac{<b>}{<i>}"
    assert dangers(rendered(f"${attack}$ and $${attack}$$")) == []


def luminance(colour):
    """Relative luminance by WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme, colours", [("light", LIGHT), ("dark", DARK)])
def test_code_has_contrast(scheme, colours):
    from pygments.styles import get_style_by_name

    for token, look in get_style_by_name(CODE[scheme]):
        if look["color"] and "Generic" not in str(token) and "Whitespace" not in str(token):
            pair = sorted(map(luminance, (f"#{look['color']}", colours["panel"])))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, token


def test_the_cards_have_the_dark_colours_of_the_notebook():
    assert "--eff-ink: #e6e9ef" in dark_card() and "{" not in dark_card()
    assert page_style().count("prefers-color-scheme: dark") == 1
