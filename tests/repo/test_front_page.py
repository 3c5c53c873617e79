"""The site's first page, its map of the labs and the gallery say what the course's files say."""

import json
import re
import sys
from pathlib import Path

import pytest

from autograder.bundle.tree import SIZES
from efflib.zoo.phenomena import STORIES

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "course"
GENERATED = COURSE / "chapters" / "_generated"
sys.path.insert(0, str(COURSE / "_ext"))
import lab_map  # noqa: E402
import results  # noqa: E402
import stories  # noqa: E402

INDEX = (COURSE / "index.md").read_text()


def test_the_first_page_s_numbers_are_the_measured_ones():
    table = (GENERATED / "lab07_ablation.md").read_text()
    measured = dict(re.findall(r"^\| (.+?) \| ([\d.]+) \|", table, re.MULTILINE))
    rows = {name: f"{float(value):.1f}" for name, value in measured.items()}
    said = f"**{rows['0 + 12']} or {rows['1 + 11']}** is the perplexity"
    assert said in INDEX
    alt = f"The last 12, {rows['0 + 12']}; the first and the last 11, {rows['1 + 11']}; another "
    alt += f"early one and the last 11, {rows['early + 11']}. Everything kept, {rows['all']}."
    assert alt in INDEX
    picture = (COURSE / "figures" / "lab07" / "front.svg").read_text()
    drawn = re.search(r"<title>(.*?)</title>", picture, re.DOTALL)[1]
    assert re.findall(r"\d+\.\d", drawn) == [
        rows[name] for name in ("0 + 12", "1 + 11", "early + 11", "all")
    ]


def test_what_the_map_says_fits_its_boxes():
    for lab in lab_map.labs().values():
        assert 5.6 * len(lab_map.said(lab)) <= lab_map.BOX[0] - 20, lab.name  # letters of 12 px
        assert 7.5 * len(f"{lab.number} {lab.title}") <= lab_map.BOX[0] - 20, lab.name  # of 15 px


def test_the_list_of_a_narrow_window_says_what_the_map_says():
    drawing = lab_map.drawing()
    the_map, the_list = drawing.split('<ul class="lab-list">')
    for lab in lab_map.labs().values():
        assert lab_map.said(lab) in the_list and f"{lab.number} {lab.title}" in the_list
    links = re.compile(r'href="(chapters/.+?)"')
    assert links.findall(the_map) == links.findall(the_list)


def test_a_student_with_the_zip_has_no_makefile():
    students = INDEX[INDEX.index("**Students.**") : INDEX.index("**Instructors.**")]
    assert 0 < students.find("`python course.py lab`") < students.find("`make lab`")


def test_every_chapter_of_a_lab_is_on_the_map_and_in_the_table_of_contents():
    chapters = {path.stem for path in (COURSE / "chapters").glob("lab*.md")}
    here = {lab.name for lab in lab_map.labs().values() if lab.available}
    assert chapters == here
    drawing = lab_map.drawing()
    for name in chapters:
        assert f"\nchapters/{name}\n" in INDEX and f'href="chapters/{name}.html"' in drawing


def test_every_page_is_in_the_table_of_contents():
    pages = {p.relative_to(COURSE).with_suffix("") for p in COURSE.glob("*.md")}
    pages |= {p.relative_to(COURSE).with_suffix("") for p in COURSE.glob("chapters/*.md")}
    for page in pages - {Path("index")}:
        assert f"\n{page.as_posix()}\n" in INDEX


def test_the_map_says_what_the_syllabus_plans():
    text = (COURSE / "syllabus.md").read_text()
    planned = re.findall(r"^\| (lab\d\d_\w+) \|.*\| ([\d, ]*)\|$", text, re.MULTILINE)
    by_name = {lab.name: lab for lab in lab_map.labs().values()}
    for name, numbers in planned:
        assert by_name[name].builds_on == tuple(re.findall(r"\d\d", numbers)), name
    available = set(re.findall(r"^\| \[(lab\d\d_\w+)\]", text, re.MULTILINE))
    assert available | {name for name, _ in planned} == set(by_name)


def test_the_readme_s_table_says_what_map_and_cards_say():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(
        r"^\| \[(lab\w+)\]\(labs/(\w+)/\) \| \[.+\]\((.+)\) \| (.+) \| (.*)\|$", text, re.M
    )
    here = [lab for lab in lab_map.labs().values() if lab.available]
    assert [row[0] for row in rows] == [lab.name for lab in here]
    for lab, (_, folder, chapter, time, needs) in zip(here, rows, strict=True):
        assert (folder, chapter) == (lab.name, f"course/chapters/{lab.name}.md")
        assert time == lab_map.hours(lab) and needs.strip() == ", ".join(lab.builds_on)


