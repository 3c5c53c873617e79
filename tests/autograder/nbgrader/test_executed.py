"""What formgrader shows: the release, the student's answers, the grader's words, nothing else."""

import nbcourse
import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape
from nbconvert import HTMLExporter
from nbconvert.filters import markdown2html
from nbgrader.server_extensions.formgrader import handlers
from payloads import PAYLOADS, dangers

from autograder.nbgrader import harmless
from autograder.nbgrader.course import course_directory
from autograder.nbgrader.executed import executed_notebook, pictures, safe_markdown
from autograder.nbgrader.feedback import rendered
from autograder.nbgrader.release import release


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return nbcourse.load(root)


def test_the_oracle_sees_what_it_should():
    missed = [text for text in PAYLOADS[:19] if not dangers(markdown2html(text))]
    assert missed == ["<svg/onload=alert(1)>"]  # no tag for this renderer: escaped


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_markdown_of_a_student_becomes_active(payload):
    for text in (payload, f"Text {payload} text", f"- {payload}", f"> {payload}", f"`x`{payload}"):
        assert dangers(markdown2html(safe_markdown(text))) == []
        assert dangers(rendered(text)) == []


FRAGMENTS = (
    PAYLOADS + list("`~<>[]()!:&;$#|*_-\\\"'= \n\t") + ["mermaid", "](", "]:", "```", "\n\n"]
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join))
def test_no_combination_becomes_active(text):
    assert dangers(markdown2html(safe_markdown(text))) == []
    assert dangers(rendered(text)) == []


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_ordinary_text_stays_as_it_was(text):
    seen = safe_markdown(text).replace("\u200b", "")
    assert seen == "".join(c for c in text if c in "\n\t" or c >= " " and c != "\x7f").replace(
        "\u200b", ""
    )


def test_formulas_of_a_student_make_no_links():
    for command in (
        "\\href{javascript:alert(1)}{x}",
        "\\require{html}",
        "\\cssId{a}{x}",
        '\\mmlToken{mi}[href="javascript:alert(1)"]{x}',
        "\\csname href\\endcsname{x}{y}",
    ):
        for text in (f"${command}$", f"$${command}$$", f"$\\let\\x={command}$"):
            assert command.split("{")[0] not in markdown2html(safe_markdown(text))
    assert safe_markdown("$\\hrefs \\styles$") == "$\\hrefs \\styles$"  # other names


@pytest.mark.parametrize("text", ["\\\\(" * 5_000, "<script>" * 2_000, 'x = "' + "\\N{" * 5_000])
def test_a_long_text_is_shown_as_it_is(monkeypatch, text):
    """What begins and does not end costs mistune and pygments a time that grows with its square."""
    for name in ("MarkdownWithMath", "highlight"):
        monkeypatch.setattr(harmless, name, lambda *_, **__: pytest.fail("it was read"))
    for html in (harmless.rendered.__wrapped__(text), harmless.coloured.__wrapped__(text)):
        assert not dangers(html) and escape(text) in html and "<pre>" in html


def test_maths_code_and_lists_still_render():
    text = "- $a < b$ and **bold**\n- `x[0]` is *x*\n\n```python\nfor i in range(3): x < i\n```"
    assert safe_markdown(text) == text


def test_the_student_s_answers_stand_in_the_release(lab):
    handed_in = nbcourse.submission(lab, nbcourse.right(lab))
    nb = executed_notebook(lab, nbcourse.graded(lab, handed_in, ("test_clip_bounds",)))
    nbformat.validate(nb)
    cells = {cell.id: cell for cell in nb.cells}
    assert cells["ex2-b"].source == nbcourse.RIGHT["ex2-b"]
    assert cells["w1"].source == nbcourse.RIGHT["w1"]
    assert cells["ex1-check"].source == 'lab.check("ex1")'
    assert cells["grading"].source.startswith("**Tests: 65 of 90 points.**")
    [output] = cells["ex2-check"].outputs
    assert output.text.splitlines() == [
        "Clip: 15 of 40 points",
        "+ clip by hand (public test, passed, 15 of 15)",
        "- clip bounds (hidden test, failed, 0 of 25)",
        "    must hold: both bounds hold",
        "    usual cause: one bound only",
    ]


