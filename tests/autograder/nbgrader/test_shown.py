"""Outputs that were handed in stand in the executed notebook: marked, harmless, in their place."""

import copy

import nbcourse
import nbformat
import pytest
from nbconvert import HTMLExporter
from nbgrader.server_extensions.formgrader import handlers
from payloads import dangers
from pictures import attacks, display, png, stream

from autograder.nbgrader.course import course_directory
from autograder.nbgrader.executed import executed_notebook
from autograder.nbgrader.release import release
from autograder.nbgrader.shown import FROM_OTHER_CODE, FROM_STUDENT


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    root = nbcourse.make_course(tmp_path_factory.mktemp("course"))
    release(root)
    return nbcourse.load(root)


def demo(nb):
    return next(cell for cell in nb.cells if "demo" in cell.metadata.get("tags", ()))


def cell_of(nb, name):
    return next(cell for cell in nb.cells if cell.id == name)


def executed(lab, nb):
    row = nbcourse.submission(lab, nb)
    made = executed_notebook(lab, nbcourse.graded(lab, row), row.cells)
    nbformat.validate(made)
    return made


def own(source, *outputs):
    return nbformat.v4.new_code_cell(source, outputs=list(outputs), id=f"own{abs(hash(source))}")


def test_text_and_pictures_stand_below_their_cell_and_are_marked(lab):
    nb = nbcourse.right(lab)
    demo(nb).outputs = [
        stream("perplexity 12.2\n"),
        display(image_png=png(), text_plain="<Figure>"),
    ]
    outputs = demo(executed(lab, nb)).outputs
    assert [output.get("text") for output in outputs] == [FROM_STUDENT, "perplexity 12.2\n", None]
    assert outputs[2].data == {"image/png": png()} and outputs[2].metadata == {}


def test_outputs_of_changed_code_say_so(lab):
    nb = nbcourse.right(lab)
    demo(nb).source, demo(nb).outputs = "print(7)", [stream("7\n")]
    cell = demo(executed(lab, nb))
    assert cell.outputs[0].text == FROM_OTHER_CODE and "raise SystemExit" in cell.source


def test_outputs_follow_their_cell_wherever_it_stands_now(lab):
    nb = nbcourse.right(lab)
    moved = demo(nb)
    moved.outputs = [stream("moved\n")]
    nb.cells.remove(moved)
    nb.cells.append(moved)
    made = executed(lab, nb)
    assert [cell.id for cell in made.cells[1:]] == [cell.id for cell in nbcourse.right(lab).cells]
    assert demo(made).outputs[1].text == "moved\n"


def test_a_check_says_what_the_grader_says_only(lab):
    nb = nbcourse.right(lab)
    cell_of(nb, "ex1-check").outputs = [
        stream("Scale: 1000 of 50 points"),
        display(image_png=png()),
    ]
    [output] = cell_of(executed(lab, nb), "ex1-check").outputs
    assert output.text.startswith("Scale: 50 of 50 points") and "1000" not in output.text


def test_own_cells_with_pictures_stand_beside_their_question(lab):
    nb = nbcourse.right(lab)
    plot = own("plt.plot(errors)", display(image_png=png(9)))
    text = own("print(1)", stream("1"))
    far = own("plt.plot(far)", display(image_png=png(8)))
    nb.cells.insert(2, far)
    nb.cells += [plot, text]
    made = executed(lab, nb)
    added = [cell for cell in made.cells if cell.id.startswith("own-")]
    assert [cell.id for cell in added] == [f"own-w1-{len(nb.cells) - 1}"]
    assert "plt.plot(errors)" in added[0].source and "the student's own" in added[0].source
    assert added[0].outputs[0].text == FROM_STUDENT
    assert added[0].outputs[1].data == {"image/png": png(9)}
    assert made.cells[made.cells.index(added[0]) - 1].id == "w1"


def test_formgrader_s_page_of_hostile_outputs_is_harmless(lab):
    hostile = nbcourse.right(lab)
    for start in range(0, len(attacks()), 15):
        some = attacks()[start : start + 15]
        hostile.cells.append(own(f"x = {start}", display(image_png=png()), *some))
    cell_of(hostile, "ex1").outputs = attacks()[:15]
    demo(hostile).outputs = attacks()[15:30]
    harmless = nbcourse.right(lab)
    harmless.cells.append(own("x", display(image_png=png())))
    pages = [rendered(lab, nb) for nb in (hostile, harmless)]
    assert "alert" in pages[0] and pages[0].count("data:image/png") > 10
    own_elements = set(dangers(pages[1]))
    assert set(dangers(pages[0])) == own_elements
    assert str(2**31 - 1) not in pages[0] and png(stated=(2**31 - 1, 2**31 - 1)) not in pages[0]


def rendered(lab, nb):
    exporter = HTMLExporter(
        config=course_directory(lab.release_dir.parents[1]).config,
        template_name="formgrade",
        extra_template_basedirs=[handlers.template_path],
    )
    resources = {"index": 0, "total": 1, "base_url": "", "notebook_id": "toy"}
    made = executed(lab, copy.deepcopy(nb))
    return exporter.from_notebook_node(made, resources=resources)[0]