def test_the_readme_names_the_commands_that_come_first():
    text = (ROOT / "README.md").read_text()
    order = [
        text.index(one) for one in ("python course.py setup", "make lab", "make demo", "make test ")
    ]
    assert order == sorted(order), "students first"
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"(?:^|`|  |, )make ([\w-]+)", text, re.M)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_sizes_of_the_set_up_are_the_same_everywhere():
    """As course.py says them before it loads, and as `make test-setup` holds them."""
    readme, asked = ((ROOT / p).read_text() for p in ("README.md", "course/questions.md"))
    for loads, takes in SIZES.values():
        assert f"| {loads} GB | {takes} GB |" in readme and f"{takes} GB" in asked
    program = (ROOT / "autograder" / "bundle" / "files" / "course.py").read_text()
    assert "GPU_LOADS, GPU_TAKES = {}, {}  #".format(*SIZES["gpu"]) in program


def test_boxes_do_not_overlap_and_arrows_lead_to_the_right():
    labs = lab_map.labs()
    places = lab_map.place(labs)
    assert len(set(places.values())) == len(labs)
    for a, b in lab_map.arrows(labs):
        assert places[a][0] < places[b][0]
        between = {n for n, (x, _) in places.items() if places[a][0] < x < places[b][0]}
        assert not {n for n in between if labs[n].row == labs[a].row}, f"{a} -> {b} crosses a box"
    assert ("06", "14") in lab_map.arrows(labs)
    assert ("05", "14") not in lab_map.arrows(labs), "it follows from 05 -> 06 -> 14"


def test_a_lab_without_a_card_is_refused():
    lab = lab_map.Lab("lab99_none", "None", (), 0)
    with pytest.raises(ValueError, match="lab99_none has a card with a time"):
        lab_map.hours(lab)


def test_the_gallery_has_every_story_with_its_figure_and_command():
    found = stories.stories()
    assert [one.name for one in found] == list(STORIES)
    for one in found:
        assert (COURSE / "figures" / "phenomena" / f"{one.name}.svg").is_file()
        assert f"-m efflib.zoo.phenomena {one.name}`" in stories.text(one)
        assert 0 < one.hold <= one.claims


def test_a_story_of_another_form_is_refused(tmp_path):
    path = tmp_path / "odd.md"
    path.write_text("## odd\n\nno sentence with its title\n")
    with pytest.raises(ValueError, match="no heading, no sentence or no figure"):
        stories.story(path)


# ---- results -----------------------------------------------------------------------------------

STORY = {
    "story": "awq",
    "model": {"name": "m", "model_type": "opt", "sha256": {"a.safetensors": "1" * 64}},
    "text": {"name": "t|x", "sha256": "2" * 64},
    "setting": {"device": "cuda", "group": 64},
    "versions": {"torch": "9"},
    "losses": {"float": 2.0, "AWQ 3 bits": 2.5},
}
GPU = {"gpu": "A GPU", "versions": {"torch": "9"}}
GPU["parts"] = {
    "kernels": {"right": True, "seconds": 3.0, "said": ["x", "9 passed"]},
    "models": {"right": False, "seconds": 1.0},
}


def test_every_file_of_results_is_on_the_page():
    made = results.page()
    files = sorted(results.RESULTS.glob("*.json"))
    assert files and all(f"`benchmarks/results/{file.name}`" in made for file in files)
    assert made.count("## ") == len(files)


def test_a_file_is_shown_as_it_is(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(STORY))
    (tmp_path / "b.json").write_text(json.dumps(GPU))
    made = results.page(tmp_path)
    assert "## awq: m" in made and "| AWQ 3 bits | 2.5000 | +0.5000 |" in made
    assert (
        "device cuda, group 64" in made and "torch 9; sha256 of a.safetensors 111111111111" in made
    )
    assert "| kernels | right | 3.0 | 9 passed |" in made
    assert "| models | **wrong** | 1.0 |  |" in made


@pytest.mark.parametrize(
    "wrong", ["{", "[]", "{}", '{"story": "awq"}', '{"parts": {}, "rows": []}']
)
def test_a_file_of_another_form_is_refused_by_name(wrong, tmp_path):
    (tmp_path / "odd.json").write_text(wrong)
    with pytest.raises(ValueError, match="odd.json is no file of results"):
        results.page(tmp_path)
    (tmp_path / "odd.json").unlink()
    assert results.page(tmp_path) == results.NONE