def test_nothing_else_of_the_student_s_enters(lab):
    nb = nbcourse.right(lab)
    html = {"text/html": "<script>alert('OUTPUT')</script>"}
    for cell in nb.cells:
        cell.metadata["mine"] = "METADATA"
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("display_data", data=html)]
        else:
            cell.attachments = {"x.png": {"image/png": "ATTACHMENT"}}
    nb.cells[0].source = "<b>TEXT</b>"  # a released text that the student changed
    nb.cells.append(nbformat.v4.new_code_cell("print('HELPER')"))
    next(c for c in nb.cells if c.id == "ex1-check").source = "print('CHECK')"
    nb.metadata["widgets"] = {"x": "WIDGETS"}
    handed_in = nbcourse.submission(lab, nb)
    shown = nbformat.writes(executed_notebook(lab, nbcourse.graded(lab, handed_in)))
    for word in ("OUTPUT", "METADATA", "ATTACHMENT", "TEXT", "HELPER", "CHECK", "WIDGETS"):
        assert word not in shown
    assert "return [factor * n for n in numbers]" in shown


def test_pictures_that_the_release_shows_go_beside_the_notebook_and_no_other_file(lab):
    nb = nbformat.read(lab.release_notebook, as_version=4)
    before = lab.release_notebook.read_bytes()
    nb.cells[0].source += "\n\n![It](opening.svg) ![b](../b.png) ![c](http://x/c.png) ![d](d.png)"
    try:
        nbformat.write(nb, lab.release_notebook)
        for name in ("opening.svg", "other.svg", "../b.png"):
            nbcourse.write(lab.release_dir / name, name)
        assert pictures(lab) == {"opening.svg": b"opening.svg"}
    finally:
        lab.release_notebook.write_bytes(before)


def test_a_missing_cell_and_a_rejected_submission_are_shown_as_such(lab):
    nb = nbcourse.right(lab)
    nb.cells = [cell for cell in nb.cells if cell.id not in ("ex1", "w1")]
    handed_in = nbcourse.submission(lab, nb)
    cells = executed_notebook(lab, nbcourse.graded(lab, handed_in)).cells
    shown = {cell.id: cell.source for cell in cells}
    assert shown["ex1"] == "# This cell is missing in the submission."
    assert shown["w1"] == "*No response.*"
    row, result = nbcourse.rejected(lab, "bob", "the file is <b>empty</b>")
    nb = executed_notebook(lab, result)
    assert nb.cells[0].source == "Not graded: the file is <\u200bb>empty<\u200b/b>"
    [output] = next(cell for cell in nb.cells if cell.id == "ex1-check").outputs
    assert output.text == "Not graded: the file is <b>empty</b>"


def test_only_nbgrader_s_own_small_files_are_handed_on(lab, tmp_path):
    root = lab.release_dir.parents[1]
    folder = nbcourse.submit(root, "eve", nbcourse.right(lab)).parent
    (folder / "notes.txt").symlink_to(root / "solutions" / nbcourse.LAB / "toy.py")
    (folder / "submission_secret.txt").symlink_to(root / "solutions" / nbcourse.LAB / "toy.py")
    (folder / "timestamp.txt").write_text("2026-01-02 03:04:05 UTC")
    handed_in = nbcourse.submission(lab, nbcourse.right(lab), "eve")
    nbcourse.record(root, lab, [nbcourse.graded(lab, handed_in)])
    written = root / "autograded" / "eve" / nbcourse.LAB
    assert {path.name for path in written.iterdir()} == {"toy.ipynb", "timestamp.txt"}
    assert {path.name for path in written.parent.iterdir()} == {nbcourse.LAB}


def test_formgrader_s_page_is_harmless(lab):
    answer = "\n\n".join(PAYLOADS)
    code = f"x = '''{answer}'''"
    nb = nbcourse.answered(lab, w1=answer, ex1=code)
    handed_in = nbcourse.submission(lab, nb)
    exporter = HTMLExporter(
        config=course_directory(lab.release_dir.parents[1]).config,
        template_name="formgrade",
        extra_template_basedirs=[handlers.template_path],
    )
    resources = {"index": 0, "total": 1, "base_url": "", "notebook_id": "toy"}

    def active(submission):
        nb = executed_notebook(lab, nbcourse.graded(lab, submission, notes=tuple(PAYLOADS)))
        page = exporter.from_notebook_node(nb, resources=dict(resources))[0]
        assert "alert" in page or submission is not handed_in
        return sorted(set(dangers(page)))

    harmless = nbcourse.submission(lab, nbcourse.right(lab))
    own = active(harmless)  # the page's own scripts and buttons
    assert active(handed_in) == own
